"""Long rows, few of them: split as the paper's bad cases are, the same values, and no split that does not pay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stitchfleet.compiler.check.judge import judge
from stitchfleet.compiler.check.random_inputs import Regime, random_inputs
from stitchfleet.compiler.codegen.cuda.kernel_text import plan_for_gpu
from stitchfleet.compiler.explaining.words import explain
from stitchfleet.compiler.ir.graph import DType, Graph
from stitchfleet.compiler.ops.interpreter import evaluate
from stitchfleet.compiler.planning.normal import normalise
from stitchfleet.compiler.planning.splitting import split_long_rows
from stitchfleet.compiler.targets.targets import A100, CPU, H200, T4, V100, GpuTarget

from ..emulated import SMALL, build_all
from ..library import Maker, argmax, column_sum, cross_entropy, softmax

EAGER = replace(SMALL, barrier_ns=0.0, block_bytes_per_ns=1e-3)
"""A phase costs nothing there: whatever can be split is."""


@pytest.mark.parametrize(("target", "parts"), [(V100, 5), (T4, 2), (A100, 6), (H200, 8)])
def test_the_papers_case_of_few_long_rows_fills_the_device(target: GpuTarget, parts: int) -> None:
    """<64,30000>, which XLA gives to 64 blocks."""
    plan, kernel = plan_for_gpu(softmax(64, 30000), target)
    assert [split.parts for split in plan.splits] == [parts, parts]
    assert plan.nests[0].rows == 64 * parts
    assert 30000 % parts == 0
    assert kernel.grid <= target.blocks_at_once(kernel.shared_bytes)
    assert f"split in {parts}: " in explain(plan)
    intermediates = 2 * 64 * parts * 4
    assert f"intermediates written to memory: {intermediates} bytes" in explain(plan)


@pytest.mark.parametrize("target", [V100, T4, A100, H200])
def test_the_papers_case_of_many_short_rows_is_packed(target: GpuTarget) -> None:
    """<750000,32>, which XLA gives to 750,000 blocks of 32 threads: eight threads with a vector each for a row, a
    block of several warps."""
    plan, kernel = plan_for_gpu(softmax(750_000, 32), target)
    assert plan.splits == ()
    assert kernel.blocks == -(-750_000 // (target.block // 8))
    assert len(plan.levels) == 1


def test_a_split_that_costs_more_than_it_saves_is_not_made_and_says_why() -> None:
    plan, _ = plan_for_gpu(softmax(64, 2000), V100)
    assert {split.parts for split in plan.splits} == {1}
    assert "2 parts would save 0.6 us, less than a phase's 2.7 us" in explain(plan)
    plan, _ = plan_for_gpu(softmax(5000, 2000), V100)
    assert "5000 rows keep 320 blocks busy" in explain(plan)


def test_nothing_is_split_for_a_cpu() -> None:
    graph = softmax(2, 30000)
    assert split_long_rows(graph, CPU) == (graph, ())


@st.composite
def reductions(draw: st.DrawFn) -> Graph:
    """A long row reduction among element-wise ops: every kind and dtype that it is for, lengths that divide and that do not."""
    rows = draw(st.sampled_from([(), (1,), (2,), (3, 2), (7,)]))
    length = draw(st.sampled_from([(1025,), (2048,), (1500,), (3, 700), (3001,), (5003,)]))
    kind, dtype = draw(
        st.sampled_from(
            [
                *(("sum", d) for d in (DType.F32, DType.F16, DType.BF16, DType.F64, DType.S32, DType.U8)),
                *(("max", d) for d in (DType.F32, DType.F16, DType.S8, DType.U64)),
                *(("min", d) for d in (DType.F32, DType.S32, DType.PRED)),
                *(("and", d) for d in (DType.PRED, DType.S32)),
                *(("or", d) for d in (DType.PRED, DType.U8)),
                ("product", DType.S32),
            ]
        )
    )
    m = Maker("long_rows")
    x = m.parameter(*rows, *length, dtype=dtype)
    dimensions = tuple(range(len(rows), len(rows) + len(length)))
    total = m.op("reduce", x, dimensions=dimensions, kind=kind)
    spread = m.spread(total, (*rows, *length), *range(len(rows)))
    combined = "subtract" if dtype is not DType.PRED else "xor"
    return m.done(m.op(combined, x, spread), total) if draw(st.booleans()) else m.done(total)


def _halves_columns(length: int, *columns: int) -> Graph:
    m = Maker("halves_columns")
    x = m.parameter(length, *columns, dtype=DType.BF16)
    return m.done(m.op("exp", m.reduce(x, 0)))


def test_columns_that_are_too_many_for_one_task_and_too_few_for_the_device_are_split() -> None:
    """8 blocks went down 1,000 columns each, 1,024 rows one after the other: 0.3 ms of a bias gradient."""
    plan, _ = plan_for_gpu(column_sum(1024, 8000), H200)
    assert [split.parts for split in plan.splits] == [32]
    assert "32 parts would save" in explain(plan)
    assert plan_for_gpu(column_sum(1024, 256), H200)[0].splits == (), "each task stores a partial result"
    (many,) = plan_for_gpu(column_sum(64, 1_000_000), H200)[0].splits
    assert many.parts == 1
    (prime,) = plan_for_gpu(column_sum(1021, 8000), H200)[0].splits
    assert prime.parts == 1


@settings(max_examples=80, deadline=None)
@given(reductions(), st.integers(0, 2**31))
def test_what_is_split_has_the_same_values(graph: Graph, seed: int) -> None:
    split, decisions = split_long_rows(normalise(graph), EAGER)
    inputs = random_inputs(graph, np.random.default_rng(seed), Regime.NORMAL)
    verdict = judge(graph, inputs, evaluate(split, inputs))
    assert verdict.ok, verdict
    for decision in decisions:
        assert decision.parts > 1, decision


@pytest.mark.parametrize(
    "graph",
    [
        softmax(3, 5001),
        softmax(2, 2048, DType.F16),
        softmax(1, 20000),
        cross_entropy(4, 3000),
        argmax(3, 4100, 1),
        argmax(1, 9000, 1),
        column_sum(64, 300),
        _halves_columns(96, 5, 60),
    ],
    ids=lambda graph: f"{graph.name}-{graph.nodes[0].type_text}",
)
def test_kernels_with_split_rows_agree_with_the_oracle(graph: Graph) -> None:
    (one,) = build_all([graph], EAGER)
    assert one.kernel.cooperative
    for regime in (Regime.NORMAL, Regime.SPECIAL):
        assert one.complaint(regime, seed=3) is None
