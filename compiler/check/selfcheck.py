"""Runs a new kernel before any job may use it: on random inputs of every regime, in a child process, against the float64
oracle.

The child is forked and shares only the memory of inputs and outputs, so a kernel that crashes, hangs or writes out of bounds costs
one process that nothing depends on. Tasks run in parallel, then one by one in reverse order, then once more with the outputs placed
over the inputs as the metadata allows: all results must agree to the last bit.
"""

from __future__ import annotations

import contextlib
import functools
import mmap
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from ..ir.graph import Array, Graph
from ..kernel.host_kernel import LoadedKernel, prepare_runtime
from ..kernel.metadata import CheckReport, KernelMetadata, TensorType
from ..support.sequences import zip_strict
from .conditioning import SLACK, Reference, RefusedInputsError, largest_moves
from .judge import agrees, guard_tolerance, judge_by
from .oracle import Bounded, Ranges, evaluate_sample
from .random_inputs import RARE, REGIMES, VALID, Regime, random_inputs

if TYPE_CHECKING:
    from typing import TypeAlias

DECIDED_SHARE = 0.6
"""If, on the inputs tried, the oracle could decide a smaller share of an output's elements (the root of a variance that was drawn
below zero decides nothing), inputs between 0 and 1 are tried too: valid variances, decay rates, probabilities."""

SHARED_ELEMENTS = 1 << 21
"""Several sets of inputs run in one child, up to this many elements together: a fork costs 5 to 15 ms."""

RARE_SHARE = 0.004
"""Like REFERENCE_SHARE, for inputs with zeros and NaN (the regimes RARE)."""

REFERENCE_SHARE = 0.02
"""Share of elements by which the framework's own result may differ (by more than 16 times the guard's tolerance) from a kernel that
the oracle finds right. Beyond it, the graph is not what the framework computes. Comparisons near a tie may fall either way."""


@dataclass(frozen=True)
class CheckOptions:
    """How much is checked, and by how many processes side by side.

    The oracle costs about 0.1 s per million input elements and run (0.4 s if an op is a library function), so a graph with more input
    elements than `large_elements` is run on fewer inputs; among them are mixed ones, which hold every regime. Above `huge_elements`
    only mixed inputs are used, followed by valid numbers if these leave much undecided (a column's sum over rows of all regimes). For
    large outputs the oracle computes a sample (oracle.evaluate_sample); the framework's own result is compared with all elements.

    seed: of the inputs. time_limit_s: of one child. threads: of the kernel's runs. processes: checks side by side. skip:
    whether kernels are not checked at all.
    """

    regimes: tuple[Regime, ...] = REGIMES
    large_regimes: tuple[Regime, ...] = (Regime.NORMAL, Regime.MIXED)
    large_elements: int = 1 << 16
    huge_regimes: tuple[Regime, ...] = (Regime.MIXED,)
    huge_elements: int = 1 << 21
    seed: int = 7
    time_limit_s: float = 30.0
    threads: int = 2
    memory_share: float = 0.5
    """Share of the free memory that the checks of one kernel may take: the job beside them needs the rest."""
    processes: int = field(default_factory=lambda: min(2, len(os.sched_getaffinity(0))))
    skip: bool = False


def bytes_to_check(graph: Graph, options: CheckOptions) -> int:
    """Estimated bytes of memory that the checks of a kernel take at once: each process holds its inputs, two copies of them that the
    kernel sees, and its outputs three times; the oracle works on slices."""
    inputs = sum(graph.nodes[i].size_bytes for i in graph.parameters)
    outputs = sum(graph.nodes[i].size_bytes for i in graph.outputs)
    return options.processes * (3 * inputs + 3 * outputs)


class CheckFailedError(Exception):
    """The kernel is wrong, crashed or hung; the text says on which inputs and how, in one line. `is_certain`: the kernel would fail
    again. False if it was killed from outside or ran out of time, which may not happen again."""

    def __init__(self, line: str, is_certain: bool = True) -> None:
        super().__init__(line)
        self.is_certain = is_certain


Samples: TypeAlias = Mapping[int, Array]
"""Parameter number -> some elements of a tensor from the job."""


def finish_check(
    graph: Graph,
    library: Path,
    metadata: KernelMetadata,
    options: CheckOptions,
    reference: Reference | None,
    by_oracle: Callable[[], CheckReport],
    samples: Samples | None = None,
) -> CheckReport:
    """Completes a check: `by_oracle` returns the report of its first part, or raises CheckFailedError. A kernel that the oracle
    rejects is judged again by the error of `reference`, the framework's own function; one that it accepts must also compute what the
    framework computes. If the framework's operators reject the drawn inputs, the comparison uses the job's own numbers (`samples`).
    Raises CheckFailedError."""
    try:
        report = by_oracle()
    except CheckFailedError:
        if reference is None:
            raise
        report = check_by_oracle(graph, library, metadata, options, reference)
    if reference is None:
        return report

    def compare(inputs: Sequence[Array], everywhere: bool) -> bool:
        peers = [np.asarray(result) for result in reference(inputs)]
        outputs = run_apart(library, metadata, inputs, options.threads, False, options.time_limit_s)
        rounding = _Rounding(graph, inputs, reference, peers, _generator(options, Regime.UNIT, 2))
        return _compare_with_framework(graph, outputs, peers, everywhere, rounding)

    refused = ""
    is_positive = False
    for regime in VALID:
        try:
            # For a variance below zero the framework's fused operators differ from the graph: then inputs of valid numbers decide.
            if compare(_draw(graph, options, regime), everywhere=regime is Regime.UNIT):
                refused, is_positive = "", regime is Regime.UNIT
                break
        except RefusedInputsError as error:
            refused = str(error)
    if not refused:
        for regime in RARE:
            inputs = _draw(graph, options, regime)
            if is_positive:  # like a variance: below zero, graph and framework are known to differ
                inputs = [np.abs(value) if value.dtype.kind not in "iub" else value for value in inputs]
            _compare_on_rare_data(graph, library, metadata, options, reference, regime, inputs)
        return replace(report, against_reference=True)
    if not samples:
        raise CheckFailedError(f"the framework refuses its inputs: {refused}")
    inputs = _with_samples(graph, _draw(graph, options, Regime.UNIT), samples)
    try:
        compare(inputs, everywhere=True)
    except RefusedInputsError as error:
        raise CheckFailedError(f"the framework refuses its inputs, and those made of the job's own: {error}") from error
    _judge_runs(graph, library, metadata, options, Regime.UNIT, inputs)
    return replace(report, against_reference=True)


def _compare_on_rare_data(
    graph: Graph,
    library: Path,
    metadata: KernelMetadata,
    options: CheckOptions,
    reference: Reference,
    regime: Regime,
    inputs: Sequence[Array],
) -> None:
    """Compares with the framework on data for which implementations of one graph differ: zeros, saturated numbers and NaN.

    If an element is NaN in the framework's result, it must not be a number in the kernel's; if it is a number there, the kernel must
    not give another one. A number may become NaN only if the inputs contain NaN: the framework's softmax hides some. Raises
    CheckFailedError."""
    try:
        peers = [np.asarray(result) for result in reference(inputs)]
    except RefusedInputsError:
        return
    outputs = run_apart(library, metadata, inputs, options.threads, False, options.time_limit_s)
    rounding = _Rounding(graph, inputs, reference, peers, _generator(options, regime, 2))
    for number, (ours, theirs, tolerance) in enumerate(zip_strict(outputs, peers, guard_tolerance(graph))):
        if not ours.size:
            continue
        if ours.dtype.kind in "iub":
            differs = ours != theirs
        else:
            with np.errstate(all="ignore"):
                a, b = ours.astype(np.float64), theirs.astype(np.float64)
                scale = np.abs(b) + float(np.max(np.abs(b[np.isfinite(b)]), initial=0.0))
                off = np.abs(a - b) > 16 * tolerance.relative * scale
            differs = (np.isnan(b) & ~np.isnan(a)) | (np.isfinite(a) & np.isfinite(b) & off)
            if regime is not Regime.MISSING:
                differs |= np.isnan(a) & ~np.isnan(b)
        if float(differs.mean()) <= RARE_SHARE:
            continue
        differs = rounding.leaves(number, ours, differs)
        share = float(differs.mean())
        if share <= RARE_SHARE:
            continue
        place = tuple(int(i) for i in np.argwhere(differs)[0])
        raise CheckFailedError(
            f"{regime.value} inputs: {share:.1%} of output {number} is not what the framework computes; at {list(place)} "
            f"{float(ours[place]):.6g}, the framework {float(theirs[place]):.6g}"
        )


def _with_samples(graph: Graph, drawn: Sequence[Array], samples: Samples) -> list[Array]:
    """The inputs; those of which there is a sample are made of the job's numbers, repeated to fill the tensor."""
    found = list(drawn)
    for number, index in enumerate(graph.parameters):
        node, sample = graph.nodes[index], samples.get(number)
        if sample is not None and sample.size and sample.dtype == node.dtype.numpy:
            found[number] = np.resize(sample, node.shape)
    return found


def _judge_runs(
    graph: Graph,
    library: Path,
    metadata: KernelMetadata,
    options: CheckOptions,
    regime: Regime,
    inputs: Sequence[Array],
) -> None:
    """Runs the kernel in all ways on inputs that were not drawn by a regime. Raises CheckFailedError."""
    (runs,) = run_all_ways(library, metadata, [inputs], options.threads, options.time_limit_s)
    _compare_runs(regime, runs)
    oracle, ranges = evaluate_sample(graph, inputs, _generator(options, regime, 1))
    verdict = judge_by(graph, oracle, runs.outputs, None, ranges)
    if not verdict.ok:
        raise CheckFailedError(f"the job's own inputs: {verdict}")


def check_by_oracle(
    graph: Graph, library: Path, metadata: KernelMetadata, options: CheckOptions, reference: Reference | None = None
) -> CheckReport:
    """Runs the kernel on inputs of all regimes and compares with the float64 oracle. If the oracle finds an element wrong and there
    is a `reference`, the error of that decides. Raises CheckFailedError."""

    def run(regimes: Sequence[Regime]) -> RegimesOutcome:
        return check_part(graph, library, metadata, options, regimes, reference)

    return join_parts([run(regimes) for regimes in parts_of(graph, options)], run)


class RegimesOutcome(NamedTuple):
    """The outcome for some regimes: the largest error as a share of what is allowed, and for each output the share of its elements
    that could be decided."""

    regimes: tuple[Regime, ...]
    worst: float
    decided: tuple[float, ...]


def parts_of(graph: Graph, options: CheckOptions) -> list[tuple[Regime, ...]]:
    """The regimes on which `graph` is checked, in parts that may be checked side by side. Small inputs share a child; a large set
    has a child of its own, because otherwise memory would hold all sets at once."""
    elements = sum(graph.nodes[i].element_count for i in graph.parameters)
    regimes = options.regimes
    if elements > options.large_elements:
        regimes = options.large_regimes if elements <= options.huge_elements else options.huge_regimes
    together = max(1, SHARED_ELEMENTS // max(elements, 1))
    return [regimes[start : start + together] for start in range(0, len(regimes), together)]


def join_parts(parts: Sequence[RegimesOutcome], run: Callable[[Sequence[Regime]], RegimesOutcome]) -> CheckReport:
    """The report of all parts. If the oracle could decide less than DECIDED_SHARE of an output, `run` checks one more part, of inputs
    between 0 and 1 (Regime.UNIT)."""
    found = list(parts)
    tried = [regime for part in found for regime in part.regimes]
    decided = [max(shares) for shares in zip_strict(*(part.decided for part in found))]
    if Regime.UNIT not in tried and min(decided, default=1.0) < DECIDED_SHARE:
        found.append(run([Regime.UNIT]))
    regimes = tuple(regime.value for part in found for regime in part.regimes)
    return CheckReport(True, regimes, max((part.worst for part in found), default=0.0), False)


def check_part(
    graph: Graph,
    library: Path,
    metadata: KernelMetadata,
    options: CheckOptions,
    regimes: Sequence[Regime],
    reference: Reference | None = None,
) -> RegimesOutcome:
    """As `check_by_oracle`, for the inputs of `regimes` only. Raises CheckFailedError."""
    drawn = [_draw(graph, options, regime) for regime in regimes]
    ran = run_all_ways(library, metadata, drawn, options.threads, options.time_limit_s)
    decided = [0.0] * len(graph.outputs)
    worst = 0.0
    for regime, inputs, runs in zip_strict(regimes, drawn, ran):
        _compare_runs(regime, runs)
        oracle, ranges = evaluate_sample(graph, inputs, _generator(options, regime, 1))
        verdict = judge_by(graph, oracle, runs.outputs, None, ranges)
        if not verdict.ok and reference is not None:
            with contextlib.suppress(RefusedInputsError):  # then the oracle's verdict stands
                peers = [np.asarray(result) for result in reference(inputs)]
                verdict = judge_by(graph, oracle, runs.outputs, peers, ranges)
        if not verdict.ok:
            raise CheckFailedError(f"{regime.value} inputs: {verdict}")
        worst = max([worst, *(output.largest_ratio for output in verdict.outputs)])
        decided = [max(one, output.decided) for one, output in zip_strict(decided, verdict.outputs)]
    return RegimesOutcome(tuple(regimes), worst, tuple(decided))


def _draw(graph: Graph, options: CheckOptions, regime: Regime) -> list[Array]:
    """The inputs of a regime; the same at every call."""
    return random_inputs(graph, _generator(options, regime, 0), regime)


def _generator(options: CheckOptions, regime: Regime, use: int) -> np.random.Generator:
    return np.random.default_rng([options.seed, list(Regime).index(regime), use])


def _compare_runs(regime: Regime, runs: Runs) -> None:
    for number, (one, other, placed) in enumerate(zip_strict(*runs)):
        if not same_bits(one, other):
            raise CheckFailedError(f"{regime.value} inputs: output {number} depends on the order of tasks")
        if not same_bits(one, placed):
            raise CheckFailedError(f"{regime.value} inputs: output {number} differs when written over an input")


def same_bits(left: Array, right: Array) -> bool:
    """Whether two arrays are equal to the last bit, except that any NaN equals any other NaN: of two NaN operands a vector
    instruction may keep another one than a scalar instruction."""
    nan = (left != left) & (right != right)
    bits = np.dtype(f"u{left.dtype.itemsize}")
    return bool(((left.view(bits) == right.view(bits)) | nan).all())


class _Rounding:
    """Tells a difference in meaning from one in rounding. A sum that cancels (the gradient of a bias on which the loss does not
    depend) has no correct digit in either implementation. An element that differs counts only if

    - the kernel's result or the framework's, `peers`, lies outside the oracle's bound, or the oracle cannot tell (behind a comparison
      of nearly equal numbers), and
    - it differs by more than the framework's result does when its inputs move in their last place (conditioning.py), and
    - it has not overflowed: one is infinite, the other NaN, and in numbers without a largest one the result is finite. Whether a sum
      whose terms overflow is an infinity or Inf - Inf depends on their order, and on whether products are fused with the additions
      (oneDNN's convolutions fuse them; TensorFlow's own, and ours, do not).
    """

    def __init__(
        self,
        graph: Graph,
        inputs: Sequence[Array],
        reference: Reference,
        peers: Sequence[Array],
        generator: np.random.Generator,
    ) -> None:
        self._graph, self._inputs, self._reference, self._peers = graph, inputs, reference, peers
        self._generator = generator

    def leaves(self, number: int, ours: Array, differs: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """The elements of output `number` that differ by more than rounding. differs: those that differ at all."""
        result, peer = ours.astype(np.float64), self._peers[number].astype(np.float64)
        with np.errstate(all="ignore"):
            left = differs & ~(np.abs(result - peer) <= SLACK * self._moves[number])
            if left.any():
                left &= ~self._within_bound(number, [result, peer], left)
            overflowed = left & (np.isnan(result) | np.isnan(peer)) & (np.isinf(result) | np.isinf(peer))
            if overflowed.any():
                value, parts = self._unlimited[0][number].value, self._unlimited[1][number]
                left &= ~(overflowed & _in_sample(np.isfinite(value), parts, overflowed))
        return np.asarray(left)

    def _within_bound(
        self, number: int, results: Sequence[npt.NDArray[np.float64]], asked: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.bool_]:
        """The elements that the oracle decides and finds right in all `results`; of a large output, by a sample (_in_sample)."""
        oracle, ranges = self._oracle
        value, bound = oracle[number].value.astype(np.float64), oracle[number].bound
        found = np.isfinite(bound)
        for result in results:
            found &= np.abs(result - value) <= bound
        return _in_sample(found, ranges[number], asked)

    @functools.cached_property
    def _oracle(self) -> tuple[list[Bounded], list[Ranges]]:
        return evaluate_sample(self._graph, self._inputs, self._generator)

    @functools.cached_property
    def _unlimited(self) -> tuple[list[Bounded], list[Ranges]]:
        return evaluate_sample(self._graph, self._inputs, self._generator, unlimited=True)

    @functools.cached_property
    def _moves(self) -> list[npt.NDArray[np.float64]]:
        return largest_moves(self._graph, self._inputs, self._reference, self._peers, self._generator)


def _in_sample(found: npt.NDArray[np.bool_], ranges: Ranges, asked: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """What the oracle has found of each element, if it computed only those in `ranges`: if it is true of all elements that are
    `asked` about in the sample, and there are any, it counts as true of the others too."""
    if ranges is None:
        return found
    computed = np.zeros(found.size, bool)
    for part in ranges:
        computed[part] = True
    computed = computed.reshape(found.shape)
    sample = asked & computed
    return np.where(computed, found, bool(sample.any() and found[sample].all()))


def _compare_with_framework(
    graph: Graph, outputs: Sequence[Array], peers: Sequence[Array], everywhere: bool, rounding: _Rounding
) -> bool:
    """Compares a kernel's outputs with the framework's. Returns False if for too many elements only one of the two is finite, which
    decides nothing; with `everywhere` that is an error as well. Raises CheckFailedError."""
    is_decided = True
    for number, (ours, theirs, tolerance) in enumerate(zip_strict(outputs, peers, guard_tolerance(graph))):
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            raise CheckFailedError(
                f"output {number} is {ours.dtype}{list(ours.shape)}, the framework's {theirs.dtype}{list(theirs.shape)}"
            )
        if agrees(ours, theirs, tolerance) or not ours.size:
            continue
        with np.errstate(all="ignore"):
            a, b = ours.astype(np.float64), theirs.astype(np.float64)
            scale = np.abs(b) + float(np.max(np.abs(b[np.isfinite(b)]), initial=0.0))
            off = np.abs(a - b) > 16 * tolerance.relative * scale
        one_is_finite = np.isfinite(a) != np.isfinite(b)
        if float((off | one_is_finite).mean()) <= REFERENCE_SHARE:
            continue
        left = rounding.leaves(number, ours, off | one_is_finite)
        share = float(left.mean())
        if share <= REFERENCE_SHARE:
            continue
        if everywhere or float((left & ~one_is_finite).mean()) > REFERENCE_SHARE:
            raise CheckFailedError(
                f"output {number} is right by the graph, but {share:.0%} of it is not what the framework computes"
            )
        is_decided = False
    return is_decided


class _Shared:
    """Arrays in anonymous shared memory that a forked child writes for its parent."""

    def __init__(self, size: int) -> None:
        self._memory = mmap.mmap(-1, max(size, mmap.PAGESIZE))
        self._used = 0

    def array(self, kind: TensorType) -> Array:
        count = int(np.prod(kind.shape, dtype=np.int64))
        start, self._used = self._used, self._used + _room(kind)
        return np.frombuffer(self._memory, kind.numpy, count, start).reshape(kind.shape)


def _room(kind: TensorType) -> int:
    """Bytes of a tensor in shared memory, rounded up to whole cache lines."""
    return -(-max(int(np.prod(kind.shape, dtype=np.int64)) * kind.numpy.itemsize, 1) // 64) * 64


class Runs(NamedTuple):
    """A kernel's outputs for the same inputs: with several threads; with one thread and the tasks in reverse order; and with outputs
    placed in the memory of inputs as the metadata allows (if it does not, the first outputs)."""

    outputs: Sequence[Array]
    backwards: Sequence[Array]
    in_place: Sequence[Array]


def disjoint_pairs(aliases: Iterable[tuple[int, int]]) -> dict[int, int]:
    """A subset of (output, input) pairs that may share memory at the same time: each output and each input is in at most one
    pair."""
    found: dict[int, int] = {}
    for output, source in aliases:
        if output not in found and source not in found.values():
            found[output] = source
    return found


def run_all_ways(
    library: Path, metadata: KernelMetadata, inputs: Sequence[Sequence[Array]], threads: int, time_limit_s: float
) -> list[Runs]:
    """The kernel's outputs for each set of inputs, run in one forked child in all ways that must give the same bits (see Runs).
    Raises CheckFailedError if the child crashes or does not end within `time_limit_s`."""
    pairs = disjoint_pairs(metadata.aliases)
    each = 2 * sum(map(_room, metadata.inputs)) + 3 * sum(map(_room, metadata.outputs))
    shared = _Shared(each * len(inputs))
    calls: list[tuple[list[Array], list[Array], int, bool]] = []
    found: list[Runs] = []
    for values in inputs:
        given = [shared.array(kind) for kind in metadata.inputs]
        for array, value in zip_strict(given, values):
            array[...] = value
        outputs, backwards = ([_unwritten(shared.array(kind)) for kind in metadata.outputs] for _ in range(2))
        calls += [(given, outputs, threads, False), (given, backwards, 1, True)]
        in_place = outputs
        if pairs:
            over = list(given)
            for source in pairs.values():
                over[source] = shared.array(metadata.inputs[source])
                over[source][...] = values[source]
            in_place = [
                over[pairs[number]].reshape(kind.shape) if number in pairs else _unwritten(shared.array(kind))
                for number, kind in enumerate(metadata.outputs)
            ]
            calls.append((over, in_place, threads, False))
        found.append(Runs(outputs, backwards, in_place))

    def work() -> None:
        kernel = LoadedKernel(library, metadata)
        for given, results, count, reverse in calls:
            kernel.call(given, results, count, reverse)

    _apart(work, time_limit_s)
    return found


def run_apart(
    library: Path,
    metadata: KernelMetadata,
    inputs: Sequence[Array],
    threads: int,
    reversed_order: bool,
    time_limit_s: float,
) -> list[Array]:
    """The kernel's outputs for `inputs`, run in a forked child. Raises CheckFailedError if the child crashes or does not end within
    `time_limit_s`."""
    shared = _Shared(sum(map(_room, (*metadata.inputs, *metadata.outputs))))
    given = [shared.array(kind) for kind in metadata.inputs]
    for array, value in zip_strict(given, inputs):
        array[...] = value
    results = [_unwritten(shared.array(kind)) for kind in metadata.outputs]
    _apart(lambda: LoadedKernel(library, metadata).call(given, results, threads, reversed_order), time_limit_s)
    return results


def _unwritten(array: Array) -> Array:
    array.reshape(-1).view(np.uint8)[...] = 0xA5  # so that an element that was never written is noticed
    return array


def _apart(work: Callable[[], None], time_limit_s: float) -> None:
    """Runs `work` in a forked child. Raises CheckFailedError if it fails there, crashes or does not end."""
    prepare_runtime()  # the child must not have to build or load anything but the kernel
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _child(work, writer)
    os.close(writer)
    try:
        status = _wait(child, reader, time_limit_s)
        said = "" if status is None else os.read(reader, 500).decode(errors="replace")
    finally:
        os.close(reader)
    if status is None:
        raise CheckFailedError(f"the kernel did not end within {time_limit_s:.0f} s", is_certain=False)
    if os.WIFSIGNALED(status):
        number = signal.Signals(os.WTERMSIG(status))
        is_its_own = number not in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        raise CheckFailedError(f"the kernel crashed with {number.name}", is_its_own)
    if os.WEXITSTATUS(status):
        raise CheckFailedError(f"the kernel could not be run: {said or 'no message'}", is_certain=False)


def _child(work: Callable[[], None], writer: int) -> None:
    status = 1
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        work()
        status = 0
    except Exception as error:  # sent to the parent, which raises
        os.write(writer, str(error).encode()[:500])
    finally:
        with contextlib.suppress(OSError):
            os.close(writer)
        os._exit(status)


def _wait(child: int, reader: int, time_limit_s: float) -> int | None:
    """The child's wait status, or None if it was killed at the time limit. The end of the pipe shows that it ended, without
    polling."""
    deadline = time.monotonic() + time_limit_s
    select.select([reader], [], [], time_limit_s)
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None
