"""`scripts/bench --kernels-cpu`: single kernels, compared with TensorFlow's operators, XLA and the speed of memory.

For each kernel and size the contestants take turns in one process: our kernel, called as the Stitch op calls it, with as many
threads; TensorFlow's operators in a tf.function; the same function compiled by XLA; and a copy of as many bytes as the kernel must
read and write, which is its floor. A round times some calls of each; the figure is the median over the rounds. The time of an empty
function with as many arguments is measured in the same way and subtracted from TensorFlow's and XLA's figures, so that they do not
include the call from Python. With small inputs a function works on up to 16 copies (512 KiB), and the figure is the time per copy;
else it would be too small beside the call.

Kernels with elementary functions are also measured on masked data: half of their main tensor is -1e9 (softmax) or -100 (gelu,
cross-entropy), for which glibc's vector functions take a scalar path.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from . import machine
from .kernel_cases import BETAS, CASES, Arrays, Case
from .turns import in_turns, median_us

DATA = ("ordinary", "masked")
SIZES = (4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20)
CHECKED_BELOW = 32 << 20
"""Kernels with larger inputs are not self-checked (the oracle takes a minute), only compared with TensorFlow's results."""
COPIES, COPIED_BYTES = 16, 512 << 10
"""Most copies of small inputs for TensorFlow's function, and most bytes of them in all, so that they stay in the L2 cache."""
ROUND_S = 0.04
MOST_CALLS = 2000
FORMAT = 2


@dataclass(frozen=True)
class Figure:
    """The figures of one kernel at one size. Times are microseconds per call. bytes_moved: what the kernel must read and write. data:
    "ordinary" or "masked". largest_difference: from TensorFlow's results, as a share of their largest magnitude."""

    kernel: str
    data: str
    size: int
    bytes_moved: int
    floor_us: float
    stitched_us: float
    tensorflow_us: float
    xla_us: float
    largest_difference: float

    @property
    def of_floor(self) -> float:
        return self.stitched_us / self.floor_us

    @property
    def ahead(self) -> float:
        """The time of the better one of TensorFlow and XLA, divided by ours."""
        return min(self.tensorflow_us, self.xla_us) / self.stitched_us


def main(words: Sequence[str]) -> int:
    """The command. Returns exit code 0; 1 if a kernel could not be built; 2 for a mistake on the command line."""
    parser = argparse.ArgumentParser(prog="scripts/bench --kernels-cpu", description=__doc__)
    names = [case.name for case in CASES]
    parser.add_argument(
        "--only", default=",".join(names), metavar="A,B", help=f"kernels (default: all of {', '.join(names)})"
    )
    parser.add_argument(
        "--sizes",
        type=_sizes,
        default=SIZES,
        metavar="4K,1M",
        help="bytes of the main tensor (default 4K,64K,1M,16M,256M)",
    )
    parser.add_argument(
        "--data",
        type=_data,
        default=DATA,
        metavar="A,B",
        help=f"{' and '.join(DATA)} (default: both if they differ)",
    )
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="turns of each contestant (default 7)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all results to FILE")
    arguments = parser.parse_args(words)
    wanted = [name.strip() for name in arguments.only.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in names]
    if unknown or not wanted:
        parser.error(f"--only: there is no kernel {', '.join(unknown) or 'given'}; there are: {', '.join(names)}")
    if arguments.rounds < 1:
        parser.error("--rounds: at least 1")
    _quieten()
    figures: list[Figure] = []
    failures: list[str] = []
    print(_head())
    for case in CASES:
        for size in arguments.sizes if case.name in wanted else ():
            if size < case.least_bytes:
                continue
            for data in arguments.data:
                if data == "masked" and case.mask is None:
                    continue
                try:
                    figures.append(measure(case, size, arguments.rounds, data))
                    print(_row(figures[-1]), flush=True)
                except RuntimeError as error:
                    failures.append(str(error))
                    print(f"{case.name:<24}{data:<9}{_size_text(size):>6}  {error}", flush=True)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(document(figures, failures), indent=1) + "\n")
    return int(bool(failures))


def _quieten() -> None:
    """Suppresses TensorFlow's messages at its start."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    logging.getLogger("tensorflow").setLevel(logging.ERROR)


def _data(text: str) -> tuple[str, ...]:
    found = tuple(word.strip() for word in text.split(",") if word.strip())
    if not found or not set(found) <= set(DATA):
        raise argparse.ArgumentTypeError(f"given {text!r}, expected {' or '.join(DATA)}")
    return found


def _sizes(text: str) -> tuple[int, ...]:
    units = {"K": 10, "M": 20, "G": 30}
    try:
        found = tuple(
            int(word[:-1]) << units[word[-1]] if word[-1] in units else int(word) for word in text.upper().split(",")
        )
    except (ValueError, IndexError):
        found = ()
    if not found or min(found) < 1:
        raise argparse.ArgumentTypeError(f"given {text!r}, expected sizes such as 4K,1M")
    return found


# ---- one kernel ----------------------------------------------------------------------------------------------------


def measure(case: Case, size: int, rounds: int, data: str = "ordinary") -> Figure:
    """Builds and times one kernel, whose main tensor has about `size` bytes. data: one of DATA. Raises RuntimeError if our kernel
    cannot be built or is wrong."""
    inputs = case.inputs(size, np.random.default_rng(5))
    if data == "masked":
        inputs = case.masked(inputs, np.random.default_rng(6))
    with contextlib.ExitStack() as stack:
        ours, bytes_moved, difference = _stitched(case, inputs, stack)
        copies = 1 if case.in_place else _copies(inputs)
        plain, compiled, empty, empty_compiled = _tensorflow(case, inputs, copies)
        floor = _floor(bytes_moved, stack)
        contestants = {
            "floor": floor,
            "stitched": ours,
            "tensorflow": plain,
            "empty": empty,
            "xla": compiled,
            "empty_xla": empty_compiled,
        }
        times = in_turns(contestants, rounds, 3, lambda name: median_us(contestants[name], ROUND_S, MOST_CALLS))
    medians = {name: statistics.median(values) for name, values in times.items()}
    return Figure(
        case.name,
        data,
        size,
        bytes_moved,
        medians["floor"],
        medians["stitched"],
        _beside(times["tensorflow"], times["empty"]) / copies,
        _beside(times["xla"], times["empty_xla"]) / copies,
        difference,
    )


def _beside(calls: Sequence[float], empty: Sequence[float]) -> float:
    """The median over the rounds of a call's time less that of an empty call, at least 0.01 us."""
    return max(statistics.median(call - nothing for call, nothing in zip(calls, empty, strict=True)), 0.01)


def _copies(inputs: Arrays) -> int:
    return max(1, min(COPIES, COPIED_BYTES // sum(array.nbytes for array in inputs)))


def _floor(bytes_moved: int, stack: contextlib.ExitStack) -> Callable[[], None]:
    from stitchfleet.compiler.kernel.host_kernel import PreparedCopy

    return stack.enter_context(PreparedCopy(max(64, bytes_moved // 2), machine.cores())).call


def _stitched(case: Case, inputs: Arrays, stack: contextlib.ExitStack) -> tuple[Callable[[], None], int, float]:
    """(our kernel, ready to be called; the bytes that it must move; its largest difference from TensorFlow's results as a share of
    their largest magnitude)."""
    import tensorflow as tf

    from stitchfleet.compiler.check.selfcheck import CheckOptions, disjoint_pairs
    from stitchfleet.compiler.hlo.importer import import_hlo_proto
    from stitchfleet.compiler.kernel.cache import KernelCache
    from stitchfleet.compiler.kernel.host_kernel import LoadedKernel, Prepared, aligned, aligned_copy
    from stitchfleet.compiler.pipeline.backend import KernelRequest
    from stitchfleet.compiler.pipeline.cpu import compile_graphs

    specs = [tf.TensorSpec(array.shape, array.dtype) for array in inputs]
    lowered = tf.function(case.function, jit_compile=True, autograph=False).experimental_get_compiler_ir(*specs)
    graph = import_hlo_proto(lowered(stage="hlo_serialized")).graph
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="stitchfleet-kernels-"))
    options = CheckOptions(skip=sum(array.nbytes for array in inputs) >= CHECKED_BELOW)
    (outcome,) = compile_graphs([KernelRequest(case.name, graph)], KernelCache(pathlib.Path(folder)), check=options)
    if outcome.entry is None:
        raise RuntimeError(outcome.failure)
    metadata = outcome.entry.metadata
    kernel = LoadedKernel(outcome.entry.library, metadata)
    given = [aligned_copy(array) for array in inputs]
    outputs = [aligned(kind.shape, kind.numpy) for kind in metadata.outputs]
    kernel.call(given, outputs, machine.cores())
    expected = tf.nest.flatten(tf.function(case.function, autograph=False)(*map(tf.constant, inputs)))
    difference = max(_difference(a, b.numpy()) for a, b in zip(outputs, expected, strict=True))
    if not difference < 1e-3:
        raise RuntimeError(f"differs from TensorFlow's results by {difference:.1e} of their largest")
    if case.in_place:
        for output, source in disjoint_pairs(metadata.aliases).items():
            outputs[output] = given[source].reshape(metadata.outputs[output].shape)
    prepared = stack.enter_context(Prepared(kernel, given, outputs, machine.cores()))
    return prepared.call, metadata.bytes_read + metadata.bytes_written, difference


def _difference(ours: Any, theirs: Any) -> float:
    scale = float(np.abs(theirs).max(initial=0.0)) or 1.0
    return float(np.abs(ours.astype(np.float64) - theirs.reshape(ours.shape)).max(initial=0.0)) / scale


def _tensorflow(
    case: Case, inputs: Arrays, copies: int
) -> tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any], Callable[[], Any]]:
    """(TensorFlow's operators on `copies` copies of the inputs, the same compiled by XLA, an empty function of each kind)."""
    import tensorflow as tf

    count = len(inputs)
    tensors = [tf.constant(array) for _ in range(copies) for array in inputs]

    def on_all(*values: Any) -> Any:
        return [case.function(*values[k * count : (k + 1) * count]) for k in range(copies)]

    def nothing(*_: Any) -> Any:
        return tf.constant(0.0)

    if case.in_place:
        plain, compiled = _adam_on_variables(inputs, False), _adam_on_variables(inputs, True)
    else:
        plain, compiled = (
            _bound(tf.function(on_all, jit_compile=jit, autograph=False), tensors) for jit in (None, True)
        )
    # A step on variables captures them, and has no arguments.
    arguments = [] if case.in_place else tensors
    empty = _bound(tf.function(nothing, autograph=False), arguments)
    empty_compiled = _bound(tf.function(nothing, jit_compile=True, autograph=False), arguments)
    return plain, compiled, empty, empty_compiled


def _bound(function: Callable[..., Any], tensors: Sequence[Any]) -> Callable[[], Any]:
    return lambda: function(*tensors)


def _adam_on_variables(inputs: Arrays, compiled: bool) -> Callable[[], Any]:
    """TensorFlow's fused operator on variables, as v1 and legacy optimizers use it: its fastest way."""
    import tensorflow as tf

    rate, *rest = inputs
    variables = [tf.Variable(array) for k, array in enumerate(rest) if k % 4 != 3]
    gradients = [tf.constant(array) for array in rest[3::4]]
    first, second, epsilon = BETAS

    def step() -> None:
        for k, gradient in enumerate(gradients):
            weight, mean, square = variables[3 * k : 3 * k + 3]
            tf.raw_ops.ResourceApplyAdam(
                var=weight.handle,
                m=mean.handle,
                v=square.handle,
                beta1_power=tf.constant(0.0),
                beta2_power=tf.constant(0.0),
                lr=tf.constant(rate),
                beta1=tf.constant(first),
                beta2=tf.constant(second),
                epsilon=tf.constant(epsilon),
                grad=gradient,
            )

    function: Callable[[], Any] = tf.function(step, jit_compile=compiled or None, autograph=False)
    return function


# ---- out -----------------------------------------------------------------------------------------------------------


def _head() -> str:
    return (
        f"{machine.cpu_name()}, {machine.cores()} cores; microseconds a call, TensorFlow and XLA without an empty call's\n"
        f"{'kernel':<24}{'data':<9}{'size':>6}{'floor':>11}{'stitched':>11}{'of floor':>10}{'TensorFlow':>12}{'XLA':>11}{'ahead':>8}"
    )


def _row(figure: Figure) -> str:
    return (
        f"{figure.kernel:<24}{figure.data:<9}{_size_text(figure.size):>6}{figure.floor_us:>11.1f}{figure.stitched_us:>11.1f}"
        f"{figure.of_floor:>10.2f}{figure.tensorflow_us:>12.1f}{figure.xla_us:>11.1f}{figure.ahead:>8.2f}"
    )


def _size_text(size: int) -> str:
    for unit, shift in (("G", 30), ("M", 20), ("K", 10)):
        if size >= 1 << shift:
            return f"{size / (1 << shift):g}{unit}"
    return str(size)


def document(figures: Sequence[Figure], failures: Sequence[str]) -> dict[str, Any]:
    """All results as JSON."""
    return {
        "format": FORMAT,
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine.facts(),
        "versions": machine.versions(),
        "kernels": [{**asdict(figure), "of_floor": figure.of_floor, "ahead": figure.ahead} for figure in figures],
        "failures": list(failures),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
