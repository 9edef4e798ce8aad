"""How the locals of a nest's body are used if a group of threads executes it: what the layout must know beforehand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass

from ...ir.graph import DType, Node
from ...ir.index_maps import Digit, Index, Var
from ...loops import loops
from ...loops.loops import Local, Loop, LoopKind, NestCode, Statement, walk

Element = tuple[int, str, int]
"""What a loop loads in each iteration: (buffer, position in terms of the loop's variable, the loop's extent)."""


@dataclass
class Use:
    """How a local is used. `distributed`, `written_distributed`: distributed loops access or write it; `places`: (position in terms
    of the loop's variable, extent, bounds) of each such access. `around`: statements around these loops access it. `collapsed`,
    `folded`: a Collapse or Fold combines it. `by_lanes`: a distributed loop combines into the thread's own accumulator."""

    dtype: DType
    size: int
    kind: str | None
    places: set[tuple[str, int, str]] = field(default_factory=set)
    distributed: bool = False
    written_distributed: bool = False
    around: bool = False
    collapsed: bool = False
    folded: bool = False
    by_lanes: bool = False

    @property
    def is_shared(self) -> bool:
        """Whether several threads access the local, so that it is in shared memory."""
        if self.collapsed or self.folded:
            return False
        return self.written_distributed or (self.distributed and self.size > 1)

    @property
    def is_owned(self) -> bool:
        """Whether each element is only ever accessed by one thread: all loops distribute them in the same way."""
        if self.around or len(self.places) != 1:
            return False
        ((place, extent, bounds),) = self.places
        if extent == 1 and self.size == 1:
            return True  # thread 0 alone
        if bounds == "block_first to block_last":
            return place == str(Index.of_var(PLACE) - Index.of_var(Var("block_first", PLACE.extent)))
        return place == PLACE.name and not bounds and self.size == extent


PLACE = Var("@", 1 << 40)
"""Stands for the variable of any distributed loop."""


class Survey:
    """What the layout of a nest must know: how each local is used (`locals`), and which buffers the body reads and writes."""

    def __init__(self, body: Sequence[Statement]) -> None:
        self.locals: dict[str, Use] = {}
        self.read: set[int] = set()
        self.written: set[int] = set()
        self._visit(body, None)

    def _visit(self, body: Sequence[Statement], distributed: Loop | None) -> None:
        for statement in body:
            if isinstance(statement, Local):
                self.locals[statement.name] = Use(statement.dtype, statement.size, statement.kind)
            elif isinstance(statement, loops.Let):
                if isinstance(statement.value, loops.Load):
                    self.read.add(statement.value.buffer)
                elif isinstance(statement.value, loops.LoadLocal):
                    self._touch(statement.value.local, statement.value.index, distributed, writes=False)
            elif isinstance(statement, (loops.Store, loops.Update)):
                self.written.add(statement.buffer)
                if isinstance(statement, loops.Update) and statement.kind != "replace":
                    self.read.add(statement.buffer)
            elif isinstance(statement, loops.Assign):
                self._touch(statement.local, statement.index, distributed, writes=True)
            elif isinstance(statement, loops.Combine):
                if statement.index is None:
                    self.locals[statement.local].by_lanes |= distributed is not None
                else:
                    self._touch(statement.local, statement.index, distributed, writes=True)
            elif isinstance(statement, loops.Scan):
                # In a SCAN loop all threads have the accumulator alike.
                alike = distributed is not None and distributed.kind is LoopKind.SCAN
                self._touch(statement.local, statement.index, None if alike else distributed, writes=True)
            elif isinstance(statement, loops.Collapse):
                self.locals[statement.local].collapsed = True
            elif isinstance(statement, loops.Fold):
                for name in statement.locals:
                    self.locals[name].folded = True
            elif isinstance(statement, Loop):
                self._visit(
                    statement.body, statement if distributed is None and is_distributed(statement) else distributed
                )
            elif isinstance(statement, (loops.Blocks, loops.If)):
                self._visit(statement.body, distributed)
            elif isinstance(statement, loops.Find):
                self._visit(statement.test, distributed)
            elif isinstance(statement, loops.Visit):
                self._visit((*statement.test, *statement.each), distributed)

    def _touch(self, name: str, index: Index, distributed: Loop | None, writes: bool) -> None:
        use = self.locals[name]
        if distributed is None:
            use.around = True
            return
        use.distributed = True
        use.written_distributed |= writes
        bounds = "" if distributed.bounds is None else " to ".join(distributed.bounds)
        if distributed.kind is LoopKind.FOLD:
            bounds = "stretches"
        use.places.add((place_of(index, distributed), distributed.extent, bounds))


def place_of(index: Index, loop: Loop) -> str:
    """A position in terms of a loop's variable, independent of the variable's name."""
    return str(index.substitute({loop.variable: Index.of_var(Var(PLACE.name, loop.variable.extent))}))


def is_distributed(loop: Loop) -> bool:
    """Whether the threads of a group share the loop's iterations, unless it is inside another such loop."""
    return loop.kind is not LoopKind.SERIAL


def distributed_loops(body: Sequence[Statement]) -> Iterator[Loop]:
    """The loops of a body whose iterations are distributed over threads, in order. A loop inside one of them is run by one thread."""
    for statement in body:
        if isinstance(statement, Loop) and is_distributed(statement):
            yield statement
        elif isinstance(statement, (Loop, loops.Blocks, loops.If)):
            yield from distributed_loops(statement.body)
        elif isinstance(statement, loops.Visit):
            yield from distributed_loops((*statement.ahead, *statement.body))


def is_interleaved(loop: Loop) -> bool:
    """Whether thread n takes iterations n, n + T, ... of a whole row, in the same way in every such loop."""
    return is_distributed(loop) and loop.kind not in (LoopKind.FOLD, LoopKind.SCAN) and loop.bounds is None


def is_row_loop(statement: Statement) -> bool:
    """Whether the statement is the loop over a task's rows, each of which the whole group works on."""
    return (
        isinstance(statement, Loop) and not is_distributed(statement) and statement.bounds == ("first_row", "last_row")
    )


NARROW = 1 << 30
"""Row numbers and positions below this bound are of type int. It is half of int's range, so that adding a few more steps of a
loop does not overflow."""


def is_narrow(nest: NestCode) -> bool:
    """Whether each position of a nest, and each part of one, fits an int. A GPU has no 64-bit integer units: an address from an int
    is one instruction, from a long long it is four."""
    elements = [buffer.elements for buffer in nest.all_buffers]
    if max(nest.rows, nest.rows_per_task, *elements) >= NARROW:
        return False
    return all(_fits_int(index) for each in walk(nest.body) for index in _indices(each))


def _fits_int(index: Index) -> bool:
    inner = [atom.index for _, atom in index.terms if not isinstance(atom, Digit)]
    parts = [index.constant, *(coefficient * max(atom.high, 1) for coefficient, atom in index.terms)]
    return sum(map(abs, parts)) < NARROW and all(map(_fits_int, inner))


def _indices(part: object) -> Iterator[Index]:
    """The indices in a statement, without those of the statements within it."""
    if isinstance(part, Index):
        yield part
    elif isinstance(part, tuple):
        for each in part:
            if not isinstance(each, (loops.Loop, loops.Blocks, loops.If)):
                yield from _indices(each)
    elif is_dataclass(part) and not isinstance(part, (Var, Node)):
        for each in fields(part):
            if each.name != "body":
                yield from _indices(getattr(part, each.name))
