"""Runs a new kernel before anybody may use it: on random inputs of every regime, in a child process, against the
float64 oracle.

The child is forked and shares nothing but the input and output memory, so a kernel that crashes, hangs or writes out of
bounds costs one process that nobody misses. Tasks run in parallel, and once more one by one in reverse order: both must
agree to the last bit.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from .graph import Array, Graph
from .oracle import evaluate_with_bounds
from .judge import agrees, guard_tolerance, judge_by
from .kernel import CheckReport, KernelMetadata, LoadedKernel, prepare_runtime
from .random_inputs import REGIMES, Regime, random_inputs

Reference: TypeAlias = Callable[[Sequence[Array]], Sequence[Array]]

REFERENCE_SHARE = 0.02
"""Share of elements by which the framework's own result may differ from a kernel that the oracle finds right, at 16
times the guard's tolerance, before we say that the graph is not what the framework computes: comparisons near a tie
fall either way."""


@dataclass(frozen=True)
class CheckOptions:
    """How much is checked. The oracle costs some 0.3 s for each million input elements and run, so graphs with more input
    elements than `medium_elements` or `large_elements` are run on fewer, mixed inputs: every regime is in them."""

    regimes: tuple[Regime, ...] = REGIMES
    medium_regimes: tuple[Regime, ...] = (Regime.NORMAL, Regime.UNIT, Regime.MIXED)
    medium_elements: int = 1 << 16
    large_regimes: tuple[Regime, ...] = (Regime.NORMAL, Regime.MIXED)
    large_elements: int = 1 << 20
    seed: int = 7
    time_limit_s: float = 30.0
    threads: int = 2
    skip: bool = field(default_factory=lambda: os.environ.get("STITCHFLEET_TEST_SKIP_CHECK") == "1")


class CheckFailedError(Exception):
    """The kernel is wrong, or it crashed or hung; the text says on which inputs and how, in one line."""


def check_kernel(
    graph: Graph, library: Path, metadata: KernelMetadata, options: CheckOptions, reference: Reference | None = None
) -> CheckReport:
    """Checks a kernel of `graph`. Raises CheckFailedError."""
    elements = sum(graph.nodes[i].element_count for i in graph.parameters)
    regimes = options.regimes
    if elements > options.medium_elements:
        regimes = options.medium_regimes if elements <= options.large_elements else options.large_regimes
    rng = np.random.default_rng(options.seed)
    worst = 0.0
    compared = False
    for regime in regimes:
        inputs = random_inputs(graph, rng, regime)
        outputs = run_apart(library, metadata, inputs, options.threads, False, options.time_limit_s)
        backwards = run_apart(library, metadata, inputs, 1, True, options.time_limit_s)
        for number, (one, other) in enumerate(zip(outputs, backwards, strict=True)):
            if not same_bits(one, other):
                raise CheckFailedError(f"{regime.value} inputs: output {number} depends on the order of tasks")
        oracle = evaluate_with_bounds(graph, inputs)
        verdict = judge_by(graph, oracle, outputs)
        peers: Sequence[Array] | None = None
        if reference is not None and (not verdict.ok or (regime is Regime.NORMAL and not compared)):
            peers = [np.asarray(result) for result in reference(inputs)]
        if not verdict.ok and peers is not None:
            verdict = judge_by(graph, oracle, outputs, peers)
        if not verdict.ok:
            raise CheckFailedError(f"{regime.value} inputs: {verdict}")
        if peers is not None and regime is Regime.NORMAL:
            compared = True
            _compare_with_framework(graph, outputs, peers)
        worst = max(worst, _largest_share(oracle, outputs))
    return CheckReport(True, tuple(regime.value for regime in regimes), worst, compared)


def same_bits(one: Array, other: Array) -> bool:
    """Whether two arrays are equal to the last bit, but for which NaN a NaN is: of two NaN operands a vector
    instruction may keep the other one than a scalar does."""
    nan = (one != one) & (other != other)
    bits = np.dtype(f"u{one.dtype.itemsize}")
    return bool(((one.view(bits) == other.view(bits)) | nan).all())


def _largest_share(oracle: Sequence[object], outputs: Sequence[Array]) -> float:
    """The largest error of a float output as a share of its bound."""
    largest = 0.0
    for expected, actual in zip(oracle, outputs, strict=True):
        value: npt.NDArray[np.float64] = np.asarray(expected.value)  # type: ignore[attr-defined]
        bound: npt.NDArray[np.float64] = np.asarray(expected.bound)  # type: ignore[attr-defined]
        if value.dtype.kind != "f" or not value.size:
            continue
        with np.errstate(all="ignore"):
            share = np.abs(actual.astype(np.float64) - value) / bound
        share = share[np.isfinite(share) & (bound > 0)]
        largest = max(largest, float(share.max(initial=0.0)))
    return largest


def _compare_with_framework(graph: Graph, outputs: Sequence[Array], peers: Sequence[Array]) -> None:
    for number, (ours, theirs, tolerance) in enumerate(zip(outputs, peers, guard_tolerance(graph), strict=True)):
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
        off |= np.isfinite(a) != np.isfinite(b)
        if off.mean() > REFERENCE_SHARE:
            raise CheckFailedError(
                f"output {number} is right by the graph, but {off.mean():.0%} of it is not what the framework computes"
            )


class _Shared:
    """Arrays in anonymous memory that a forked child writes for its parent."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._starts: list[int] = []
        total = 0
        for size in sizes:
            self._starts.append(total)
            total += -(-max(size, 1) // 64) * 64
        self._memory = mmap.mmap(-1, max(total, mmap.PAGESIZE))

    def array(self, number: int, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
        count = int(np.prod(shape, dtype=np.int64))
        return np.frombuffer(self._memory, dtype, count, self._starts[number]).reshape(shape)


def run_apart(
    library: Path,
    metadata: KernelMetadata,
    inputs: Sequence[Array],
    threads: int,
    reversed_order: bool,
    time_limit_s: float,
) -> list[Array]:
    """The kernel's outputs for `inputs`, run in a forked child. Raises CheckFailedError if the child crashes or does
    not end."""
    types = (*metadata.inputs, *metadata.outputs)
    shared = _Shared([int(np.prod(t.shape, dtype=np.int64)) * t.numpy.itemsize for t in types])
    arrays = [shared.array(number, t.shape, t.numpy) for number, t in enumerate(types)]
    for array, value in zip(arrays, inputs, strict=False):
        array[...] = value
    given, results = arrays[: len(inputs)], arrays[len(inputs) :]
    for result in results:
        result.reshape(-1).view(np.uint8)[...] = 0xA5  # an element never written is seen
    prepare_runtime()  # the child must not have to build or load anything but the kernel
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _child(library, metadata, given, results, threads, reversed_order, writer)
    os.close(writer)
    try:
        status = _wait(child, reader, time_limit_s)
        said = "" if status is None else os.read(reader, 500).decode(errors="replace")
    finally:
        os.close(reader)
    if status is None:
        raise CheckFailedError(f"the kernel did not end within {time_limit_s:.0f} s")
    if os.WIFSIGNALED(status):
        raise CheckFailedError(f"the kernel crashed with {signal.Signals(os.WTERMSIG(status)).name}")
    if os.WEXITSTATUS(status):
        raise CheckFailedError(f"the kernel could not be run: {said or 'no message'}")
    return [np.array(result) for result in results]


def _child(
    library: Path,
    metadata: KernelMetadata,
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    threads: int,
    reversed_order: bool,
    writer: int,
) -> None:
    status = 1
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        LoadedKernel(library, metadata).call(inputs, outputs, threads, reversed_order)
        status = 0
    except Exception as error:  # told to the parent, which raises
        os.write(writer, str(error).encode()[:500])
    finally:
        with contextlib.suppress(OSError):
            os.close(writer)
        os._exit(status)


def _wait(child: int, reader: int, time_limit_s: float) -> int | None:
    """The child's status, or None after killing it. The pipe's end tells without polling."""
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
