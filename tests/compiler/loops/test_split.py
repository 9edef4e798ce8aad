"""Loops are cut where their guards change, and compute the same."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from stitchfleet.compiler.ir.graph import DType
from stitchfleet.compiler.ir.index_maps import Bound, Index, Var
from stitchfleet.compiler.loops import loops
from stitchfleet.compiler.loops.loops import Loop, LoopKind
from stitchfleet.compiler.loops.split import ROW_BOUNDS, split_at_guards

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
    scan = loops.Scan("s", F32, "l", F32, Index(0), "sum", "t")
    assert split_at_guards(Loop(part, 5, LoopKind.SERIAL, (many, scan))) == (), "a statement that is not looked into"
    longer = Loop(part, 100, LoopKind.SERIAL, (Loop(element, 16, LoopKind.SIMD, joined(90, Index.of_var(part), flat)),))
    assert split_at_guards(longer) == (), "too many parts"


def test_a_guard_on_a_multiple_of_the_variable_is_one_on_the_variable() -> None:
    """Element `17 head + row` of the heads of 17 rows each, one after the other; and of one that has a row more before them."""
    head, row = Var("head", 8), Var("row", 17)
    flat = Index.of_var(head) * 17 + Index.of_var(row)
    body = [load(f"t{i}", i, flat, Bound(flat, 17 * i, 17 * i + 17)) for i in range(8)]
    cases = tuple(((Bound(flat, 17 * i, 17 * i + 17),), f"t{i}") for i in range(7))
    whole = (*body, loops.Let("t", F32, loops.Choose(cases, "t7")), loops.Store(8, F32, flat, "t"))
    loop = Loop(head, 8, LoopKind.SIMD, whole)
    cut = split_at_guards(loop)
    assert [each.bounds for each in cut] == [(str(i), str(i + 1)) for i in range(8)]
    assert guards(cut) == 0
    around = [Loop(row, 17, LoopKind.SERIAL, statements) for statements in ((loop,), cut)]
    assert executed((around[0],)) == executed((around[1],))
    uneven = replace(loop, body=(load("u", 0, flat, Bound(flat, 0, 18)), loops.Store(8, F32, flat, "u")))
    assert split_at_guards(uneven) == (), "row 0 of the second head is within, the others are not"


def test_a_short_vector_loop_is_cut_if_its_elements_would_compute_many_parts() -> None:
    for parts, is_cut in ((8, True), (4, True), (2, False)):
        k = Var("k", 8)
        position = Index.of_var(k)
        body: list[loops.Statement] = [
            load(f"t{i}", i, position, Bound(position, i * 8 // parts, (i + 1) * 8 // parts)) for i in range(parts)
        ]
        body += [loops.Store(9, F32, position, f"t{i}") for i in range(parts)]
        assert bool(split_at_guards(Loop(k, 8, LoopKind.SIMD, tuple(body)))) == is_cut


@pytest.mark.parametrize("bounds", ROW_BOUNDS)
def test_a_loop_over_rows_is_cut_within_its_bounds(bounds: tuple[str, str]) -> None:
    """And its rows are counted from 0 in a part in which a digit of them is then known."""
    r = Var("r", 300)
    at = Index.of_var(r)
    digit = at.divide(100)[1]
    body: list[loops.Statement] = []
    for i in range(3):
        place = at + -100 * i
        body.append(load(f"t{i}", i, digit, Bound(at, 100 * i, 100 * i + 100), Bound(digit, 0, 60)))
        body.append(load(f"u{i}", i + 3, place, Bound(at, 100 * i, 100 * i + 100), Bound(place, 60, 100)))
        body.append(loops.Let(f"v{i}", F32, loops.Choose((((Bound(digit, 0, 60),), f"t{i}"),), f"u{i}")))
    cases = tuple(((Bound(at, 100 * i, 100 * i + 100),), f"v{i}") for i in range(2))
    body += [loops.Let("v", F32, loops.Choose(cases, "v2")), loops.Store(6, F32, at, "v")]
    kind = LoopKind.SIMD if bounds == ROW_BOUNDS[0] else LoopKind.LANES
    loop = Loop(r, 300, kind, tuple(body), bounds=bounds)
    cut = split_at_guards(loop)
    assert guards(cut) == 0
    for first, last in ((0, 300), (0, 1), (59, 61), (130, 260), (300, 300)):
        known = [replace(each, bounds=evaluated(each.bounds, bounds, first, last)) for each in cut]
        assert executed(tuple(known)) == executed((replace(loop, bounds=(str(first), str(last))),))


def evaluated(texts: tuple[str, str] | None, names: tuple[str, str], first: int, last: int) -> tuple[str, str]:
    """The bounds of a part, for a task with these rows."""
    assert texts is not None
    found = []
    for text in texts:
        python = re.sub(r"\((\w+) ([<>]) (\d+) \? \1 : \3\)", r"(\1 if \1 \2 \3 else \3)", text)
        found.append(int(eval(python, {names[0]: first, names[1]: last})))
    return str(found[0]), str(max(found))


def test_what_a_guard_decides_is_known_in_a_part() -> None:
    """A scatter's updates, from two tensors one after the other: a part's own are read, and what cannot happen there is left out."""
    b, w = Var("b", 40), Var("w", 4)
    at = Index.of_var(b)
    update = Loop(w, 4, LoopKind.SERIAL, (loops.Update(2, F32, Index.of_var(w), "sum", "t"),))
    last = loops.If((Bound(at, 30, 40),), (loops.Update(3, F32, at + -30, "sum", "u"),))
    lets = (load("t", 0, at, Bound(at, 0, 30)), load("u", 1, at + -30, Bound(at, 30, 40)))
    cut = split_at_guards(Loop(b, 40, LoopKind.SERIAL, (*lets, loops.If((Bound(at, 0, 30),), (update,)), last)))
    assert [each.bounds for each in cut] == [("0", "30"), ("30", "40")]
    assert guards(cut) == 0
    kinds = [[type(statement).__name__ for statement in loops.walk(each.body)] for each in cut]
    assert kinds == [["Let", "If", "Loop", "Update"], ["Let", "If", "Update"]]


def replace_stores(loop: Loop) -> Loop:
    stores = tuple(loops.Store(i, F32, Index.of_var(loop.variable), f"x{i}") for i in range(12))
    return Loop(loop.variable, loop.extent, loop.kind, (*loop.body, *stores, loops.Store(12, F32, Index(0), "t")))
