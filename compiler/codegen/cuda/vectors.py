"""Neighbouring elements at once: which accesses of a distributed loop move several elements in one instruction.

A thread takes `width` neighbours in a turn: what it reads or writes at neighbouring places of memory is one load or store of up to 16
bytes; every other statement is done for each. So a warp has 512 bytes on the way with one instruction, and halves and bytes, of
which it would else ask for 64 and 32 bytes, keep memory as busy as floats do. There are three kinds of such loops:

    over a task's elements  `first_row` to `last_row`, or a block of them: what is left over at the end is taken one by one
    over a row              of so many elements (`row_widths`): every loop of the nest over as many takes them in the same neighbours,
                            so that what a thread has kept in registers, or in a tile, is its own in all of them
    of a variadic reduction each thread's stretch of it begins and ends with a vector (`fold_width`)

An address is a multiple of the vector's size where the row's length allows it and the buffer's address is one: the kernel looks.
Where a buffer's is not (a slice of another tensor), a loop that only computes elements takes them one by one; of a nest with rows or
sums there are two functions, and the other one loads and stores the same elements one by one. They stay with the same threads in the
same order, so a sum is the same to the last bit whatever the address: it depends on shapes and the device alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...ir.index_maps import Digit, Index, Var
from ...loops import loops
from ...loops.loops import Loop, LoopKind, NestCode, Statement
from .survey import distributed_loops, is_interleaved

VECTOR_BYTES = 16
"""The most that one load or store of a thread moves."""
VECTOR_REGISTERS = 16
"""The most that a thread's vectors may take, ..."""
VECTOR_ACCESSES = 6
"""... and the most vectors: an optimizer's update has more, and with vectors of two its registers spill."""
MORE_TURNS = 4 / 3
"""How much longer the longest thread may take over a row by neighbours than one by one: of 768 elements 192 of 256 threads take four
each, instead of all of them three."""


@dataclass(frozen=True)
class Vectors:
    """Of one loop. loads: the names that are loaded so, with their loads; stores: so written. base: the variable of a vector's
    first element."""

    width: int
    base: Var
    loads: dict[str, loops.Load]
    stores: tuple[loops.Store, ...]

    @property
    def buffers(self) -> dict[int, int]:
        """What a buffer's address has to be a multiple of, by its number."""
        found: dict[int, int] = {}
        for load in self.loads.values():
            found[load.buffer] = load.dtype.size_bytes * self.width
        for store in self.stores:
            found[store.buffer] = store.dtype.size_bytes * self.width
        return found

    def first_place(self, loop: Loop, index: Index) -> Index:
        """Where a vector begins that holds what the loop accesses at `index`."""
        return index.substitute({loop.variable: Index.of_var(self.base)})


def vectors_of(loop: Loop, nest: NestCode, threads: int) -> Vectors | None:
    """How the accesses of a loop over a task's elements go in vectors, if there is one for each thread; None where they do not."""
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
        if found is not None and not any(isinstance(each, loops.Store) for each in _torn(loop, found)):
            return found
        width //= 2
    return None


def _is_array(statement: Statement) -> bool:
    """Whether it works on an element of an array of the nest, which threads own by the way that loops are distributed."""
    if isinstance(statement, loops.Assign | loops.Scan):
        return True
    if isinstance(statement, loops.Combine):
        return statement.index is not None
    return isinstance(statement, loops.Let) and isinstance(statement.value, loops.LoadLocal)


def row_widths(body: Sequence[Statement], threads: int) -> dict[int, int]:
    """How many neighbours a thread takes in a turn of the loops over a row, by the row's elements; a row that is not there: one."""
    by_extent: dict[int, list[Loop]] = {}
    for loop in distributed_loops(body):
        if is_interleaved(loop):
            by_extent.setdefault(loop.extent, []).append(loop)
    return {extent: width for extent, same in by_extent.items() if (width := _width_of(extent, same, threads)) > 1}


def only_computes(body: Sequence[Statement]) -> bool:
    """Whether a nest's body deals out one loop, which only computes elements: then it does not matter which thread has which."""
    distributed = [*distributed_loops(body)]
    return (
        len(distributed) == 1 and distributed[0].kind is LoopKind.SIMD and not any(map(_is_array, distributed[0].body))
    )


def row_vectors(loop: Loop, width: int) -> Vectors:
    """The accesses of a loop over a row that go in vectors where each thread takes `width` neighbours; perhaps none."""
    return _of_width(loop, width) or _vectors(loop, width, {}, ())


def fold_width(loop: Loop, threads: int) -> int:
    """How many neighbours a thread takes at once of its stretch of a variadic reduction."""
    return _width_of(loop.extent, [loop], threads)


def _width_of(extent: int, same: Sequence[Loop], threads: int) -> int:
    """None of the loops may lose more than others gain: what a warp reads or writes side by side stays in one piece."""
    if not all(map(_is_straight, same)):
        return 1
    width = VECTOR_BYTES
    while width > 1:
        slots = -(-extent // (threads * width)) * width
        if extent % width == 0 and slots <= MORE_TURNS * -(-extent // threads):
            found = [_of_width(loop, width) for loop in same]
            whole = (not any(_torn(loop, row_vectors(loop, width))) for loop in same)
            if any(each is not None for each in found) and all(whole):
                return width
        width //= 2
    return 1


def _is_straight(loop: Loop) -> bool:
    """Whether its statements can be done for one element after the other."""
    plain = loops.Let | loops.LetIndex | loops.Store | loops.Assign | loops.Combine
    return all(isinstance(each, plain) for each in loop.body)


def _of_width(loop: Loop, width: int) -> Vectors | None:
    """The accesses that go in vectors of so many elements; None where there are none, too many, or too long ones."""
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


def _torn(loop: Loop, vectors: Vectors) -> Iterator[Statement]:
    """The accesses that a warp would make side by side, one by one, and that are in none of the vectors: each of a thread's elements
    then takes an access of its own, with gaps between the threads'."""
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
    """Whether `width` values of the variable from a multiple of `width` on are as many neighbouring places from a multiple on."""
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
