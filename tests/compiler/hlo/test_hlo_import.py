"""HLO in: each form of the semantics on small modules, and what is said about malformed or unsupported ones."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stitchfleet.compiler.hlo.importer import UnsupportedHloError, import_hlo_file, import_hlo_proto, import_hlo_text
from stitchfleet.compiler.hlo.module import HloImportError
from stitchfleet.compiler.hlo.proto import read_hlo_proto
from stitchfleet.compiler.hlo.text import HloSyntaxError, read_hlo_text
from stitchfleet.compiler.ir.graph import Graph
from stitchfleet.compiler.ops.interpreter import evaluate
from stitchfleet.compiler.planning.plan import plan_graph

Array: TypeAlias = npt.NDArray[Any]

ADD = """
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
"""


def _module(body: str, *regions: str) -> str:
    return "HloModule test\n" + "".join(regions) + "\nENTRY main {\n" + body + "\n}\n"


def _graph(body: str, *regions: str) -> Graph:
    return import_hlo_text(_module(body, *regions)).graph


def _run(graph: Graph, *inputs: Array) -> list[Array]:
    return list(evaluate(graph, inputs))


def _ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes if node.op != "parameter"]


X: Array = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
PARAMETER = "  x = f32[2,3]{1,0} parameter(0)\n"


# ---- semantics -----------------------------------------------------------------------------------------------------


def test_calls_and_fusions_are_inlined() -> None:
    twice = "twice {\n  p = f32[2,3] parameter(0)\n  ROOT r = f32[2,3] add(p, p)\n}\n"
    graph = _graph(
        PARAMETER + "  y = f32[2,3] call(x), to_apply=twice\n  ROOT z = f32[2,3] fusion(y), kind=kLoop, calls=%twice",
        twice,
    )
    assert _ops(graph) == ["add", "add"]
    assert np.array_equal(_run(graph, X)[0], 4 * X)


def test_a_map_applies_its_region_to_arrays() -> None:
    region = """scaled {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  three = f32[] constant(3)
  t = f32[] multiply(p, three)
  ROOT r = f32[] add(t, q)
}
"""
    graph = _graph(PARAMETER + "  ROOT y = f32[2,3] map(x, x), dimensions={0,1}, to_apply=scaled", region)
    assert np.array_equal(_run(graph, X)[0], 4 * X)


def test_tuples_nest_and_resolve() -> None:
    graph = _graph(
        PARAMETER
        + """  n = f32[2,3] negate(x)
  inner = (f32[2,3]{1,0}, f32[2,3]{1,0}) tuple(x, n)
  outer = ((f32[2,3], f32[2,3]), f32[2,3]) tuple(inner, x)
  back = (f32[2,3], f32[2,3]) get-tuple-element(outer), index=0
  second = f32[2,3] get-tuple-element((f32[2,3], f32[2,3]) %back), index=1
  ROOT r = (f32[2,3], f32[2,3]) tuple(second, x)"""
    )
    negated, same = _run(graph, X)
    assert np.array_equal(negated, -X)
    assert np.array_equal(same, X)


@pytest.mark.parametrize(
    ("opcode", "kind", "init"),
    [
        ("add", "sum", "0"),
        ("add", "sum", "-0"),
        ("multiply", "product", "1"),
        ("maximum", "max", "-inf"),
        ("minimum", "min", "inf"),
    ],
)
def test_regions_are_recognised_and_identities_dropped(opcode: str, kind: str, init: str) -> None:
    region = f"r {{\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] {opcode}(b, a)\n}}\n"
    graph = _graph(
        PARAMETER + f"  i = f32[] constant({init})\n  ROOT y = f32[2] reduce(x, i), dimensions={{1}}, to_apply=r",
        region,
    )
    assert _ops(graph) == ["reduce"]
    assert graph.nodes[-1].attributes["kind"] == kind


def test_another_initial_value_is_applied_afterwards() -> None:
    graph = _graph(
        PARAMETER + "  i = f32[] constant(10)\n  ROOT y = f32[2] reduce(x, i), dimensions={1}, to_apply=sum", ADD
    )
    assert _run(graph, X)[0].tolist() == [7, 16]
    graph = _graph(
        PARAMETER + "  i = f32[] parameter(1)\n  ROOT y = f32[2] reduce(x, i), dimensions={1}, to_apply=sum", ADD
    )
    assert _run(graph, X, np.array(5, np.float32))[0].tolist() == [2, 11]


def test_a_promoted_bf16_region_is_a_sum() -> None:
    region = """promoted {
  a = bf16[] parameter(0)
  wide = f32[] convert(a)
  b = bf16[] parameter(1)
  wider = f32[] convert(b)
  c = f32[] add(wide, wider)
  ROOT d = bf16[] convert(c)
}
"""
    graph = _graph(
        """  x = bf16[2,3]{1,0} parameter(0)
  i = f32[] constant(0)
  j = bf16[] convert(i)
  ROOT y = bf16[2] reduce(x, j), dimensions={1}, to_apply=promoted""",
        region,
    )
    assert _ops(graph) == ["reduce"]


def test_a_region_of_its_own_is_a_general_reduce() -> None:
    region = """r {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  p = f32[] multiply(a, a)
  q = f32[] multiply(b, b)
  s = f32[] add(p, q)
  ROOT c = f32[] sqrt(s)
}
"""
    graph = _graph(
        PARAMETER + "  i = f32[] constant(0)\n  ROOT y = f32[2] reduce(x, i), dimensions={1}, to_apply=r", region
    )
    assert "reduce_general" in _ops(graph)
    assert np.allclose(_run(graph, X)[0], np.sqrt((X * X).sum(1)))


def test_a_variadic_reduce_of_independent_parts_becomes_plain_reduces() -> None:
    region = """both {
  a = f32[] parameter(0)
  m = f32[] parameter(1)
  b = f32[] parameter(2)
  n = f32[] parameter(3)
  s = f32[] add(a, b)
  t = f32[] maximum(m, n)
  ROOT r = (f32[], f32[]) tuple(s, t)
}
"""
    graph = _graph(
        PARAMETER
        + """  z = f32[] constant(0)
  l = f32[] constant(-inf)
  ROOT y = (f32[2], f32[2]) reduce(x, x, z, l), dimensions={1}, to_apply=both""",
        region,
    )
    assert _ops(graph) == ["reduce", "reduce"]
    assert [value.tolist() for value in _run(graph, X)] == [[-3, 6], [0, 3]]


def test_select_and_clamp_spread_their_scalars() -> None:
    graph = _graph(
        PARAMETER
        + """  p = pred[] parameter(1)
  zero = f32[] constant(0)
  one = f32[] constant(1)
  c = f32[2,3] clamp(zero, x, one)
  ROOT s = f32[2,3] select(p, c, x)"""
    )
    assert np.array_equal(_run(graph, X, np.array(True))[0], np.clip(X, 0, 1))
    assert np.array_equal(_run(graph, X, np.array(False))[0], X)


def test_a_broadcast_may_transpose() -> None:
    graph = _graph(PARAMETER + "  ROOT y = f32[3,4,2] broadcast(x), dimensions={2,0}")
    assert np.array_equal(_run(graph, X)[0], np.broadcast_to(X.T[:, None, :], (3, 4, 2)))


def test_arithmetic_of_booleans_is_logic() -> None:
    graph = _graph(
        """  a = pred[4] parameter(0)
  b = pred[4] parameter(1)
  s = pred[4] add(a, b)
  p = pred[4] multiply(a, b)
  ROOT r = (pred[4], pred[4]) tuple(s, p)"""
    )
    a, b = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    either, both = _run(graph, a, b)
    assert either.tolist() == (a | b).tolist()
    assert both.tolist() == (a & b).tolist()


def test_an_unused_parameter_keeps_its_number() -> None:
    graph = _graph(
        PARAMETER + "  unused = s32[7] parameter(1)\n  z = f32[2,3] parameter(2)\n  ROOT y = f32[2,3] add(x, z)"
    )
    assert [graph.nodes[i].type_text for i in graph.parameters] == ["f32[2,3]", "s32[7]", "f32[2,3]"]


def test_dead_unsupported_instructions_are_listed_but_do_no_harm() -> None:
    result = import_hlo_text(
        _module(PARAMETER + "  r = f32[2] rng(x), distribution=rng_uniform\n  ROOT y = f32[2,3] negate(x)")
    )
    assert _ops(result.graph) == ["negate"]
    assert [op.opcode for op in result.unsupported] == ["rng"]


RANDOM = """  s = u64[3] parameter(0)
  r = (u64[3], u32[3,5]) rng-bit-generator(s), algorithm={}
"""


def test_philox_bits_are_those_of_tensorflows_stream() -> None:
    """The words that TensorFlow's StatelessRandomUniformFullIntV2 gives for this key and counter."""
    graph = _graph(RANDOM.format("rng_philox") + "  ROOT y = u32[3,5] get-tuple-element(r), index=1")
    (words,) = _run(graph, np.array([123456789012345, 7, 9], np.uint64))
    assert words.ravel()[:5].tolist() == [3216766244, 688479277, 928408327, 3671251893, 1919700040]


def test_other_generators_and_the_state_afterwards_are_refused() -> None:
    with pytest.raises(UnsupportedHloError, match="rng_three_fry"):
        _graph(RANDOM.format("rng_three_fry") + "  ROOT y = u32[3,5] get-tuple-element(r), index=1")
    with pytest.raises(UnsupportedHloError, match="state after"):
        _graph(RANDOM.format("rng_philox") + "  ROOT y = u64[3] get-tuple-element(r), index=0")


def test_scatter_regions_replace_subtract_and_combine() -> None:
    body = """  x = f32[4] parameter(0)
  i = s32[2,1] parameter(1)
  u = f32[2] parameter(2)
  ROOT y = f32[4] scatter(x, i, u), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, \
index_vector_dim=1, to_apply=r"""
    region = "r {{\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] {}\n}}\n"
    inputs = (np.ones(4, np.float32), np.array([[3], [1]], np.int32), np.array([5, 7], np.float32))
    for text, expected in (
        ("add(b, a)", [1, 8, 1, 6]),
        ("subtract(a, b)", [1, -6, 1, -4]),
        ("maximum(a, b)", [1, 7, 1, 5]),
        ("copy(b)", [1, 7, 1, 5]),
        ("copy(a)", [1, 1, 1, 1]),
    ):
        assert _run(_graph(body, region.format(text)), *inputs)[0].tolist() == expected
    with pytest.raises(UnsupportedHloError, match="a region of its own"):
        _graph(body, region.format("divide(a, b)"))


def test_batch_normalisation_and_its_gradient() -> None:
    """The gradient by the formula of the composite, against finite differences of the forward composite in float64."""
    shape = "f64[4,3,5]"
    forward = _graph(
        f"""  x = {shape} parameter(0)
  s = f64[3] parameter(1)
  o = f64[3] parameter(2)
  ROOT y = ({shape}, f64[3], f64[3]) batch-norm-training(x, s, o), epsilon=0.001, feature_index=1"""
    )
    rng = np.random.default_rng(0)
    x, scale, offset, dy = (rng.standard_normal(n) for n in ((4, 3, 5), 3, 3, (4, 3, 5)))
    y, mean, variance = _run(forward, x, scale, offset)
    assert np.allclose(mean, x.mean((0, 2)))
    assert np.allclose(variance, x.var((0, 2)))
    column = (None, slice(None), None)
    wanted = (x - mean[column]) / np.sqrt(variance[column] + np.float32(0.001)) * scale[column] + offset[column]
    assert np.allclose(y, wanted)

    inference = _graph(
        f"""  x = {shape} parameter(0)
  s = f64[3] parameter(1)
  o = f64[3] parameter(2)
  m = f64[3] parameter(3)
  v = f64[3] parameter(4)
  ROOT y = {shape} batch-norm-inference(x, s, o, m, v), epsilon=0.001, feature_index=1"""
    )
    assert np.allclose(_run(inference, x, scale, offset, mean, variance)[0], y)

    backward = _graph(
        f"""  x = {shape} parameter(0)
  s = f64[3] parameter(1)
  m = f64[3] parameter(2)
  v = f64[3] parameter(3)
  d = {shape} parameter(4)
  ROOT y = ({shape}, f64[3], f64[3]) batch-norm-grad(x, s, m, v, d), epsilon=0.001, feature_index=1"""
    )
    found = _run(backward, x, scale, mean, variance, dy)
    step = 1e-6
    for position, (value, gradient) in enumerate(zip((x, scale, offset), found, strict=True)):
        for index in [(0,) * value.ndim, tuple(extent - 1 for extent in value.shape)]:
            moved = [np.array(x), np.array(scale), np.array(offset)]
            moved[position][index] += step
            high = (_run(forward, *moved)[0] * dy).sum()
            moved[position][index] -= 2 * step
            low = (_run(forward, *moved)[0] * dy).sum()
            assert abs((high - low) / (2 * step) - gradient[index]) < 1e-6


def test_constants_of_every_type() -> None:
    graph = _graph(
        """  a = f32[2,2] constant({ { 1, -inf }, { nan, 2.5e-3 } })
  b = bf16[3] constant({1, 1, 1})
  c = f16[2] constant({0.5, -65504})
  d = pred[2] constant({true, false})
  e = s64[] constant(-9223372036854775808)
  f = u64[2] constant({18446744073709551615, 0})
  g = s8[2] constant({-128, 127})
  h = f64[] constant(0.1)
  ROOT r = (f32[2,2], bf16[3], f16[2], pred[2], s64[], u64[2], s8[2], f64[]) tuple(a, b, c, d, e, f, g, h)"""
    )
    a, b, c, d, e, f, g, h = _run(graph)
    assert np.array_equal(a, np.array([[1, -np.inf], [np.nan, 2.5e-3]], np.float32), equal_nan=True)
    assert b.astype(np.float32).tolist() == [1, 1, 1]
    assert "broadcast" in _ops(graph)  # the splat
    assert c.tolist() == [0.5, -65504]
    assert d.tolist() == [True, False]
    assert int(e) == -(2**63)
    assert float(h) == 0.1
    assert f.tolist() == [2**64 - 1, 0]
    assert g.tolist() == [-128, 127]


DOTS = {
    "ik,kj->ij": "lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "ki,jk->ij": "lhs_contracting_dims={0}, rhs_contracting_dims={1}",
    "bik,bjk->bij": "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}",
    "ikb,kjb->bij": "lhs_batch_dims={2}, rhs_batch_dims={2}, lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "hik,kj->hij": "lhs_contracting_dims={2}, rhs_contracting_dims={0}",
    "ikl,jlk->ij": "lhs_contracting_dims={1,2}, rhs_contracting_dims={2,1}",
    "ak,bkc->abc": "lhs_contracting_dims={1}, rhs_contracting_dims={1}",
}


ROW_TIMES_MATRIX = ("ik,kj->ij", "hik,kj->hij")
"""If the left operand is a single row, a matrix that lies as it is read: unless it is huge, this is a product after all."""


@pytest.mark.parametrize("equation", DOTS)
def test_a_small_dot_is_one_op_whatever_its_dimensions_are_called(equation: str) -> None:
    extents = {"i": 4, "j": 5, "k": 3, "l": 6, "b": 2, "h": 7, "a": 8, "c": 9}
    lhs, rhs, result = equation.replace("->", ",").split(",")
    shapes = [",".join(str(extents[letter]) for letter in letters) for letters in (lhs, rhs, result)]
    graph = _graph(
        f"""  x = f32[{shapes[0]}] parameter(0)
  y = f32[{shapes[1]}] parameter(1)
  ROOT r = f32[{shapes[2]}] dot(x, y), {DOTS[equation]}"""
    )
    assert _ops(graph).count("dot") == 1
    rng = np.random.default_rng(4)
    x, y = (rng.standard_normal([extents[letter] for letter in letters]).astype(np.float32) for letters in (lhs, rhs))
    (found,) = _run(graph, x, y)
    np.testing.assert_allclose(found, np.einsum(equation, x, y), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("side", [0, 1, 2], ids=["vector on the left", "vector on the right", "outer product"])
@pytest.mark.parametrize("equation", DOTS)
def test_a_memory_bound_dot_is_written_out_whatever_its_dimensions_are_called(equation: str, side: int) -> None:
    extents = {"i": 4, "j": 5, "k": 3, "l": 6, "b": 2, "h": 7, "a": 8, "c": 9}
    lhs, rhs, result = equation.replace("->", ",").split(",")
    batch = set(lhs) & set(rhs) & set(result)
    own = ({*lhs} - {*rhs}, {*rhs} - {*lhs}, ({*lhs} & {*rhs}) - batch)[side]
    extents |= dict.fromkeys(own, 1)
    shapes = [",".join(str(extents[letter]) for letter in letters) for letters in (lhs, rhs, result)]
    graph = _graph(
        f"""  x = f32[{shapes[0]}] parameter(0)
  y = f32[{shapes[1]}] parameter(1)
  ROOT r = f32[{shapes[2]}] dot(x, y), {DOTS[equation]}"""
    )
    assert ("dot" in _ops(graph)) == (side == 0 and equation in ROW_TIMES_MATRIX)
    rng = np.random.default_rng(4)
    x, y = (rng.standard_normal([extents[letter] for letter in letters]).astype(np.float32) for letters in (lhs, rhs))
    (found,) = _run(graph, x, y)
    np.testing.assert_allclose(found, np.einsum(equation, x, y), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("dimensions", "sums_columns"), [(("2048,1152", 0), True), (("1152,2048", 1), False)])
def test_a_vector_times_a_matrix_reads_the_matrix_as_it_lies(dimensions: tuple[str, int], sums_columns: bool) -> None:
    """Sums over columns have partial results; a row for each column would read the matrix across memory, 20 times as slowly."""
    shape, summed = dimensions
    graph = _graph(
        f"""  x = f32[1,2048] parameter(0)
  w = f32[{shape}] parameter(1)
  ROOT r = f32[1,1152] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{{summed}}}"""
    )
    assert bool(plan_graph(graph).placement.partial) == sums_columns


# ---- what is refused -----------------------------------------------------------------------------------------------


def test_unsupported_ops_are_all_listed_with_their_origin_and_reason() -> None:
    text = _module(
        """  x = f32[300,300] parameter(0)
  d = f32[300,300] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_type="MatMul" op_name="layer/MatMul"}
  c = f32[300,300] custom-call(d), custom_call_target="Sharding", sharding={devices=[1,2]0,1}
  s = f32[300,300] sort(x), dimensions={0}, to_apply=sum
  ROOT r = (f32[300,300], f32[300,300]) tuple(c, s)""",
        ADD,
    )
    with pytest.raises(UnsupportedHloError) as caught:
        import_hlo_text(text)
    # The custom call reads what could not be made: only the dot is to blame for that.
    assert [(op.opcode, op.op_type, op.op_name) for op in caught.value.ops] == [
        ("dot", "MatMul", "layer/MatMul"),
        ("sort", "", ""),
    ]
    assert "dot d from MatMul layer/MatMul: a matrix product, left to the library" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('  ROOT y = f32[2,3] custom-call(x), custom_call_target="foo"', "custom call 'foo'"),
        ("  ROOT y = c64[2,3] convert(x)", "element type c64"),
        ("  ROOT y = f32[<=2,3] negate(x)", "a dynamic dimension"),
        ("  ROOT y = f32[?,3] negate(x)", "a dynamic dimension"),
        ("  ROOT y = f32[6] bitcast-convert(x)", "expected a dtype"),
        ("  z = c64[] constant((1, 2))\n  ROOT y = f32[2,3] real(z)", "element type c64"),
        ("  ROOT y = f32[2,3] while(x), body=sum, condition=sum", "control flow"),
        ("  ROOT y = f32[] dot(x, x), lhs_contracting_dims={5}, rhs_contracting_dims={0}", "do not fit"),
        ("  ROOT y = f32[] dot(x, x), lhs_contracting_dims={0,0}, rhs_contracting_dims={0,1}", "do not fit"),
        ("  ROOT y = f32[3,2] dot(x, x), lhs_contracting_dims={0}, rhs_contracting_dims={1}", "do not fit"),
        (
            "  one = f32[] constant(1)\n  b = f32[300,300] broadcast(one), dimensions={}\n"
            "  ROOT y = f32[300,300] dot(b, b), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
            "left to the library",
        ),
        (
            "  r = f32[1,2,3] reshape(x)\n  ROOT y = f32[7] dot(r, x), lhs_contracting_dims={1,2}, rhs_contracting_dims={0,1}",
            "whose operands give",
        ),
        (
            "  i = s32[2,3] convert(x)\n"
            "  ROOT y = s32[2] dot(i, i), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_contracting_dims={1}",
            "a matrix product of s32",
        ),
    ],
)
def test_each_refusal_says_why(body: str, reason: str) -> None:
    if "bitcast" in body:
        body = body.replace("f32[6]", "f64[2,3]")
    with pytest.raises(UnsupportedHloError, match=reason):
        _graph(PARAMETER + body, ADD)


def test_layouts_other_than_row_major_are_errors() -> None:
    with pytest.raises(HloImportError, match=r"parameter 0: given layout \(0, 1\), expected row-major"):
        _graph("  x = f32[2,3]{0,1} parameter(0)\n  ROOT y = f32[2,3] negate(x)")
    with pytest.raises(HloImportError, match="a result layout that is not row-major"):
        import_hlo_text(
            "HloModule m, entry_computation_layout={(f32[2,3]{1,0})->f32[2,3]{0,1}}\nENTRY e {\n"
            "  x = f32[2,3]{1,0} parameter(0)\n  ROOT y = f32[2,3]{0,1} negate(x)\n}"
        )
    # Dimensions of extent 1 have no place in an order.
    _graph("  x = f32[1,3]{0,1} parameter(0)\n  ROOT y = f32[1,3] negate(x)")
    with pytest.raises(HloImportError, match="given a tuple, expected an array"):
        _graph("  x = (f32[2]) parameter(0)\n  ROOT y = f32[2] get-tuple-element(x), index=0")


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("", 1, 1, "given 'the end', expected 'HloModule'"),
        ("module", 1, 1, "expected 'HloModule'"),
        ("HloModule m\n", 2, 1, "given no computation, expected at least the entry"),
        ("HloModule m\nENTRY e {\n  x = f32[2 parameter(0)\n}", 3, 13, "given 'parameter', expected ','"),
        ("HloModule m\nENTRY e {\n  x = f32[2] parameter(zero)\n}", 3, 24, "expected the parameter's number"),
        ("HloModule m\nENTRY e {\n  x = f32[2] negate(y)\n}", 3, 3, "given operand y, expected an instruction above"),
        ("HloModule m\nENTRY e {\n  x = f32[2] constant({1})\n}", 3, 23, "given 1 elements, expected 2 for f32[2]"),
        ("HloModule m\nENTRY e {\n  x = f32[9] constant({...})\n}", 3, 24, "given an elided constant"),
        ("HloModule m\nENTRY e {\n  x = s8[] constant(300)\n}", 3, 21, "expected elements of s8"),
        ("HloModule m\nENTRY e {\n  x = f32[] constant(1)\n", 4, 1, "given 'the end', expected an instruction's name"),
        ("HloModule m\nENTRY e {\n  x = f32[] $\n}", 3, 13, "given '$', expected a token of HLO"),
        ("HloModule m\nENTRY e {\n  x = f32[3] slice(x), slice={[0]}\n}", 3, 14, "expected [start:limit] or"),
        ("HloModule m\nENTRY e {\n}", 3, 2, "given no instructions in e"),
    ],
)
def test_syntax_errors_say_where_what_and_expected(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(HloSyntaxError) as caught:
        import_hlo_text(text)
    assert (caught.value.line, caught.value.column) == (line, column), caught.value
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_elided_constant_is_read_where_its_elements_do_not_matter() -> None:
    text = "HloModule m\nENTRY e {\n  x = f32[9] constant({...})\n  ROOT y = f32[9] negate(x)\n}"
    module = read_hlo_text(text, elided_constants=True)
    found = module.computations[module.entry].instructions["x"]
    assert (found.opcode, found.shape.dimensions, found.literal) == ("constant", (9,), None)


def test_a_missing_computation_is_named() -> None:
    with pytest.raises(HloImportError, match="given computation 'nowhere', expected one of the module"):
        _graph(PARAMETER + "  ROOT y = f32[2,3] call(x), to_apply=nowhere")


def test_recursion_is_an_error_and_not_the_end() -> None:
    loop = "loop {\n  p = f32[2,3] parameter(0)\n  ROOT r = f32[2,3] call(p), to_apply=loop\n}\n"
    with pytest.raises(HloImportError, match="no recursion"):
        _graph(PARAMETER + "  ROOT y = f32[2,3] call(x), to_apply=loop", loop)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_bytes_that_are_no_module_are_an_import_error(data: bytes) -> None:
    with contextlib.suppress(HloImportError):
        import_hlo_proto(data)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 400), st.integers(0, 400), st.text("{}()[],=%x0 \nROOT", max_size=6))
def test_text_that_was_tampered_with_is_an_import_error_or_a_graph(start: int, length: int, inserted: str) -> None:
    text = _module(
        PARAMETER + "  i = f32[] constant(0)\n  ROOT y = f32[2] reduce(x, i), dimensions={1}, to_apply=sum", ADD
    )
    tampered = text[:start] + inserted + text[start + length :]
    with contextlib.suppress(HloImportError):
        import_hlo_text(tampered)


def test_files_are_told_apart(tmp_path: Path) -> None:
    text = _module(PARAMETER + "  ROOT y = f32[2,3] negate(x)")
    (tmp_path / "a.hlo").write_text(text)
    assert _ops(import_hlo_file(tmp_path / "a.hlo").graph) == ["negate"]
    (tmp_path / "b.hlo").write_bytes(b"\xff\xfe")
    with pytest.raises(HloImportError, match="not UTF-8"):
        import_hlo_file(tmp_path / "b.hlo")
    (tmp_path / "c.pb").write_bytes(b"\x0a\x03abc")
    with pytest.raises(HloImportError, match="no computations in 5 bytes"):
        import_hlo_file(tmp_path / "c.pb")
    with pytest.raises(FileNotFoundError):
        import_hlo_file(tmp_path / "missing.hlo")


def test_readers_are_exported_for_those_who_want_the_module() -> None:
    module = read_hlo_text(_module(PARAMETER + "  ROOT y = f32[2,3] negate(x)"))
    assert module.entry == "main"
    assert [item.opcode for item in module.computations["main"].instructions.values()] == ["parameter", "negate"]
    with pytest.raises(HloImportError):
        read_hlo_proto(b"")
