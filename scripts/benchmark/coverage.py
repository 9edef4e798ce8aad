"""The composition of a step by TensorFlow's own profile: the share of its memory-intensive time that is in stitch ops, what stays out
and why, and what one iteration launches and writes, plain and stitched.

The workload is run twice (`recorder`), plain and under `stitchfleet run`, and profiled for some steps. The second run records which
nodes of the placed graph are in stitch ops and whether their kernels came into use. Nodes have the same names in both. The
denominator is the time of all operators except matrix products and convolutions, including control flow, variables, random numbers
and optimizers. A function that the job itself has compiled by XLA is not in it either: a grouped convolution of Keras is one.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import pathlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stitchfleet.plugin.clusters.rewrite import OUR_OPS
from stitchfleet.plugin.graph.tf_ops import COMPILED_BY_XLA, is_product, why_not

from .contestants import CONTESTANTS, PLAIN, Contestant, Workload
from .race import ContestantError, Limits, Runner
from .trace import NodeTime, WallTime

RECORDER = pathlib.Path(__file__).with_name("recorder.py")
_PLUMBING = why_not("Switch", False)
NOT_SEEN = "in no graph that the plugin was offered"
NOT_IN_USE = "in a stitch op whose kernel did not come into use"
_CHOOSES = "Stitchfleet"
"""How an op of ours begins that computes a product by one of two of TensorFlow's kernels: the profile has that kernel too."""
_SOON = {
    "STITCHFLEET_BASELINE_STEPS": "5",
    "STITCHFLEET_PAIRS": "0",
    "STITCHFLEET_PLAIN_SHARE": "0.00001",
}
"""Settings for an early stitched phase without plain blocks, in a run that is not timed. An opening pair that was disturbed and taken
again fell into the profile of small jobs: operators that were in stitch ops seemed to be left."""
NO_TIME = WallTime(0.0, 0.0, 0.0, 0.0)
Say = Callable[[str], None]


@dataclass(frozen=True)
class Kind:
    """All operators of one kind in a step. runs, us (microseconds, summed over threads): per step."""

    op: str
    runs: float
    us: float


@dataclass(frozen=True)
class Iteration:
    """The profile of one step. Times in microseconds, summed over threads, except `wall`.

    launches: memory-intensive operators including stitch ops, without control flow. written_bytes: allocations of operators other
    than products for results and scratch. Writes over an input or a variable are not included, and neither are allocations below 256
    KiB by oneDNN's allocator, which reports only larger ones; small ones stay in the caches anyway. kinds: products and others,
    longest time first.
    """

    product_us: float
    memory_us: float
    stitch_us: float
    launches: float
    stitch_launches: float
    product_launches: float
    written_bytes: int
    wall: WallTime = NO_TIME
    kinds: tuple[Kind, ...] = ()


@dataclass(frozen=True)
class Outside:
    """Operators of one kind that stay in TensorFlow for one reason. nodes: their number. runs, us (microseconds): per step."""

    reason: str
    op: str
    nodes: int
    runs: float
    us: float


@dataclass(frozen=True)
class Coverage:
    """The share of the plain step's memory-intensive time that is in stitch ops, and the operators outside, longest time first.
    compiled_us: per step, in functions that the job has compiled by XLA; it is in no other figure."""

    share: float
    stitched_us: float
    stitched_nodes: int
    memory_nodes: int
    outside: tuple[Outside, ...]
    plain: Iteration
    stitched: Iteration
    compiled_us: float = 0.0


def iteration_of(
    nodes: Sequence[NodeTime],
    steps: int,
    allocated: Mapping[str, int],
    wall: Sequence[float] = NO_TIME,
    compiled: Collection[str] = (),
) -> Iteration:
    """The average step of `steps` profiled ones. allocated: node -> bytes; wall: a WallTime; both over all steps. compiled: the
    names of nodes that are not counted, since the job has them compiled by XLA."""
    products = [node for node in nodes if is_product(node.op) and node.node not in compiled]
    others = [node for node in nodes if not is_product(node.op) and node.node not in compiled]
    stitch = [node for node in others if node.op in OUR_OPS]
    names = {node.node for node in products} | set(compiled)
    return Iteration(
        product_us=sum(node.own_us for node in products) / steps,
        memory_us=sum(node.own_us for node in others) / steps,
        stitch_us=sum(node.own_us for node in stitch) / steps,
        launches=sum(node.runs for node in others if why_not(node.op, False) != _PLUMBING) / steps,
        stitch_launches=sum(node.runs for node in stitch) / steps,
        product_launches=sum(node.runs for node in products if not node.op.startswith(_CHOOSES)) / steps,
        written_bytes=sum(size for name, size in allocated.items() if name not in names) // steps,
        wall=WallTime(*(one / steps for one in wall)),
        kinds=_kinds([*products, *others], steps),
    )


def _kinds(nodes: Sequence[NodeTime], steps: int) -> tuple[Kind, ...]:
    by_op: dict[str, list[NodeTime]] = collections.defaultdict(list)
    for node in nodes:
        by_op[node.op].append(node)
    kinds = [Kind(op, sum(n.runs for n in of) / steps, sum(n.own_us for n in of) / steps) for op, of in by_op.items()]
    return tuple(sorted(kinds, key=lambda kind: -kind.us))


def join(
    plain: Iteration,
    stitched: Iteration,
    nodes: Sequence[NodeTime],
    steps: int,
    members: Mapping[str, Mapping[str, Any]],
    states: Mapping[str, str],
) -> Coverage:
    """Combines the plain profile (`nodes` over `steps`) with what the plugin did.

    members: node -> {"op", "stitched", "cluster" or "reason"}. states: cluster -> its state at the end (reporting/summary.py).
    """
    compiled = compiled_by_xla(members)
    memory = [node for node in nodes if not is_product(node.op) and node.node not in compiled]
    outside: dict[tuple[str, str], list[NodeTime]] = collections.defaultdict(list)
    inside: list[NodeTime] = []
    for node in memory:
        reason = _reason(members.get(node.node), states)
        (inside if reason is None else outside[reason, node.op]).append(node)
    rows = [
        Outside(reason, op, len(them), sum(n.runs for n in them) / steps, sum(n.own_us for n in them) / steps)
        for (reason, op), them in outside.items()
    ]
    stitched_us = sum(node.own_us for node in inside) / steps
    return Coverage(
        share=stitched_us / plain.memory_us if plain.memory_us else 0.0,
        stitched_us=stitched_us,
        stitched_nodes=len(inside),
        memory_nodes=len(memory),
        outside=tuple(sorted(rows, key=lambda row: -row.us)),
        plain=plain,
        stitched=stitched,
        compiled_us=sum(node.own_us for node in nodes if node.node in compiled) / steps,
    )


def compiled_by_xla(members: Mapping[str, Mapping[str, Any]]) -> frozenset[str]:
    """The nodes that the job has compiled by XLA. members: as for `join`."""
    return frozenset(name for name, member in members.items() if member.get("reason") == COMPILED_BY_XLA)


def _reason(member: Mapping[str, Any] | None, states: Mapping[str, str]) -> str | None:
    """The reason why a node stays out; None if it does not."""
    if member is None:
        return NOT_SEEN
    if not member["stitched"]:
        return str(member["reason"])
    state = states.get(str(member.get("cluster")), "stitched")
    return None if state == "stitched" else f"{NOT_IN_USE} ({state})"


# ---- the runs ----------------------------------------------------------------------------------------------------------------


def measure(
    workload: Workload,
    limits: Limits,
    mark: str,
    folder: pathlib.Path,
    cache: pathlib.Path,
    extra: tuple[str, ...],
    say: Say,
) -> Coverage:
    """Runs the workload twice, plain and stitched, and compares the profiles. extra: further arguments of the script. Raises
    ContestantError with one line if either run fails or nothing is stitched."""
    plain, stitched, members, summary = record(workload, limits, mark, folder, cache, extra, say)
    states = {str(cluster["name"]): str(cluster["state"]) for cluster in summary["clusters"]}
    compiled = compiled_by_xla(members)
    (before, steps, nodes), (after, _, _) = plain.profile(compiled), stitched.profile(compiled)
    return join(before, after, nodes, steps, members, states)


def record(
    workload: Workload,
    limits: Limits,
    mark: str,
    folder: pathlib.Path,
    cache: pathlib.Path,
    extra: tuple[str, ...],
    say: Say,
) -> tuple[Recording, Recording, dict[str, dict[str, Any]], dict[str, Any]]:
    """The profiled runs of a workload, plain and stitched, then what the recorder says of the nodes, and the stitched run's summary.
    Raises ContestantError as `measure`."""
    say(f"{workload.name}: profiling the plain step")
    plain = Recording(workload, CONTESTANTS[PLAIN], mark, folder)
    plain.record(limits, cache, extra, say)
    say(f"{workload.name}: profiling the stitched step")
    stitched = Recording(workload, CONTESTANTS["stitched"], mark, folder)
    stitched.record(limits, cache, extra, say)
    summary = stitched.runner.read_summary()
    members = stitched.read("members.json")
    if summary is None or members is None:
        raise ContestantError(
            f"nothing is stitched: {stitched.runner.outcome.note or 'the plugin was offered no graph'}"
        )
    return plain, stitched, members, summary


class Recording:
    """One run of a workload under the recorder."""

    def __init__(self, workload: Workload, base: Contestant, mark: str, folder: pathlib.Path) -> None:
        contestant = dataclasses.replace(base, name=f"coverage-{base.name}", environment=_SOON)
        self._folder = folder / f"recorded-{base.name}"
        self._folder.mkdir(parents=True)
        arguments = (str(self._folder), str(workload.script), *workload.arguments)
        self.runner = Runner(
            contestant, dataclasses.replace(workload, script=RECORDER, arguments=arguments), mark, folder
        )

    def record(self, limits: Limits, cache: pathlib.Path, extra: tuple[str, ...], say: Say) -> None:
        """Starts the run, lets it profile its next steps once it is warm (stitched, if it has a stitched phase), and returns when it
        has ended. Raises ContestantError."""
        self.runner.start(extra, cache)
        if self.runner.contestant.is_stitched:
            self.runner.warm_up(limits, say)
        (self._folder / "go").touch()
        self.runner.thaw()
        self.runner.wait(limits.warm_up_s)

    def read(self, name: str, folder: pathlib.Path | None = None) -> Any | None:
        """The JSON document in the file `name` of `folder` (None: the recorder's folder); None if there is no such file."""
        try:
            return json.loads(((folder or self._folder) / name).read_text())
        except OSError:
            return None

    def text(self, name: str) -> str:
        """The text of the file `name` of the recorder's folder. Raises OSError."""
        return (self._folder / name).read_text()

    def profile(self, compiled: Collection[str]) -> tuple[Iteration, int, list[NodeTime]]:
        """The profiled steps' average, their number, and the time of each node. compiled: nodes that are not counted."""
        found = self.read("profile.json")
        if found is None:
            raise ContestantError("the script ended before it was profiled")
        nodes, steps = [NodeTime(*node) for node in found["nodes"]], int(found["steps"])
        return iteration_of(nodes, steps, found["allocated_bytes"], found["wall_us"], compiled), steps, nodes


# ---- out ---------------------------------------------------------------------------------------------------------------------


def table(name: str, coverage: Coverage, most: int = 16) -> list[str]:
    """The coverage of one workload as lines of text."""
    plain, stitched = coverage.plain, coverage.stitched
    lines = [
        f"{name}: {coverage.share:.1%} of the memory-intensive time lies in stitch ops "
        f"({coverage.stitched_us / 1e3:.2f} of {plain.memory_us / 1e3:.2f} ms a step; {coverage.stitched_nodes} of "
        f"{coverage.memory_nodes} operators)",
        *(
            f"  {title:<9} memory-intensive {step.memory_us / 1e3:>8.2f} ms in {step.launches:>7.0f} launches, "
            f"{step.written_bytes / 2**20:>7.1f} MiB written; products {step.product_us / 1e3:>8.2f} ms in "
            f"{step.product_launches:.0f}"
            for title, step in (("plain:", plain), ("stitched:", stitched))
        ),
        f"  of that, stitch ops {stitched.stitch_us / 1e3:.2f} ms in {stitched.stitch_launches:.0f} launches",
        *(
            [f"  not counted: {coverage.compiled_us / 1e3:.2f} ms in functions that the job has compiled by XLA"]
            if coverage.compiled_us
            else []
        ),
        *(
            f"  {title:<9} of {sum(step.wall) / 1e3:.2f} ms wall time a product runs in {step.wall.product / 1e3:.2f}, a stitch op "
            f"alone in {step.wall.stitch / 1e3:.2f}, another operator alone in {step.wall.other / 1e3:.2f}, none in "
            f"{step.wall.nothing / 1e3:.2f}"
            for title, step in (("plain:", plain), ("stitched:", stitched))
        ),
        "  the stitched step, stitch ops included:",
        *(f"  {kind.us / 1e3:>9.3f} ms {kind.runs:>6.0f} x {kind.op}" for kind in stitched.kinds[:most]),
        "  what stays out, by its time in the plain step:",
    ]
    share = 1e2 / plain.memory_us if plain.memory_us else 0.0

    def row(us: float, text: str) -> str:
        return f"  {us / 1e3:>9.3f} ms {us * share:>5.1f}%  {text}"

    lines += [row(out.us, f"{out.nodes:>4} x {out.op:<32} {out.reason}") for out in coverage.outside[:most]]
    if rest := coverage.outside[most:]:
        lines.append(row(sum(out.us for out in rest), f"{len(rest)} more kinds"))
    return lines
