"""Transposes on a GPU: through squares of shared memory, so that neighbouring threads read and write neighbouring elements."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stitchfleet.compiler.check.random_inputs import Regime
from stitchfleet.compiler.codegen.cuda.kernel_text import plan_for_gpu
from stitchfleet.compiler.codegen.cuda.survey import is_distributed
from stitchfleet.compiler.explaining.words import explain
from stitchfleet.compiler.ir.graph import DType, Graph
from stitchfleet.compiler.ir.index_maps import Var
from stitchfleet.compiler.loops import loops
from stitchfleet.compiler.lowering.kernel_loops import lower
from stitchfleet.compiler.ops.interpreter import evaluate
from stitchfleet.compiler.planning.plan import plan_graph
from stitchfleet.compiler.targets.targets import V100, GpuTarget

from ... import library
from ...emulated import TARGETS, build_all
from ...ir.test_index_maps import value_of


def transposed(
    shape: Sequence[int], permutation: Sequence[int], dtype: DType = DType.F32, plain: bool = False
) -> Graph:
    """A transpose, alone or with something before it, after it, and beside it that is not turned."""
    m = library.Maker(f"transposed_{dtype.value}_{'x'.join(map(str, shape))}_{''.join(map(str, permutation))}")
    x = m.parameter(*shape, dtype=dtype)
    if plain:
        return m.done(m.op("transpose", x, permutation=tuple(permutation)))
    there = tuple(shape[d] for d in permutation)
    row, beside = m.parameter(shape[-1], dtype=dtype), m.parameter(*there, dtype=dtype)
    y = m.op("maximum", x, m.spread(row, tuple(shape), len(shape) - 1))
    return m.done(m.op("maximum", m.op("transpose", y, permutation=tuple(permutation)), beside))


SHAPES = {
    "multiples": ((64, 96), (1, 0)),
    "no multiples": ((67, 45), (1, 0)),
    "few columns": ((300, 5), (1, 0)),
    "few rows": ((5, 300), (1, 0)),
    "a batch": ((3, 40, 33), (0, 2, 1)),
    "a batch of small ones": ((30, 8, 9), (0, 2, 1)),
    "keys of heads": ((2, 21, 3, 16), (0, 2, 3, 1)),
    "all turned": ((12, 5, 40), (2, 1, 0)),
    "the batch inwards": ((20, 6, 24), (1, 2, 0)),
}


def _distributed_loops(body: Sequence[loops.Statement]) -> Iterator[tuple[loops.Loop, dict[Var, int]]]:
    """The loops that threads share, with a place of those around them."""
    for statement in body:
        if isinstance(statement, loops.Loop) and is_distributed(statement):
            yield statement, {}
        elif isinstance(statement, loops.Loop):
            yield from (
                (loop, {**around, statement.variable: 0}) for loop, around in _distributed_loops(statement.body)
            )
        elif isinstance(statement, loops.Blocks | loops.If):
            yield from _distributed_loops(statement.body)


def _accesses(body: Sequence[loops.Statement], values: dict[Var, int]) -> Iterator[tuple[int, int]]:
    """(buffer, place) of each access of memory in a straight body."""
    named: dict[str, int] = {}
    for statement in body:
        if isinstance(statement, loops.If):
            yield from _accesses(statement.body, values)
        elif isinstance(statement, loops.Let) and isinstance(statement.value, loops.FromIndex):
            named[statement.name] = value_of(statement.value.index, values)
        elif isinstance(statement, loops.LetIndex):
            values = {**values, statement.variable: named[statement.value]}
        elif isinstance(statement, loops.Let) and isinstance(statement.value, loops.Load):
            yield statement.value.buffer, value_of(statement.value.index, values)
        elif isinstance(statement, loops.Store):
            yield statement.buffer, value_of(statement.index, values)


def strides(graph: Graph, target: GpuTarget) -> set[int]:
    """How far apart neighbouring threads access memory."""
    found: set[int] = set()
    for phase in lower(plan_graph(graph, target)).phases:
        for nest in phase.nests:
            for loop, around in _distributed_loops(nest.body):
                here, beside = ([*_accesses(loop.body, {**around, loop.variable: place})] for place in (0, 1))
                found |= {b - a for (_, a), (_, b) in zip(here, beside, strict=True)}
    return found


@pytest.mark.parametrize("plain", [True, False], ids=["alone", "among others"])
@pytest.mark.parametrize("name", SHAPES)
def test_neighbouring_threads_read_and_write_neighbouring_elements(name: str, plain: bool) -> None:
    graph = transposed(*SHAPES[name], plain=plain)
    assert strides(graph, V100) <= {0, 1}
    assert 1 in strides(graph, V100)


def test_what_keeps_the_innermost_dimension_needs_no_square() -> None:
    graph = library.attention_heads(2, 16, 4, 64)
    assert strides(graph, V100) <= {0, 1}
    assert "square" not in plan_for_gpu(graph, V100)[1].text


DTYPES = [DType.F32, DType.F16, DType.BF16, DType.F64, DType.S8, DType.S32]


@pytest.mark.costly
@pytest.mark.parametrize("target", ["small", "h200"])
def test_transposes_agree_with_numpy_to_the_last_bit(target: str) -> None:
    graphs = [transposed(*shape, plain=True) for shape in SHAPES.values()]
    graphs += [transposed(*shape, dtype=dtype) for dtype in DTYPES for shape in SHAPES.values()]
    for number, one in enumerate(build_all(graphs, TARGETS[target], unit=21)):
        assert "square" in one.kernel.text, one.graph.name
        rng = np.random.default_rng(number)
        given = []
        for parameter in one.graph.parameters:
            node = one.graph.nodes[parameter]
            given.append(rng.integers(-100, 100, node.shape).astype(node.dtype.numpy))
        for seed in (2, 3):
            (found,), messages = one.run(given, seed)
            assert messages == [], one.graph.name
            assert found.tobytes() == evaluate(one.graph, given)[0].tobytes(), one.graph.name


@settings(max_examples=60)
@given(st.lists(st.integers(1, 40), min_size=2, max_size=4), st.randoms())
def test_any_transpose_is_read_and_written_side_by_side(shape: list[int], random: st.DataObject) -> None:
    """But for sides of a few elements, where a line of memory is used up by neighbours; nor is what stays innermost turned."""
    permutation = list(range(len(shape)))
    random.shuffle(permutation)  # type: ignore[attr-defined]
    if min(shape) >= 4 and math.prod(shape) > 1000 and permutation[-1] != len(shape) - 1:
        assert strides(transposed(shape, permutation, plain=True), V100) <= {0, 1}


def test_two_tensors_that_are_turned_alike_and_one_that_is_not() -> None:
    m = library.Maker("two_turned")
    x, y, z = m.parameter(50, 37), m.parameter(50, 37), m.parameter(37, 50)
    product = m.op("multiply", m.op("transpose", x, permutation=(1, 0)), m.op("transpose", y, permutation=(1, 0)))
    graph = m.done(m.op("add", product, z), m.op("exp", product))
    for target in ("small", "h200"):
        (one,) = build_all([graph], TARGETS[target])
        assert one.kernel.text.count("STITCH_SHARED(float, square") == (2 if target == "h200" else 1)
        for seed in (2, 3):
            assert one.complaint(Regime.NORMAL, seed) is None


def test_a_plan_says_that_it_turns_squares() -> None:
    text = explain(plan_graph(library.matrix_transpose(1000, 256), V100))
    assert "in 256 tiles of 32 x 32 through shared memory" in text
    assert "squares" not in explain(plan_graph(library.matrix_transpose(1000, 256)))
