"""From TensorFlow's own profile (an XSpace) to the time of each node of the step.

At host tracer level 3 the executor leaves an event "node:operator" for each operator that it runs, inside an event
"ExecutorState::Process" that tells the step's id. At level 2 those are missing that its cost estimate calls cheap: of a DIEN's step,
24 in 28 thousand, control flow and small arithmetic in loops, which are a good part of its time. Input pipelines run operators as
well; theirs have ids of their own (of "InstantiatedCapturedFunction::Run"), by which they are left out.
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

_PRODUCT = re.compile(r"MatMul|Conv[123]D|Einsum")
"""Also of what TensorFlow fuses onto them, and of oneDNN's names for them: _MklNativeFusedMatMul."""
_OPERATOR = re.compile(r"([A-Za-z0-9.][\w.\-/>]*):([A-Za-z_]\w*)")
_PROCESS, _INPUT, _ALLOCATION = "ExecutorState::Process", "InstantiatedCapturedFunction::Run", "MemoryAllocation"
_INPUT_THREADS = "tf_data"
_PROTOCOLS = ("tensorflow.tsl.profiler.protobuf.xplane_pb2", "tsl.profiler.protobuf.xplane_pb2")
"""Where TensorFlow 2.15 and later versions keep the message."""


class NodeTime(NamedTuple):
    """A node of the graph: how often it ran in the profile, and its own time in all, without that of operators inside it."""

    node: str
    op: str
    runs: int
    own_us: float


class Span(NamedTuple):
    """One event of one thread. Times in picoseconds; step: the id that it tells, if any."""

    name: str
    start: int
    duration: int
    step: int | None
    bytes: int


class WallTime(NamedTuple):
    """Wall time of what was profiled, in microseconds, each moment counted once: a product ran in it on some thread; if none, a
    stitch op; if none, another operator; or nothing ran (the executor, Python and the switch between the arms)."""

    product: float
    stitch: float
    other: float
    nothing: float


def node_times(data: bytes) -> tuple[list[NodeTime], dict[str, int], WallTime]:
    """(the time of each node, the bytes of results and scratch that each node allocated, wall time) of a serialized XSpace."""
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
        step, size = None, 0
        if name in (_PROCESS, _INPUT, _ALLOCATION):
            stats = {keys.get(stat.metadata_id, ""): stat for stat in event.stats}
            step = _integer(stats["id"]) if "id" in stats else None
            if name == _ALLOCATION:
                if (operator := stats.get("tf_op")) is None:
                    continue
                name = f"{_ALLOCATION} {operator.str_value or keys.get(operator.ref_value, '')}"
                size = _integer(stats.get("requested_bytes"))
        yield Span(name, int(event.offset_ps), int(event.duration_ps), step, size)


def _integer(stat: Any) -> int:
    return 0 if stat is None else int(getattr(stat, stat.WhichOneof("value")))


@functools.cache
def operator_of(name: str) -> tuple[str, str] | None:
    """(node, operator) of an event's name; None for one that is no operator's."""
    found = _OPERATOR.fullmatch(name)
    return None if found is None else (found[1], found[2])


def is_product(op: str) -> bool:
    """Whether an operator is a matrix product or a convolution, by its name in the profile."""
    return bool(_PRODUCT.search(op))


def wall_time(threads: Iterable[tuple[str, list[Span]]]) -> WallTime:
    """From the first operator's beginning to the last one's end. Of operators that hold others, only those inside count."""
    changes: list[tuple[int, int, int]] = []  # time, 1 for a beginning and -1 for an end, kind
    for name, spans in threads:
        if name.startswith(_INPUT_THREADS):
            continue
        named = [(span, found[1]) for span in spans if (found := operator_of(span.name)) is not None]
        named.sort(key=lambda one: (one[0].start, -one[0].duration))
        for (span, op), after in itertools.zip_longest(named, named[1:]):
            end = span.start + span.duration
            if after is not None and after[0].start < end:
                continue  # it holds the next one
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
    """The time of each node over all threads, those of the input pipeline left out; longest first."""
    threads = list(threads)
    inputs = {span.step for _, spans in threads for span in spans if span.name == _INPUT}
    runs: collections.Counter[tuple[str, str]] = collections.Counter()
    own_ps: collections.Counter[tuple[str, str]] = collections.Counter()
    for name, spans in threads:
        if name.startswith(_INPUT_THREADS):
            continue
        open_spans: list[tuple[Span, tuple[str, str] | None]] = []
        # An event that begins with another and lasts longer holds it.
        for span in sorted(spans, key=lambda span: (span.start, -span.duration)):
            while open_spans and open_spans[-1][0].start + open_spans[-1][0].duration <= span.start:
                open_spans.pop()
            key: tuple[str, str] | None = None
            if (found := operator_of(span.name)) is not None:
                process = next((held for held, _ in reversed(open_spans) if held.name == _PROCESS), None)
                if process is None or process.step not in inputs:
                    key = found
                    runs[key] += 1
                    own_ps[key] += span.duration
                    holder = next((held for _, held in reversed(open_spans) if held is not None), None)
                    if holder is not None:
                        own_ps[holder] -= span.duration
            elif span.name != _PROCESS:
                continue
            open_spans.append((span, key))
    return sorted((NodeTime(*key, runs[key], own_ps[key] / 1e6) for key in runs), key=lambda node: -node.own_us)
