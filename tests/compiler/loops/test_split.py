"""Loops are cut where their guards change, and compute the same."""

from __future__ import annotations

from stitchfleet.compiler.ir.graph import DType
from stitchfleet.compiler.ir.index_maps import Bound, Index, Var
from stitchfleet.compiler.loops import loops
from stitchfleet.compiler.loops.loops import Loop, LoopKind
from stitchfleet.compiler.loops.split import split_at_guards

F32 = DType.F32


def load(name: str, buffer: int, index: Index, *guard: Bound) -> loops.Let:
    return loops.Let(name, F32, loops.Load(buffer, F32, index, guard))


def executed(statements: tuple[loops.Statement, ...]) -> dict[int, tuple[int, int]]:
    """Position that is stored -> (buffer, position) of the element that is stored there."""
    found: dict[int, tuple[int, int]] = {}

    def value_of(index: Index, at: dict[Var, int]) -> int:
        left = index.substitute({variable: Index(number) for variable, number in at.items()})
        assert left.is_constant, left
        return left.constant

    def holds(guard: tuple[Bound, ...], at: dict[Var, int]) -> bool:
        return all(bound.low <= value_of(bound.index, at) < bound.high for bound in guard)

    def run(body: tuple[loops.Statement, ...], at: dict[Var, int], names: dict[str, tuple[int, int]]) -> None:
        for statement in body:
            if isinstance(statement, Loop):
                first, last = (0, statement.extent) if statement.bounds is None else map(int, statement.bounds)
                for number in range(first, last):
                    run(statement.body, {**at, statement.variable: number}, dict(names))
            elif isinstance(statement, loops.Store):
                found[value_of(statement.index, at)] = names[statement.value]
            elif isinstance(statement, loops.Let) and isinstance(statement.value, loops.Load):
                value = statement.value
                if holds(value.guard, at):
                    names[statement.name] = value.buffer, value_of(value.index, at)
            elif isinstance(statement, loops.Let) and isinstance(statement.value, loops.Choose):
                chosen = [name for guard, name in statement.value.cases if holds(guard, at)]
                names[statement.name] = names.get([*chosen, statement.value.otherwise][0], (-1, 0))  # zero

    run(statements, {}, {})
    return found


def guards(statements: tuple[loops.Statement, ...]) -> int:
    lets = (s.value for s in loops.walk(statements) if isinstance(s, loops.Let))
    return sum(bool(value.guard) if isinstance(value, loops.Load) else len(value.cases) for value in lets)  # type: ignore[union-attr]


def joined(parts: int, position: Index, flat: Index) -> tuple[loops.Statement, ...]:
    """Element `flat` of a concatenation whose part number is `position`."""
    body: list[loops.Statement] = [load(f"t{i}", i, flat, Bound(position, i, i + 1)) for i in range(parts)]
    cases = tuple(((Bound(position, i, i + 1),), f"t{i}") for i in range(parts - 1))
    body.append(loops.Let("t", F32, loops.Choose(cases, f"t{parts - 1}")))
    body.append(loops.Store(parts, F32, flat, "t"))
    return tuple(body)


def test_an_outer_loop_over_parts_becomes_a_loop_for_each() -> None:
    part, element = Var("part", 5), Var("element", 16)
    flat = Index.of_var(part) * 16 + Index.of_var(element)
    inner = Loop(element, 16, LoopKind.SIMD, joined(5, Index.of_var(part), flat))
    loop = Loop(part, 5, LoopKind.SERIAL, (inner,))
    cut = split_at_guards(loop)
    assert [each.bounds for each in cut] == [(str(i), str(i + 1)) for i in range(5)]
    assert guards(cut) == 0
    assert executed(cut) == executed((loop,))


def test_guards_on_a_digit_are_known_where_the_digit_is() -> None:
    """The first 48 elements are those of a concatenation of three, and 12 others follow: `k % 48` is k in the first part alone."""
    k = Var("k", 60)
    at = Index.of_var(k)
    digit = at.divide(48)[1]
    body: list[loops.Statement] = [
        load(f"t{i}", i, at, Bound(at, 0, 48), Bound(digit, 16 * i, 16 * i + 16)) for i in range(3)
    ]
    body.append(load("u", 3, at + -48, Bound(at, 48, 60)))
    first = tuple(((Bound(digit, 16 * i, 16 * i + 16),), f"t{i}") for i in range(2))
    body.append(loops.Let("t", F32, loops.Choose(first, "t2")))
    body.append(loops.Let("v", F32, loops.Choose((((Bound(at, 0, 48),), "t"),), "u")))
    body.append(loops.Store(4, F32, at, "v"))
    loop = Loop(k, 60, LoopKind.SIMD, tuple(body))
    cut = split_at_guards(loop)
    assert [each.bounds for each in cut] == [("0", "16"), ("16", "32"), ("32", "48"), ("48", "60")]
    assert guards(cut) == 0
    assert executed(cut) == executed((loop,))


def test_an_outer_loop_without_use_for_it_stays() -> None:
    part, element = Var("part", 5), Var("element", 16)
    flat = Index.of_var(part) * 16 + Index.of_var(element)
    ones = tuple(load(f"x{i}", 0, flat) for i in range(12))
    inner = Loop(element, 16, LoopKind.SIMD, (*ones, load("t", 0, flat, Bound(Index.of_var(part), 1, 5))))
    many = replace_stores(inner)
    assert split_at_guards(Loop(part, 5, LoopKind.SERIAL, (inner,), bounds=("first", "last"))) == ()
    assert split_at_guards(Loop(part, 5, LoopKind.SERIAL, (many,))) != ()
    assert split_at_guards(Loop(part, 5, LoopKind.SERIAL, (many, loops.Collapse("s", "l", F32, 8, "sum")))) == ()
    longer = Loop(part, 100, LoopKind.SERIAL, (Loop(element, 16, LoopKind.SIMD, joined(90, Index.of_var(part), flat)),))
    assert split_at_guards(longer) == (), "too many parts"


def replace_stores(loop: Loop) -> Loop:
    stores = tuple(loops.Store(i, F32, Index.of_var(loop.variable), f"x{i}") for i in range(12))
    return Loop(loop.variable, loop.extent, loop.kind, (*loop.body, *stores, loops.Store(12, F32, Index(0), "t")))
