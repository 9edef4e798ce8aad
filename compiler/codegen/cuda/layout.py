"""Who does what of a nest that a group of threads works on: which iterations of each loop a thread takes, and where each local lies,
in shared memory, in an array of registers of each thread, or in one register.

Decisions alone: `assign` makes a `Layout`, which says what `body` then writes. A local array that distributed iterations touch is in
shared memory; one that only the statements around them touch is each thread's own. A row that fits is kept in registers: where
every loop deals out an array's elements alike, each thread holds its own; and an element of a tensor that several loops over the row
read is loaded once.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...ir.graph import DType
from ...loops import loops
from ...loops.loops import Local, Loop, LoopKind, NestCode, Statement, shared_room, walk
from .survey import Element, Survey, Use, is_distributed, is_interleaved, is_row_loop, place_of
from .vectors import Vectors, fold_width, only_computes, row_vectors, row_widths, vectors_of

WARP = 32
THREAD = "thread"
"""The thread's number in its group, in generated text."""
MOST_TURNS = 16
"""Elements of a row, or of an array, that a thread may keep in registers, ..."""
KEPT_REGISTERS = 48
"""... and how many registers all that it keeps may take."""
REDUCE_BYTES = WARP * 8
"""Shared memory of a reduction over a block: one value of at most 8 bytes of each warp."""


class How(enum.Enum):
    """How a loop's iterations are distributed to the threads of a group."""

    STRIDED = "strided"  # thread n takes n, n + T, n + 2T, ...
    ROW = "row"  # of a row, `width` neighbours in each turn
    VECTORS = "vectors"  # of a task's elements, `width` neighbours in each turn, and what is left over one by one
    STRETCHES = "stretches"  # of a variadic reduction, one stretch of neighbours
    SCAN = "scan"  # neighbouring threads take neighbouring iterations, which they scan together; then the next ones


@dataclass(frozen=True)
class Deal:
    """How one loop is distributed to `threads` threads.

    width: neighbours that a thread takes in a turn. vectors: the accesses that move them at once; None where they go one by one.
    unrolled: whether the compiler is to tell the turns apart, since they index arrays of registers. kept: by the name of a value that
    is loaded, the array of registers that has it from an earlier loop; fills: the array that this loop fills for later ones.
    """

    loop: Loop
    threads: int
    how: How
    width: int = 1
    vectors: Vectors | None = None
    unrolled: bool = False
    kept: Mapping[str, str] = field(default_factory=dict)
    fills: Mapping[str, str] = field(default_factory=dict)

    @property
    def turns(self) -> int:
        """Turns of the thread that has most."""
        return -(-self.loop.extent // (self.threads * self.width))

    @property
    def stretch(self) -> int:
        """Iterations of a thread, all neighbours (STRETCHES)."""
        return self.turns * self.width

    @property
    def is_guarded(self) -> bool:
        """Whether some thread has fewer turns than others."""
        return self.loop.extent != self.turns * self.threads * self.width

    @property
    def place(self) -> str:
        """The variable of a turn's first iteration."""
        return self.loop.variable.name if self.vectors is None else self.vectors.base.name

    @property
    def slot(self) -> str:
        """Where in an array of registers an iteration's element is."""
        if self.turns == 1:
            return "0" if self.width == 1 else "element"
        turn = f"{self.loop.variable.name}_turn"
        return turn if self.width == 1 else f"{turn} * {self.width} + element"

    @property
    def own_place(self) -> str:
        """Where in an array that lies by threads an iteration's element is."""
        return f"{self.place} - {THREAD} * {self.width - 1} + element * {self.threads}"

    @property
    def aligned(self) -> Mapping[int, int]:
        """What the addresses of buffers have to be multiples of for the nest's function with vectors. A loop that only computes a
        task's elements asks for itself, each time."""
        looks_itself = self.how is How.VECTORS and self.loop.kind is LoopKind.SIMD
        return {} if self.vectors is None or looks_itself else self.vectors.buffers


@dataclass(frozen=True)
class Total:
    """An accumulator of which each group has its own, added up over all of a block's. offset, room: bytes from the start of shared
    memory, and elements there."""

    local: Local
    offset: int
    room: int


@dataclass(frozen=True)
class Places:
    """Where locals lie, for groups of `threads` threads.

    uses: of all locals, by name. widths: neighbours that a thread takes in a turn over a row, by the row's elements. registers:
    elements that each thread keeps in an array of registers, by the local. offsets: bytes from the start of a group's shared memory,
    of the locals that are there. owned: those of these whose elements are each touched by one thread only.
    """

    threads: int
    uses: Mapping[str, Use]
    widths: Mapping[int, int]
    registers: Mapping[str, int] = field(default_factory=dict)
    owned: frozenset[str] = frozenset()
    offsets: Mapping[str, int] = field(default_factory=dict)
    shared_bytes: int = 0

    def width(self, extent: int) -> int:
        """Neighbours that a thread takes in a turn of a loop over a row of so many elements."""
        return self.widths.get(extent, 1)

    def turns(self, extent: int) -> int:
        """Turns over a row of the thread that has most."""
        return -(-extent // (self.threads * self.width(extent)))

    def slots(self, extent: int) -> int:
        """Elements of a row that fall to one thread: what it needs registers for."""
        return self.turns(extent) * self.width(extent)

    def is_common(self, name: str) -> bool:
        """Whether several threads touch one element."""
        return name in self.offsets and name not in self.owned

    def is_scalar(self, name: str) -> bool:
        """Whether it is one register of each thread."""
        return name not in self.offsets and name not in self.registers and self.uses[name].size == 1

    def lies_by_threads(self, name: str) -> bool:
        """Whether an array in shared memory is in the order of the threads that own its elements: thread n has n, n + T, n + 2T, ...,
        so that no two of a warp hit one bank, whichever elements of the row these are."""
        if name not in self.owned:
            return False
        ((_, extent, bounds),) = self.uses[name].places
        return not bounds and self.width(extent) > 1

    def room(self, name: str) -> int:
        """Elements of a local, of all threads of a group; of a single value, which they have alike, one."""
        if self.is_scalar(name):
            return 1
        if name in self.registers:
            return self.registers[name] * self.threads
        size = self.uses[name].size
        return self.slots(size) * self.threads if self.lies_by_threads(name) else size


@dataclass(frozen=True)
class Layout:
    """Of a nest for `groups` groups of `threads` threads, which make a block.

    shared_rows: where the groups of a block do one task together, the place in the body of the loop over its rows, which they share;
    `totals` are what they add up after it. both: buffers that the nest reads and writes. deals: of each loop that is distributed, by
    its identity. reduces: values that threads reduce at once.
    """

    places: Places
    groups: int
    shared_rows: int | None
    both: frozenset[int]
    deals: Mapping[int, Deal]
    totals: tuple[Total, ...]
    reduces: int

    @property
    def together(self) -> bool:
        """Whether the groups of a block do one task together."""
        return self.shared_rows is not None

    @property
    def threads(self) -> int:
        """Threads of a group."""
        return self.places.threads

    @property
    def aligned(self) -> Mapping[int, int]:
        """What the addresses of buffers have to be multiples of for the nest's function with vectors."""
        found: dict[int, int] = {}
        for deal in self.deals.values():
            for buffer, size in deal.aligned.items():
                found[buffer] = max(size, found.get(buffer, 1))
        return found

    @property
    def block_bytes(self) -> int:
        """Shared memory of a block."""
        totals = sum(shared_room(total.room, total.local.dtype) for total in self.totals)
        return (
            self.groups * self.places.shared_bytes
            + totals
            + (self.reduces * REDUCE_BYTES if self.threads > WARP else 0)
        )

    def shares(self, statement: Statement) -> bool:
        """Whether the statement touches what another thread may write or has yet to read."""
        if isinstance(statement, loops.Let):
            value = statement.value
            if isinstance(value, loops.Load):
                return value.buffer in self.both
            return isinstance(value, loops.LoadLocal) and self.places.is_common(value.local)
        if isinstance(statement, loops.Update):
            return True  # a scatter's next index may be another thread's element
        if isinstance(statement, loops.Store):
            return statement.buffer in self.both
        if isinstance(statement, loops.Assign | loops.Combine | loops.Scan):
            return self.places.is_common(statement.local)
        if isinstance(statement, Local):
            return self.places.is_common(statement.name) and statement.kind is not None
        if isinstance(statement, Loop | loops.Blocks | loops.If):
            return any(self.shares(inner) for inner in statement.body)
        return False


def assign(nest: NestCode, threads: int, groups: int) -> Layout:
    """The layout of a nest for a block of `groups` groups of `threads` threads."""
    survey = Survey(nest.body)
    registers = _Registers()
    places = _place(Places(threads, survey.locals, row_widths(nest.body, threads)), registers)
    deals = _Deals(nest, places, registers, survey.written)
    rows = next((number for number, each in enumerate(nest.body) if is_row_loop(each)), None)
    if not nest.per_task or groups == 1:
        rows = None
    for part in (nest.body,) if rows is None else (nest.body[: rows + 1], nest.body[rows + 1 :]):
        deals.visit(part, {})
    return Layout(
        places=places,
        groups=groups,
        shared_rows=rows,
        both=frozenset(survey.read & survey.written),
        deals=deals.found,
        totals=() if rows is None else tuple(_totals(nest.body[:rows], places, groups)),
        reduces=max((_reduced(each, places) for each in walk(nest.body)), default=0),
    )


def _totals(before: Sequence[Statement], places: Places, groups: int) -> Iterator[Total]:
    offset = groups * places.shared_bytes
    for each in before:
        if isinstance(each, Local) and each.kind is not None:
            room = groups // 2 * places.room(each.name)
            yield Total(each, offset, room)
            offset += shared_room(room, each.dtype)


def _reduced(statement: Statement, places: Places) -> int:
    """Values that the threads of a group reduce at once in a statement."""
    if isinstance(statement, loops.Collapse):
        return int(places.uses[statement.local].by_lanes and places.threads > 1)
    if isinstance(statement, loops.Fold):
        return len(statement.locals) if places.threads > WARP else 0
    return int(isinstance(statement, Loop) and statement.kind is LoopKind.SCAN)


class _Registers:
    """What a thread has left for what it keeps."""

    def __init__(self) -> None:
        self.left = KEPT_REGISTERS

    def take(self, slots: int, dtype: DType) -> bool:
        """Takes registers for so many elements, if there are enough."""
        needed = slots * (2 if dtype.size_bytes == 8 else 1)
        if slots > MOST_TURNS or needed > self.left:
            return False
        self.left -= needed
        return True


def _place(places: Places, registers: _Registers) -> Places:
    shared = {name: use for name, use in places.uses.items() if use.is_shared}
    in_registers: dict[str, int] = {}
    for name, use in shared.items():
        if use.is_owned:
            ((_, extent, bounds),) = use.places
            slots = places.slots(extent)
            if not bounds and extent != 1 and registers.take(slots, use.dtype):
                in_registers[name] = slots
    shared = {name: use for name, use in shared.items() if name not in in_registers}
    owned = frozenset(name for name, use in shared.items() if use.is_owned)
    places = replace(places, registers=in_registers, owned=owned)
    offsets: dict[str, int] = {}
    shared_bytes = 0
    for name, use in shared.items():
        offsets[name] = shared_bytes
        shared_bytes += shared_room(places.room(name), use.dtype)
    return replace(places, offsets=offsets, shared_bytes=shared_bytes)


class _Deals:
    """Walks a nest's statements in order and decides how each of its loops is distributed."""

    def __init__(self, nest: NestCode, places: Places, registers: _Registers, written: set[int]) -> None:
        self.nest, self.places, self.registers, self.written = nest, places, registers, written
        self.found: dict[int, Deal] = {}
        # Of such a nest a thread may take a row's elements one by one where vectors cannot be.
        self._only_computes = only_computes(nest.body)
        self._arrays = 0  # of registers that keep elements
        self._filled: set[str] = set()

    def visit(self, body: Sequence[Statement], kept: Mapping[Element, str]) -> None:
        """Decides the loops of `body`. kept: the arrays of registers of what loops around it keep, by the element."""
        kept = {**kept, **self._repeated(body)}
        for each in body:
            if isinstance(each, Loop) and is_distributed(each):
                deal = self._deal(each, kept)
                self.found[id(each)] = deal
                self._filled.update(deal.fills.values())
            elif isinstance(each, Loop | loops.Blocks | loops.If):
                self.visit(each.body, kept)

    def _deal(self, loop: Loop, kept: Mapping[Element, str]) -> Deal:
        threads = self.places.threads
        if loop.kind is LoopKind.SCAN:
            return Deal(loop, threads, How.SCAN)
        width = self.places.width(loop.extent)
        arrays = {name: kept[element] for name, _, element in self._loaded(loop) if element in kept}
        if is_interleaved(loop) and (width > 1 or arrays or self._is_unrolled(loop)):
            vectors = row_vectors(loop, width)
            if self._only_computes:
                return Deal(loop, threads, How.VECTORS, width, vectors)
            there = {name: array for name, array in arrays.items() if array in self._filled}
            loads = {name: load for name, load in vectors.loads.items() if name not in there}
            return Deal(
                loop,
                threads,
                How.ROW,
                width,
                vectors=replace(vectors, loads=loads) if width > 1 else None,
                unrolled=bool(arrays) or self._is_unrolled(loop),
                kept=there,
                fills={name: array for name, array in arrays.items() if name not in there},
            )
        if (found := vectors_of(loop, self.nest, threads)) is not None:
            return Deal(loop, threads, How.VECTORS, found.width, found)
        if loop.kind is LoopKind.FOLD and threads > 1:
            width = fold_width(loop, threads)
            return Deal(loop, threads, How.STRETCHES, width, row_vectors(loop, width) if width > 1 else None)
        return Deal(loop, threads, How.STRIDED)

    def _repeated(self, body: Sequence[Statement]) -> dict[Element, str]:
        """The elements that several of these statements, distributed loops, load alike, with the arrays that keep them."""
        readers: dict[Element, set[int]] = {}
        dtypes: dict[Element, DType] = {}
        for number, loop in enumerate(body):
            if isinstance(loop, Loop) and is_interleaved(loop):
                for _, dtype, element in self._loaded(loop):
                    readers.setdefault(element, set()).add(number)
                    dtypes[element] = dtype
        found = {}
        for element, where in readers.items():
            if len(where) > 1 and self.registers.take(self.places.slots(element[2]), dtypes[element]):
                self._arrays += 1
                found[element] = f"kept{self._arrays}"
        return found

    def _loaded(self, loop: Loop) -> Iterator[tuple[str, DType, Element]]:
        """What a loop loads that is the same whenever it is loaded in the nest: names, types, and elements."""
        made_here = {each.variable for each in loop.body if isinstance(each, loops.LetIndex)}
        for each in loop.body:
            load = each.value if isinstance(each, loops.Let) else None
            if not isinstance(each, loops.Let) or not isinstance(load, loops.Load):
                continue
            if load.guard or load.buffer in self.written or load.index.variables & made_here:
                continue
            if loop.variable in load.index.variables:
                yield each.name, each.dtype, (load.buffer, place_of(load.index, loop), loop.extent)

    def _is_unrolled(self, loop: Loop) -> bool:
        """Whether a loop's turns are to be known one by one, since it works on arrays of registers, say."""
        return any(_local_of(each) in self.places.registers for each in walk(loop.body)) or self._is_copied_at_once(
            loop
        )

    def _is_copied_at_once(self, loop: Loop) -> bool:
        """Whether all it does is to bring elements to shared memory, each thread a few: so that it asks for all before it waits for
        one."""
        brought = [each for each in loop.body if isinstance(each, loops.Assign)]
        plain = all(
            isinstance(each, loops.Assign | loops.LetIndex)
            or (isinstance(each, loops.Let) and isinstance(each.value, loops.Load | loops.FromIndex))
            for each in loop.body
        )
        few = self.places.turns(loop.extent) <= MOST_TURNS
        return plain and bool(brought) and loop.extent % self.places.threads == 0 and few


def _local_of(statement: Statement) -> str | None:
    """The local of which a statement reads or writes an element."""
    if isinstance(statement, loops.Let) and isinstance(statement.value, loops.LoadLocal):
        return statement.value.local
    return statement.local if isinstance(statement, loops.Assign | loops.Combine | loops.Scan) else None
