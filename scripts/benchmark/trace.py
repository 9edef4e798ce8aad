"""From TensorFlow's own profile (an XSpace) to the time of each node of the step.

At host tracer level 3 the executor records an event "node:operator" for each operator that it runs, inside an event
"ExecutorState::Process" with the step's id. At level 2 the operators that its cost estimate calls cheap are missing: 24 of 28
thousand in a DIEN's step, control flow and small arithmetic in loops, which take a good part of its time. The operators of input
pipelines have other ids (those of "InstantiatedCapturedFunction::Run"), by which they are left out. Sources:
tensorflow/core/common_runtime/executor.cc, tsl/profiler.
"""

from __future__ import annotations

import collections
import functools
import importlib
import itertools
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from stitchfleet.plugin.clusters.rewrite import OUR_OPS
from stitchfleet.plugin.graph.tf_ops import is_product
from stitchfleet.plugin.ranks.collectives import COLLECTIVES

_OPERATOR = re.compile(r"([A-Za-z0-9.][\w.\-/>]*):([A-Za-z_]\w*)")
_GRADIENT = re.compile(r"(.*/)?gradient(s|_tape)/")
"""What the nodes of a gradient are called, by tf.gradients and by tf.GradientTape."""
_PROCESS, _INPUT, _ALLOCATION = "ExecutorState::Process", "InstantiatedCapturedFunction::Run", "MemoryAllocation"
_INPUT_THREADS = "tf_data"
_PROTOCOLS = ("tensorflow.tsl.profiler.protobuf.xplane_pb2", "tsl.profiler.protobuf.xplane_pb2")
"""Modules with the message in TensorFlow 2.15 and in later versions."""


class NodeTime(NamedTuple):
    """A node of the graph. runs: how often it ran in the profile. own_us: its total time in microseconds, without operators inside
    it. shapes: of a product, the types and shapes of its inputs as TensorFlow writes them, "(float[64,36];float[36,72])": a node
    that ran with several has an entry for each."""

    node: str
    op: str
    runs: int
    own_us: float
    shapes: str = ""


class Span(NamedTuple):
    """One event of one thread. Times in picoseconds. step: the step's id in the event, if any. shapes: as in NodeTime."""

    name: str
    start: int
    duration: int
    step: int | None
    bytes: int
    shapes: str = ""


class WallTime(NamedTuple):
    """Wall time of the profile in microseconds, each moment counted once: as product if a product ran on any thread, else as stitch
    if a stitch op ran, else as other if another operator ran, else as nothing (the executor, Python, the switch between the arms)."""

    product: float
    stitch: float
    other: float
    nothing: float


def node_times(data: bytes) -> tuple[list[NodeTime], dict[str, int], WallTime]:
    """Reads a serialized XSpace: (time of each node, node -> bytes allocated for results and scratch, wall time)."""
    space = _message().FromString(data)
    threads: list[tuple[str, list[Span]]] = []
    for plane in space.planes:
        if not plane.name.startswith("/host:CPU"):
            continue
        names = {
            number: entry.name
            for number, entry in plane.event_metadata.items()
            if entry.name in (_PROCESS, _INPUT, _ALLOCATION) or _OPERATOR.fullmatch(entry.name)
        }
        keys = {number: entry.name for number, entry in plane.stat_metadata.items()}
        threads += [(line.name, list(_spans(line, names, keys))) for line in plane.lines]
    allocated: collections.Counter[str] = collections.Counter()
    for _, spans in threads:
        for span in spans:
            if span.name.startswith(_ALLOCATION + " "):
                allocated[span.name.split(" ", 1)[1]] += span.bytes
    return add_up(threads), dict(allocated), wall_time(threads)


class StepStarts(NamedTuple):
    """Of each profiled step, in seconds after an event: its first operator, its backward pass (empty if there is none), and by node
    each of its collectives."""

    begin: list[float]
    backward: list[float]
    collectives: dict[str, list[float]]


def step_starts(data: bytes, steps: int) -> StepStarts:
    """The StepStarts of a serialized XSpace of `steps` steps, from host tracer level 3, in seconds as in `starts_of`.

    Nodes that do not run once a step are left out. The backward pass starts with the matrix product of a gradient that starts first.
    """
    space = _message().FromString(data)
    starts: dict[tuple[str, str], list[int]] = collections.defaultdict(list)
    for plane in space.planes:
        if not plane.name.startswith("/host:CPU"):
            continue
        names = {number: operator_of(entry.name) for number, entry in plane.event_metadata.items()}
        for line in plane.lines:
            if line.name.startswith(_INPUT_THREADS):
                continue
            for event in line.events:
                if (found := names[event.metadata_id]) is not None:
                    starts[found].append(int(line.timestamp_ns) * 1000 + int(event.offset_ps))
    regular = {key: sorted(whens) for key, whens in starts.items() if len(whens) == steps}
    return starts_of(regular)


def starts_of(regular: dict[tuple[str, str], list[int]]) -> StepStarts:
    """The StepStarts of nodes that run once per step. regular: (node, operator) -> the start of each step's run in picoseconds,
    ascending. Times are in seconds after the first start of any of these nodes."""
    if not regular:
        return StepStarts([], [], {})
    origin = min(whens[0] for whens in regular.values())
    seconds = {key: [(when - origin) / 1e12 for when in whens] for key, whens in regular.items()}
    backward = [whens for (node, op), whens in seconds.items() if is_product(op) and _GRADIENT.match(node)]
    return StepStarts(
        [min(whens) for whens in zip(*seconds.values())],
        min(backward, default=[]),
        {node: whens for (node, op), whens in seconds.items() if op in COLLECTIVES},
    )


def _message() -> Any:
    for name in _PROTOCOLS:
        try:
            return importlib.import_module(name).XSpace
        except ImportError:
            continue
    raise ImportError(f"no XSpace message in this TensorFlow: looked for {', '.join(_PROTOCOLS)}")


def _spans(line: Any, names: dict[int, str], keys: dict[int, str]) -> Iterable[Span]:
    for event in line.events:
        name = names.get(event.metadata_id)
        if name is None:
            continue
        step, size, shapes = None, 0, ""
        if name in (_PROCESS, _INPUT, _ALLOCATION):
            stats = {keys.get(stat.metadata_id, ""): stat for stat in event.stats}
            step = _integer(stats["id"]) if "id" in stats else None
            if name == _ALLOCATION:
                if (operator := stats.get("tf_op")) is None:
                    continue
                name = f"{_ALLOCATION} {operator.str_value or keys.get(operator.ref_value, '')}"
                size = _integer(stats.get("requested_bytes"))
        elif (found := operator_of(name)) is not None and is_product(found[1]):
            shape = next((stat for stat in event.stats if keys.get(stat.metadata_id) == "shape"), None)
            shapes = "" if shape is None else shape.str_value or keys.get(shape.ref_value, "")
        yield Span(name, int(event.offset_ps), int(event.duration_ps), step, size, shapes)


def _integer(stat: Any) -> int:
    return 0 if stat is None else int(getattr(stat, stat.WhichOneof("value")))


@functools.cache
def operator_of(name: str) -> tuple[str, str] | None:
    """(node, operator) in the name of an event; None if it is not an operator's event."""
    found = _OPERATOR.fullmatch(name)
    return None if found is None else (found[1], found[2])


def wall_time(threads: Iterable[tuple[str, list[Span]]]) -> WallTime:
    """The wall time from the first operator's beginning to the last one's end. An operator that contains others is not counted
    itself."""
    changes: list[tuple[int, int, int]] = []  # time, 1 for a beginning and -1 for an end, kind
    for name, spans in threads:
        if name.startswith(_INPUT_THREADS):
            continue
        named = [(span, found[1]) for span in spans if (found := operator_of(span.name)) is not None]
        named.sort(key=lambda one: (one[0].start, -one[0].duration))
        for (span, op), after in itertools.zip_longest(named, named[1:]):
            end = span.start + span.duration
            if after is not None and after[0].start < end:
                continue  # it contains the next one
            kind = 0 if is_product(op) else 1 if op in OUR_OPS else 2
            changes += [(span.start, 1, kind), (end, -1, kind)]
    running, spent, last = [0, 0, 0], [0, 0, 0, 0], None
    for time, change, kind in sorted(changes):
        if last is not None:
            spent[next((k for k in range(3) if running[k]), 3)] += time - last
        running[kind] += change
        last = time
    return WallTime(*(one / 1e6 for one in spent))


def add_up(threads: Iterable[tuple[str, list[Span]]]) -> list[NodeTime]:
    """The time of each node over all threads except those of the input pipeline, longest first."""
    threads = list(threads)
    inputs = {span.step for _, spans in threads for span in spans if span.name == _INPUT}
    runs: collections.Counter[tuple[str, str, str]] = collections.Counter()
    own_ps: collections.Counter[tuple[str, str, str]] = collections.Counter()
    for name, spans in threads:
        if name.startswith(_INPUT_THREADS):
            continue
        open_spans: list[tuple[Span, tuple[str, str, str] | None]] = []
        # Of two events with the same beginning, the longer one contains the other.
        for span in sorted(spans, key=lambda span: (span.start, -span.duration)):
            while open_spans and open_spans[-1][0].start + open_spans[-1][0].duration <= span.start:
                open_spans.pop()
            key: tuple[str, str, str] | None = None
            if (found := operator_of(span.name)) is not None:
                process = next((held for held, _ in reversed(open_spans) if held.name == _PROCESS), None)
                if process is None or process.step not in inputs:
                    key = (*found, span.shapes)
                    runs[key] += 1
                    own_ps[key] += span.duration
                    holder = next((held for _, held in reversed(open_spans) if held is not None), None)
                    if holder is not None:
                        own_ps[holder] -= span.duration
            elif span.name != _PROCESS:
                continue
            open_spans.append((span, key))
    nodes = [NodeTime(key[0], key[1], runs[key], own_ps[key] / 1e6, key[2]) for key in runs]
    return sorted(nodes, key=lambda node: -node.own_us)
