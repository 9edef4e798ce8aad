"""Mappings cover every element exactly once, and `match` finds the rows that another tensor dictates."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from stitchfleet.compiler.ir.graph import Graph
from stitchfleet.compiler.ir.index_maps import Bound, Index, Var, guard_of, linear, range_under, unravel
from stitchfleet.compiler.planning.access import trace
from stitchfleet.compiler.planning.mapping import (
    RowMap,
    boundaries,
    match,
    reduction_is_legal,
    roots_of,
    segments_of,
    slice_size_of,
    spans_rows,
)
from stitchfleet.compiler.planning.mapping_choice import choose
from stitchfleet.compiler.support.divisors import divisor_near
from stitchfleet.compiler.targets.targets import CPU

from ..ir.test_index_maps import value_of
from ..library import LIBRARY, Maker, column_sum, full_sum, softmax


def covered(mapping: RowMap) -> list[int]:
    row, within = Var("r", mapping.rows), Var("k", mapping.inner)
    point = mapping.point(Index.of_var(row), Index.of_var(within))
    return [
        value_of(point, {row: r, within: k}) for r, k in itertools.product(range(mapping.rows), range(mapping.inner))
    ]


@given(st.permutations(range(3)), st.lists(st.integers(1, 5), min_size=3, max_size=3), st.integers(0, 3))
def test_a_match_touches_exactly_its_own_slice(order: list[int], shape: list[int], depth: int) -> None:
    """A segment over the transposed tensor finds its rows from the tensor's slices, and row r of it reads slice r
    only."""
    rows = math.prod(shape[:depth])
    size = math.prod(shape)
    u = Var("u", size)
    result_shape = tuple(shape[axis] for axis in order)
    position = unravel(Index.of_var(u), result_shape)
    operand = [Index(0)] * 3
    for place, axis in enumerate(order):
        operand[axis] = position[place]
    flat = linear(operand, tuple(shape))
    mapping = match(size, flat, rows, size // rows)
    assert mapping is not None, "a transpose always has the rows of what it transposes"
    assert (mapping.rows, mapping.inner) == (rows, size // rows)
    assert sorted(covered(mapping)) == list(range(size))
    row, within = Var("r", rows), Var("k", size // rows)
    point = mapping.point(Index.of_var(row), Index.of_var(within))
    for r, k in itertools.product(range(rows), range(size // rows)):
        element = value_of(point, {row: r, within: k})
        assert value_of(flat, {u: element}) // (size // rows) == r


@given(*(st.integers(1, 5) for _ in range(4)), st.integers(0, 4), st.integers(1, 3))
def test_a_match_under_a_guard_touches_its_own_slice_where_the_guard_holds(
    rows: int, before: int, own: int, after: int, skipped: int, columns: int
) -> None:
    """Row r of [before | own columns of a tensor, from `skipped` on | after], each element of which `columns` neighbours read.
    Without the guard, elements of other rows would be touched."""
    width, inner = before + own + after, skipped + own
    assume(inner > 1)  # a tensor with one element in a row has no digit of its own
    size = rows * width * columns
    u = Var("u", size)
    row, place, _ = unravel(Index.of_var(u), (rows, width, columns))
    flat = row * inner + place + (skipped - before)
    guard = guard_of([Bound(place, before, before + own)])
    mapping = match(size, flat, rows, inner, guard)
    assert mapping is not None
    assert (mapping.rows, mapping.inner) == (rows, width * columns)
    point = mapping.point(Index.of_var(Var("r", rows)), Index.of_var(Var("k", mapping.inner)))
    for r, k in itertools.product(range(rows), range(mapping.inner)):
        element = {u: value_of(point, {Var("r", rows): r, Var("k", mapping.inner): k})}
        if all(bound.low <= value_of(bound.index, element) < bound.high for bound in guard):
            assert value_of(flat, element) // inner == r


def test_a_guard_that_allows_too_much_is_no_match() -> None:
    u = Var("u", 48)
    row, place = unravel(Index.of_var(u), (4, 12))
    flat = row * 6 + place + -3
    assert match(48, flat, 4, 6) is None
    assert match(48, flat, 4, 6, (Bound(place, 3, 9),)) is not None
    assert match(48, flat, 4, 6, (Bound(place, 3, 10),)) is None
    assert match(48, flat, 4, 6, (Bound(place, 2, 9),)) is None


@given(st.integers(-4, 4), st.integers(-4, 4), st.integers(-4, 12), st.integers(0, 8))
def test_the_range_under_a_guard_is_that_of_the_values_for_which_it_holds(
    low: int, shift: int, first: int, extent: int
) -> None:
    x = Var("x", 9)
    index, guard = Index.of_var(x) + low, (Bound(Index.of_var(x) + shift, first, first + extent),)
    values = [v + low for v in range(9) if first <= v + shift < first + extent]
    found = range_under(index, guard)
    assert found == (min(values), max(values)) if values else found[0] > found[1]


def test_no_match_where_rows_mix() -> None:
    u = Var("u", 12)
    reversed_rows = Index.of_var(u) * -1 + 11
    assert match(12, reversed_rows, 4, 3) is None
    every_second = Index.of_var(u) * 2
    assert match(12, every_second, 4, 3) is None


def test_every_chosen_mapping_covers_its_space_and_is_legal() -> None:
    for name, make in LIBRARY.items():
        graph = make()
        for i, node in enumerate(graph.nodes):
            if node.op not in ("reduce", "reduce_general", "reduce_window", "dot", "exp", "select", "transpose"):
                continue
            for segment in segments_of(graph, (i,)):

                def stored(other: int, i: int = i, graph: Graph = graph) -> bool:
                    return other != i and graph.nodes[other].op.startswith(("reduce", "dot"))

                steps = trace(graph, roots_of(graph, segment, Index.of_var(segment.variable)), stored)
                mapping = choose(graph, segment, steps, CPU)
                assert mapping.rows * mapping.inner == segment.size, name
                assert reduction_is_legal(graph, segment, mapping, CPU) is None, name
                if segment.size <= 4096:
                    assert sorted(covered(mapping)) == list(range(segment.size)), name


def test_row_column_and_full_reduces_are_mapped_as_such() -> None:
    def chosen(graph: object, op: str = "reduce") -> tuple[RowMap, bool]:
        node = next(i for i, node in enumerate(graph.nodes) if node.op == op)  # type: ignore[attr-defined]
        (segment,) = segments_of(graph, (node,))  # type: ignore[arg-type]
        nothing = trace(graph, (), bool)  # type: ignore[arg-type]
        mapping = choose(graph, segment, nothing, CPU)  # type: ignore[arg-type]
        return mapping, spans_rows(segment, mapping)

    mapping, spans = chosen(softmax(1000, 64))
    assert (mapping.rows, mapping.inner, spans) == (1000, 64, False)
    mapping, spans = chosen(column_sum(1000, 64))  # many rows, few columns: every task sums its own rows
    assert (mapping.rows, mapping.inner, spans) == (1000, 64, True)
    mapping, spans = chosen(column_sum(12, 32768))  # few rows, many columns: runs of columns are the rows
    assert (mapping.inner // 12, spans) == (2048, False)
    mapping, spans = chosen(full_sum(10_007))
    assert (mapping.rows, mapping.inner, spans) == (10_007, 1, True)


@given(st.permutations(range(3)), st.tuples(*[st.integers(1, 700)] * 3))
@example([1, 0, 2], (327, 100, 32))
def test_a_row_of_elements_ends_where_pieces_end(order: list[int], shape: tuple[int, int, int]) -> None:
    """A piece is what an operand has in one stretch. If a row ends within one, each of its elements takes a division."""
    maker = Maker("transposed")
    node = maker.op("transpose", maker.parameter(*shape), permutation=tuple(order))
    graph = maker.done(node)
    (segment,) = segments_of(graph, (node,))
    steps = trace(graph, roots_of(graph, segment, Index.of_var(segment.variable)), lambda other: other != node)
    row = choose(graph, segment, steps, CPU).inner
    for piece in boundaries((flat for _, flat in steps.loads()), segment.variable):
        assert row % piece == 0 or piece % row == 0


@pytest.mark.parametrize(("taps", "row"), [(7, 7 * 384), (3, 9 * 384)])
def test_rows_of_a_sum_over_images_end_where_taps_do(taps: int, row: int) -> None:
    """The gradient of a depthwise filter keeps taps times channels of each image, too many for one row with 49 taps. With rows
    that ended within a tap it took forty times as long."""
    maker = Maker("depthwise")
    image = maker.op(
        *("pad", maker.parameter(8, 14, 14, 384), maker.constant(0.0)),
        low=(0, taps // 2, taps // 2, 0),
        high=(0, taps // 2, taps // 2, 0),
        interior=(0, 0, 0, 0),
    )
    slides = maker.op("patches", image, dimensions=(1, 2), sizes=(taps, taps), strides=(1, 1), dilations=(1, 1))
    spread = maker.spread(maker.parameter(8, 14, 14, 384), (8, 14, 14, taps, taps, 384), 0, 1, 2, 5)
    node = maker.op("reduce", maker.op("multiply", slides, spread), dimensions=(1, 2), kind="sum")
    graph = maker.done(node)
    (segment,) = segments_of(graph, (node,))
    steps = trace(graph, roots_of(graph, segment, Index.of_var(segment.variable)), lambda other: False)
    assert choose(graph, segment, steps, CPU).inner == 14 * 14 * row


@pytest.mark.parametrize("by_padding", [False, True], ids=["joined", "padded"])
def test_rows_end_where_pieces_that_are_joined_or_padded_do(by_padding: bool) -> None:
    """All pieces are read at one stride, so only the conditions say where the element is split. In one flat loop each element would
    take divisions to know its piece (a roll of an image took ten times as long as TensorFlow's)."""
    maker = Maker("joined")
    pieces = maker.parameter(16, 25, 28, 32), maker.parameter(16, 3, 28, 32)
    if by_padding:
        low, high, none = (0, 2, 0, 0), (0, 1, 0, 0), (0,) * 4
        node = maker.op("pad", pieces[0], maker.parameter(), low=low, high=high, interior=none)
    else:
        node = maker.op("concatenate", *pieces, dimension=1)
    graph = maker.done(node)
    (segment,) = segments_of(graph, (node,))
    steps = trace(graph, roots_of(graph, segment, Index.of_var(segment.variable)), lambda other: other != node)
    assert choose(graph, segment, steps, CPU).inner % (28 * 32) == 0


@given(st.integers(1, 5000), st.integers(1, 5000))
def test_divisor_near_is_the_greatest_divisor_not_above(number: int, wanted: int) -> None:
    expected = max(d for d in range(1, min(number, wanted) + 1) if number % d == 0)
    assert divisor_near(number, wanted) == expected


def test_slices_and_boundaries() -> None:
    row, within = Var("r", 8), Var("k", 6)
    r, k = Index.of_var(row), Index.of_var(within)
    assert slice_size_of(r * 6 + k, row) == 6
    assert slice_size_of(r * 6 + k + 1, row) is None
    assert slice_size_of(k, row) is None
    quotient, remainder = k.divide(2)
    assert boundaries([quotient * 5 + remainder], within) == {2}
