"""If tasks store partial results and a block has several groups of threads, the block works on one task: its groups take rows in
rotation, and their sums are combined in shared memory before they are stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...loops.loops import Statement
from ...ops.c_text import REGISTER_TYPE, cpp_combine
from .body import CudaWriter
from .layout import THREAD, Places, Total


def task_body(writer: CudaWriter, statements: Sequence[Statement], indent: int) -> Iterator[str]:
    """The body of a task that the groups of a block do together. Each group takes every n-th row of the n groups; then half of the
    groups add the sums of the other half to their own, and so on, until the first group has the total and stores the partial
    results."""
    pad, layout, places = "  " * indent, writer.layout, writer.layout.places
    assert layout.shared_rows is not None
    after = layout.shared_rows + 1
    yield from writer.body(statements[:after], indent)
    for total in layout.totals:
        ctype, name = REGISTER_TYPE[total.local.dtype], total.local.name
        yield f"{pad}STITCH_SHARED({ctype}, {name}_all, {total.offset}, {total.room});"
    yield f"{pad}for (int distance = {layout.groups // 2}; distance > 0; distance /= 2) {{"
    yield f"{pad}  if (group >= distance && group < 2 * distance) {{"
    for total in layout.totals:
        yield from _lay_down(places, total, f"{pad}    ")
    yield f"{pad}  }}"
    yield f"{pad}  __syncthreads();"
    yield f"{pad}  if (group < distance) {{"
    for total in layout.totals:
        yield from _add_up(places, total, f"{pad}    ")
    yield f"{pad}  }}"
    yield f"{pad}  __syncthreads();"
    yield f"{pad}}}"
    yield f"{pad}if (group == 0) {{"
    yield from writer.body(statements[after:], indent + 1)
    yield f"{pad}}}"


def _lay_down(places: Places, total: Total, pad: str) -> Iterator[str]:
    """Stores a group's accumulators where the group `distance` before it reads them."""
    name = total.local.name
    if places.is_scalar(name):
        yield f"{pad}if ({THREAD} == 0) {name}_all[group - distance] = {name};"
    else:
        place = f"(group - distance) * {places.room(name)} + place"
        yield from _for_each(places, name, f"{name}_all[{place}] = {_at_place(places, name)};", pad)


def _add_up(places: Places, total: Total, pad: str) -> Iterator[str]:
    name, kind, dtype = total.local.name, total.local.kind, total.local.dtype
    here, ctype = _at_place(places, name), REGISTER_TYPE[dtype]
    assert kind is not None
    other = f"({ctype}){name}_all[group * {places.room(name)} + place]"
    combined = cpp_combine(kind, dtype, f"({ctype}){here}", other)
    yield from _for_each(places, name, f"{here} = {combined};", pad)


def _at_place(places: Places, name: str) -> str:
    if places.is_scalar(name):
        return name
    return f"{name}[turn]" if name in places.registers else f"{name}[place]"


def _for_each(places: Places, name: str, line: str, pad: str) -> Iterator[str]:
    """Executes `line` for each element of an array, by the thread that has it, `place` being the element's position among those of
    all threads. For a single value, all threads execute it."""
    if places.is_scalar(name):
        yield f"{pad}{{ const int place = 0; {line} }}"
    elif name in places.registers:
        yield f"{pad}#pragma unroll"
        yield f"{pad}for (int turn = 0; turn < {places.registers[name]}; ++turn) {{"
        yield f"{pad}  const int place = {THREAD} + turn * {places.threads};"
        yield f"{pad}  {line}"
        yield f"{pad}}}"
    else:
        yield f"{pad}for (int place = {THREAD}; place < {places.room(name)}; place += {places.threads}) {line}"
