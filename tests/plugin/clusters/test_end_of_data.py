"""At the end of its data a step has the effects that it has without us: those that wait for no data."""

from __future__ import annotations

from typing import Any

import numpy as np

from stitchfleet.plugin.base.edges import node_of

from ..conftest import Plugin


def writers(graph: Any, plugin: Plugin) -> dict[bool, set[str]]:
    """The variables that a rewritten graph writes: those that wait for the iterator's next element, and the others."""
    inputs = {node.name: [node_of(text) for text in node.input] for node in graph.node}
    ops = {node.name: node.op for node in graph.node}

    def waits(name: str, seen: set[str]) -> bool:
        if ops[name] == "IteratorGetNext":
            return True
        seen.add(name)
        return any(waits(each, seen) for each in inputs[name] if each not in seen)

    found: dict[bool, set[str]] = {True: set(), False: set()}
    for node in graph.node:
        if node.op.startswith("Assign"):
            found[waits(node.name, set())].add(inputs[node.name][0])
    for cluster in plugin.clusters:
        for written in cluster.written:
            stitched = next(name for name in ops if name.endswith(cluster.name))
            found[waits(stitched, set())].add(inputs[stitched][cluster.handles[written]])
    return found


def training(before: Any = lambda value: value) -> tuple[Any, Any]:
    """A step on a dataset's next element that counts, decays its learning rate, and trains; and its dataset. before: computes on
    the count before it is kept."""
    import tensorflow as tf

    count, rate = tf.Variable(0, dtype=tf.int64), tf.Variable(0.5)
    seeds = [tf.Variable([k, 0], dtype=tf.int64) for k in range(3)]
    w = tf.Variable(np.linspace(0, 1, 64 * 64, dtype="f").reshape(64, 64))
    data = np.linspace(-1, 1, 24 * 64, dtype="f").reshape(24, 64)
    dataset = tf.data.Dataset.from_tensor_slices(data).filter(lambda row: True).batch(8)

    def step(iterator: Any) -> Any:
        x = next(iterator)
        count.assign(before(count + 1))
        for seed in seeds:
            seed.assign(seed * 3 + [0, 1])
        rate.assign(rate * 0.99)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.nn.gelu(tf.sin(x) @ w) - x))
        w.assign_sub(0.5 * tape.gradient(loss, w))
        return loss

    return tf.function(step), dataset


def run(plugin: Plugin, step: Any, dataset: Any) -> dict[bool, set[str]]:
    import tensorflow as tf

    plugin.active = True
    try:
        iterator = iter(dataset)
        for _ in range(3):
            step(iterator)
        try:
            step(iterator)
        except tf.errors.OutOfRangeError:
            return writers(plugin.rewritten, plugin)
        raise AssertionError("the dataset has no end")
    finally:
        plugin.active = False


def test_what_reads_no_element_waits_for_none(plugin: Plugin) -> None:
    found = run(plugin, *training())
    assert (len(found[True]), len(found[False])) == (1, 5)


def test_an_effect_behind_much_work_may_wait(plugin: Plugin) -> None:
    """TensorFlow has ended the call before it happens."""
    import tensorflow as tf

    def much(value: Any) -> Any:
        product = tf.ones([64, 64]) * tf.cast(value, tf.float32)
        return tf.cast(tf.reduce_mean(product @ product), tf.int64)

    found = run(plugin, *training(much))
    assert len(found[True]) + len(found[False]) == 6
    assert len(found[True]) > 1
