"""Vector loops without conditions that the loop does not change.

What is read under a guard (padding, a window's edge) is zero elsewhere, and a choice takes another value there. If the guard does not
depend on the loop's elements, g++ 12 either makes two loops of one (not of a large loop), or finds no vectors in it: it has none for
a select between vectors whose condition is a scalar. So the condition is decided once, before the loop:

    before: for k in [0, 64) simd: t1 = a[r * 64 + k - 64] if r >= 1; t2 = t1 if r >= 1 else -inf
    after:  keep = -1 if r >= 1 else 0; start = r * 64 - 64 if r >= 1 else 0; fill = 0 if r >= 1 else -inf
            for k in [0, 64) simd: t1 = masked(a[start + k], keep); t2 = either(t1, fill)

The loop always reads: from the tensor's beginning, if it must not read what it is after.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ...ir.graph import DType
from ...ir.index_maps import Guard, Index, Var
from ...loops import loops
from ...loops.loops import Let, LetIndex, Loop, LoopKind, Statement
from ...ops.c_text import literal_text


def without_conditions(loop: Loop, sizes: Sequence[int]) -> tuple[tuple[Statement, ...], Loop]:
    """The statements that must precede `loop`, and the loop. sizes: bytes of the nest's buffers. Loops that are not vector loops stay
    as they are."""
    if loop.kind not in (LoopKind.SIMD, LoopKind.LANES) or any(isinstance(each, Loop) for each in loop.body):
        return (), loop
    rewriting = _Rewriting(loop, sizes)
    body = tuple(changed for each in loop.body for changed in rewriting.statement(each))
    return tuple(rewriting.before), replace(loop, body=body) if rewriting.before else loop


@dataclass
class _Rewriting:
    loop: Loop
    sizes: Sequence[int]
    before: list[Statement] = field(default_factory=list)
    made_inside: set[Var] = field(init=False)
    names_inside: set[str] = field(init=False)
    keeps: dict[Guard, str] = field(default_factory=dict)
    starts: dict[tuple[Guard, Index], Var] = field(default_factory=dict)
    zero_unless: dict[str, Guard] = field(default_factory=dict)

    def __post_init__(self) -> None:
        body = self.loop.body
        self.made_inside = {self.loop.variable, *(each.variable for each in body if isinstance(each, LetIndex))}
        self.names_inside = {each.name for each in body if isinstance(each, Let)}

    def statement(self, each: Statement) -> tuple[Statement, ...]:
        """What stands for a statement of the body."""
        if isinstance(each, Let) and isinstance(each.value, loops.Load) and self.is_known(each.value.guard):
            return self.load(each, each.value)
        if isinstance(each, Let) and isinstance(each.value, loops.Choose) and len(each.value.cases) == 1:
            ((guard, name),) = each.value.cases
            if self.is_known(guard) and name in self.names_inside and each.value.otherwise not in self.names_inside:
                return self.choice(each, guard, name, each.value.otherwise)
        return (each,)

    def is_known(self, guard: Guard) -> bool:
        """Whether there is a guard, and the loop does not change it."""
        return bool(guard) and not any(bound.index.variables & self.made_inside for bound in guard)

    def load(self, each: Let, load: loops.Load) -> tuple[Statement, ...]:
        changing = Index(0, tuple(term for term in load.index.terms if Index(0, (term,)).variables & self.made_inside))
        inner = changing + -changing.low
        elements = self.sizes[load.buffer] // load.dtype.size_bytes
        if inner.high >= elements:
            return (each,)
        start = self.start(load.guard, load.index - inner, elements)
        read, keep = f"{each.name}_read", self.keep(load.guard)
        self.zero_unless[each.name] = load.guard
        anywhere = replace(load, index=Index.of_var(start) + inner, guard=())
        return Let(read, each.dtype, anywhere), Let(each.name, each.dtype, loops.Masked(read, keep))

    def choice(self, each: Let, guard: Guard, name: str, otherwise: str) -> tuple[Statement, ...]:
        zero = literal_text(each.dtype, 0)
        statements: tuple[Statement, ...] = ()
        if not set(guard) <= set(self.zero_unless.get(name, ())):
            masked = f"{each.name}_kept"
            statements = (Let(masked, each.dtype, loops.Masked(name, self.keep(guard))),)
            name = masked
        fill = f"{each.name}_fill"
        self.before.append(Let(fill, each.dtype, loops.Choose(((guard, zero),), otherwise)))
        return (*statements, Let(each.name, each.dtype, loops.Either(name, fill)))

    def keep(self, guard: Guard) -> str:
        """The name of -1 where the guard holds, else 0."""
        if guard not in self.keeps:
            name = self.keeps[guard] = f"{self.loop.variable.name}_keep{len(self.keeps) + 1}"
            yes, no = literal_text(DType.S32, -1), literal_text(DType.S32, 0)
            self.before.append(Let(name, DType.S32, loops.Choose(((guard, yes),), no)))
        return self.keeps[guard]

    def start(self, guard: Guard, outer: Index, elements: int) -> Var:
        """The position `outer` where the guard holds, else 0."""
        if (guard, outer) not in self.starts:
            name = f"{self.loop.variable.name}_start{len(self.starts) + 1}"
            self.starts[guard, outer] = Var(name, elements)
            inside, anywhere = f"{name}_inside", f"{name}_anywhere"
            self.before += [
                Let(inside, DType.S64, loops.FromIndex(outer)),
                Let(anywhere, DType.S64, loops.Choose(((guard, inside),), literal_text(DType.S64, 0))),
                LetIndex(self.starts[guard, outer], anywhere, clamped=False),
            ]
        return self.starts[guard, outer]
