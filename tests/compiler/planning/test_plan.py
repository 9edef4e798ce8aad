"""Plans: what is fused, what goes through memory and why, and that a plan can say so."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stitchfleet.compiler.check.random_inputs import Regime
from stitchfleet.compiler.explaining.picture import draw
from stitchfleet.compiler.explaining.words import explain
from stitchfleet.compiler.ir.graph import DType, Graph
from stitchfleet.compiler.ir.index_maps import Index
from stitchfleet.compiler.loops.loops import Blocks, BufferKind, Compute, Let, Loop, LoopKind, Loops, Statement, walk
from stitchfleet.compiler.lowering.kernel_loops import lower
from stitchfleet.compiler.ops.verify import verify
from stitchfleet.compiler.planning.execution import Mode
from stitchfleet.compiler.planning.normal import normalise
from stitchfleet.compiler.planning.plan import Plan, plan_graph
from stitchfleet.compiler.planning.schemes import Scheme
from stitchfleet.compiler.targets.targets import CPU, V100, Target

from ..codegen.test_golden import GOLDEN
from ..library import (
    LIBRARY,
    Maker,
    adam,
    attention_pool,
    batch_norm,
    biased_softmax,
    clip_by_global_norm,
    cross_entropy,
    crossed_rows,
    expensive_column,
    gated_rows,
    gelu,
    layer_norm,
    layer_norm_gradient,
    masked_softmax,
    middle_norm,
    row_times_matrix,
    running_sum,
    softmax,
)
from ..native import build_all, complaint, complaints
from ..strategies import graphs


def intermediates(plan: Plan) -> int:
    return sum(buffer.size_bytes for buffer in plan.intermediates)


@pytest.mark.parametrize(
    "graph",
    [softmax(4096, 128), softmax(64, 30000), layer_norm(1024, 256), gelu(1024, 1024), masked_softmax(8, 4, 128)],
    ids=lambda graph: graph.name,
)
def test_writes_no_intermediate_to_memory(graph: Graph) -> None:
    plan = plan_graph(graph)
    assert intermediates(plan) == 0
    assert len(plan.nests) == 1


def test_layer_norm_gradient_is_one_loop_with_row_and_column_reduces() -> None:
    plan = plan_graph(layer_norm_gradient(1024, 256))
    assert len(plan.nests) == 1
    # Two column reduces leave one row of partial results per task, and nothing else.
    assert intermediates(plan) == 2 * plan.executions[0].tasks * 256 * 4
    schemes = [plan.scheme_of(i).scheme for i in plan.candidates]
    assert schemes.count(Scheme.REGIONAL) == 2
    assert schemes.count(Scheme.GLOBAL) == 2


def test_cross_entropy_reads_the_logits_in_one_loop() -> None:
    plan = plan_graph(cross_entropy(256, 1000))
    reading = [nest for nest in plan.nests if plan.graph.parameters[0] in nest.reads]
    assert len(reading) == 1
    assert intermediates(plan) < 1000  # the mean's partial results


def test_independent_tensors_share_one_phase() -> None:
    shapes = [(256, 256)] * 10 + [(256,)] * 20
    plan = plan_graph(adam(shapes))
    assert len(plan.nests) == 1  # alike: one nest stands for all
    assert len(plan.levels) == 1
    (phase,) = lower(plan).phases
    assert [len(nest.instances) for nest in phase.nests] == [len(shapes)]


def test_a_global_norm_takes_two_parallel_phases() -> None:
    kernel = lower(plan_graph(clip_by_global_norm([(512, 512)] * 4)))
    assert [phase.serial for phase in kernel.phases] == [False, True, False]


def test_batch_norm_passes_over_its_input_three_times() -> None:
    plan = plan_graph(batch_norm(8, 16, 16, 32))
    # Mean, variance, normalised: each needs all of the one before. Vectors of 32 in between are their own small nests.
    reading = [nest for nest in plan.nests if plan.graph.parameters[0] in nest.reads]
    assert len(reading) == 3
    assert all(mapping.parts[0].row_stride is None for nest in reading for _, mapping in nest.placed)
    assert intermediates(plan) < 50_000


def test_what_a_row_keeps_is_read_in_a_concatenation_too() -> None:
    """A softmax over time, which is also a column beside the features (attention's scores in a recommender)."""
    m = Maker("scores_beside_features")
    scores, features = m.parameter(64, 50), m.parameter(64, 50, 36)
    power = m.op("exp", m.op("subtract", scores, m.spread(m.reduce(scores, 1, kind="max"), (64, 50), 0)))
    softmax = m.op("divide", power, m.spread(m.reduce(power, 1), (64, 50), 0))
    joined = m.op("concatenate", features, m.reshape(softmax, 64, 50, 1), dimension=2)
    plan = plan_graph(m.done(softmax, m.op("transpose", joined, permutation=(1, 0, 2))))
    assert len(plan.nests) == 1
    assert str(lower(plan)).count("exp(") == 1


def test_a_norm_along_a_middle_dimension_reads_its_input_in_one_nest() -> None:
    """Of what a row's later passes read often, a vector is kept if it takes a long instruction, and computed again if it is light."""
    plan = plan_graph(middle_norm(32, 128, 256))
    assert len(plan.nests) == 1
    assert intermediates(plan) == 0
    text = str(lower(plan))
    assert text.count("rsqrt(") == 1
    assert text.index("rsqrt(") < text.index("tile1[k256_1] = ")
    (scale,) = (i for i, node in enumerate(plan.graph.nodes) if node.op == "rsqrt")
    assert plan.scheme_of(scale).scheme is Scheme.REGIONAL
    mean = next(i for i, node in enumerate(plan.graph.nodes) if node.op == "multiply")
    assert plan.scheme_of(mean).scheme is Scheme.LOCAL
    assert len(plan_graph(middle_norm(32, 16, 8192)).nests) > 1  # too long to keep for a row


def test_an_expensive_column_is_computed_once() -> None:
    plan = plan_graph(expensive_column(4096, 512))
    assert len(plan.nests) == 2
    assert intermediates(plan) == 512 * 4


def test_work_that_inlining_would_multiply_is_taken_out_of_line() -> None:
    plan = plan_graph(running_sum(4096, 10))
    assert plan.forced
    assert len(plan.nests) > 1


def test_an_exponential_needed_twice_is_kept_in_a_tile() -> None:
    for graph in (softmax(4096, 128), attention_pool(64, 50, 36)):
        text = str(lower(plan_graph(graph)))
        assert text.count("exp(") == 1
        assert "local tile" in text


def test_expensive_numbers_of_rows_are_computed_as_vectors() -> None:
    """Those that follow a pass over the row too, if they need none of its results."""
    plan = plan_graph(gated_rows(512, 256))
    assert "what is expensive and the same for all of a row is computed for 64 rows at once" in explain(plan)
    (blocks,) = (
        statement
        for phase in lower(plan).phases
        for code in phase.nests
        for statement in code.body
        if isinstance(statement, Blocks) and statement.name == "group"
    )
    numbers, rest = (loop for loop in blocks.body if isinstance(loop, Loop))
    computed = [
        [each.value.node.op for each in walk(loop.body) if isinstance(each, Let) and isinstance(each.value, Compute)]
        for loop in (numbers, rest)
    ]
    assert (numbers.kind, rest.kind) == (LoopKind.SIMD, LoopKind.SERIAL)
    assert {"logistic", "tanh", "exp"} <= set(computed[0])
    assert not {"logistic", "tanh", "exp"} & set(computed[1])
    assert plan_graph(gated_rows(512, 256), V100).executions[0].numbers_together == 1
    assert plan_graph(gated_rows(12, 256)).executions[0].numbers_together == 1, "too few rows for a vector"


def test_a_function_of_a_row_s_number_costs_as_many_calls_as_there_are_rows() -> None:
    (cost,) = plan_graph(gated_rows(512, 4096)).costs[:1]
    assert 512 * 4096 * CPU.light_ns < cost.one_core_ns < 512 * 4096 * CPU.expensive_ns * 3


def test_one_row_times_a_matrix_is_a_product_on_a_cpu_and_a_sum_on_a_gpu() -> None:
    cpu, gpu = (plan_graph(row_times_matrix(256, 256), target) for target in (CPU, V100))
    assert len(cpu.nests) == 1
    assert len(cpu.executions[0].row_products) == 1
    assert not any(node.op == "dot" for node in gpu.graph.nodes)


def test_one_row_times_a_large_matrix_has_rows_of_columns_for_several_threads() -> None:
    plan = plan_graph(row_times_matrix(768, 1024))
    (nest,) = (nest for nest in plan.nests if plan.executions[nest.number].row_products)
    assert (nest.rows, plan.executions[nest.number].tasks) == (4, 4)


def test_what_rounding_to_bf16_makes_slow_is_computed_once() -> None:
    """A cast bias once for all rows, and the biased row once for both of its passes. In float32 both are computed again."""
    bf16 = lower(plan_graph(biased_softmax(4096, 128, DType.BF16)))
    f32 = lower(plan_graph(biased_softmax(4096, 128, DType.F32)))
    assert str(bf16).count("local ahead") == 1
    assert "local ahead" not in str(f32)
    assert (str(bf16).count("local tile"), str(f32).count("local tile")) == (2, 1)


def test_an_output_that_its_own_row_reads_is_in_memory_by_its_scheme() -> None:
    m = Maker("normalised")
    x = m.parameter(64, 32)
    sums = m.reduce(x, 1)
    plan = plan_graph(m.done(m.op("divide", x, m.spread(sums, (64, 32), 0)), sums))
    (node,) = (i for i in plan.candidates if plan.graph.nodes[i].op == "reduce")
    assert plan.scheme_of(node).scheme is Scheme.OUTPUT
    assert [buffer.kind for buffer in plan.memory_of(node)] == [BufferKind.OUTPUT]


def test_a_reduction_whose_results_a_row_would_scatter_gets_rows_of_its_own() -> None:
    schemes = plan_graph(crossed_rows()).placement.schemes.values()
    assert any("scattered in its result" in found.reason for found in schemes)


def loops_in(statements: tuple[Statement, ...]) -> list[Loop]:
    found = []
    for statement in statements:
        if isinstance(statement, Loop):
            found.append(statement)
        if hasattr(statement, "body"):
            found += loops_in(statement.body)
    return found


@pytest.mark.parametrize("name", sorted(set(LIBRARY) - {"argmax_rows", "argmax_columns", "softmax_one_row"}))
def test_some_loop_of_every_nest_is_vectorised(name: str) -> None:
    kernel = lower(plan_graph(LIBRARY[name]()))
    for phase in kernel.phases:
        for nest in phase.nests:
            kinds = {loop.kind for loop in loops_in(nest.body)}
            assert kinds & {LoopKind.SIMD, LoopKind.LANES, LoopKind.SCAN}, f"{name}: nest {nest.number}"


def test_equal_tensors_share_one_function() -> None:
    from stitchfleet.compiler.codegen.cpu.kernel_text import render

    shapes = [(64, 64), (500,), (64, 64), (7, 9)]
    text = render(lower(plan_graph(adam(shapes))), "k")
    assert text.count("static void k_nest") == 1


def check_phases(plan: Plan, kernel: Loops) -> None:
    """The loops' phases are the plan's, and each nest's body is what its mode says."""
    assert len(kernel.phases) == len(plan.phases)
    for phase, planned in zip(kernel.phases, plan.phases, strict=True):
        assert (phase.serial, phase.cost_ns) == (planned.is_serial, planned.cost_ns)
        assert [code.number for code in phase.nests] == [
            -1 if one.partial or one.table else one.nest.number for one in planned.nests
        ]
        for code, one in zip(phase.nests, planned.nests, strict=True):
            execution = one.execution
            assert (code.rows_per_task, code.cost_ns) == (execution.rows_per_task, execution.cost_ns)
            assert code.rows == execution.rows or (
                execution.rows < execution.busy_rows and code.rows % execution.rows == 0
            )
            assert all((code.body, code.buffers)), "the plan has a nest that does nothing"
            over_rows = [kind for item in code.body for kind in ways_over_rows(item)]
            assert set() < set(over_rows) <= OVER_ROWS[execution.mode], f"{execution.mode}: {over_rows}"
            groups = [item.size for item in code.body if isinstance(item, Blocks) and item.name == "group"]
            together = max(execution.rows_together, execution.numbers_together, execution.passes_together)
            if execution.turns is not None:  # a tensor that may share memory with what the nest writes is not copied
                assert groups in ([], [execution.turns.rows])
            else:
                assert groups == ([together] if together > 1 else [])
            needed = [buffer for buffer in code.buffers if buffer.role == "partial"]
            assert {buffer.elements % max(1, plan.executions[one.nest.number].tasks) for buffer in needed} <= {0}


def ways_over_rows(statement: Statement) -> list[str]:
    """How a body goes through a task's rows: the kinds of those loops."""
    if isinstance(statement, Blocks):
        if statement.name == "group":
            return ["groups of rows"]
        inner = [loop for loop in loops_in(statement.body) if loop.bounds == ("block_first", "block_last")]
        return [f"blocks of {inner[0].kind.value}"]
    if isinstance(statement, Loop) and statement.bounds == ("first_row", "last_row"):
        return [statement.kind.value]
    return []


OVER_ROWS = {
    Mode.LANES: {"simd", "blocks of lanes"},
    Mode.ROWS: {"serial", "groups of rows"},
    Mode.SQUARES: {"blocks of serial"},
    Mode.TILED_TRANSPOSE: {"serial"},
    Mode.SCATTER: {"serial"},
    Mode.OWNERS: {"serial"},
    Mode.SCAN: {"serial"},
    Mode.SCAN_LANES: {"simd"},
    Mode.BLOCKS: {"blocks of simd"},
    Mode.ONE: {"serial"},
    Mode.COLUMNS: {"serial"},
}


@pytest.mark.parametrize("target", [CPU, V100], ids=lambda target: target.name)
@pytest.mark.parametrize("name", [*sorted(LIBRARY), *sorted(GOLDEN)])
def test_the_phases_of_the_plan_are_those_of_the_loops(name: str, target: Target) -> None:
    plan = plan_graph({**LIBRARY, **GOLDEN}[name](), target)
    check_phases(plan, lower(plan))


@settings(max_examples=40, deadline=None)
@given(graphs(max_ops=40), st.sampled_from([CPU, V100]))
def test_the_phases_of_the_plan_of_any_graph_are_those_of_its_loops(graph: Graph, target: Target) -> None:
    plan = plan_graph(graph, target)
    check_phases(plan, lower(plan))


@settings(max_examples=40, deadline=None)
@given(graphs(max_ops=40))
def test_every_graph_has_a_plan_that_is_sound(graph: Graph) -> None:
    plan = plan_graph(graph)
    kernel = lower(plan)
    check_sound(plan, kernel)
    assert explain(plan)
    ElementTree.fromstring(draw(plan))


def check_sound(plan: Plan, kernel: Loops) -> None:
    """Every output is written; every read of another nest's result comes at a later level; a result is in memory if its scheme says
    so."""
    placement = plan.placement
    written = {buffer for phase in kernel.phases for nest in phase.nests for buffer in nest.buffers}
    for node in plan.candidates:
        scheme, kinds = plan.scheme_of(node).scheme, {buffer.kind for buffer in plan.memory_of(node)}
        assert bool(kinds) == (scheme in (Scheme.GLOBAL, Scheme.OUTPUT))
        assert (BufferKind.OUTPUT in kinds) == (node in plan.graph.outputs)
        assert scheme is not Scheme.OUTPUT or node in plan.graph.outputs
    for node in plan.graph.outputs:
        if plan.graph.nodes[node].element_count:
            assert set(plan.memory_of(node)) <= written
    from stitchfleet.compiler.planning.access import trace
    from stitchfleet.compiler.planning.placement import mapped_roots, within

    for nest, segment, mapping in plan.segments():
        roots = mapped_roots(plan.graph, segment, mapping, Index.of_var(nest.row), Index.of_var(within(mapping.inner)))
        for request, _ in trace(plan.graph, roots, placement.stored_in(nest)).loads():
            source = placement.nest_of.get(request.node)
            if request.node in placement.hard and source is not nest:
                assert source is not None
                assert source.level < nest.level
                assert plan.scheme_of(request.node).scheme is Scheme.GLOBAL


@settings(max_examples=60, deadline=None)
@given(graphs(max_ops=40))
def test_the_normal_form_is_a_valid_graph_with_the_same_interface(graph: Graph) -> None:
    normal = normalise(graph)
    verify(normal)
    assert len(normal.parameters) == len(graph.parameters)
    types = [graph.nodes[i].type_text for i in graph.outputs]
    assert [normal.nodes[i].type_text for i in normal.outputs] == types
    empty = [n for n in normal.nodes if n.element_count == 0 and n.op not in ("parameter", "constant")]
    assert not empty


def test_explains_each_op_with_a_reason() -> None:
    text = explain(plan_graph(layer_norm_gradient(1024, 256)))
    assert "intermediates written to memory" in text
    for word in ("regional", "global", "local", "dominant", "row r of it is made from slice r"):
        assert word in text


def test_ops_are_counted_by_one_rule() -> None:
    """An iota, as a constant, is none of them, neither in the plan nor where it is explained."""
    plan = plan_graph(cross_entropy(256, 1000))
    ops = [node.op for node in plan.graph.nodes]
    assert "iota" in ops
    assert plan.op_count == sum(op not in ("parameter", "constant", "iota") for op in ops)
    assert explain(plan).startswith(f"kernel {plan.graph.name}: {plan.op_count} ops")


def projected(dimensions: int) -> Graph:
    """A tensor made monotonic along each dimension in turn, as tensorflow-lattice does it after a step: every dimension's slices are
    read four times, each by ops that the next dimension reads as often."""
    m, shape = Maker("projected"), (2,) * dimensions
    half, x, outputs = m.parameter(), m.parameter(*shape), []
    for d in range(dimensions):
        apart = []
        for i in range(2):
            start, limit = [0] * dimensions, list(shape)
            start[d], limit[d] = i, i + 1
            apart.append(m.op("slice", x, start=tuple(start), limit=tuple(limit), strides=(1,) * dimensions))
        middle = m.op("multiply", m.op("add", *apart), m.spread(half, m.shape(apart[0])))
        low, high = m.op("minimum", apart[0], middle), m.op("maximum", apart[1], middle)
        x = m.op("subtract", m.op("concatenate", low, high, dimension=d), m.parameter(*shape))
        outputs.append(x)
    return m.done(*outputs)


def test_what_is_stored_is_no_copy_of_what_it_computes() -> None:
    """However many positions of it are wanted: what has to be stored next is another node."""
    made = [projected(dimensions) for dimensions in (2, 4, 6)]
    assert any(plan_graph(graph).forced for graph in made)
    for built in build_all(made):
        assert complaint(built, Regime.NORMAL, seed=1) is None


def test_draws_every_nest_and_the_tensors_between_them() -> None:
    plan = plan_graph(batch_norm(8, 16, 16, 32))
    picture = draw(plan)
    ElementTree.fromstring(picture)
    assert picture.count(">nest ") == len(plan.nests)
    assert picture.count('marker-end="url(#head)"') >= 2


def _weighted_cross_entropy(of_what: str) -> Graph:
    """The gradient of a softmax, over the sum of weights: of weights that are given, or of the softmax's own maxima."""
    m, shape = Maker(f"weighted_{of_what}"), (1000, 500)
    x, weights = m.parameter(*shape), m.parameter(1000)
    most = m.reduce(x, 1, kind="max")
    e = m.op("exp", m.op("subtract", x, m.spread(most, shape, 0)))
    y = m.op("divide", e, m.spread(m.reduce(e, 1), shape, 0))
    total = m.reduce(weights if of_what == "weights" else most, 0)
    return m.done(m.op("divide", y, m.spread(total, shape)), m.reduce(y, 0))


def test_rows_wait_for_a_number_that_their_result_needs_and_are_read_once() -> None:
    graph = _weighted_cross_entropy("weights")
    plan = plan_graph(graph)
    (rows,) = (nest for nest in plan.nests if nest.rows == 1000 and len(nest.placed) > 2)
    assert rows.level > 0
    assert sum(0 in nest.reads for nest in plan.nests) == 1
    assert complaints([graph]) == []


def test_rows_do_not_wait_for_what_is_made_of_them() -> None:
    graph = _weighted_cross_entropy("maxima")
    assert min(nest.level for nest in plan_graph(graph).nests if nest.rows == 1000) == 0
    assert complaints([graph]) == []
