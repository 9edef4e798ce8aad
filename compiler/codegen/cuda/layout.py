"""Which thread of a group does what in a nest: which iterations of each loop a thread takes, and where each local is stored: in
shared memory, in an array of registers per thread, or in one register.

`assign` makes these decisions and returns a `Layout`; `body` writes it. A local array that distributed iterations access is in shared
memory; one that is accessed only by the statements around them is private to each thread. If a row fits, it is kept in registers:
if every loop distributes an array's elements in the same way, each thread holds its own elements, and a tensor element that several
loops over the row read is loaded once. A *step* of a distributed loop (`_turn` in kernels) is what all threads do in one round.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...ir.graph import DType
from ...loops import loops
from ...loops.loops import Local, Loop, LoopKind, NestCode, Statement, shared_room, walk
from ...targets.targets import WARP
from .survey import Element, Survey, Use, is_distributed, is_interleaved, is_narrow, is_row_loop, place_of
from .vectors import Vectors, fold_width, only_computes, row_vectors, row_widths, vectors_of

THREAD = "thread"
"""Name of the thread's number in its group, in generated text."""
MOST_KEPT = 16
"""Most elements of one row, or of one array, that a thread may keep in registers."""
KEPT_REGISTERS = 48
"""Most registers of a thread for the elements of all rows and arrays that it keeps."""
REDUCE_BYTES = WARP * 8
"""Shared memory of a reduction over a block: one value of at most 8 bytes per warp."""


class How(enum.Enum):
    """How a loop's iterations are distributed over the threads of a group."""

    STRIDED = "strided"  # thread n takes n, n + T, n + 2T, ...
    ROW = "row"  # over a row: `width` neighbours in each step
    VECTORS = "vectors"  # over a task's elements: `width` neighbours in each step, and the remainder one by one
    STRETCHES = "stretches"  # for a variadic reduction: one stretch of neighbours per thread
    SCAN = "scan"  # neighbouring threads take neighbouring iterations, and scan them together; then the next ones


@dataclass(frozen=True)
class ThreadMapping:
    """How one loop is distributed over `threads` threads.

    width: neighbours that a thread takes per step. vectors: the accesses that move them at once; None if each element is accessed by
    itself. unrolled: whether the steps are unrolled, because they index arrays of registers. kept: by the name of a loaded value, the
    array of registers that holds it from an earlier loop; fills: the array that this loop fills for later loops. ahead: the number of
    steps whose vectors are loaded together, which divides every thread's number of steps.
    """

    loop: Loop
    threads: int
    how: How
    width: int = 1
    vectors: Vectors | None = None
    unrolled: bool = False
    kept: Mapping[str, str] = field(default_factory=dict)
    fills: Mapping[str, str] = field(default_factory=dict)
    ahead: int = 1

    @property
    def steps(self) -> int:
        """The largest number of steps of any thread."""
        return -(-self.loop.extent // (self.threads * self.width))

    @property
    def stretch(self) -> int:
        """Number of consecutive iterations of a thread if `how` is STRETCHES."""
        return self.steps * self.width

    @property
    def is_guarded(self) -> bool:
        """Whether some threads have fewer steps than others."""
        return self.loop.extent != self.steps * self.threads * self.width

    @property
    def place(self) -> str:
        """The variable of a step's first iteration."""
        return self.loop.variable.name if self.vectors is None else self.vectors.base.name

    @property
    def slot(self) -> str:
        """The index of an iteration's element in an array of registers, as C text."""
        if self.steps == 1:
            return "0" if self.width == 1 else "element"
        step = f"{self.loop.variable.name}_turn"
        return step if self.width == 1 else f"{step} * {self.width} + element"

    @property
    def own_place(self) -> str:
        """The index of an iteration's element in an array that is ordered by threads, as C text."""
        return f"{self.place} - {THREAD} * {self.width - 1} + element * {self.threads}"


@dataclass(frozen=True)
class Total:
    """An accumulator that each group has, and that is combined over the groups of a block. offset: bytes from the start of shared
    memory; room: number of elements there."""

    local: Local
    offset: int
    room: int


@dataclass(frozen=True)
class Places:
    """Where locals are stored, for groups of `threads` threads.

    uses: of all locals, by name. widths: neighbours that a thread takes per step over a row, by the row's number of elements.
    registers: by local, the number of elements that each thread keeps in an array of registers. offsets: for locals in shared memory,
    bytes from the start of the group's part. owned: the locals in shared memory of which each element is accessed by only one
    thread.
    """

    threads: int
    uses: Mapping[str, Use]
    widths: Mapping[int, int]
    registers: Mapping[str, int] = field(default_factory=dict)
    owned: frozenset[str] = frozenset()
    offsets: Mapping[str, int] = field(default_factory=dict)
    shared_bytes: int = 0

    def width(self, extent: int) -> int:
        """Neighbours that a thread takes per step of a loop over a row of `extent` elements."""
        return self.widths.get(extent, 1)

    def steps(self, extent: int) -> int:
        """The largest number of steps of any thread over a row of `extent` elements."""
        return -(-extent // (self.threads * self.width(extent)))

    def slots(self, extent: int) -> int:
        """The largest number of elements of any thread, one register each, for a row of `extent` elements."""
        return self.steps(extent) * self.width(extent)

    def is_common(self, name: str) -> bool:
        """Whether several threads access one element."""
        return name in self.offsets and name not in self.owned

    def is_scalar(self, name: str) -> bool:
        """Whether the local is one register per thread."""
        return name not in self.offsets and name not in self.registers and self.uses[name].size == 1

    def lies_by_threads(self, name: str) -> bool:
        """Whether an array in shared memory is ordered by the threads that own its elements: thread n has n, n + T, n + 2T, ..., so
        that no two threads of a warp hit the same bank, whichever elements of the row these are."""
        if name not in self.owned:
            return False
        ((_, extent, bounds),) = self.uses[name].places
        return not bounds and self.width(extent) > 1

    def room(self, name: str) -> int:
        """Number of elements of a local for all threads of a group; 1 for a single value, which all threads have alike."""
        if self.is_scalar(name):
            return 1
        if name in self.registers:
            return self.registers[name] * self.threads
        size = self.uses[name].size
        return self.slots(size) * self.threads if self.lies_by_threads(name) else size


@dataclass(frozen=True)
class Layout:
    """The layout of a nest for a block of `groups` groups of `threads` threads.

    shared_rows: if the groups of a block do one task together, the place in the body of the loop over the task's rows, which they
    share; None otherwise. totals: the accumulators that are combined after that loop. both: buffers that the nest reads and writes.
    mappings: the distribution of each distributed loop, by the loop's id(). reduces: number of values that threads reduce at once.
    row_type: the C type of a row number.
    """

    places: Places
    groups: int
    shared_rows: int | None
    both: frozenset[int]
    mappings: Mapping[int, ThreadMapping]
    totals: tuple[Total, ...]
    reduces: int
    row_type: str

    @property
    def together(self) -> bool:
        """Whether the groups of a block do one task together."""
        return self.shared_rows is not None

    @property
    def threads(self) -> int:
        """Threads per group."""
        return self.places.threads

    @property
    def aligned(self) -> Mapping[int, int]:
        """For the nest's version with vectors: the number of bytes of which each buffer's address must be a multiple."""
        found: dict[int, int] = {}
        for mapping in self.mappings.values():
            for buffer, size in (mapping.vectors.buffers if mapping.vectors is not None else {}).items():
                found[buffer] = max(size, found.get(buffer, 1))
        return found

    @property
    def block_bytes(self) -> int:
        """Bytes of shared memory per block."""
        totals = sum(shared_room(total.room, total.local.dtype) for total in self.totals)
        return (
            self.groups * self.places.shared_bytes
            + totals
            + (self.reduces * REDUCE_BYTES if self.threads > WARP else 0)
        )

    def shares(self, statement: Statement) -> bool:
        """Whether the statement accesses what another thread may write or has yet to read."""
        if isinstance(statement, loops.Let):
            value = statement.value
            if isinstance(value, loops.Load):
                return value.buffer in self.both
            return isinstance(value, loops.LoadLocal) and self.places.is_common(value.local)
        if isinstance(statement, loops.Update):
            return not statement.atomic  # the next index of a scatter may point to another thread's element
        if isinstance(statement, loops.Store):
            return statement.buffer in self.both
        if isinstance(statement, (loops.Assign, loops.Combine, loops.Scan)):
            return self.places.is_common(statement.local)
        if isinstance(statement, Local):
            return self.places.is_common(statement.name) and statement.kind is not None
        if isinstance(statement, (Loop, loops.Blocks, loops.If)):
            return any(self.shares(inner) for inner in statement.body)
        if isinstance(statement, loops.Find):
            return any(self.shares(inner) for inner in statement.test)
        return False


def assign(nest: NestCode, threads: int, groups: int) -> Layout:
    """The layout of a nest for a block of `groups` groups of `threads` threads."""
    survey = Survey(nest.body)
    registers = _Registers()
    places = _place(Places(threads, survey.locals, row_widths(nest.body, threads)), registers)
    mappings = _ThreadMapper(nest, places, registers, survey.written)
    rows = next((number for number, each in enumerate(nest.body) if is_row_loop(each)), None)
    if not nest.per_task or groups == 1:
        rows = None
    for part in (nest.body,) if rows is None else (nest.body[: rows + 1], nest.body[rows + 1 :]):
        mappings.visit(part, {})
    return Layout(
        places=places,
        groups=groups,
        shared_rows=rows,
        both=frozenset(survey.read & survey.written),
        mappings=mappings.found,
        totals=() if rows is None else tuple(_totals(nest.body[:rows], places, groups)),
        reduces=max((_reduced(each, places) for each in walk(nest.body)), default=0),
        row_type="int" if is_narrow(nest) else "long long",
    )


def _totals(before: Sequence[Statement], places: Places, groups: int) -> Iterator[Total]:
    offset = groups * places.shared_bytes
    for each in before:
        if isinstance(each, Local) and each.kind is not None:
            room = groups // 2 * places.room(each.name)
            yield Total(each, offset, room)
            offset += shared_room(room, each.dtype)


def _reduced(statement: Statement, places: Places) -> int:
    """Number of values that the threads of a group reduce at once in a statement."""
    if isinstance(statement, loops.Collapse):
        return int(places.uses[statement.local].by_lanes and places.threads > 1)
    if isinstance(statement, loops.Fold):
        return len(statement.locals) if places.threads > WARP else 0
    return int(isinstance(statement, Loop) and statement.kind is LoopKind.SCAN)


class _Registers:
    """The budget of registers in which a thread may keep elements."""

    def __init__(self) -> None:
        self.left = KEPT_REGISTERS

    def take(self, slots: int, dtype: DType) -> bool:
        """Reserves registers for `slots` elements; False if there are not enough."""
        needed = slots * (2 if dtype.size_bytes == 8 else 1)
        if slots > MOST_KEPT or needed > self.left:
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


class _ThreadMapper:
    """Walks over a nest's statements in order and decides how each of its loops is distributed."""

    def __init__(self, nest: NestCode, places: Places, registers: _Registers, written: set[int]) -> None:
        self.nest, self.places, self.registers, self.written = nest, places, registers, written
        self.found: dict[int, ThreadMapping] = {}
        # In such a nest a thread may take a row's elements one by one if they cannot be accessed by vectors.
        self._only_computes = only_computes(nest.body)
        self._arrays = 0  # number of register arrays that keep elements
        self._filled: set[str] = set()

    def visit(self, body: Sequence[Statement], kept: Mapping[Element, str]) -> None:
        """Decides for the loops of `body`. kept: by element, the register arrays that hold it from the loops around."""
        kept = {**kept, **self._repeated(body)}
        for each in body:
            if isinstance(each, Loop) and is_distributed(each):
                mapping = self._map(each, kept)
                self.found[id(each)] = mapping
                self._filled.update(mapping.fills.values())
            elif isinstance(each, (Loop, loops.Blocks, loops.If)):
                self.visit(each.body, kept)
            elif isinstance(each, loops.Visit):
                self.visit((*each.ahead, *each.body), kept)

    def _map(self, loop: Loop, kept: Mapping[Element, str]) -> ThreadMapping:
        threads = self.places.threads
        if loop.kind is LoopKind.SCAN:
            return ThreadMapping(loop, threads, How.SCAN)
        width = self.places.width(loop.extent)
        arrays = {name: kept[element] for name, _, element in self._loaded(loop) if element in kept}
        if is_interleaved(loop) and (width > 1 or arrays or self._is_unrolled(loop)):
            vectors = row_vectors(loop, width)
            if self._only_computes:
                return ThreadMapping(
                    loop, threads, How.VECTORS, width, vectors, ahead=_ahead(vectors, loop.extent, threads)
                )
            there = {name: array for name, array in arrays.items() if array in self._filled}
            loads = {name: load for name, load in vectors.loads.items() if name not in there}
            return ThreadMapping(
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
            exact = loop.kind is LoopKind.SIMD and loop.bounds == ("first_row", "last_row") and not self.nest.instances
            rows = self.nest.rows_per_task if exact and self.nest.rows % self.nest.rows_per_task == 0 else 0
            return ThreadMapping(loop, threads, How.VECTORS, found.width, found, ahead=_ahead(found, rows, threads))
        if loop.kind is LoopKind.FOLD and threads > 1:
            width = fold_width(loop, threads)
            return ThreadMapping(loop, threads, How.STRETCHES, width, row_vectors(loop, width) if width > 1 else None)
        return ThreadMapping(loop, threads, How.STRIDED)

    def _repeated(self, body: Sequence[Statement]) -> dict[Element, str]:
        """The elements that several distributed loops among these statements load in the same way, with the arrays that keep them."""
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
        """The loads of a loop whose value never changes within the nest: name, dtype and element of each."""
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
        """Whether a loop's steps are unrolled, for example because it works on arrays of registers."""
        return any(_local_of(each) in self.places.registers for each in walk(loop.body)) or self._is_copied_at_once(
            loop
        )

    def _is_copied_at_once(self, loop: Loop) -> bool:
        """Whether the loop only copies elements to shared memory, a few per thread. Unrolled, a thread issues all its loads before
        it waits for one."""
        brought = [each for each in loop.body if isinstance(each, loops.Assign)]
        plain = all(
            isinstance(each, (loops.Assign, loops.LetIndex))
            or (isinstance(each, loops.Let) and isinstance(each.value, (loops.Load, loops.FromIndex)))
            for each in loop.body
        )
        few = self.places.steps(loop.extent) <= MOST_KEPT
        return plain and bool(brought) and loop.extent % self.places.threads == 0 and few


def _ahead(vectors: Vectors, extent: int, threads: int) -> int:
    """How many steps of a loop that only computes are loaded together. extent: of the loop, if it is known; else 0."""
    step = threads * vectors.width
    return vectors.ahead(extent // step) if extent and extent % step == 0 else 1


def _local_of(statement: Statement) -> str | None:
    """The local from which a statement reads, or to which it writes, an element; None if there is none."""
    if isinstance(statement, loops.Let) and isinstance(statement.value, loops.LoadLocal):
        return statement.value.local
    return statement.local if isinstance(statement, (loops.Assign, loops.Combine, loops.Scan)) else None
