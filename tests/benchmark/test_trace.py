"""From TensorFlow's profile to the time of nodes, and from there to coverage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.benchmark.coverage import (
    NOT_IN_USE,
    NOT_SEEN,
    Coverage,
    Iteration,
    Kind,
    compiled_by_xla,
    iteration_of,
    join,
    table,
)
from scripts.benchmark.trace import NodeTime, Span, WallTime, add_up, operator_of, wall_time
from stitchfleet.plugin.clusters.rewrite import OUR_OPS, STITCH_OP, UPDATE_OP
from stitchfleet.plugin.graph.batch_products import BATCH_PRODUCT_OP
from stitchfleet.plugin.graph.tf_ops import COMPILED_BY_XLA, is_product

MICROSECOND = 1_000_000  # picoseconds


def span(name: str, start: float, duration: float, step: int | None = None) -> Span:
    return Span(name, round(start * MICROSECOND), round(duration * MICROSECOND), step, 0)


def test_a_node_s_time_is_its_own_without_that_of_operators_inside() -> None:
    spans = [
        span("ExecutorState::Process", 0, 100, step=1),
        span("call:PartitionedCall", 10, 50),
        span("ExecutorState::Process", 11, 48, step=1),
        span("body/mul:Mul", 12, 20),
        span("body/add:AddV2", 32, 5),
        span("after:Neg", 70, 3),
    ]
    found = {node.node: node for node in add_up([("tf_Compute/1", spans), ("tf_Compute/2", [span("after:Neg", 0, 4)])])}
    assert found["call"].own_us == pytest.approx(25)
    assert found["body/mul"] == NodeTime("body/mul", "Mul", 1, 20.0)
    assert found["after"] == NodeTime("after", "Neg", 2, 7.0)


def test_each_moment_of_wall_time_counts_once_and_for_products_first() -> None:
    one = [span("call:PartitionedCall", 0, 100), span("a/MatMul:_MklMatMul", 10, 20), span("a/mul:Mul", 40, 10)]
    two = [span("a/kernel:" + STITCH_OP, 25, 20), span("a/exp:Exp", 60, 5)]
    three = [span("map:Cast", 0, 500)]
    found = wall_time([("tf_Compute/1", one), ("tf_Compute/2", two), ("tf_data_iterator", three)])
    assert found == WallTime(product=20.0, stitch=15.0, other=10.0, nothing=10.0)


def test_what_the_input_pipeline_runs_is_not_the_step_s() -> None:
    pipeline = [span("InstantiatedCapturedFunction::Run", 0, 5, step=7)]
    shared = [
        span("ExecutorState::Process", 0, 10, step=7),
        span("map/cast:Cast", 1, 8),
        span("ExecutorState::Process", 20, 10, step=8),
        span("loss/cast:Cast", 21, 8),
    ]
    own = [span("ExecutorState::Process", 0, 10, step=9), span("other:Cast", 1, 8)]
    found = add_up([("tf_data_iterator", pipeline), ("tf_Compute/1", shared), ("tf_data_private_threadpool/2", own)])
    assert [node.node for node in found] == ["loss/cast"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a/b_1/MatMul:_MklMatMul", ("a/b_1/MatMul", "_MklMatMul")),
        ("while/body/_1/while/add.x-y:AddV2", ("while/body/_1/while/add.x-y", "AddV2")),
        ("Iterator::Root::Prefetch", None),
        ("EagerLocalExecute: __inference_train_1", None),
        ("ExecutorState::Process", None),
        ("ParallelFor", None),
    ],
)
def test_an_operator_s_event_is_known_by_its_name(name: str, expected: tuple[str, str] | None) -> None:
    assert operator_of(name) == expected


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), min_size=1, max_size=12))
def test_own_times_of_nested_operators_add_up_to_the_outermost(cuts: list[tuple[int, int]]) -> None:
    # Each next operator lies wholly within the one before.
    spans, start, duration = [], 0, 10_000
    for number, (left, right) in enumerate(cuts):
        spans.append(span(f"n{number}:Mul", start, duration))
        start, duration = start + left, duration - left - right
        if duration <= 0:
            break
    assert sum(node.own_us for node in add_up([("t", spans)])) == pytest.approx(10_000)


@pytest.mark.parametrize(
    "op",
    [
        *("MatMul", "BatchMatMulV2", "_MklNativeFusedMatMul", "_FusedConv2D", "Conv2DBackpropFilter"),
        *("StitchfleetConv2DBackpropInput", "SparseTensorDenseMatMul", "BlockLSTMGrad", "GRUBlockCell"),
        *("Cholesky", "MatrixTriangularSolve", "SelfAdjointEigV2"),
    ],
)
def test_products_are_products_however_they_are_fused(op: str) -> None:
    assert is_product(op)


@pytest.mark.parametrize(
    "op",
    [
        *("_MklTranspose", "ResourceApplyAdam", "TensorListConcatV2", "Switch", "MatrixDiagV3", *sorted(OUR_OPS)),
        *("DepthwiseConv2dNativeBackpropFilter", "_MklNativeDepthwiseConv2dNative"),  # kernels compute them
    ],
)
def test_everything_else_is_in_the_denominator(op: str) -> None:
    assert not is_product(op)


NODES = [
    NodeTime("dense/MatMul", "_MklMatMul", 10, 1000.0),
    NodeTime("norm/mul", "Mul", 10, 600.0),
    NodeTime("norm/mul_1", "Mul", 10, 100.0),
    NodeTime("reverted/sub", "Sub", 10, 50.0),
    NodeTime("while/switch", "Switch", 500, 150.0),
    NodeTime("hidden/exp", "Exp", 10, 100.0),
]
MEMBERS = {
    "dense/MatMul": {"op": "MatMul", "stitched": False, "reason": "matrix product or convolution"},
    "norm/mul": {"op": "Mul", "stitched": True, "cluster": "good_1"},
    "norm/mul_1": {"op": "Mul", "stitched": True, "cluster": None},
    "reverted/sub": {"op": "Sub", "stitched": True, "cluster": "bad_1"},
    "while/switch": {"op": "Switch", "stitched": False, "reason": "control flow or plumbing"},
}


def _coverage() -> Coverage:
    plain = iteration_of(NODES, 10, {"dense/MatMul": 80_000, "norm/mul": 4_000, "hidden/exp": 6_000})
    ours = [NodeTime("stitchfleet/x", STITCH_OP, 20, 300.0), NodeTime("stitchfleet/update", UPDATE_OP, 10, 50.0)]
    stitched = iteration_of([*NODES[:1], *ours], 10, {"stitchfleet/x": 1_000})
    return join(plain, stitched, NODES, 10, MEMBERS, {"good_1": "stitched", "bad_1": "reverted"})


def test_an_iteration_counts_products_apart_and_control_flow_not_as_launches() -> None:
    assert _coverage().plain == Iteration(
        product_us=100.0,
        memory_us=100.0,
        stitch_us=0.0,
        launches=4.0,
        stitch_launches=0.0,
        product_launches=1.0,
        written_bytes=1_000,
        kinds=(
            Kind("_MklMatMul", 1.0, 100.0),
            Kind("Mul", 2.0, 70.0),
            Kind("Switch", 50.0, 15.0),
            Kind("Exp", 1.0, 10.0),
            Kind("Sub", 1.0, 5.0),
        ),
    )
    stitched = _coverage().stitched
    assert [kind.op for kind in stitched.kinds] == ["_MklMatMul", STITCH_OP, UPDATE_OP]
    assert (stitched.stitch_launches, stitched.stitch_us) == (3.0, 35.0)


def test_a_product_by_one_of_two_kernels_is_one_launch() -> None:
    """The profile has our op, and within it the kernel that it has called, under the same node."""
    chosen = [NodeTime("dense/MatMul", BATCH_PRODUCT_OP, 10, 5.0), *NODES]
    assert iteration_of(chosen, 10, {}).product_launches == iteration_of(NODES, 10, {}).product_launches


def test_coverage_is_the_share_of_time_in_kernels_that_are_in_use_and_the_rest_has_a_reason() -> None:
    coverage = _coverage()
    assert coverage.share == pytest.approx(0.7)
    assert (coverage.stitched_nodes, coverage.memory_nodes) == (2, 5)
    assert [(out.op, out.reason, out.us, out.runs) for out in coverage.outside] == [
        ("Switch", "control flow or plumbing", 15.0, 50.0),
        ("Exp", NOT_SEEN, 10.0, 1.0),
        ("Sub", f"{NOT_IN_USE} (reverted)", 5.0, 1.0),
    ]
    assert coverage.share * coverage.plain.memory_us + sum(out.us for out in coverage.outside) == pytest.approx(100.0)


def test_what_the_job_has_compiled_by_xla_is_in_no_figure_but_its_own() -> None:
    members = {
        **MEMBERS,
        "conv/PartitionedCall": {"op": "PartitionedCall", "stitched": False, "reason": COMPILED_BY_XLA},
    }
    nodes = [*NODES, NodeTime("conv/PartitionedCall", "PartitionedCall", 10, 5_000.0)]
    compiled = compiled_by_xla(members)
    plain = iteration_of(nodes, 10, {"dense/MatMul": 80_000, "norm/mul": 10_000}, compiled=compiled)
    assert plain == _coverage().plain
    found = join(plain, plain, nodes, 10, members, {"good_1": "stitched", "bad_1": "reverted"})
    assert (found.share, found.memory_nodes, found.compiled_us) == (pytest.approx(0.7), 5, 500.0)
    assert all(out.op != "PartitionedCall" for out in found.outside)
    assert any(
        "not counted: 0.50 ms in functions that the job has compiled by XLA" in line for line in table("job", found)
    )


def test_the_table_shows_the_dearest_first_and_adds_up_the_rest() -> None:
    lines = table("job", _coverage(), most=1)
    assert "70.0% of the memory-intensive time" in lines[0]
    assert "Switch" in lines[-2]
    assert "15.0%" in lines[-2]
    assert "0.015 ms  15.0%  2 more kinds" in lines[-1]
