"""Rows of matrix products: every number of columns and terms that the micro-kernel treats differently, what is around them in a row,
and wrong micro-kernels, which the oracle finds."""

from __future__ import annotations

import pytest

from stitchfleet.compiler.check.random_inputs import Regime
from stitchfleet.compiler.codegen.cpu import kernel_text
from stitchfleet.compiler.codegen.cpu.kernel_text import render
from stitchfleet.compiler.explaining.words import explain
from stitchfleet.compiler.ir.graph import DType, Graph
from stitchfleet.compiler.loops.loops import Product, walk
from stitchfleet.compiler.lowering.kernel_loops import lower
from stitchfleet.compiler.planning.plan import plan_graph

from ....marks import slow
from ...library import Maker, batch_of_products, gru_cell, product_softmax, turned_products
from ...native import build_all, complaint

COLUMNS = (*range(1, 18), 24, 25, 31, 32, 33, 47, 48, 49, 63, 64, 65, 96, 97, 100, 129, 193, 200, 385)
"""Every rest of a vector, in one vector and beside one, and the ends of strips of vectors (AVX2 and AVX-512)."""
MORE_COLUMNS = (*range(18, 96), 128, 191, 192, 384)


def products(dtype: DType, columns: tuple[int, ...]) -> Graph:
    """A product for each number of columns, of one to thirteen rows, with one to nine terms or so many that chains of sums take
    turns."""
    m = Maker("products")
    outputs = []
    for number, extent in enumerate(columns):
        terms = number % 9 + 1 if number % 3 else 70
        left, right = m.parameter(number % 13 + 1, terms, dtype=dtype), m.parameter(terms, extent, dtype=dtype)
        outputs.append(m.op("dot", left, right))
    return m.done(*outputs)


@pytest.mark.parametrize("columns", [COLUMNS, slow(MORE_COLUMNS)], ids=["some", "more"])
@pytest.mark.parametrize("dtype", [DType.F32, DType.F64], ids=lambda dtype: dtype.value)
def test_every_number_of_columns_and_terms_agrees_with_the_oracle(dtype: DType, columns: tuple[int, ...]) -> None:
    (built,) = build_all([products(dtype, columns)])
    for regime in (Regime.NORMAL, Regime.SPECIAL, Regime.HUGE):
        assert complaint(built, regime, seed=3) is None


def written(graph: Graph) -> list[list[Product]]:
    """The rows of products of each nest's loops."""
    nests = [code for phase in lower(plan_graph(graph)).phases for code in phase.nests]
    return [[each for each in walk(code.body) if isinstance(each, Product)] for code in nests]


def test_a_recurrent_cell_is_one_nest_in_which_the_second_product_reads_the_row_of_the_first() -> None:
    assert [len(found) for found in written(gru_cell(64, 36))] == [2]


def test_the_plan_says_how_many_rows_of_a_product_are_computed_at_once() -> None:
    said = {rows: explain(plan_graph(product_softmax(rows, 17, 40))) for rows in (3, 4, 5, 6, 20)}
    assert {rows: "of 6 rows at once" in text for rows, text in said.items()} == {
        3: False,
        4: False,
        5: False,
        6: True,
        20: True,
    }
    assert ["of 4 rows at once" in said[rows] for rows in (3, 4, 5)] == [False, True, True]
    assert "of 4 rows at once" in explain(plan_graph(batch_of_products(5, 8, 16, 20))), (
        "a group of rows is of one product"
    )
    assert "rows at once" not in explain(plan_graph(batch_of_products(5, 9, 16, 20)))


def test_what_follows_a_product_is_in_its_row() -> None:
    assert [len(found) for found in written(product_softmax(20, 17, 40))] == [1]


def test_a_factor_that_is_read_across_memory_or_computed_is_stored_first() -> None:
    loops = lower(plan_graph(turned_products(20, 36, 50)))
    assert (
        sum(isinstance(each, Product) for phase in loops.phases for code in phase.nests for each in walk(code.body))
        == 3
    )
    assert sorted(buffer.elements for buffer in loops.scratch_offsets) == [
        20 * 50,
        36 * 50,
    ]  # tanh(dy), w the other way round


def test_the_products_of_a_batch_are_rows_too() -> None:
    assert sum(map(len, written(batch_of_products(5, 12, 16, 20)))) == 2


def test_a_kernel_without_products_does_not_hold_their_functions() -> None:
    texts = [
        render(lower(plan_graph(make())), "k") for make in (lambda: gru_cell(9, 20), lambda: products(DType.F16, (4,)))
    ]
    held = ["stitch_product_strip" in kernel_text.translation_unit([text]) for text in texts]
    assert held == [True, False]


MUTANTS = {
    "the last terms are left out": ("for (; k < terms; ++k) add", "for (; k < terms - 1; ++k) add"),
    "a chain of sums is left out": ("(sums[2][i][v] + sums[3][i][v])", "sums[2][i][v]"),
    "the last vector begins too early": (": COLUMNS - LANES;", ": COLUMNS - LANES - 1;"),
    "sums begin at one": ("sums[c][i][v] = V{};", "sums[c][i][v] = V{} + 1;"),
    "rows are written over each other": ("(target + i * stride + place(v))", "(target + place(v))"),
    "a single row takes the first row's factors": ("return left(first, k)", "return left(0, k)"),
    "a single column takes the row's next factor": ("__builtin_fmaf(left(k)", "__builtin_fmaf(left(k ? k - 1 : 0)"),
}


@pytest.mark.costly
@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_micro_kernel_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = MUTANTS[name]
    original = kernel_text.translation_unit

    def wrong(kernels: object) -> str:
        text = original(kernels)  # type: ignore[arg-type]
        assert before in text
        return text.replace(before, after)

    monkeypatch.setattr("tests.compiler.native.translation_unit", wrong)
    (built,) = build_all([products(DType.F32, (2, 7, 12, 20, 50, 100, 8, 30, 40))])
    assert complaint(built, Regime.NORMAL, seed=3) is not None
