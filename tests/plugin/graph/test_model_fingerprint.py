"""A model is known by its variables and operators: whatever the batch, in every process, in a function as in a session."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

MAKE = """
import json, tensorflow as tf
from stitchfleet.plugin.graph.model_fingerprint import model_fingerprint

def layer(x, w):
    return tf.reduce_sum(tf.nn.softmax(x @ w))

def function(width, batch):
    w = tf.Variable(tf.ones([4, width]))
    graph = tf.function(lambda x: layer(x, w)).get_concrete_function(tf.TensorSpec([batch, 4])).graph
    offered = graph.as_graph_def(add_shapes=True)
    # what TensorFlow offers has arguments for operators, as an instantiated function has
    for node in offered.node:
        if node.op == "Placeholder":
            node.op = "_Arg"
            if node.attr["dtype"].type == tf.resource.as_datatype_enum:
                node.attr["_handle_dtypes"].list.type.append(w.dtype.as_datatype_enum)
                node.attr["_handle_shapes"].list.shape.append(w.shape.as_proto())
    return offered

def session(width, batch):
    with tf.Graph().as_default() as built:
        layer(tf.compat.v1.placeholder(tf.float32, [batch, 4]), tf.compat.v1.get_variable("w", [4, width]))
    return built.as_graph_def()

def frozen(width, batch):
    with tf.Graph().as_default() as built:
        layer(tf.compat.v1.placeholder(tf.float32, [batch, 4]), tf.constant(1.0, shape=[4, width]))
    return built.as_graph_def()

print(json.dumps({
    kind.__name__: [model_fingerprint(kind(width, batch)) for width, batch in ((8, 16), (8, 32), (9, 16))]
    for kind in (function, session, frozen)
}))
"""


@pytest.fixture(scope="module")
def fingerprints(prepared: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """By kind of graph, of (width, batch) 8, 16; 8, 32; 9, 16; made alike in two processes, whose hash seeds differ."""
    script = tmp_path_factory.mktemp("fingerprints") / "make.py"
    script.write_text(MAKE)
    made = [
        subprocess.run([start, str(script)], check=True, capture_output=True).stdout
        for start in (prepared, sys.executable)
    ]
    assert made[0] == made[1]
    return json.loads(made[0])  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", ["function", "session", "frozen"])
def test_a_model_has_one_fingerprint_at_every_batch_and_another_at_another_width(
    kind: str, fingerprints: dict[str, list[str]]
) -> None:
    first, other_batch, other_width = fingerprints[kind]
    assert first.startswith("graph:")
    assert other_batch == first
    assert other_width != first
