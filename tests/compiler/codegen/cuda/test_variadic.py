"""Variadic reductions on a GPU (argmax: a value and where it is): all threads are at work, and the order is kept."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from stitchfleet.compiler.check.random_inputs import Regime
from stitchfleet.compiler.codegen.cuda.kernel_text import plan_for_gpu
from stitchfleet.compiler.codegen.cuda.survey import is_distributed
from stitchfleet.compiler.explaining.words import explain
from stitchfleet.compiler.ir.graph import DType, Graph
from stitchfleet.compiler.loops import loops
from stitchfleet.compiler.loops.loops import BufferKind
from stitchfleet.compiler.lowering.kernel_loops import lower
from stitchfleet.compiler.ops.interpreter import evaluate
from stitchfleet.compiler.planning.plan import plan_graph
from stitchfleet.compiler.targets.targets import H200, V100, GpuTarget

from ... import library
from ...emulated import TARGETS, build_all


def argmax_over(shape: Sequence[int], *dimensions: int) -> Graph:
    """The greatest element over some dimensions, and its place among all of the tensor's."""
    m, whole = library.Maker(f"argmax_{'x'.join(map(str, shape))}_{dimensions}"), tuple(shape)
    x = m.parameter(*shape)
    place = m.constant(0, whole, DType.S32)
    for dimension in range(len(whole)):
        stride = m.constant(math.prod(whole[dimension + 1 :]), whole, DType.S32)
        place = m.op("add", place, m.op("multiply", m.iota(dimension, whole), stride))
    low, zero = m.constant(-np.inf), m.constant(0, dtype=DType.S32)
    body = library.argmax_body()
    both = [m.op("reduce_general", x, place, low, zero, dimensions=dimensions, body=body, result=k) for k in (0, 1)]
    return m.done(*both)


CASES = {
    "rows": ((37, 300), (1,)),
    "columns": ((60, 130), (0,)),
    "few columns": ((2000, 6), (0,)),
    "one column": ((700, 1), (0,)),
    "columns of a prime length": ((127, 64), (0,)),
    "columns of each of a batch": ((4, 30, 64), (1,)),
    "a few columns of each of a batch": ((40, 30, 5), (1,)),
    "both dimensions of a picture": ((9, 20, 30), (1, 2)),
    "all dimensions": ((9, 20, 30), (0, 1, 2)),
    "the outer and the inner": ((12, 6, 50), (0, 2)),
    "two that are apart": ((5, 7, 6, 11), (1, 3)),
    "a long row": ((2, 40_000), (1,)),
    "a long row of two dimensions": ((1, 210, 200), (1, 2)),
}


def _loads(body: Sequence[loops.Statement], distributed: bool, buffers: Sequence[loops.Buffer]) -> Iterator[bool]:
    """Of each load of more than an element of an input: whether threads share the loop."""
    for statement in body:
        if isinstance(statement, loops.Loop):
            yield from _loads(statement.body, distributed or is_distributed(statement), buffers)
        elif isinstance(statement, loops.Blocks | loops.If):
            yield from _loads(statement.body, distributed, buffers)
        elif isinstance(statement, loops.Let) and isinstance(statement.value, loops.Load):
            buffer = buffers[statement.value.buffer]
            if buffer.kind is BufferKind.INPUT and buffer.elements > 1:
                yield distributed


def is_shared(graph: Graph, target: GpuTarget) -> bool:
    """Whether no thread reads what all others do as well."""
    nests = [nest for phase in lower(plan_graph(graph, target)).phases for nest in phase.nests]
    return all(shared for nest in nests for shared in _loads(nest.body, False, nest.buffers))


@pytest.mark.parametrize("name", CASES)
def test_threads_share_what_is_read(name: str) -> None:
    shape, dimensions = CASES[name]
    for target in (V100, H200, TARGETS["small"]):
        assert is_shared(argmax_over(shape, *dimensions), target)


@pytest.mark.parametrize("target", ["small", "h200"])
def test_the_order_is_kept_to_the_last_bit(target: str) -> None:
    """Of several NaNs the first one's place counts, of equals the first: as in a loop over the elements."""
    graphs = [argmax_over(shape, *dimensions) for shape, dimensions in CASES.values()]
    for number, one in enumerate(build_all(graphs, TARGETS[target])):
        rng = np.random.default_rng(number)
        x = rng.integers(-3, 3, one.graph.nodes[one.graph.parameters[0]].shape).astype(np.float32)
        if number % 2:
            x[rng.random(x.shape) < 0.01] = np.nan
        expected = evaluate(one.graph, [x])
        for seed in (2, 3):
            outputs, messages = one.run([x], seed)
            assert messages == [], one.graph.name
            for found, wanted in zip(outputs, expected, strict=True):
                assert np.array_equal(found, wanted, equal_nan=True), one.graph.name


def test_stretches_are_loaded_by_vectors() -> None:
    text = plan_for_gpu(library.argmax(512, 4096, 1), V100)[1].text
    assert "for (int k4096_1_first = thread * 16; k4096_1_first < 4096 && k4096_1_first < (thread + 1) * 16;" in text
    assert "STITCH_LOAD_NEIGHBOURS(float, 4," in text
    odd = plan_for_gpu(library.argmax(512, 4095, 1), V100)[1].text
    assert "NEIGHBOURS" not in odd


def test_long_columns_are_split_and_the_plan_says_why() -> None:
    plan = plan_graph(argmax_over((4096, 128), 0), V100)
    assert "split in 64" in explain(plan)
    assert "128 columns of 4096 on 2560 groups of threads: 64 parts would save" in explain(plan)
    assert [nest.rows for nest in plan.nests] == [128, 2]
    short = plan_graph(argmax_over((12, 128), 0), V100)
    assert "less than a phase's 2.7 us" in explain(short)
    assert len(short.nests) == 1
    odd = plan_graph(argmax_over((4099, 128), 0), V100)
    assert "no number of parts up to 64 divides them" in explain(odd)


def _beside_a_softmax(rows: int, length: int) -> Graph:
    """The greatest of what is left of a row without its mean, in a nest with the row's softmax, which other loops are for."""
    m, shape = library.Maker("beside_a_softmax"), (rows, length)
    x = m.parameter(*shape)
    top = m.spread(m.reduce(x, 1, kind="max"), shape, 0)
    e = m.op("exp", m.op("subtract", x, top))
    share = m.op("divide", e, m.spread(m.reduce(e, 1), shape, 0))
    low, zero = m.constant(-np.inf), m.constant(0, dtype=DType.S32)
    operands = (m.op("negate", m.op("tanh", e)), m.iota(1, shape), low, zero)
    body = library.argmax_body()
    both = [m.op("reduce_general", *operands, dimensions=(1,), body=body, result=k) for k in (0, 1)]
    return m.done(share, *both)


@pytest.mark.parametrize(("target", "length"), [("small", 40), ("small", 200), ("h200", 600), ("h200", 20_000)])
def test_a_row_may_be_reduced_in_both_ways(target: str, length: int) -> None:
    (one,) = build_all([_beside_a_softmax(5, length)], TARGETS[target])
    for seed in (2, 3):
        assert one.complaint(Regime.NORMAL, seed) is None
