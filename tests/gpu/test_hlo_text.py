"""A graph written as HLO text is the same graph when it is read again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from scripts.gpu import micro
from scripts.gpu.hlo_text import NoHloError, hlo_text
from stitchfleet.compiler.check.random_inputs import Regime, random_inputs
from stitchfleet.compiler.check.selfcheck import same_bits
from stitchfleet.compiler.hlo.importer import import_hlo_text, read_hlo_file
from stitchfleet.compiler.ir.graph import Graph
from stitchfleet.compiler.ops.interpreter import evaluate
from stitchfleet.compiler.step.partition import partition

from ..compiler.strategies import graphs

FIXTURES = Path(__file__).parents[1] / "fixtures/hlo"


def assert_same(graph: Graph) -> None:
    again = import_hlo_text(hlo_text(graph)).graph
    inputs = random_inputs(graph, np.random.default_rng(0), Regime.UNIT)
    for first, second in zip(evaluate(graph, inputs), evaluate(again, inputs), strict=True):
        assert first.dtype == second.dtype
        assert same_bits(first, second)  # NumPy does not take a NaN of bf16 for one


@given(graphs())
def test_any_graph_is_the_same_when_it_is_read_again(graph: Graph) -> None:
    try:
        assert_same(graph)
    except NoHloError:
        assert {node.op for node in graph.nodes} & {"philox", "scan", "patches", "dot"}


@pytest.mark.parametrize("name", ["crnn", "dien-infer", "bert-infer"])
def test_the_stitch_ops_of_a_step_are_the_same(name: str) -> None:
    for op in partition(read_hlo_file(FIXTURES / f"{name}.hlo")).stitch_ops:
        assert_same(op.graph)


def test_each_micro_case_is_one_stitch_op_with_as_many_arguments() -> None:
    for folder in (micro.FOLDER, micro.SMALL):
        for case in micro.CASES:
            (op,) = partition(read_hlo_file(folder / f"{case.name}.hlo")).stitch_ops
            assert len(op.graph.parameters) == len(case.arguments)
