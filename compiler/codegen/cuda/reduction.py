"""Where tasks leave partial results and a block has several groups of threads, the block is one task: its groups take rows in turn,
and what they have added up is combined in shared memory before it is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...loops.loops import Local, Statement, shared_room
from ...ops.c_text import cpp_combine
from ...ops.table import REGISTER_TYPE
from .places import THREAD, PlacedWriter
from .survey import is_row_loop


class TogetherWriter(PlacedWriter):
    """A writer of such a task. `together_bytes`: what it takes of shared memory for all groups, after `task_body`."""

    def task_body(self, statements: Sequence[Statement], indent: int) -> Iterator[str]:
        """The body of a task that the groups of a block do together: each takes every so many rows; then half of them add what the
        other half has to their own, a quarter what the next has, until the first has all and writes the partial results."""
        pad = "  " * indent
        rows = next(number for number, statement in enumerate(statements) if is_row_loop(statement))
        totals = [each for each in statements[:rows] if isinstance(each, Local) and each.kind is not None]
        yield from self.body(statements[: rows + 1], indent)
        for total in totals:
            offset, room = (
                self.groups * self.shared_bytes + self.together_bytes,
                self.groups // 2 * self._room_of(total),
            )
            self.together_bytes += shared_room(room, total.dtype)
            yield f"{pad}STITCH_SHARED({REGISTER_TYPE[total.dtype]}, {total.name}_all, {offset}, {room});"
        yield f"{pad}for (int distance = {self.groups // 2}; distance > 0; distance /= 2) {{"
        yield f"{pad}  if (group >= distance && group < 2 * distance) {{"
        for total in totals:
            yield from self._lay_down(total, f"{pad}    ")
        yield f"{pad}  }}"
        yield f"{pad}  __syncthreads();"
        yield f"{pad}  if (group < distance) {{"
        for total in totals:
            yield from self._add_up(total, f"{pad}    ")
        yield f"{pad}  }}"
        yield f"{pad}  __syncthreads();"
        yield f"{pad}}}"
        yield f"{pad}if (group == 0) {{"
        yield from self.body(statements[rows + 1 :], indent + 1)
        yield f"{pad}}}"

    def _lay_down(self, total: Local, pad: str) -> Iterator[str]:
        """Puts a group's accumulators where the group `distance` before it finds them."""
        name, place = total.name, f"(group - distance) * {self._room_of(total)} + place"
        if self._is_scalar(name):
            yield f"{pad}if ({THREAD} == 0) {name}_all[group - distance] = {name};"
        else:
            yield from self._for_each(total, f"{name}_all[{place}] = {self._at_place(name)};", pad)

    def _add_up(self, total: Local, pad: str) -> Iterator[str]:
        name, ctype = total.name, REGISTER_TYPE[total.dtype]
        here = self._at_place(name)
        assert total.kind is not None
        other = f"({ctype}){name}_all[group * {self._room_of(total)} + place]"
        combined = cpp_combine(total.kind, total.dtype, f"({ctype}){here}", other)
        yield from self._for_each(total, f"{here} = {combined};", pad)

    def _room_of(self, total: Local) -> int:
        return 1 if self._is_scalar(total.name) else self._room(total.name)

    def _for_each(self, total: Local, line: str, pad: str) -> Iterator[str]:
        """Does `line` for each element of an array, by the thread that has it, `place` being where it lies among all threads'; of a
        single value, by all."""
        if self._is_scalar(total.name):
            yield f"{pad}{{ const int place = 0; {line} }}"
        elif total.name in self._in_registers:
            yield f"{pad}#pragma unroll"
            yield f"{pad}for (int turn = 0; turn < {self._in_registers[total.name]}; ++turn) {{"
            yield f"{pad}  const int place = {THREAD} + turn * {self.threads};"
            yield f"{pad}  {line}"
            yield f"{pad}}}"
        else:
            yield f"{pad}for (int place = {THREAD}; place < {self._room(total.name)}; place += {self.threads}) {line}"
