"""What TensorFlow lowers, the importer brings in whole, and the interpreter computes what TensorFlow computes."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stitchfleet.compiler.check.judge import agrees, guard_tolerance, judge
from stitchfleet.compiler.hlo.importer import import_hlo_proto, import_hlo_text
from stitchfleet.compiler.ops.interpreter import evaluate
from stitchfleet.compiler.ops.verify import verify

from ..tensorflow_functions import NAMES

ELIDED = frozenset({"constants", "matrix_band"})
"""XLA prints these with `constant({...})`: their text cannot be imported, and says so."""
REWRITTEN = frozenset({"dropout_apply"})
"""TensorFlow's own graph optimizer divides by a constant as a product with its reciprocal: one rounding more than HLO
has."""


@pytest.fixture(scope="module")
def lowered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """For each function its HLO, inputs and eager results, by a TensorFlow in a process of its own."""
    path = tmp_path_factory.mktemp("lowered") / "functions.pickle"
    program = Path(__file__).parents[1] / "tensorflow_functions.py"
    done = subprocess.run([sys.executable, str(program), str(path)], capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, dict[str, Any]] = pickle.loads(path.read_bytes())
    return found


@pytest.mark.parametrize("name", NAMES)
def test_an_imported_function_computes_what_tensorflow_computes(lowered: dict[str, dict[str, Any]], name: str) -> None:
    case = lowered[name]
    graph = import_hlo_proto(case["proto"]).graph
    verify(graph)
    outputs = evaluate(graph, case["inputs"])

    verdict = judge(graph, case["inputs"], outputs)
    assert verdict.ok, verdict
    tensorflow = judge(graph, case["inputs"], case["outputs"])
    if name in REWRITTEN:
        assert max(output.largest_ratio for output in tensorflow.outputs) < 1.5, tensorflow
    else:
        assert tensorflow.ok, tensorflow


@pytest.mark.parametrize("name", NAMES)
def test_the_guards_tolerance_accepts_tensorflow_beside_the_interpreter(
    lowered: dict[str, dict[str, Any]], name: str
) -> None:
    case = lowered[name]
    graph = import_hlo_proto(case["proto"]).graph
    outputs = evaluate(graph, case["inputs"])
    for ours, theirs, tolerance in zip(outputs, case["outputs"], guard_tolerance(graph), strict=True):
        assert agrees(ours, theirs, tolerance), tolerance


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ELIDED])
def test_text_and_proto_of_one_module_give_one_graph(lowered: dict[str, dict[str, Any]], name: str) -> None:
    case = lowered[name]
    from_proto, from_text = import_hlo_proto(case["proto"]).graph, import_hlo_text(case["text"]).graph
    assert from_text.digest == from_proto.digest


def test_a_lowered_softmax_is_seven_ops(lowered: dict[str, dict[str, Any]]) -> None:
    graph = import_hlo_proto(lowered["softmax"]["proto"]).graph
    wanted = ["parameter", "reduce", "broadcast", "subtract", "exp", "reduce", "broadcast", "divide"]
    assert [node.op for node in graph.nodes] == wanted


def test_nodes_bear_the_names_of_the_ops_they_came_from(lowered: dict[str, dict[str, Any]]) -> None:
    graph = import_hlo_proto(lowered["softmax"]["proto"]).graph
    assert {node.name for node in graph.nodes if node.op != "parameter"} == {"Softmax"}
