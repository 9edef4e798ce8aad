"""Rows of a few elements as lanes, on a CPU: the elements of a row are neighbours in memory, so those that a vector of rows reads lie
apart. They are copied, transposed, for a block of rows, and so are the results:

    for r in [first_row, last_row) simd:       for groups of 128 rows:
      t1 = b0[8*r]                                turn: in0[128*i + j] = b0[8*group_first + i + 8*j]
      t2 = b0[8*r + 1]                            for r in [group_first, group_last) simd:
      ...                                           t1 = in0[r - group_first]
      b1[8*r] = t9                                  t2 = in0[r - group_first + 128]
                                                    ...
                                                    out0[r - group_first] = t9
                                                  turn back: b1[8*group_first + 8*i + j] = out0[i + 128*j]

The copies go in squares (kernel_prelude.h, stitch_turn). Without them gcc reads each element by itself, or makes vectors of the
elements of two rows, and computes each function for these alone. Rows are independent, so all rows of a block may be read before the
first one is written.

If the nest also adds up over rows (the gradient of a bias), the blocks are parts of those whose sums stay in lanes (lanes.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..ir.graph import DType
from ..ir.index_maps import ZERO, Digit, Index, Var
from ..loops.loops import (
    Assign,
    Blocks,
    Let,
    Load,
    LoadLocal,
    Local,
    Loop,
    LoopKind,
    NestCode,
    Statement,
    Store,
    Turn,
    TurnBack,
)
from ..planning.transposes import FEWEST_IN_ROW, FEWEST_IN_SUMMED, TURNED_BYTES
from .row_blocks import NAME

_Key = tuple[int, DType, int]
"""A buffer, its dtype, and its elements from row to row."""


@dataclass(frozen=True)
class _Piece:
    """The elements `stride * row + first + k`, k in [0, count), of a buffer; `local` holds them for the rows of a block."""

    local: str
    buffer: int
    dtype: DType
    stride: int
    first: int
    count: int


def turned_lanes(code: NestCode, rows: int) -> NestCode:
    """The nest, whose rows are lanes, in blocks of `rows` rows; as it is if it reads and writes no rows that lie together."""
    return replace(code, body=tuple(_turned(code, statement, rows) for statement in code.body))


def _turned(code: NestCode, statement: Statement, rows: int) -> Statement:
    """A statement of the nest: the loop over rows in blocks; what is around it with that loop in blocks."""
    if isinstance(statement, Blocks):
        return replace(statement, body=tuple(_turned(code, each, rows) for each in statement.body))
    return _in_blocks(code, statement, rows) if isinstance(statement, Loop) and statement.bounds else statement


def _in_blocks(code: NestCode, loop: Loop, rows: int) -> Statement:
    row, fewest = loop.variable, FEWEST_IN_SUMMED if loop.kind is LoopKind.LANES else FEWEST_IN_ROW
    read: dict[_Key, set[int]] = defaultdict(set)
    written: dict[_Key, set[int]] = defaultdict(set)
    for statement in loop.body:
        found = _position(statement, row, fewest)
        if found is not None:
            (written if isinstance(statement, Store) else read)[found[0]].add(found[1])
    own = code.written_buffers
    given = {
        key: piece
        for key, piece in _pieces(read, "in", fewest)
        if key[0] not in own and piece.count <= 2 * len(read[key])
    }
    results = {
        key: piece for key, piece in _pieces(written, "out", fewest) if piece.count == piece.stride == len(written[key])
    }
    every = (*given.values(), *results.values())
    if not every or loop.bounds is None:
        return loop
    first = Index.of_var(Var(f"{NAME}_first", row.extent))
    slot = Index.of_var(row) - first

    def inside(statement: Statement) -> Statement:
        found = _position(statement, row, fewest)
        piece = found and (results if isinstance(statement, Store) else given).get(found[0])
        if not found or not piece:
            return statement
        index = slot + (found[1] - piece.first) * rows
        if isinstance(statement, Store):
            return Assign(piece.local, index, statement.value)
        assert isinstance(statement, Let)
        return replace(statement, value=LoadLocal(piece.local, index))

    start = {piece: first * piece.stride + piece.first for piece in every}
    body: tuple[Statement, ...] = (
        *(Local(piece.local, piece.dtype, piece.count * rows, None) for piece in every),
        *(
            Turn(piece.local, ZERO, rows, piece.buffer, piece.dtype, start[piece], piece.stride, piece.count, None)
            for piece in given.values()
        ),
        replace(loop, body=tuple(map(inside, loop.body)), bounds=(f"{NAME}_first", f"{NAME}_last")),
        *(
            TurnBack(piece.buffer, piece.dtype, start[piece], piece.stride, piece.local, rows, piece.count)
            for piece in results.values()
        ),
    )
    return Blocks(rows, body, NAME, bounds=loop.bounds)


def _position(statement: Statement, row: Var, fewest: int) -> tuple[_Key, int] | None:
    """What a load or store of an element of a row reads or writes, and the position in the row; None if the elements of rows are not
    apart, or not of the size that can be turned."""
    access = statement.value if isinstance(statement, Let) else statement
    if not isinstance(access, (Load, Store)) or access.dtype.size_bytes != TURNED_BYTES:
        return None
    if (isinstance(access, Load) and access.guard) or len(access.index.terms) != 1:
        return None
    ((stride, atom),) = access.index.terms
    if atom != Digit(row, 1, row.extent) or not stride >= fewest or not 0 <= access.index.constant < stride:
        return None
    return (access.buffer, access.dtype, stride), access.index.constant


def _pieces(found: dict[_Key, set[int]], name: str, fewest: int) -> Iterator[tuple[_Key, _Piece]]:
    for number, (key, positions) in enumerate(found.items()):
        first, count = min(positions), max(positions) - min(positions) + 1
        if count >= fewest:
            yield key, _Piece(f"{name}{number}", *key, first, count)
