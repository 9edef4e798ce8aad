"""Neighbouring elements at once: which accesses of an element-wise loop move several elements in one instruction.

Such a loop goes over a task's elements, `first_row` to `last_row`, or over those of a row, and does each for itself. A thread then
takes `width` neighbours in a turn: what it reads or writes at neighbouring places of memory is one load or store of up to 16
bytes; every other statement is done for each. So a warp has 512 bytes on the way with one instruction, and halves and bytes, of
which it would else ask for 64 and 32 bytes, keep memory as busy as floats do.

An address is a multiple of the vector's size where the buffer is: the kernel looks, and takes the elements one by one where it is not
(a slice of another tensor), as it does with those that are left over at the end of a stretch. The values are the same either way.
"""

from __future__ import annotations

from dataclasses import dataclass

from . import loops
from .loops import Loop, LoopKind, NestCode
from .plan_index import Digit, Index, Var

VECTOR_BYTES = 16
"""The most that one load or store of a thread moves."""
VECTOR_REGISTERS = 16
"""The most that a thread's vectors may take, ..."""
VECTOR_ACCESSES = 6
"""... and the most vectors: an optimizer's update has more, and with vectors of two its registers spill."""


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


def vectors_of(loop: Loop, nest: NestCode, most: int, threads: int) -> Vectors | None:
    """How the loop's accesses go in vectors of at most `most` elements, dealt out to `threads` threads; None where they do not."""
    if loop.kind is not LoopKind.SIMD or loop.bounds not in (None, ("first_row", "last_row")):
        return None
    if not all(isinstance(each, loops.Let | loops.LetIndex | loops.Store) for each in loop.body):
        return None
    stretch = nest.rows_per_task if loop.bounds else loop.extent
    width = most
    while width > 1:
        if stretch % width == 0 and (loop.bounds or loop.extent >= threads * width):
            found = _of_width(loop, width)
            if found is not None:
                return found
        width //= 2
    return None


def _of_width(loop: Loop, width: int) -> Vectors | None:
    written = {each.buffer for each in loop.body if isinstance(each, loops.Store)}
    loads = {
        each.name: each.value
        for each in loop.body
        if isinstance(each, loops.Let)
        and isinstance(each.value, loops.Load)
        and not each.value.guard
        and each.value.buffer not in written
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
    return Vectors(width, Var(f"{loop.variable.name}_first", loop.variable.extent), loads, stores)


def _are_neighbours(index: Index, variable: Var, width: int) -> bool:
    """Whether `width` values of the variable from a multiple of `width` on are as many neighbouring places from a multiple on."""
    if any(each.source is not None for each in index.variables) or variable.extent < width:
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
