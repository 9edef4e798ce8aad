"""What is drawn for an input is in range where the input is used, however far the use is from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from stitchfleet.compiler.check.input_ranges import Interval, input_ranges
from stitchfleet.compiler.check.random_inputs import REGIMES, Regime, random_inputs
from stitchfleet.compiler.ir.graph import DType, GatherDimensions, Graph
from stitchfleet.compiler.ops.interpreter import evaluate

from ..library import Maker
from ..strategies import graphs

ROWS, COUNT = 30, 12


def looked_up(m: Maker, index: int) -> int:
    """Rows of a table, by an index of any dtype."""
    if m.builder.nodes[index].dtype is not DType.S32:
        index = m.convert(index, DType.S32)
    return m.op("gather", m.parameter(ROWS, 4), index, gather=GatherDimensions((1,), (0,), (0,), 1, (1, 4)))


def ids(m: Maker, dtype: DType, *shape: int) -> int:
    return m.parameter(*shape, dtype=dtype)


def as_floats(m: Maker) -> int:
    return ids(m, DType.F32, COUNT)


def through_a_reshape_and_a_slice(m: Maker) -> int:
    flat = m.reshape(ids(m, DType.F32, 4, 6), 24)
    return m.op("slice", flat, start=(0,), limit=(COUNT,), strides=(1,))


def scaled_and_shifted(m: Maker) -> int:
    return m.shifted(m.scaled(ids(m, DType.F32, COUNT), 4.0), -3.0)


def in_rows_of_a_batch(m: Maker) -> int:
    """Ids of a batch of 3 rows of 10, made places in the table of all."""
    one = ids(m, DType.S32, 3, 4)
    rows = m.op("multiply", m.iota(0, (3, 4)), m.constant(10, (3, 4), DType.S32))
    return m.reshape(m.op("add", one, rows), COUNT)


def wrapped_when_negative(m: Maker) -> int:
    x = ids(m, DType.S32, COUNT)
    is_negative = m.op("compare", x, m.constant(0, (COUNT,), DType.S32), direction="LT")
    return m.op("select", is_negative, m.op("add", x, m.constant(ROWS, (COUNT,), DType.S32)), x)


def by_an_exponential(m: Maker) -> int:
    return m.op("floor", m.op("exp", ids(m, DType.F32, COUNT)))


def halved(m: Maker) -> int:
    return m.op("divide", ids(m, DType.S64, COUNT), m.constant(2, (COUNT,), DType.S64))


def from_the_end(m: Maker) -> int:
    return m.op("subtract", m.constant(ROWS - 1, (COUNT,), DType.S32), m.convert(ids(m, DType.F64, COUNT), DType.S32))


def of_two_inputs(m: Maker) -> int:
    return m.op("add", ids(m, DType.S32, COUNT), ids(m, DType.S32, COUNT))


def hashed(m: Maker) -> int:
    return m.op("remainder", ids(m, DType.S32, COUNT), m.constant(ROWS, (COUNT,), DType.S32))


def by_labels(m: Maker) -> int:
    return m.op("maximum", ids(m, DType.F32, COUNT), m.constant(0.0, (COUNT,)))


def unsigned(m: Maker) -> int:
    return m.convert(ids(m, DType.U8, COUNT), DType.F32)


def in_few_bits(m: Maker) -> int:
    return m.convert(ids(m, DType.BF16, COUNT), DType.F32)


CHAINS: Final[dict[str, Callable[[Maker], int]]] = {
    chain.__name__: chain
    for chain in (
        as_floats,
        through_a_reshape_and_a_slice,
        scaled_and_shifted,
        in_rows_of_a_batch,
        wrapped_when_negative,
        by_an_exponential,
        halved,
        from_the_end,
        of_two_inputs,
        hashed,
        by_labels,
        unsigned,
        in_few_bits,
    )
}


def drawn_indices(chain: Callable[[Maker], int], regime: Regime, seed: int = 0) -> np.ndarray[Any, Any]:
    """The indices that inputs drawn for the whole graph make."""
    m = Maker("chain")
    index = m.convert(chain(m), DType.S32)
    whole = m.done(looked_up(m, index))
    inputs = random_inputs(whole, np.random.default_rng(seed), regime)
    part = Maker("chain")
    (found,) = evaluate(part.done(part.convert(chain(part), DType.S32)), inputs[: len(inputs) - 1])
    return np.asarray(found)


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_indices_are_in_range_whatever_lies_between(chain: Callable[[Maker], int], regime: Regime) -> None:
    found = drawn_indices(chain, regime)
    assert found.shape == (COUNT,)
    assert ((found >= 0) & (found < ROWS)).all(), found
    assert len(np.unique(found)) > 3, "and not all the same"


STEPS: Final = (
    *("add", "subtract", "multiply", "divide", "negate", "maximum", "floor", "exp", "sqrt", "log1p", "tanh", "half"),
    *("reverse", "reduce", "concatenate", "mirror"),
)


def grown(m: Maker, steps: list[tuple[str, int]], is_float: bool) -> int:
    x = ids(m, DType.F32 if is_float else DType.S32, COUNT)
    dtype = DType.F32 if is_float else DType.S32
    for name, number in steps:
        other = m.constant(number or int(name == "multiply"), (COUNT,), dtype)
        if name in ("add", "subtract", "multiply", "maximum"):
            x = m.op(name, x, other)
        elif name == "divide":
            x = m.op("divide", x, m.constant(abs(number) + 1, (COUNT,), dtype))
        elif name == "mirror":
            x = m.op("subtract", other, x)
        elif name == "negate":
            x = m.op("negate", x)
        elif name == "reverse":
            x = m.op("reverse", x, dimensions=(0,))
        elif name == "concatenate":
            halves = [m.op("slice", x, start=(at,), limit=(at + COUNT // 2,), strides=(1,)) for at in (0, COUNT // 2)]
            x = m.op("concatenate", *reversed(halves), dimension=0)
        elif name == "reduce":
            x = m.reduce(m.spread(x, (COUNT, 3), 0), 1, kind="max")
        elif name == "half":
            x = m.op("add", x, m.parameter(COUNT, dtype=dtype))
        elif is_float:
            x = m.op(name, x)
    return x


@settings(max_examples=150, deadline=None)
@example([("log1p", 0), ("negate", 0), ("sqrt", 0)], True, 0)
@example([("log1p", 0), ("sqrt", 0), ("subtract", 5)], True, 0)
@example([("log", 0), ("negate", 0), ("sqrt", 0)], True, 0)
@example([("divide", 1), ("multiply", 8)], False, 0)
@example([("divide", 1), ("add", 1), ("multiply", -3)], False, 1)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(-9, 9)), max_size=5), st.booleans(), st.integers(0, 9))
def test_whatever_is_found_for_an_input_keeps_its_use_in_range(
    steps: list[tuple[str, int]], is_float: bool, seed: int
) -> None:
    """Chains at random; where nothing is found (no input makes them valid) nothing is said."""

    def chain(m: Maker) -> int:
        return grown(m, steps, is_float)

    m = Maker("chain")
    whole = m.done(looked_up(m, m.convert(chain(m), DType.S32)))
    ranges = input_ranges(whole)
    inputs = len(whole.parameters) - 1
    if set(ranges) < set(range(inputs)) or any(one.high - one.low < 1 for one in ranges.values()):
        return
    found = drawn_indices(chain, Regime.NORMAL, seed)
    assert ((found >= -1) & (found <= ROWS)).all(), (found, ranges)  # a fraction may be rounded to the end itself
    assert ((found >= 0) & (found < ROWS)).mean() > 0.8, (found, ranges)


def test_divisors_and_exponents_are_valid_where_the_framework_is_asked_and_anything_elsewhere() -> None:
    m = Maker("integers")
    x, y, n = (m.parameter(400, dtype=DType.S32) for _ in range(3))
    graph = m.done(m.op("divide", x, y), m.op("remainder", x, y), m.op("power", x, n))
    for regime in (Regime.NORMAL, Regime.UNIT):
        _, divisor, exponent = random_inputs(graph, np.random.default_rng(0), regime)
        assert (divisor > 0).all()
        assert (exponent >= 0).all()
    _, divisor, exponent = random_inputs(graph, np.random.default_rng(0), Regime.SPECIAL)
    assert (divisor == 0).any(), "a kernel must not crash on what is thrown away"
    assert (exponent < 0).any()


def test_what_is_clamped_is_drawn_on_both_sides_of_the_clamp() -> None:
    m = Maker("clamped")
    x = m.parameter(200, dtype=DType.S32)
    low, high = m.constant(0, dtype=DType.S32), m.constant(ROWS - 1, dtype=DType.S32)
    spread = [m.spread(one, (200,)) for one in (low, high)]
    graph = m.done(looked_up(m, m.op("clamp", spread[0], x, spread[1])))
    assert input_ranges(graph) == {0: Interval(-2, ROWS + 1)}


def test_what_is_no_index_may_be_anything() -> None:
    m = Maker("free")
    x = m.parameter(8, 8)
    graph: Graph = m.done(m.op("exp", x), m.op("compare", x, m.constant(0.0, (8, 8)), direction="GT"))
    assert input_ranges(graph) == {}


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs(max_ops=24))
def test_every_graph_has_ranges_that_hold_numbers(graph: Graph) -> None:
    for regime in (Regime.NORMAL, Regime.SPECIAL):
        inputs = random_inputs(graph, np.random.default_rng(0), regime)
        assert [value.shape for value in inputs] == [graph.nodes[i].shape for i in graph.parameters]
    for one in input_ranges(graph).values():
        assert one.low <= one.high
