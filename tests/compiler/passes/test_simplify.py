"""Cleaning changes no bit of a result (integer powers of floats aside) and leaves nothing needless behind."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stitchfleet.compiler.check.judge import judge
from stitchfleet.compiler.check.random_inputs import Regime, random_inputs
from stitchfleet.compiler.hlo.importer import import_hlo_text
from stitchfleet.compiler.ir.graph import Attribute, DType, Graph, GraphBuilder, Literal
from stitchfleet.compiler.ops.interpreter import evaluate
from stitchfleet.compiler.ops.table import build
from stitchfleet.compiler.ops.verify import verify
from stitchfleet.compiler.passes.simplify import MOST_JOINED, prune, simplify
from stitchfleet.compiler.passes.written_out import DENOMINATOR, NUMERATOR

from ..strategies import graphs


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs(max_ops=40), st.sampled_from([Regime.NORMAL, Regime.SPECIAL, Regime.HUGE]), st.integers(0, 2**32))
def test_a_cleaned_graph_gives_the_same_bits(graph: Graph, regime: Regime, seed: int) -> None:
    cleaned = simplify(graph)
    verify(cleaned)
    # A constant may be split into a scalar and a broadcast, a broadcast into a reshape and a smaller one.
    splits = sum({"constant": 2, "broadcast": 1}.get(node.op, 0) for node in graph.nodes)
    assert len(cleaned.nodes) <= len(graph.nodes) + splits
    assert [cleaned.nodes[i].type_text for i in cleaned.parameters] == [
        graph.nodes[i].type_text for i in graph.parameters
    ]
    inputs = random_inputs(graph, np.random.default_rng(seed), regime)
    for before, after in zip(evaluate(graph, inputs), evaluate(cleaned, inputs), strict=True):
        assert before.dtype == after.dtype
        assert np.array_equal(before.astype(np.float64), after.astype(np.float64), equal_nan=True), (
            f"{graph}\n{cleaned}"
        )


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs(max_ops=40))
def test_cleaning_twice_is_cleaning_once(graph: Graph) -> None:
    once = simplify(graph)
    assert simplify(once).digest == once.digest


def _scalar(b: GraphBuilder, value: float, shape: tuple[int, ...] = (4, 8)) -> int:
    constant = build(b, "constant", (), literal=Literal(np.array(value, np.float32)))
    return build(b, "broadcast", (constant,), shape=shape, dimensions=())


def _one(b: GraphBuilder, op: str, *operands: int, **attributes: Attribute) -> int:
    return build(b, op, operands, **attributes)  # type: ignore[arg-type]


def _broadcast_as_tensorflow_lowers_it(b: GraphBuilder, x: int) -> int:
    row = _one(b, "reduce", x, kind="max", dimensions=(1,))
    column = build(b, "reshape", (row,), shape=(4, 1))
    again = build(b, "reshape", (build(b, "broadcast", (column,), shape=(4, 1), dimensions=(0, 1)),), shape=(4,))
    return _one(b, "subtract", x, build(b, "broadcast", (again,), shape=(4, 8), dimensions=(0,)))


def _constant_in_steps(b: GraphBuilder, x: int) -> int:
    start = build(b, "constant", (), literal=Literal(np.array(3, np.int32)))
    half = build(b, "convert", (start,), dtype=DType.F32)
    return _one(b, "add", x, build(b, "broadcast", (_one(b, "multiply", half, half),), shape=(4, 8), dimensions=()))


def _parts(b: GraphBuilder, x: int, axis: int, size: int = 1, shape: tuple[int, ...] = ()) -> list[int]:
    """The slices of x along an axis, each reshaped to `shape` if one is given."""
    parts = []
    for begin in range(0, (4, 8)[axis], size):
        start = (begin, 0) if axis == 0 else (0, begin)
        limit = (begin + size, 8) if axis == 0 else (4, begin + size)
        part = _one(b, "slice", x, start=start, limit=limit, strides=(1, 1))
        parts.append(build(b, "reshape", (part,), shape=shape) if shape else part)
    return parts


def _twice(parts: list[int]) -> list[int]:
    return [part for part in parts for _ in range(2)]


def _sums_of_pairs(b: GraphBuilder, x: int) -> int:
    """As in the gradient of `tf.keras.backend.repeat_elements`."""
    parts = _parts(b, x, 1)
    return _one(b, "concatenate", *(_one(b, "add", parts[k], parts[k + 1]) for k in range(0, 8, 2)), dimension=1)


def _within_bounds(b: GraphBuilder, parts: list[int]) -> list[int]:
    low, high = (_scalar(b, value, (4, 1)) for value in (-1, 1))
    return [_one(b, "clamp", low, part, high) for part in parts]


def _rolled(b: GraphBuilder, x: int) -> int:
    """As XLA rolls the columns by three: the first start is beyond the end and is clamped."""
    shifts = build(b, "constant", (), literal=Literal(np.array([7, 3], np.int32)))
    by = build(b, "reshape", (_one(b, "slice", shifts, start=(1,), limit=(2,), strides=(1,)),), shape=())
    eight, seven = (build(b, "constant", (), literal=Literal(np.array(value, np.int32))) for value in (8, 7))
    twice = _one(b, "concatenate", x, x, dimension=1)
    return _one(b, "dynamic_slice", twice, seven, _one(b, "subtract", eight, by), sizes=(4, 8))


CASES: list[tuple[str, Callable[[GraphBuilder, int], int], list[str]]] = [
    ("copies", lambda b, x: _one(b, "copy", _one(b, "copy", x)), []),
    ("identity convert", lambda b, x: build(b, "convert", (x,), dtype=DType.F32), []),
    (
        "reshapes",
        lambda b, x: build(b, "reshape", (build(b, "reshape", (x,), shape=(32,)),), shape=(2, 16)),
        ["reshape"],
    ),
    (
        "transposes",
        lambda b, x: _one(b, "transpose", _one(b, "transpose", x, permutation=(1, 0)), permutation=(1, 0)),
        [],
    ),
    ("nothing sliced", lambda b, x: _one(b, "slice", x, start=(0, 0), limit=(4, 8), strides=(1, 1)), []),
    ("a roll by a constant", _rolled, ["concatenate", "slice"]),
    ("a split, joined again", lambda b, x: _one(b, "concatenate", *_parts(b, x, 1, 2), dimension=1), []),
    ("a part of a split", lambda b, x: _one(b, "concatenate", *_parts(b, x, 1, 2)[1:3], dimension=1), ["slice"]),
    (
        "a split, joined in another order",
        lambda b, x: _one(b, "concatenate", *_parts(b, x, 1, 4)[::-1], dimension=1),
        ["slice", "slice", "concatenate"],
    ),
    (
        "a split, joined along another dimension",
        lambda b, x: _one(b, "concatenate", *_parts(b, x, 1, 4), dimension=0),
        ["reshape", "transpose", "reshape"],
    ),
    (
        "rows joined as columns",
        lambda b, x: _one(b, "concatenate", *_parts(b, x, 0, 2), dimension=1),
        ["reshape", "transpose", "reshape"],
    ),
    (
        "columns, each twice",
        lambda b, x: _one(b, "concatenate", *_twice(_parts(b, x, 1, 1)), dimension=1),
        ["broadcast", "reshape"],
    ),
    (
        "pairs of rows, each twice",
        lambda b, x: _one(b, "concatenate", *_twice(_parts(b, x, 0, 2)), dimension=0),
        ["reshape", "broadcast", "reshape"],
    ),
    (
        "some columns, each twice, joined as rows",
        lambda b, x: _one(b, "concatenate", *_twice(_parts(b, x, 1, 2)[1:3]), dimension=0),
        ["slice", "reshape", "transpose", "broadcast", "reshape"],
    ),
    (
        "columns of which some are repeated",
        lambda b, x: _one(b, "concatenate", *_twice(_parts(b, x, 1, 4)[:1]), *_parts(b, x, 1, 4)[1:], dimension=1),
        ["slice", "slice", "concatenate"],
    ),
    (
        "unequal columns, each twice",
        lambda b, x: _one(b, "concatenate", *_twice([_parts(b, x, 1, 2)[0], _parts(b, x, 1, 1)[2]]), dimension=1),
        ["slice", "slice", "concatenate"],
    ),
    (
        "columns, stacked",
        lambda b, x: _one(b, "concatenate", *_parts(b, x, 1, 1, (1, 4)), dimension=0),
        ["transpose"],
    ),
    (
        "columns, stacked among dimensions of extent 1",
        lambda b, x: _one(b, "concatenate", *_parts(b, x, 1, 1, (1, 1, 4, 1)), dimension=1),
        ["transpose", "reshape"],
    ),
    (
        "rows, stacked where they were",
        lambda b, x: _one(b, "concatenate", *_parts(b, x, 0, 1, (1, 1, 8)), dimension=0),
        ["reshape"],
    ),
    (
        "some columns, stacked",
        lambda b, x: _one(b, "concatenate", *_parts(b, x, 1, 1, (1, 4))[2:5], dimension=0),
        ["slice", "transpose"],
    ),
    (
        "pairs of columns, which are no stack",
        lambda b, x: _one(b, "concatenate", *_parts(b, x, 1, 4, (1, 16)), dimension=0),
        ["slice", "reshape", "slice", "reshape", "concatenate"],
    ),
    ("every second column", lambda b, x: _one(b, "concatenate", *_parts(b, x, 1)[::2], dimension=1), ["slice"]),
    (
        "columns at other distances",
        lambda b, x: _one(b, "concatenate", *(_parts(b, x, 1)[k] for k in (0, 2, 3)), dimension=1),
        ["slice", "slice", "slice", "concatenate"],
    ),
    (
        "one op on each column",
        lambda b, x: _one(b, "concatenate", *(_one(b, "exp", part) for part in _parts(b, x, 1)), dimension=1),
        ["exp"],
    ),
    ("sums of pairs of columns", _sums_of_pairs, ["slice", "slice", "add"]),
    (
        "one op on each column, stacked",
        lambda b, x: _one(
            b,
            "concatenate",
            *(build(b, "reshape", (_one(b, "exp", part),), shape=(1, 4)) for part in _parts(b, x, 1)),
            dimension=0,
        ),
        ["transpose", "exp"],
    ),
    (
        "each column within bounds",
        lambda b, x: _one(b, "concatenate", *_within_bounds(b, _parts(b, x, 1)), dimension=1),
        ["constant", "constant", "broadcast", "broadcast", "clamp"],
    ),
    (
        "each column times a number",
        lambda b, x: _one(
            b,
            "concatenate",
            *(_one(b, "multiply", part, _scalar(b, 3, (4, 1))) for part in _parts(b, x, 1)),
            dimension=1,
        ),
        ["constant", "broadcast", "multiply"],
    ),
    (
        "another op on each column",
        lambda b, x: _one(
            b, "concatenate", *(_one(b, op, _parts(b, x, 1)[k]) for k, op in enumerate(("exp", "tanh"))), dimension=1
        ),
        ["slice", "slice", "exp", "tanh", "concatenate"],
    ),
    (
        "one op on columns in another order",
        lambda b, x: _one(b, "concatenate", *(_one(b, "exp", part) for part in _parts(b, x, 1, 4)[::-1]), dimension=1),
        ["slice", "slice", "exp", "exp", "concatenate"],
    ),
    ("times one", lambda b, x: _one(b, "multiply", _scalar(b, 1), x), []),
    ("by one", lambda b, x: _one(b, "divide", x, _scalar(b, 1)), []),
    ("by eight", lambda b, x: _one(b, "divide", x, _scalar(b, 8)), ["constant", "broadcast", "multiply"]),
    ("by ten", lambda b, x: _one(b, "divide", x, _scalar(b, 10)), ["constant", "broadcast", "divide"]),
    ("cube", lambda b, x: _one(b, "power", x, _scalar(b, 3)), ["multiply", "multiply"]),
    ("twice the same", lambda b, x: _one(b, "add", _one(b, "exp", x), _one(b, "exp", x)), ["exp", "add"]),
    ("broadcast of a row reduce", _broadcast_as_tensorflow_lowers_it, ["reduce", "broadcast", "subtract"]),
    ("constants", _constant_in_steps, ["constant", "broadcast", "add"]),
    ("plus zero stays: -0 + 0 is 0", lambda b, x: _one(b, "add", x, _scalar(b, 0)), ["constant", "broadcast", "add"]),
]


@pytest.mark.parametrize(("grow", "left"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_each_rule_leaves_what_it_says(grow: Callable[[GraphBuilder, int], int], left: list[str]) -> None:
    b = GraphBuilder("g")
    graph = b.finish((grow(b, build(b, "parameter", (), number=0, shape=(4, 8), dtype=DType.F32)),))
    cleaned = simplify(graph)
    assert [node.op for node in cleaned.nodes if node.op != "parameter"] == left
    inputs = random_inputs(graph, np.random.default_rng(0), "normal")
    assert judge(cleaned, inputs, evaluate(graph, inputs)).ok


def _chain_on_parts(length: int) -> list[str]:
    """The ops that are left of so many multiplies on each column, each of which reads the one before twice."""
    b = GraphBuilder("g")
    x = build(b, "parameter", (), number=0, shape=(4, 8), dtype=DType.F32)
    parts = _parts(b, x, 1)
    for _ in range(length):
        parts = [_one(b, "multiply", part, part) for part in parts]
    return [node.op for node in simplify(b.finish((_one(b, "concatenate", *parts, dimension=1),))).nodes]


def test_a_chain_on_parts_is_joined_once_for_each_op_and_a_very_long_one_stays() -> None:
    assert _chain_on_parts(MOST_JOINED) == ["parameter", *["multiply"] * MOST_JOINED]
    assert _chain_on_parts(1000).count("multiply") == 8000


def test_a_large_constant_of_one_value_is_a_splat() -> None:
    b = GraphBuilder("g")
    for value in (np.full((4, 8), 2.5, np.float32), np.full((4, 8), np.nan, np.float32)):
        build(b, "constant", (), literal=Literal(value))
    build(b, "constant", (), literal=Literal(np.arange(32, dtype=np.float32).reshape(4, 8)))
    build(b, "constant", (), literal=Literal(np.array([0.0, -0.0], np.float32)))
    cleaned = simplify(b.finish(range(4)))
    assert [node.op for node in cleaned.nodes] == ["constant", "broadcast"] * 2 + ["constant"] * 2


def test_dead_nodes_go_and_parameters_stay() -> None:
    b = GraphBuilder("g")
    x = build(b, "parameter", (), number=0, shape=(2,), dtype=DType.F32)
    build(b, "parameter", (), number=1, shape=(9,), dtype=DType.S8)
    build(b, "exp", (x,))
    graph = prune(b.finish((build(b, "log", (x,)),)))
    assert [node.op for node in graph.nodes] == ["parameter", "parameter", "log"]


ERF = """
HloModule erf
ENTRY main {
  x = f32[64]{0} parameter(0)
  low = f32[] constant(-3.74392128)
  lows = f32[64]{0} broadcast(low), dimensions={}
  high = f32[] constant(3.74392128)
  highs = f32[64]{0} broadcast(high), dimensions={}
  inside = f32[64]{0} clamp(lows, x, highs)
  square = f32[64]{0} multiply(inside, inside)
%s
  product = f32[64]{0} multiply(inside, n0)
  ROOT result = f32[64]{0} divide(product, d0)
}
"""


def _horner(name: str, coefficients: tuple[float, ...]) -> str:
    """As XLA's EvaluatePolynomial: from the highest coefficient down."""
    lines, last = [], ""
    for k in range(len(coefficients) - 1, -1, -1):
        lines.append(f"  {name}c{k} = f32[] constant({coefficients[k]!r})")
        lines.append(f"  {name}b{k} = f32[64]{{0}} broadcast({name}c{k}), dimensions={{}}")
        if last:
            lines.append(f"  {name}m{k} = f32[64]{{0}} multiply({last}, square)")
            lines.append(f"  {name}{k} = f32[64]{{0}} add({name}m{k}, {name}b{k})")
        last = f"{name}{k}" if last else f"{name}b{k}"
    return "\n".join(lines)


def test_erf_is_found_where_xla_has_written_it_out_and_saturates() -> None:
    module = ERF % f"{_horner('n', NUMERATOR)}\n{_horner('d', DENOMINATOR)}"
    graph = simplify(import_hlo_text(module).graph)
    assert [node.op for node in graph.nodes] == ["parameter", "erf"]
    x = np.full(64, -88 / np.sqrt(2), np.float32)
    (y,) = evaluate(graph, [x])
    assert (y == -1).all()


@pytest.mark.parametrize("at", [0, 3, 6])
def test_another_rational_function_is_not_erf(at: int) -> None:
    other = tuple(value * (1.001 if k == at else 1) for k, value in enumerate(DENOMINATOR))
    module = ERF % f"{_horner('n', NUMERATOR)}\n{_horner('d', other)}"
    assert "erf" not in [node.op for node in simplify(import_hlo_text(module).graph).nodes]


def test_a_folded_function_is_what_the_interpreter_computes() -> None:
    """Rounded once from float64: numpy's exp of a float32 is up to 2.5 units of the last place off."""
    given = np.linspace(-20, 20, 401, dtype=np.float32)
    for op in ("exp", "log1p", "tanh", "rsqrt"):
        b = GraphBuilder("constants")
        outputs = [_one(b, op, build(b, "constant", (), literal=Literal(np.array(x)))) for x in given]
        folded = simplify(b.finish(outputs))
        assert {folded.nodes[i].op for i in folded.outputs} == {"constant"}
        assert np.array_equal(evaluate(folded, []), evaluate(b.finish(outputs), []), equal_nan=True)
