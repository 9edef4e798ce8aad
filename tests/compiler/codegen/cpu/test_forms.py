"""How a loop is written on a processor: whatever its form, each iteration is done once."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stitchfleet.compiler.codegen.cpu import forms
from stitchfleet.compiler.codegen.cpu.forms import VECTOR_BYTES, Facts, Parts, Plain, Squares, Strips, form_of, rests_of
from stitchfleet.compiler.ir.graph import DType, Node
from stitchfleet.compiler.ir.index_maps import Bound, Index, Var
from stitchfleet.compiler.loops.loops import (
    Choose,
    Collapse,
    Combine,
    Compute,
    Let,
    Load,
    Local,
    Loop,
    LoopKind,
    Statement,
    Store,
)

F32 = DType.F32
SMALL = Facts(sizes=(4096, 4096), unsteady=frozenset({1}))


def added_up(extent: int, width: int) -> tuple[Statement, ...]:
    """The sum of a row, by lanes."""
    k = Var("k", extent)
    body = (Let("x", F32, Load(0, F32, Index.of_var(k))), Combine("lanes", F32, None, "sum", "x"))
    loop = Loop(k, extent, LoopKind.LANES, body, width)
    return (Local("lanes", F32, width, "sum"), loop, Collapse("total", "lanes", F32, width, "sum"))


def copied(extent: int, cuts: list[int]) -> Loop:
    """A row joined from pieces that end at `cuts`."""
    k = Var("k", extent)
    ends = [0, *cuts, extent]
    guards = [(Bound(Index.of_var(k), low, high),) for low, high in pairwise(ends)]
    loads = [Let(f"x{n}", F32, Load(0, F32, Index.of_var(k), guard)) for n, guard in enumerate(guards)]
    chosen = Let("y", F32, Choose(tuple((guard, f"x{n}") for n, guard in enumerate(guards[:-1])), loads[-1].name))
    return Loop(k, extent, LoopKind.SIMD, (*loads, chosen, Store(1, F32, Index.of_var(k), "y")))


@given(st.integers(1, 3000), st.sampled_from([1, 2, 4, 8, 16, 32]), st.booleans())
def test_strips_cover_each_iteration_once(extent: int, width: int, for_many_shapes: bool) -> None:
    statements = added_up(extent, width)
    rests = {} if for_many_shapes else rests_of(statements)
    loop = statements[1]
    assert isinstance(loop, Loop)
    form = form_of(loop, replace(SMALL, for_many_shapes=for_many_shapes), rests)
    assert isinstance(form, Strips)
    assert form.whole + form.half + form.rest == extent
    assert form.whole % width == 0
    assert form.half in ((0, width // 2) if width // 2 * F32.size_bytes >= VECTOR_BYTES else (0,))
    assert 0 <= form.rest < width
    assert form.apart <= {"lanes"}
    if form.apart and form.rest:
        assert rests == {"lanes": form.rest}, "the lanes that are declared for the rest are the ones that are folded"


@given(st.data())
def test_parts_cover_each_iteration_once_and_know_their_guards(data: st.DataObject) -> None:
    extent = data.draw(st.integers(16, 400))
    cuts = sorted(data.draw(st.sets(st.integers(1, extent - 1), min_size=1, max_size=4)))
    form = form_of(copied(extent, cuts), SMALL)
    if extent < (len(cuts) + 1) * 8:
        assert form == Plain()
        return
    assert isinstance(form, Parts)
    bounds = [(int(part.bounds[0]), int(part.bounds[1])) for part in form.loops if part.bounds is not None]
    assert bounds == list(zip([0, *cuts], [*cuts, extent], strict=True))
    for part in form.loops:
        loads = [each.value for each in part.body if isinstance(each, Let) and isinstance(each.value, Load)]
        assert [load.guard for load in loads] == [()]


def test_a_text_for_many_shapes_has_no_form_that_depends_on_extents() -> None:
    many = replace(SMALL, for_many_shapes=True)
    assert form_of(copied(64, [32]), many) == Plain()
    assert form_of(turned(64), many) == Plain()
    assert form_of(columns(4096), many) == Plain()


def turned(rows: int) -> Loop:
    """A transpose: neighbours in memory are the outer loop's."""
    r, k = Var("c", rows), Var("k", forms.SQUARE)
    load = Let("x", F32, Load(0, F32, Index.of_var(r) + Index.of_var(k) * rows))
    store = Store(1, F32, Index.of_var(r) * forms.SQUARE + Index.of_var(k), "x")
    return Loop(r, rows, LoopKind.SERIAL, (Loop(k, forms.SQUARE, LoopKind.SIMD, (load, store)),))


@pytest.mark.parametrize("rows", [16, 64, 72])
def test_a_transpose_goes_in_squares_where_its_rows_are_whole_ones(rows: int) -> None:
    form = form_of(turned(rows), SMALL)
    if rows % forms.SQUARE:
        assert form == Plain()
        return
    assert isinstance(form, Squares)
    assert list(form.turned) == ["x"]
    assert form.turned["x"].stride == rows
    assert form.wraps == []


def test_what_a_nest_writes_is_not_turned() -> None:
    assert form_of(turned(64), replace(SMALL, unsteady=frozenset({0, 1}))) == Plain()


def columns(count: int) -> Loop:
    r, k = Var("r", 100), Var("k", count)
    load = Let("x", F32, Load(0, F32, Index.of_var(r) * count + Index.of_var(k)))
    inner = Loop(k, count, LoopKind.SIMD, (load, Combine("sums", F32, Index.of_var(k), "sum", "x")))
    return Loop(r, 100, LoopKind.SERIAL, (inner,), bounds=("first_row", "last_row"))


def test_rows_are_added_several_at_once_where_their_sums_do_not_stay_in_the_cache() -> None:
    assert form_of(columns(forms.LEAST_COLUMNS), SMALL) == Plain(rows_together=True)
    assert form_of(columns(forms.LEAST_COLUMNS - 1), SMALL) == Plain()


def passes(bytes_of_input: int) -> Plain:
    """A row's sum, then exp of its elements, added up too: what asks for later rows' elements meanwhile."""
    r, width = Var("r", 100_000), 256
    loads = []
    for number in range(2):
        k = Var(f"k{number}", width)
        load = Let(f"x{number}", F32, Load(0, F32, Index.of_var(r) * width + Index.of_var(k)))
        exp = Let(f"e{number}", F32, Compute(Node("exp", (), (), F32), (F32,), (load.name,)))
        value = exp.name if number else load.name
        body = (load, *([exp] if number else []), Combine(f"lanes{number}", F32, None, "sum", value))
        loads.append(Loop(k, width, LoopKind.LANES, body, 16))
    rows = Loop(r, r.extent, LoopKind.SERIAL, tuple(loads), bounds=("first_row", "last_row"))
    form = form_of(rows, replace(SMALL, sizes=(bytes_of_input, 4096)))
    assert isinstance(form, Plain)
    return form


def test_the_expensive_pass_over_a_row_asks_for_what_later_rows_read_from_memory() -> None:
    ahead = passes(forms.FETCHED_ABOVE).ahead
    assert ahead is not None
    assert ahead.loop.variable.name == "k1"
    ((buffer, index, _),) = ahead.loads
    assert buffer == 0
    assert index.constant * F32.size_bytes == forms.FETCHED_AHEAD
    assert passes(forms.FETCHED_ABOVE - 1).ahead is None, "a smaller tensor is in the caches"


@given(st.integers(1, 500))
def test_the_last_iterations_of_a_function_are_whole_vectors(extent: int) -> None:
    k = Var("k", extent)
    load = Let("x", F32, Load(0, F32, Index.of_var(k)))
    exp = Let("e", F32, Compute(Node("exp", (), (), F32), (F32,), ("x",)))
    loop = Loop(k, extent, LoopKind.SIMD, (load, exp, Store(1, F32, Index.of_var(k), "e")))
    form = form_of(loop, SMALL)
    if extent % 8 == 0 or extent < 8:
        assert form == Plain()
        return
    assert isinstance(form, forms.Whole)
    assert form.whole + form.rest == extent
    assert form.whole % 8 == 0
    assert form.rest <= form.together <= extent
    assert form.together % 8 == 0
    cheap = replace(loop, body=(load, Store(1, F32, Index.of_var(k), "x")))
    assert form_of(cheap, SMALL) == Plain()
    assert form_of(replace(loop, bounds=("first_row", "last_row")), SMALL) == Plain()
    assert form_of(loop, replace(SMALL, for_many_shapes=True)) == Plain()
