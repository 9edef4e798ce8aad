"""Vector accesses: which accesses of a distributed loop move several neighbouring elements in one instruction.

A thread takes `width` neighbours per step: its reads or writes of neighbouring elements are one load or store of up to 16 bytes;
every other statement is executed for each element. So a warp has 512 bytes in flight with one instruction, and halves and bytes, of
which it would otherwise request 64 and 32 bytes, keep memory as busy as floats do. There are three kinds of such loops:

    over a task's elements    `first_row` to `last_row`, or a block of them: the remainder at the end is taken one by one
    over a row                of a given length (`row_widths`): every loop of the nest over rows of that length uses the same
                              neighbours, so that what a thread has kept in registers, or in a tile, is its own in all of them
    of a variadic reduction   each thread's stretch of it begins and ends with a whole vector (`fold_width`)

An address is a multiple of the vector's size if the row's length allows it and the buffer's address is one; the kernel tests that. If
a buffer's address is not (a slice of another tensor), there is a second version of the function. In it, a loop that only
computes elements takes them one by one. A loop over a row that is kept, or a loop that sums, gives each thread the same
elements in the same order, but loads and stores them one by one. So a sum is the same to the last bit whatever the address: it
depends on shapes and the device alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ...ir.index_maps import Digit, Index, Var
from ...loops import loops
from ...loops.loops import Loop, LoopKind, NestCode, Statement
from .survey import distributed_loops, is_interleaved

VECTOR_BYTES = 16
"""The most bytes that one load or store of a thread moves."""
VECTOR_REGISTERS = 32
"""The most registers that a thread's vectors may take."""
VECTOR_ACCESSES = 8
"""The most vectors of a thread. An optimizer's update reads four tensors and writes three."""
MORE_STEPS = 4 / 3
"""How much longer the longest thread may take over a row by vectors than element by element. For example, 192 of 256 threads take
four of 768 elements each, instead of all threads taking three."""


AHEAD_REGISTERS = 16
"""The most registers for vectors that a thread loads before it works on the first of them."""
MOST_AHEAD = 4
"""The most steps whose vectors a thread loads together."""


@dataclass(frozen=True)
class Vectors:
    """The vector accesses of one loop. loads: by name, the loads made by vectors; stores: the stores made by vectors. base: the
    variable of a vector's first element. suffix: ends the names of the loaded values; if the vectors of several steps are
    loaded ahead, it differs from step to step."""

    width: int
    base: Var
    loads: dict[str, loops.Load]
    stores: tuple[loops.Store, ...]
    suffix: str = ""

    def of_step(self, number: int) -> Vectors:
        """The same accesses for the step `number` steps later, under names of their own: its vectors can then be loaded together with
        this step's."""
        if number == 0:
            return self
        return replace(self, base=Var(f"{self.base.name}{number}", self.base.extent), suffix=str(number))

    def ahead(self, steps: int) -> int:
        """How many of a thread's `steps` steps are loaded before the first one's elements are computed."""
        registers = sum(-(-load.dtype.size_bytes * self.width // 4) for load in self.loads.values())
        at_once = min(MOST_AHEAD, steps, AHEAD_REGISTERS // registers) if registers else 1
        while steps % max(at_once, 1):
            at_once -= 1
        return max(at_once, 1)

    @property
    def buffers(self) -> dict[int, int]:
        """By buffer number, the number of bytes of which the buffer's address must be a multiple."""
        found: dict[int, int] = {}
        for load in self.loads.values():
            found[load.buffer] = load.dtype.size_bytes * self.width
        for store in self.stores:
            found[store.buffer] = store.dtype.size_bytes * self.width
        return found

    def first_place(self, loop: Loop, index: Index) -> Index:
        """The position of the first element of the vector that contains the element at `index`, an index of `loop`."""
        return index.substitute({loop.variable: Index.of_var(self.base)})


def vectors_of(loop: Loop, nest: NestCode, threads: int) -> Vectors | None:
    """The vector accesses of a loop over a task's elements, if there is at least one vector for each thread; else None."""
    if loop.bounds not in (("first_row", "last_row"), ("block_first", "block_last")) or not _is_straight(loop):
        return None
    if any(map(_is_array, loop.body)):
        return None
    most = nest.rows_per_task if nest.instances else min(nest.rows_per_task, nest.rows)
    width = VECTOR_BYTES
    while width > 1:
        enough = most >= threads * width
        whole = (
            enough and nest.rows_per_task % width == 0 and (loop.bounds[0] == "first_row" or loop.extent % width == 0)
        )
        found = _of_width(loop, width) if whole else None
        if found is not None and not any(isinstance(each, loops.Store) for each in _uncoalesced(loop, found)):
            return found
        width //= 2
    return None


def _is_array(statement: Statement) -> bool:
    """Whether the statement works on an element of an array of the nest, whose owner follows from how loops are distributed."""
    if isinstance(statement, (loops.Assign, loops.Scan)):
        return True
    if isinstance(statement, loops.Combine):
        return statement.index is not None
    return isinstance(statement, loops.Let) and isinstance(statement.value, loops.LoadLocal)


def row_widths(body: Sequence[Statement], threads: int) -> dict[int, int]:
    """How many neighbours each of `threads` threads takes per step in loops over a row, by the row's number of elements. Only widths
    above 1 are listed."""
    by_extent: dict[int, list[Loop]] = {}
    for loop in distributed_loops(body):
        if is_interleaved(loop):
            by_extent.setdefault(loop.extent, []).append(loop)
    return {extent: width for extent, same in by_extent.items() if (width := _width_of(extent, same, threads)) > 1}


def only_computes(body: Sequence[Statement]) -> bool:
    """Whether a nest's body has exactly one distributed loop, and that only computes elements: then it does not matter which thread
    computes which element."""
    distributed = [*distributed_loops(body)]
    return (
        len(distributed) == 1 and distributed[0].kind is LoopKind.SIMD and not any(map(_is_array, distributed[0].body))
    )


def row_vectors(loop: Loop, width: int) -> Vectors:
    """The accesses of a loop over a row that are vector accesses if each thread takes `width` neighbours; there may be none."""
    return _of_width(loop, width) or _vectors(loop, width, {}, ())


def fold_width(loop: Loop, threads: int) -> int:
    """How many neighbours of its stretch each of `threads` threads takes at once in `loop`, a variadic reduction."""
    return _width_of(loop.extent, [loop], threads)


def _width_of(extent: int, same: Sequence[Loop], threads: int) -> int:
    """The greatest number of neighbours per step for which no access becomes uncoalesced, and at least one becomes a vector access;
    1 if there is none. same: the loops over rows of `extent` elements."""
    if not all(map(_is_straight, same)):
        return 1
    width = VECTOR_BYTES
    while width > 1:
        slots = -(-extent // (threads * width)) * width
        if extent % width == 0 and slots <= MORE_STEPS * -(-extent // threads):
            found = [_of_width(loop, width) for loop in same]
            whole = (not any(_uncoalesced(loop, row_vectors(loop, width))) for loop in same)
            if any(each is not None for each in found) and all(whole):
                return width
        width //= 2
    return 1


def _is_straight(loop: Loop) -> bool:
    """Whether the loop's statements can be executed for one element after the other."""
    plain = (loops.Let, loops.LetIndex, loops.Store, loops.Assign, loops.Combine)
    return all(isinstance(each, plain) for each in loop.body)


def _of_width(loop: Loop, width: int) -> Vectors | None:
    """The accesses that are vector accesses of `width` elements; None if there are none, too many, or too long ones."""
    written = {each.buffer for each in loop.body if isinstance(each, loops.Store)}
    made_here = {each.variable for each in loop.body if isinstance(each, loops.LetIndex)}
    loads = {
        each.name: each.value
        for each in loop.body
        if isinstance(each, loops.Let)
        and isinstance(each.value, loops.Load)
        and not each.value.guard
        and each.value.buffer not in written
        and not each.value.index.variables & made_here
        and _are_neighbours(each.value.index, loop.variable, width)
    }
    stores = tuple(
        each
        for each in loop.body
        if isinstance(each, loops.Store) and _are_neighbours(each.index, loop.variable, width)
    )
    sizes = [load.dtype.size_bytes for load in loads.values()] + [store.dtype.size_bytes for store in stores]
    registers = sum(-(-size * width // 4) for size in sizes)
    if not sizes or max(sizes) * width > VECTOR_BYTES or len(sizes) > VECTOR_ACCESSES or registers > VECTOR_REGISTERS:
        return None
    return _vectors(loop, width, loads, stores)


def _vectors(loop: Loop, width: int, loads: dict[str, loops.Load], stores: tuple[loops.Store, ...]) -> Vectors:
    return Vectors(width, Var(f"{loop.variable.name}_first", loop.variable.extent), loads, stores)


def _uncoalesced(loop: Loop, vectors: Vectors) -> Iterator[Statement]:
    """Uncoalesced accesses: a warp's accesses that are contiguous element by element, but that were not vectorised. Each element of a
    thread then takes an access of its own, with gaps between the threads' elements."""
    for each in loop.body:
        if isinstance(each, loops.Store):
            alone, index = each not in vectors.stores, each.index
        elif isinstance(each, loops.Let) and isinstance(each.value, loops.Load):
            alone, index = each.name not in vectors.loads, each.value.index
        else:
            continue
        if alone and any(
            c == 1 and isinstance(a, Digit) and a.variable == loop.variable and a.stride == 1 for c, a in index.terms
        ):
            yield each


def _are_neighbours(index: Index, variable: Var, width: int) -> bool:
    """Whether `width` values of the variable, starting at a multiple of `width`, are neighbouring positions that start at a
    multiple."""
    if variable.extent < width:
        return False
    vector, element = Var("@vector", variable.extent // width), Var("@element", width)
    apart = index.substitute({variable: Index.of_var(vector) * width + Index.of_var(element)})
    own = Digit(element, 1, width)
    rest = [(coefficient, atom) for coefficient, atom in apart.terms if atom != own]
    if len(rest) + 1 != len(apart.terms) or (1, own) not in apart.terms:
        return False
    if element in Index(0, tuple(rest)).variables:
        return False
    return apart.constant % width == 0 and all(coefficient % width == 0 for coefficient, _ in rest)
