"""Gives a GPU more rows to work on: if a nest only computes elements and has too few rows to keep the device's warps busy, each
iteration of the outermost loop over a row becomes a row of its own.

    before: for r in rows: for k in [0, 50): for j in [0, 36) simd: ...
    after:  for s in rows * 50: r = s / 50; k = s % 50; for j in [0, 36) simd: ...
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..ir.graph import DType
from ..ir.index_maps import Bound, Index, Var
from ..loops import loops
from ..loops.loops import If, Let, LetIndex, Loop, LoopKind, NestCode, Statement, walk


def spread_rows(code: NestCode, busy_rows: int) -> NestCode:
    """The same nest with more rows, if it has fewer than `busy_rows` and can be cut; else `code` itself."""
    if code.instances or code.per_task or code.rows_per_task != 1 or not _only_computes(code.body):
        return code
    while code.rows < busy_rows:
        *before, rows = code.body
        if not isinstance(rows, Loop) or rows.bounds != ("first_row", "last_row") or rows.kind is not LoopKind.SERIAL:
            return code
        outer = [each for each in rows.body if isinstance(each, Loop) and _can_be_cut(each, code.may_alias)]
        around = [*before, *(each for each in rows.body if not isinstance(each, (Loop, If)))]
        if not outer or _touches(around, code.may_alias):
            return code
        cut = max(outer, key=lambda loop: loop.extent)
        code = replace(code, body=(*before, _cut(rows, code.rows, cut)), rows=code.rows * cut.extent)
    return code


def _can_be_cut(loop: Loop, shared: frozenset[int]) -> bool:
    """Whether the loop has iterations that can be done in any order. shared: buffers that may be in the same memory, so that what
    one row writes may be what the same row reads."""
    has_iterations = loop.kind is LoopKind.SERIAL and loop.bounds is None and loop.extent > 1
    return has_iterations and not _touches(loop.body, shared)


def _touches(body: Sequence[Statement], buffers: frozenset[int]) -> bool:
    values = [each.value if isinstance(each, Let) else each for each in walk(body)]
    return any(isinstance(each, (loops.Load, loops.Store)) and each.buffer in buffers for each in values)


def _only_computes(body: Sequence[Statement]) -> bool:
    """Whether each element is computed and stored by itself, from memory that the nest does not write."""
    read, written = set(), set()
    for each in walk(body):
        if isinstance(each, loops.Store):
            written.add(each.buffer)
        elif isinstance(each, Let) and not isinstance(each.value, loops.LoadLocal):
            if isinstance(each.value, loops.Load):
                read.add(each.value.buffer)
        elif not isinstance(each, LetIndex) and not (
            isinstance(each, Loop) and each.kind in (LoopKind.SERIAL, LoopKind.SIMD)
        ):
            return False
    return not read & written


def _cut(rows: Loop, count: int, cut: Loop) -> Loop:
    """The loop over `count` rows, with a row for each iteration of `cut`. What else the row stores goes with the first of these."""
    row = Var(f"{cut.variable.name}_row", count * cut.extent)
    old, iteration = Index.of_var(row).divide(cut.extent)
    body: list[Statement] = []
    for variable, position in ((rows.variable, old), (cut.variable, iteration)):
        name = f"{variable.name}_of_{row.name}"
        body += [Let(name, DType.S64, loops.FromIndex(position)), LetIndex(variable, name, False)]
    for each in rows.body:
        if each is cut:
            body.extend(cut.body)
        elif isinstance(each, (Loop, If, loops.Store)):
            body.append(If((Bound(Index.of_var(cut.variable), 0, 1),), (each,)))
        else:
            body.append(each)
    return Loop(row, row.extent, LoopKind.SERIAL, tuple(body), bounds=rows.bounds)
