"""Rows of a nest that reads a tensor across memory, on a CPU: what is read so is first copied, transposed.

If the neighbours in the tensor are rows, for a block of rows:

    for r in [first_row, last_row):           for groups of 16 rows:
      for k simd:                                turn: tile[128*i + j] = b0[group_first + i + 512*j]
        t = b0[512*k + r]                        for r in the group: for k simd:
        ...                                        t = tile[128*(r - group_first) + k]

If they are the iterations of a loop over the row, before that loop, or for a block of its iterations:

    for c in [0, 64) serial:                  turn: tile[24*i + j] = b0[i + 64*j]
      for k in [0, 24) simd:                  for c in [0, 64) serial:
        t = b0[64*k + c]                        for k in [0, 24) simd: t = tile[24*c + k]

The copy goes in squares (kernel_prelude.h, stitch_turn): a vector is read where elements are neighbours in the tensor, and written
where they are neighbours in the row. What is copied is not written by the nest, so that it may be read earlier.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ..ir.index_maps import ZERO, Digit, Index, Var
from ..loops import loops
from ..loops.loops import Blocks, If, Let, Load, LoadLocal, Local, Loop, NestCode, Statement, Turn
from ..loops.split import SUBSTITUTED, substituted
from ..planning.transposes import (
    CACHE_LINE_ELEMENTS,
    FEWEST_TURNED,
    SQUARE_LANES,
    TURN_BYTES,
    TURNED_BYTES,
    Turns,
    turned_at_once,
)
from .row_blocks import NAME, loop_over_rows


@dataclass(frozen=True)
class _Copy:
    """A load that is copied. around: the loops over the row on whose variables it depends, outermost first; if the neighbours are the
    iterations of a loop, that loop is the first. lanes: how many of the innermost are one run of lanes, which are `stride` elements
    apart."""

    name: str
    load: Load
    around: tuple[Loop, ...]
    lanes: int
    stride: int

    @property
    def elements(self) -> int:
        """Elements of the tile, or of a row's part of it."""
        return math.prod(loop.extent for loop in self.around)

    def place(self) -> Index:
        """Where the element is in the tile, or in the row's part of it, in terms of the loops' variables."""
        place, stride = ZERO, 1
        for loop in reversed(self.around):
            place = place + Index.of_var(loop.variable) * stride
            stride *= loop.extent
        return place


def turned_rows(code: NestCode, turns: Turns) -> NestCode:
    """The nest with copies of what it reads across memory. turns: how the plan wants blocks of rows."""
    place, loop = loop_over_rows(code)
    turning = _Turning(code, loop, turns)
    return replace(code, body=(*code.body[:place], turning.rows(), *code.body[place + 1 :]))


class _Turning:
    """The copies of one nest, whose rows are `loop`."""

    def __init__(self, code: NestCode, loop: Loop, turns: Turns) -> None:
        self.loop, self.turns = loop, turns
        self._row = loop.variable
        self._unsteady = code.written_buffers | code.may_alias
        self._of_rows: dict[tuple[int, Index], _Copy] = {}
        self._of_runs: dict[int, dict[tuple[int, Index], _Copy]] = {}
        """By the identity of the loop whose iterations are neighbours."""
        self._count = 0
        self._find(loop.body, ())
        self._keep_what_fits()

    def rows(self) -> Statement:
        """The rows, in blocks if any copy is for a block of rows."""
        body = tuple(self._reading(self.loop.body, {}))
        if not self._of_rows:
            return replace(self.loop, body=body)
        inside = replace(self.loop, body=body, bounds=(f"{NAME}_first", f"{NAME}_last"))
        before: list[Statement] = []
        for copy in self._of_rows.values():
            before.append(Local(copy.name, copy.load.dtype, copy.elements * self.turns.rows, None))
            before.append(self._turn(copy, copy.around[: len(copy.around) - copy.lanes], copy.elements, None))
        return Blocks(self.turns.rows, (*before, inside), NAME, within=self.turns.within)

    # ---- what is copied ----------------------------------------------------------------------------------------------

    def _find(self, body: Iterable[Statement], around: tuple[Loop, ...]) -> None:
        for statement in body:
            if isinstance(statement, Loop):
                self._find(statement.body, (*around, statement))
            elif isinstance(statement, If):
                self._find(statement.body, around)
            elif isinstance(statement, Let) and isinstance(statement.value, Load):
                self._look_at(statement.value, around)

    def _look_at(self, load: Load, around: Sequence[Loop]) -> None:
        """Notes how a load is copied, if it is."""
        terms: dict[Var, list[tuple[int, Digit]]] = {}
        for coefficient, atom in load.index.terms:
            if not isinstance(atom, Digit):
                return
            terms.setdefault(atom.variable, []).append((coefficient, atom))
        inside = tuple(loop for loop in around if loop.variable in terms)
        if load.guard or load.buffer in self._unsteady or load.index.low < 0 or not inside:
            return
        if load.dtype.size_bytes != TURNED_BYTES:
            return
        if inside[-1] is not around[-1] or terms.keys() - {self._row, *(loop.variable for loop in inside)}:
            return
        is_plain = all([digit for _, digit in terms[loop.variable]] == [_whole(loop)] for loop in inside)
        if not is_plain or any(loop.bounds for loop in inside):
            return
        apart = [terms[loop.variable][0][0] for loop in inside]
        lanes, extent = 1, inside[-1].extent
        while lanes < len(inside) and apart[-1 - lanes] == apart[-1] * extent:
            extent *= inside[-1 - lanes].extent
            lanes += 1
        runs = [number for number, step in enumerate(apart[: len(apart) - lanes]) if step == 1]
        rows = [digit for coefficient, digit in terms.get(self._row, []) if coefficient == 1 and digit.stride == 1]
        if apart[-1] < CACHE_LINE_ELEMENTS or extent < FEWEST_TURNED or len(runs) + len(rows) != 1:
            return
        key, name = (load.buffer, load.index), f"turned{self._count}"
        if runs:
            run = inside[runs[0]]
            is_square = lanes == 1 and inside[-1].extent == SQUARE_LANES and run is inside[-2]
            if run.extent >= FEWEST_TURNED and not (is_square and run.extent % SQUARE_LANES == 0):
                copy = _Copy(name, load, inside[runs[0] :], lanes, apart[-1])
                self._of_runs.setdefault(id(run), {}).setdefault(key, copy)
        elif self._are_neighbours(rows[0], [digit for _, digit in terms[self._row]]):
            self._of_rows.setdefault(key, _Copy(name, load, inside, lanes, apart[-1]))
        self._count += 1

    def _are_neighbours(self, run: Digit, digits: Sequence[Digit]) -> bool:
        """Whether the rows of a block are neighbours. digits: of the row, in a load's position; run: the one that counts them."""
        within = self.turns.within
        is_seen = run.is_top or (within is not None and run.extent % within == 0)
        return self.turns.rows > 1 and is_seen and all(d == run or d.stride % run.extent == 0 for d in digits)

    def _keep_what_fits(self) -> None:
        room = TURN_BYTES
        for key, copy in list(self._of_rows.items()):
            size = copy.elements * self.turns.rows * copy.load.dtype.size_bytes
            if size > room:
                del self._of_rows[key]
            else:
                room -= size
        self._block: dict[int, int] = {}
        for number, copies in list(self._of_runs.items()):
            run = next(iter(copies.values())).around[0]
            each = sum(copy.elements // run.extent * copy.load.dtype.size_bytes for copy in copies.values())
            block = turned_at_once(run.extent, each, room)
            is_known = all(isinstance(statement, SUBSTITUTED) for statement in loops.walk(run.body))
            if block == 0 or (block < run.extent and (not is_known or run.kind is not loops.LoopKind.SERIAL)):
                del self._of_runs[number]
            else:
                self._block[number] = block
                room -= each * block

    # ---- the statements ----------------------------------------------------------------------------------------------

    def _reading(self, body: Iterable[Statement], known: dict[tuple[int, Index], LoadLocal]) -> Iterator[Statement]:
        """The statements of a row, which read the copies. known: what the loops around them have copied."""
        for statement in body:
            if isinstance(statement, Loop) and id(statement) in self._of_runs:
                yield from self._in_run(statement, known)
            elif isinstance(statement, (Loop, If)):
                yield replace(statement, body=tuple(self._reading(statement.body, known)))
            elif isinstance(statement, Let) and isinstance(statement.value, Load) and not statement.value.guard:
                yield replace(statement, value=self._instead_of(statement.value, known))
            else:
                yield statement

    def _instead_of(self, load: Load, known: dict[tuple[int, Index], LoadLocal]) -> Load | LoadLocal:
        key = (load.buffer, load.index)
        if key in known:
            return known[key]
        copy = self._of_rows.get(key)
        if copy is None:
            return load
        slot = Index.of_var(self._row) - self._first
        return LoadLocal(copy.name, slot * copy.elements + copy.place())

    @property
    def _first(self) -> Index:
        return Index.of_var(Var(f"{NAME}_first", self._row.extent))

    def _in_run(self, run: Loop, known: dict[tuple[int, Index], LoadLocal]) -> Iterator[Statement]:
        """The loop `run`, whose iterations are neighbours in tensors, with the copies before it."""
        copies, size = self._of_runs[id(run)], self._block[id(run)]
        block = Var(f"{run.variable.name}_block", run.extent // size)
        begin = Index.of_var(block) * size
        before: list[Statement] = []
        here = dict(known)
        for key, copy in copies.items():
            pitch = copy.elements // run.extent
            before.append(Local(copy.name, copy.load.dtype, pitch * size, None))
            between = copy.around[1 : len(copy.around) - copy.lanes]
            before.append(self._turn(copy, between, pitch, size, {run.variable: begin}))
            here[key] = LoadLocal(copy.name, copy.place() - begin * pitch)
        inside = replace(run, body=tuple(self._reading(run.body, here)))
        if size == run.extent:
            yield from before
            yield inside
            return
        fewer = Var(run.variable.name, size)
        values = {run.variable: begin + Index.of_var(fewer)}
        body = tuple(substituted(statement, values) for statement in inside.body)
        smaller = replace(inside, variable=fewer, extent=size, body=body)
        yield Loop(block, block.extent, loops.LoopKind.SERIAL, (*before, smaller))

    def _turn(
        self,
        copy: _Copy,
        outer: Sequence[Loop],
        pitch: int,
        down: int | None,
        run: dict[Var, Index] | None = None,
    ) -> Statement:
        """The copy, within the loops `outer`. run: what the variable of the neighbours is at the first of them."""
        still = {loop.variable: ZERO for loop in copy.around[len(copy.around) - copy.lanes :]}
        index = copy.load.index.substitute(still).substitute({self._row: self._first} if run is None else run)
        place = copy.place().substitute(still | ({} if run is None else dict.fromkeys(run, ZERO)))
        along = math.prod(loop.extent for loop in copy.around[len(copy.around) - copy.lanes :])
        turn: Statement = Turn(
            copy.name, place, pitch, copy.load.buffer, copy.load.dtype, index, copy.stride, down, along
        )
        for loop in reversed(outer):
            turn = Loop(loop.variable, loop.extent, loops.LoopKind.SERIAL, (turn,))
        return turn


def _whole(loop: Loop) -> Digit:
    return Digit(loop.variable, 1, loop.extent)
