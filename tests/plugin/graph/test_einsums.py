"""Einsums as transposes and a batch of matrix products: which are taken, and TensorFlow's numbers from them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stitchfleet.plugin.graph.einsums import EINSUM_OP, expand, factors

from ..conftest import Plugin
from .agreement import CALLS, assert_rounding_alone

EXTENTS = {"B": 2, "N": 3, "T": 5, "S": 7, "H": 4}


def computed(equation: str, x: Any, y: Any) -> Any:
    """An einsum by its factors."""
    found = factors(equation)
    assert found is not None
    letters = equation.partition("->")[0].split(",")
    operands = [(x, letters[0]), (y, letters[1])]
    if found.is_swapped:
        operands.reverse()
    first, second = (
        np.transpose(value, [own.index(letter) for letter in wanted])
        for (value, own), wanted in zip(operands, (found.first, found.second))
    )
    first = np.swapaxes(first, -1, -2) if found.adj_x else first
    second = np.swapaxes(second, -1, -2) if found.adj_y else second
    return np.transpose(first @ second, [found.product.index(letter) for letter in found.result])


def test_every_order_of_an_attention_s_letters_is_computed() -> None:
    """All 24 orders of each of the three lists, of scores and of contexts."""
    rng = np.random.default_rng(3)
    orders = list(itertools.permutations("BNTH"))
    for x, z in itertools.product(orders, orders):
        y, z = "BSNH", tuple(letter if letter != "H" else "S" for letter in z)
        equation = f"{''.join(x)},{y}->{''.join(z)}"
        values = [rng.standard_normal([EXTENTS[letter] for letter in word]) for word in (x, y)]
        np.testing.assert_allclose(computed(equation, *values), np.einsum(equation, *values), rtol=1e-12, atol=1e-12)


@given(st.permutations("BNTH"), st.permutations("BNSH"), st.permutations("BNTS"))
@settings(max_examples=200, deadline=None)
def test_a_transpose_keeps_runs_of_elements(x: list[str], y: list[str], z: list[str]) -> None:
    found = factors(f"{''.join(x)},{''.join(y)}->{''.join(z)}")
    assert found is not None
    for wanted, own in zip((found.first, found.second), (y, x) if found.is_swapped else (x, y)):
        assert [letter for letter in own if letter in wanted[-2:]] == list(wanted[-2:])


@pytest.mark.parametrize(
    "equation",
    [
        "ab,bc->ac",  # no batch
        "bmk,bkn",  # an implicit result
        "...mk,...kn->...mn",
        "bmmk,bkn->bmn",
        "bmk,bkn->bm",  # n is in one list only
        "bmkl,bkln->bmn",  # two that are summed over
        "bmk,bmk->bm",  # no columns
        "bm,bn->bmn",  # nothing is summed over
        "abc,cde->abde",
        "bmk->bkm",
    ],
)
def test_other_einsums_are_not_taken(equation: str) -> None:
    assert factors(equation) is None


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_attention_of_einsums_computes_what_tensorflow_computes(
    plugin: Plugin, dtype: str, capfd: pytest.CaptureFixture[str]
) -> None:
    import tensorflow as tf

    rng = np.random.default_rng(3)
    q, k, v = (tf.constant(rng.standard_normal((2, 24, 3, 16)), dtype) for _ in range(3))

    def step() -> Any:
        with tf.GradientTape() as tape:
            tape.watch([q, k, v])
            scores = tf.einsum("BTNH,BSNH->BNTS", tf.tanh(q) * 0.25, k)
            context = tf.einsum("BNTS,BSNH->BTNH", tf.nn.softmax(scores), v)
            loss = tf.reduce_sum(tf.sin(context) * context)
        return [context, *tape.gradient(loss, [q, k, v])]

    expected, actual = plugin.both(step, times=CALLS)
    assert "Einsum" not in {node.op for node in plugin.rewritten.node}
    assert sum(node.op == EINSUM_OP for node in plugin.rewritten.node) == 6
    assert "its own" not in capfd.readouterr().err, "the second kernel was refused"
    assert_rounding_alone(expected, actual, 2e-6)


def test_an_einsum_in_a_loop_and_in_a_branch(plugin: Plugin) -> None:
    import tensorflow as tf

    rng = np.random.default_rng(3)
    q, k = (tf.constant(rng.standard_normal((2, 24, 3, 24)), tf.float32) for _ in range(2))
    flag = tf.Variable(True)

    def step() -> Any:
        x = q
        for _ in tf.range(3):
            x = tf.transpose(tf.einsum("BTNH,BSNH->BNTS", tf.tanh(x) * 0.5, k), [0, 2, 1, 3])
        return [tf.cond(flag, lambda: tf.einsum("BTNH,BSNH->BTNS", tf.tanh(x), k), lambda: x * 2.0)]

    for value in (True, False):
        flag.assign(value)
        expected, actual = plugin.both(tf.autograph.to_graph(step), times=CALLS)
        for mine, own in zip(actual, expected, strict=True):
            np.testing.assert_allclose(mine[0], own[0], rtol=0, atol=2e-5 * np.max(np.abs(own[0])))
    assert "Einsum" not in {node.op for node in plugin.rewritten.node}


def test_the_same_error_for_tensors_that_do_not_fit(plugin: Plugin) -> None:
    import tensorflow as tf

    x = tf.Variable(np.ones((2, 5, 3, 4), np.float32), shape=[2, 5, 3, None])
    y = tf.constant(np.ones((2, 7, 3, 4), np.float32))

    def step() -> Any:
        return tf.einsum("BTNH,BSNH->BNTS", tf.tanh(x.read_value()) * 0.5, y)

    plugin.both(step)
    x.assign(np.ones((2, 5, 3, 6), np.float32))
    plugin.active = True
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.function(step)()
    plugin.active = False


@pytest.mark.parametrize("change", ["none", "half", "memory-bound", "on a GPU", "refused"])
def test_einsums_that_stay(change: str) -> None:
    from tensorflow.core.framework import graph_pb2

    graph: Any = graph_pb2.GraphDef()
    node = graph.node.add(name="scores", op="Einsum", input=["q", "k:1", "^before"])
    node.device = f"/device:{'GPU' if change == 'on a GPU' else 'CPU'}:0"
    node.attr["T"].type = 19 if change == "half" else 1
    node.attr["equation"].s = b"BTNH,BSNH->BNTS"
    if change == "memory-bound":
        node.attr["_stitchfleet_memory_bound"].b = True
    before = graph.SerializeToString(deterministic=True)
    assert expand(graph, lambda node: "no" if change == "refused" else "") == (change == "none")
    if change != "none":
        assert graph.SerializeToString(deterministic=True) == before
        return
    by_name = {node.name: node for node in graph.node}
    product = by_name["scores"]
    assert product.op == EINSUM_OP
    turned_names = [f"scores/stitchfleet_operand_{number}" for number in range(2)]
    assert list(product.input) == ["q", "k:1", *turned_names, "^before"]
    assert [bool(product.attr[flag].b) for flag in ("adj_x", "adj_y")] == [False, True]
    turned = by_name["scores/stitchfleet_operand_1"]
    assert list(turned.input) == ["k:1", f"{turned.name}/stitchfleet_permutation"]
    assert list(by_name[turned.input[1]].input) == ["^k"]
