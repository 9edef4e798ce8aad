"""Index arithmetic is exact: whatever it simplifies to has the value of the plain computation, for every value of the
variables."""

from __future__ import annotations

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from stitchfleet.compiler.ir.index_maps import Atom, Bound, Digit, Index, Quotient, Var, guard_of, linear, unravel

Values = dict[Var, int]


def value_of(index: Index, values: Values) -> int:
    return index.constant + sum(coefficient * _atom_value(atom, values) for coefficient, atom in index.terms)


def _atom_value(atom: Atom, values: Values) -> int:
    if isinstance(atom, Digit):
        return values[atom.variable] // atom.stride % atom.extent
    inner = value_of(atom.index, values)
    return inner // atom.divisor if isinstance(atom, Quotient) else inner % atom.divisor


def everywhere(*variables: Var) -> list[Values]:
    ranges = [range(variable.extent) for variable in variables]
    return [dict(zip(variables, chosen, strict=True)) for chosen in itertools.product(*ranges)]


@st.composite
def indices(draw: st.DrawFn) -> tuple[Index, list[Var]]:
    variables = [Var(name, draw(st.integers(1, 12))) for name in "ab"]
    index = Index(draw(st.integers(0, 9)))
    for variable in variables:
        part = Index.of_var(variable)
        for _ in range(draw(st.integers(0, 2))):
            quotient, remainder = part.divide(draw(st.integers(1, 6)))
            part = draw(st.sampled_from([quotient, remainder, quotient * 3 + remainder]))
        index = index + part * draw(st.integers(-2, 8))
    return index, variables


@given(indices(), st.integers(1, 24))
def test_division_is_floor_division(drawn: tuple[Index, list[Var]], divisor: int) -> None:
    index, variables = drawn
    quotient, remainder = index.divide(divisor)
    for values in everywhere(*variables):
        assert divmod(value_of(index, values), divisor) == (value_of(quotient, values), value_of(remainder, values))


def _is_affine(index: Index) -> bool:
    return all(isinstance(atom, Digit) for _, atom in index.terms)


@given(indices(), st.integers(1, 24))
def test_quotient_and_remainder_make_the_whole_again(drawn: tuple[Index, list[Var]], divisor: int) -> None:
    index, variables = drawn
    quotient, remainder = index.divide(divisor)
    whole = quotient * divisor + remainder
    assert _is_affine(whole) or not _is_affine(index)
    for values in everywhere(*variables):
        assert value_of(whole, values) == value_of(index, values)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 6))
def test_what_a_row_is_cut_into_needs_no_division(rows: int, parts: int, chunk: int) -> None:
    """Chunk by chunk, in terms of chunks that are numbered through, a row is the chunk's number over a row's chunks."""
    chunks, place = Var("r", rows * parts), Var("k", chunk)
    flat = Index.of_var(chunks) * chunk + Index.of_var(place)
    row, within = flat.divide(parts * chunk)
    assert _is_affine(row)
    assert _is_affine(within)
    assert linear((row, within), (rows, parts * chunk)) == flat


@given(indices())
def test_bounds_hold(drawn: tuple[Index, list[Var]]) -> None:
    index, variables = drawn
    assert all(index.low <= value_of(index, values) <= index.high for values in everywhere(*variables))


@given(st.lists(st.integers(1, 6), max_size=4), st.lists(st.integers(1, 6), max_size=4))
def test_a_reshape_there_and_back_is_the_same_index(shape: list[int], other: list[int]) -> None:
    size = math.prod(shape)
    flat = Index.of_var(Var("u", size))
    assert linear(unravel(flat, tuple(shape)), tuple(shape)) == flat  # digits join to the whole variable
    if math.prod(other) == size:
        there = unravel(linear(unravel(flat, tuple(shape)), tuple(shape)), tuple(other))
        assert linear(there, tuple(other)) == flat


@given(indices(), st.integers(1, 6), st.integers(1, 6))
def test_substitution_replaces_the_value(drawn: tuple[Index, list[Var]], high: int, low: int) -> None:
    index, (first, second) = drawn
    outer, inner = Var("o", high), Var("i", low)
    if high * low != first.extent:
        return
    split = index.substitute({first: Index.of_var(outer) * low + Index.of_var(inner)})
    for values in everywhere(outer, inner, second):
        whole = {first: values[outer] * low + values[inner], second: values[second]}
        assert value_of(split, values) == value_of(index, whole)


def test_a_guard_keeps_only_what_can_fail() -> None:
    position = Index.of_var(Var("k", 10))
    assert guard_of([Bound(position, 0, 10), Bound(position, 0, 9), Bound(position, 0, 9)]) == (Bound(position, 0, 9),)
    assert Bound(position + 10, 0, 10).never
