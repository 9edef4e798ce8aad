"""Vector loops over few elements, some of which are smaller than a float in memory: booleans, bf16, f16.

All vectors that g++ 12 makes of a loop have one size. Of a loop over 16 elements that reads a boolean beside each float they have at
most 16 bytes, and often 8, so that two floats are computed at once. So such elements are made ints or floats before the loop, and
small again after it (kernel_prelude.h, stitch_widen_pred and so on):

    before: for lane in [0, 16) simd:             after:  widen 16: t1_wide = b0 + k
              t1 = b0[k + lane] != 0                      for lane in [0, 16) simd:
              ...                                           t1 = t1_wide[lane]
              b2[k + lane] = bf16(t9)                       ...
                                                            stored0_wide[lane] = t9
                                                          narrow 16: b2 + k = stored0_wide

A loop over whole vectors of the smallest elements stays as it is. So does one that only makes small elements of large ones, and one
that reads elements which lie apart: to gather vectors of them takes longer than vectors save.

Measured on a Zen 4 (AVX-512, one core, 200,000 elements, the gradient of a softmax with dropout, without and with): rows of 20
elements 232 us and 51, of 60 146 and 38, of 90 198 and 38, of 100 49 and 36, of 300 39 and 34.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from ...ir.graph import DType
from ...ir.index_maps import Index
from ...loops import loops
from ...loops.loops import Assign, Let, Load, LoadLocal, Loop, Statement, Store
from ..c.text import index_text

AT_ONCE: Final = 16
"""Elements of a strip of a loop that has no strips otherwise."""
FEWEST: Final = 8
"""A loop over fewer elements stays as it is."""
_NEVER: Final = 1 << 30
_WHOLE: Final = {DType.PRED: 64, DType.BF16: 32, DType.F16: _NEVER}
"""Of loops over multiples of so many elements g++ makes vectors of floats as wide as without the small elements. For f16 it never
does with the processor's conversions."""
_WHOLE_OF_WORDS: Final = 32
"""The same for booleans that are stored, if the loop draws random words: with them narrowed, a normalization after a dropout took
1.03 times as long."""
_WIDE: Final = {DType.PRED: "int", DType.BF16: "float", DType.F16: "float"}


@dataclass(frozen=True)
class Narrow:
    """What a loop reads and writes of small elements that are neighbours: loads by the names of their values, and stores by the names
    of the arrays that hold their values."""

    loads: dict[str, Load]
    stores: dict[str, Store]

    def whole(self, draws: bool = False) -> int:
        """A loop over a multiple of so many elements stays as it is. draws: whether it draws random words."""
        of_loads = [_WHOLE[load.dtype] for load in self.loads.values()]
        of_stores = [
            _WHOLE_OF_WORDS if draws and store.dtype is DType.PRED else _WHOLE[store.dtype]
            for store in self.stores.values()
        ]
        return max([*of_loads, *of_stores], default=1)

    def before(self, loop: Loop, count: str, base: str) -> Iterator[str]:
        """The lines before iterations `base` to `base + count`."""
        for name, load in self.loads.items():
            yield f"__attribute__((aligned(64))) {_WIDE[load.dtype]} {name}_wide[{count}];"
            yield f"stitch_widen_{load.dtype.value}<{count}>({name}_wide, {_first(loop, load, base)});"
        for name, store in self.stores.items():
            yield f"__attribute__((aligned(64))) {_WIDE[store.dtype]} {name}[{count}];"

    def inside(self, statement: Statement, lane: Index) -> Statement:
        """What stands for a statement of the loop, if `lane` counts its iterations."""
        if isinstance(statement, Let) and statement.name in self.loads:
            return replace(statement, value=LoadLocal(f"{statement.name}_wide", lane))
        name = next((name for name, store in self.stores.items() if store == statement), None)
        return statement if name is None else Assign(name, lane, self.stores[name].value)

    def after(self, loop: Loop, count: str, base: str) -> Iterator[str]:
        """The lines after them."""
        for name, store in self.stores.items():
            yield f"stitch_narrow_{store.dtype.value}<{count}>({_first(loop, store, base)}, {name});"


def whole_of(loop: Loop) -> int:
    """How many of the loop's first iterations stay as they are."""
    small = narrow_of(loop, str(loop.extent)) if loop.extent >= FEWEST else None
    return loop.extent - loop.extent % small.whole() if small is not None else loop.extent


def narrow_of(loop: Loop, count: str, draws: bool = False) -> Narrow | None:
    """What is widened and narrowed around `count` iterations of a vector loop, a number or a name; None if they stay as they are.
    draws: whether the loop draws random words."""
    if not count.isdigit():
        return None
    if not all(isinstance(each, (Let, loops.LetIndex, Store, Assign, loops.Combine)) for each in loop.body):
        return None
    loads = {each.name: each.value for each in loop.body if isinstance(each, Let) and isinstance(each.value, Load)}
    results = [each for each in loop.body if not isinstance(each, (Let, loops.LetIndex))]
    stores = [each for each in results if isinstance(each, Store)]
    accesses: list[Load | Store] = [*loads.values(), *stores]
    if not all(_is_near(loop, each) for each in accesses):
        return None
    narrow = Narrow(
        {name: load for name, load in loads.items() if _is_narrow(loop, load) and not load.guard},
        {f"stored{number}_wide": store for number, store in enumerate(stores) if _is_narrow(loop, store)},
    )
    is_small_alone = not narrow.loads and len(narrow.stores) == len(results)
    return narrow if int(count) % narrow.whole(draws) and not is_small_alone else None


def _rest(loop: Loop, access: Load | Store) -> Index:
    return access.index - Index.of_var(loop.variable)


def _is_near(loop: Loop, access: Load | Store) -> bool:
    """Whether the elements of all iterations are neighbours, or the same element."""
    variable = loop.variable
    return variable not in access.index.variables or variable not in _rest(loop, access).variables


def _is_narrow(loop: Loop, access: Load | Store) -> bool:
    return access.dtype in _WIDE and loop.variable in access.index.variables


def _first(loop: Loop, access: Load | Store, base: str) -> str:
    return f"b{access.buffer} + ({index_text(_rest(loop, access))} + {base})"
