"""`scripts/bench --floors`: every kernel of the workloads' steps, and generated patterns, compared with the limit set by memory.

A memory-intensive kernel must read each input once and write each output once. Its floor is the time of a copy that moves as many
bytes, by the same threads, measured in turns with the kernel. So a kernel of some KiB is compared with the first-level cache, one of
some MiB with the last-level cache, a larger one with memory. `of floor` is the kernel's time divided by its floor. Elementary
functions, quotients and random words take time of their own: `functions` is what a graph's take alone, each timed in the first-level
cache (scripts/bench --functions compares them with another library); and what its matrix products, gathers and scatters take, each
as a kernel of its own at its shape. `of bound` is the kernel's time divided by the larger of both.

What is measured:
  steps     each distinct stitch op of the workloads' steps (tests/fixtures/hlo), on random data that is valid for it
  patterns  sums, maxima, broadcasts, transposes and running sums of three-dimensional tensors over every choice of dimensions, of
            odd and even extents, and TensorFlow's own operator (its time without that of an empty call)
  kept      (only if asked for) the clusters that jobs have left in the kernel cache, those of workloads without a fixture among them
  composites, rows (only if asked for)
            softmax, normalizations and their gradients along every dimension, of transposed tensors too; the same along rows of a few
            elements; and TensorFlow's operators that compute the same
Kernels with elementary functions are also run on masked data: a random half of their largest float input is -1e9, as in an attention
with a mask. `masked` is that time divided by the other.

How to read it: up to 1.2 of the floor, a kernel is as good as memory allows. Around 2 of the bound, it reads something twice, or
memory and arithmetic take turns. Above 3, on tensors of more than 64 KiB, something is wrong: `stitchfleet compile FILE --stop-after
plan` shows its loops. Below 64 KiB the start of the kernel matters, and that of the copy.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from stitchfleet.compiler.check.random_inputs import Regime, random_inputs
from stitchfleet.compiler.check.selfcheck import CheckOptions
from stitchfleet.compiler.hlo.importer import import_hlo_file, read_hlo_file
from stitchfleet.compiler.hlo.module import HloImportError
from stitchfleet.compiler.ir.graph import Array, DType, Graph, GraphBuilder, Node
from stitchfleet.compiler.kernel.cache import KernelCache
from stitchfleet.compiler.kernel.host_kernel import LoadedKernel, Prepared, PreparedCopy, aligned, aligned_copy
from stitchfleet.compiler.ops import table as ops
from stitchfleet.compiler.ops.table import OPS, Cost
from stitchfleet.compiler.pipeline.backend import KernelRequest
from stitchfleet.compiler.pipeline.cpu import compile_graphs
from stitchfleet.compiler.planning.groups import LONG_INSTRUCTIONS
from stitchfleet.compiler.step.partition import partition

from . import machine
from .changed import CACHE, clusters_of
from .kernels_cpu import _quieten
from .patterns import GROUPS, Item
from .progress import say
from .turns import kernels_us
from .xla_kernels import FIXTURES

MASKED: Final = -1e9
KEPT: Final = "kept"
"""The group of the clusters that lie in a kernel cache."""
LIMIT: Final = 2.0
"""A kernel whose time is more than this many times its floor is listed."""
ALONE: Final = 4096
"""Elements of an op that is timed alone: its operands and its result lie in the first-level cache."""
AT_ITS_SHAPE: Final = ("dot", "gather", "scatter")
"""Ops whose work depends on their shapes: it is more than the bytes that must be moved, and has no time per element."""
FORMAT: Final = 3


@dataclass(frozen=True)
class Figure:
    """The figures of one kernel. Times are microseconds per call. table: number of the kernel's ops. uses: as in Item. bytes:
    what the kernel must move. phases: number of its phases. math: elementary functions per byte moved. masked_us,
    tensorflow_us: None if not measured."""

    group: str
    kernel: str
    table: int
    uses: int
    bytes: int
    phases: int
    functions_us: float
    floor_us: float
    us: float
    masked_us: float | None
    tensorflow_us: float | None

    @property
    def of_floor(self) -> float:
        """How many times the floor of its bytes the kernel takes."""
        return self.us / self.floor_us

    @property
    def of_bound(self) -> float:
        """How many times its bound it takes: the larger of the floor and what its functions take alone."""
        return self.us / max(self.floor_us, self.functions_us)


def main(words: Sequence[str]) -> int:
    """The command. Returns exit code 0; 1 if a kernel could not be built; 2 for a mistake on the command line."""
    known = sorted(path.stem for path in FIXTURES.glob("*.hlo"))
    groups = (*known, *GROUPS, KEPT)
    parser = argparse.ArgumentParser(
        prog="scripts/bench --floors", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only",
        default=",".join([*known, "patterns"]),
        metavar="A,B",
        help=f"groups: {', '.join(groups)} (default: the first {len(known) + 1})",
    )
    parser.add_argument(
        "--cache",
        type=pathlib.Path,
        default=CACHE,
        metavar="DIR",
        help="kernel cache whose clusters are the group `kept` (default: .cache/stitchfleet in the project)",
    )
    parser.add_argument("--match", default="", metavar="TEXT", help="only kernels whose name contains TEXT")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="turns of kernel and copy (default 5)")
    parser.add_argument(
        "--threads",
        type=int,
        default=machine.cores(),
        metavar="N",
        help="threads of kernels and copies (default: all cores). With 1, processor time of the thread is measured instead of "
        "wall time, for a machine that has other work",
    )
    parser.add_argument("--all", action="store_true", help="list all kernels, not only those above twice their floor")
    parser.add_argument(
        "--no-tensorflow", action="store_true", help="leave out TensorFlow's operators (a faster start)"
    )
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all results to FILE")
    arguments = parser.parse_args(words)
    wanted = [name.strip() for name in arguments.only.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in groups]
    if unknown or not wanted:
        parser.error(f"--only: there is no {', '.join(unknown) or 'group given'}; there are: {', '.join(groups)}")
    if arguments.rounds < 1 or arguments.threads < 1:
        parser.error("--rounds, --threads: at least 1")
    _quieten()
    figures: list[Figure] = []
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="stitchfleet-floors-") as folder:
        functions = FunctionTimes(pathlib.Path(folder) / "alone", arguments.rounds)
        for group in wanted:
            items = (
                kept(arguments.cache) if group == KEPT else GROUPS[group]() if group in GROUPS else step_kernels(group)
            )
            items = [item for item in items if arguments.match in item.name]
            say(f"{group}: building {len(items)} kernels")
            requests = [KernelRequest(f"{group}_{number}", item.graph) for number, item in enumerate(items)]
            outcomes = compile_graphs(requests, KernelCache(pathlib.Path(folder)), check=CheckOptions(skip=True))
            for number, (item, outcome) in enumerate(zip(items, outcomes, strict=True), 1):
                if outcome.entry is None:
                    failures.append(f"{group}: {item.name}: {outcome.failure}")
                    continue
                if number % 10 == 1:
                    say(f"{group}: measuring kernel {number} of {len(items)}")
                kernel = LoadedKernel(outcome.entry.library, outcome.entry.metadata)
                with_tensorflow = not arguments.no_tensorflow
                figures.append(measure(item, kernel, functions, arguments.rounds, arguments.threads, with_tensorflow))
            if arguments.json is not None:  # after each group, so that an interrupted run leaves its results
                arguments.json.write_text(json.dumps(document(figures, failures, arguments.threads), indent=1) + "\n")
    print(f"{machine.cpu_name()}, {arguments.threads} of {machine.cores()} cores; microseconds a call")
    print("\n".join(table(figures, arguments.all)))
    for failure in failures:
        print(f"not built: {failure}")
    return int(bool(failures))


# ---- what is measured ----------------------------------------------------------------------------------------------


def step_kernels(workload: str) -> list[Item]:
    """The distinct stitch ops of a workload's step."""
    found: dict[str, Item] = {}
    for op in partition(read_hlo_file(FIXTURES / f"{workload}.hlo")).stitch_ops:
        before = found.get(op.graph.digest)
        uses = before.uses + 1 if before else 1
        found[op.graph.digest] = Item(workload, before.name if before else op.name, op.graph, uses)
    return list(found.values())


def kept(cache: pathlib.Path) -> list[Item]:
    """The clusters of jobs that lie as HLO in a kernel cache; those that cannot be read are left out."""
    items = []
    for path in clusters_of(cache):
        with contextlib.suppress(HloImportError):
            items.append(Item(KEPT, path.stem, import_hlo_file(path).graph))
    return items


def must_move(graph: Graph) -> int:
    """Least bytes that a kernel for `graph` must read and write. An input that is only gathered from or sliced counts with the bytes
    of the results."""
    users: dict[int, list[int]] = {index: [] for index in graph.parameters}
    for index, node in enumerate(graph.nodes):
        for operand in set(node.operands):
            if operand in users:
                users[operand].append(index)
    total = sum(graph.nodes[output].size_bytes for output in dict.fromkeys(graph.outputs))
    for parameter, readers in users.items():
        whole = graph.nodes[parameter].size_bytes
        looked_up = [
            reader
            for reader in readers
            if graph.nodes[reader].op in ("gather", "dynamic_slice", "slice")
            and graph.nodes[reader].operands[0] == parameter
        ]
        if len(looked_up) == len(readers):
            whole = min(whole, sum(graph.nodes[reader].size_bytes for reader in readers))
        total += whole
    return total


def functions_of(graph: Graph) -> list[Node]:
    """The nodes of a graph that compute elementary functions, quotients, square roots or random words."""
    return [node for node in graph.nodes if OPS[node.op].cost is Cost.EXPENSIVE or node.op in LONG_INSTRUCTIONS]


class FunctionTimes:
    """What ops take alone, on one thread: each elementary function and dtype is built and timed once, in the first-level cache, less
    a copy there; each op of AT_ITS_SHAPE as it stands in the graph. folder: for the kernels."""

    def __init__(self, folder: pathlib.Path, rounds: int) -> None:
        self.cache = KernelCache(folder)
        self.rounds = rounds
        self.ns: dict[tuple[str, tuple[DType, ...], DType], float] = {}
        self.us: dict[str, float] = {}

    def of(self, graph: Graph) -> float:
        """Microseconds that the graph's functions take alone on one thread."""
        total = 0.0
        for node in functions_of(graph):
            given = tuple(graph.nodes[operand].dtype for operand in node.operands)
            total += node.element_count * self._one(node.op, given, node.dtype)
        return total / 1e3 + sum(self._at_its_shape(graph, node) for node in graph.nodes if node.op in AT_ITS_SHAPE)

    def _at_its_shape(self, graph: Graph, node: Node) -> float:
        builder = GraphBuilder("alone")
        given = [graph.nodes[operand] for operand in node.operands]
        operands = [
            ops.build(builder, "parameter", shape=each.shape, dtype=each.dtype, number=number)
            for number, each in enumerate(given)
        ]
        alone = builder.finish((builder.add(node.op, operands, node.shape, node.dtype, "", **node.attributes),))
        if alone.digest not in self.us:
            self.us[alone.digest] = self._fastest_us(alone)
        return self.us[alone.digest]

    def _one(self, op: str, given: tuple[DType, ...], dtype: DType) -> float:
        key = (op, given, dtype)
        if key not in self.ns:
            self.ns[key] = max(0.0, self._measured(op, given) - self._measured("copy", (dtype,)))
        return self.ns[key]

    def _measured(self, op: str, given: tuple[DType, ...]) -> float:
        builder = GraphBuilder("alone")
        operands = [
            ops.build(builder, "parameter", shape=(ALONE,), dtype=dtype, number=number)
            for number, dtype in enumerate(given)
        ]
        return self._fastest_us(builder.finish((ops.build(builder, op, operands),))) * 1e3 / ALONE

    def _fastest_us(self, graph: Graph) -> float:
        op = graph.nodes[graph.outputs[0]].op
        request = KernelRequest(op, graph)
        (outcome,) = compile_graphs([request], self.cache, check=CheckOptions(skip=True))
        if outcome.entry is None:
            raise SystemExit(f"scripts/bench --floors: a kernel of {op} alone could not be built: {outcome.failure}")
        kernel = LoadedKernel(outcome.entry.library, outcome.entry.metadata)
        arrays = list(map(aligned_copy, random_inputs(graph, np.random.default_rng(3), Regime.UNIT)))
        results = [aligned(kind.shape, kind.numpy) for kind in kernel.metadata.outputs]
        with Prepared(kernel, arrays, results, 1) as prepared:
            return kernels_us({op: prepared.call}, self.rounds, lambda _: time.thread_time_ns)[op]


def masked(inputs: Sequence[Array], rng: np.random.Generator) -> list[Array]:
    """A copy of the inputs in which a random half of the largest float input's elements is MASKED."""
    floats = [k for k, array in enumerate(inputs) if array.dtype in (np.float32, np.float64)]
    if not floats:
        return list(inputs)
    largest = max(floats, key=lambda k: inputs[k].size)
    hidden = rng.random(inputs[largest].shape) < 0.5
    return [
        np.where(hidden, MASKED, array).astype(array.dtype) if k == largest else array for k, array in enumerate(inputs)
    ]


# ---- measuring -----------------------------------------------------------------------------------------------------


def measure(
    item: Item, kernel: LoadedKernel, functions: FunctionTimes, rounds: int, threads: int, with_tensorflow: bool
) -> Figure:
    """Times the kernel (on both kinds of data), the copy and TensorFlow's operators in turns. Each figure is the fastest turn, since
    other work on the machine only adds time."""
    metadata, graph = kernel.metadata, item.graph
    moved, functions_us = must_move(graph), functions.of(graph) / threads
    given = random_inputs(graph, np.random.default_rng(3), Regime.UNIT)
    outputs = [aligned(kind.shape, kind.numpy) for kind in metadata.outputs]
    with contextlib.ExitStack() as stack:
        contestants: dict[str, Callable[[], Any]] = {
            "floor": stack.enter_context(PreparedCopy(max(64, moved // 2), threads)).call,
            "ours": stack.enter_context(Prepared(kernel, list(map(aligned_copy, given)), outputs, threads)).call,
        }
        if any(OPS[node.op].cost is Cost.EXPENSIVE and node.dtype.is_float for node in graph.nodes):
            hidden = list(map(aligned_copy, masked(given, np.random.default_rng(4))))
            contestants["masked"] = stack.enter_context(Prepared(kernel, hidden, outputs, threads)).call
        if with_tensorflow and item.tensorflow is not None:
            contestants |= _tensorflow(item.tensorflow, given)

        def clock(name: str) -> Callable[[], int]:
            of_thread = threads == 1 and name not in ("tensorflow", "empty")
            return time.thread_time_ns if of_thread else time.perf_counter_ns

        fastest = kernels_us(contestants, rounds, clock)
    return Figure(
        item.group,
        item.name,
        metadata.op_count,
        item.uses,
        moved,
        metadata.phases,
        functions_us,
        fastest["floor"],
        fastest["ours"],
        fastest.get("masked"),
        max(fastest["tensorflow"] - fastest["empty"], 0.01) if "tensorflow" in fastest else None,
    )


def _tensorflow(function: Callable[..., Any], inputs: Sequence[Array]) -> dict[str, Callable[[], Any]]:
    import tensorflow as tf

    tensors = [tf.constant(array) for array in inputs]
    compiled = tf.function(function, autograph=False)
    empty = tf.function(lambda *_: tf.constant(0.0), autograph=False)
    return {"tensorflow": lambda: compiled(*tensors), "empty": lambda: empty(*tensors)}


# ---- out -----------------------------------------------------------------------------------------------------------


def table(figures: Sequence[Figure], every: bool) -> list[str]:
    """The results as lines of text: the kernels (only those above LIMIT unless `every`), largest `of bound` first, then the total of
    each group."""
    lines = [
        f"{'kernel':<58}{'uses':>5}{'moves':>7}{'floor':>9}{'functions':>10}{'ours':>9}{'of floor':>9}"
        f"{'of bound':>9}{'masked':>8}{'TensorFlow':>11}",
    ]
    listed = [figure for figure in figures if every or figure.of_floor > LIMIT]
    for figure in sorted(listed, key=lambda figure: -figure.of_bound):
        name = f"{figure.group}: {figure.kernel}" if figure.group not in GROUPS else figure.kernel
        hidden = "-" if figure.masked_us is None else f"{figure.masked_us / figure.us:.2f}"
        theirs = "-" if figure.tensorflow_us is None else f"{figure.tensorflow_us:.1f}"
        lines.append(
            f"{name[:57]:<58}{figure.uses:>5}{_size(figure.bytes):>7}{figure.floor_us:>9.1f}{figure.functions_us:>10.1f}"
            f"{figure.us:>9.1f}{figure.of_floor:>9.2f}{figure.of_bound:>9.2f}{hidden:>8}{theirs:>11}"
        )
    lines += [
        "",
        f"{'group':<20}{'kernels':>8}{'floor >2':>9}{'bound >2':>9}{'floor us':>10}{'ours us':>10}{'of floor':>9}"
        "  a step's kernels together",
    ]
    for group in dict.fromkeys(figure.group for figure in figures):
        mine = [figure for figure in figures if figure.group == group]
        floor, ours = (sum(getattr(figure, key) * figure.uses for figure in mine) for key in ("floor_us", "us"))
        above, bound = (sum(getattr(figure, key) > LIMIT for figure in mine) for key in ("of_floor", "of_bound"))
        lines.append(f"{group:<20}{len(mine):>8}{above:>9}{bound:>9}{floor:>10.0f}{ours:>10.0f}{ours / floor:>9.2f}")
    return lines


def _size(count: int) -> str:
    """A size in bytes as text, rounded to fit in a column."""
    for unit, shift in (("G", 30), ("M", 20), ("K", 10)):
        if count >= 1 << shift:
            return f"{count / (1 << shift):.3g}{unit}"
    return str(count)


def document(figures: Sequence[Figure], failures: Sequence[str], threads: int) -> dict[str, Any]:
    """All results as JSON."""
    return {
        "format": FORMAT,
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine.facts(),
        "versions": machine.versions(),
        "threads": threads,
        "kernels": [{**asdict(figure), "of_floor": figure.of_floor, "of_bound": figure.of_bound} for figure in figures],
        "failures": list(failures),
    }


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.exit(main(sys.argv[1:]))
