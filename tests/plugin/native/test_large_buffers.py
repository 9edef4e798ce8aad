"""The memory of large results is used again in the next step, and goes back to the system when it is not used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stitchfleet.plugin.base.memory_watch import resident_bytes

from ..conftest import Plugin

MIB = 1 << 20


def gradients(images: int) -> Any:
    """A graph with a 1x1 convolution whose input's gradient has `images` MiB: the op allocates it in all its calls."""
    import tensorflow as tf

    w = tf.constant(np.random.default_rng(0).standard_normal((1, 1, 64, 16)), tf.float32)

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.sin(tf.nn.conv2d(x, w, 1, "SAME")))
        return tape.gradient(loss, x)

    return step, tf.ones([images, 64, 64, 64])


@pytest.fixture
def step(plugin: Plugin) -> Any:
    import tensorflow as tf

    function, x = gradients(3)
    plugin.library.trim_buffers(0.0)
    plugin.active = True
    traced = tf.function(function)
    traced(x)
    plugin.active = False
    return lambda: traced(x)


def test_the_next_step_uses_the_memory_of_the_last_one(plugin: Plugin, step: Any) -> None:
    for _ in range(12):
        step()
    before = plugin.library.trim_buffers(60.0)
    for _ in range(20):
        step()
    after = plugin.library.trim_buffers(60.0)
    assert after.reused >= before.reused + 20
    assert after.fresh == before.fresh
    assert 3 * MIB <= after.free_bytes <= 12 * MIB


def test_results_of_several_sizes_that_are_never_alive_together_have_memory_of_their_own(plugin: Plugin) -> None:
    """The most that a step has needed at once is less than what it needs without fresh memory."""
    import tensorflow as tf

    sizes = [gradients(images) for images in (5, 7, 9, 12)]

    def several(*given: Any) -> Any:
        total = tf.constant(0.0)
        for (function, _), x in zip(sizes, given, strict=True):
            total += tf.reduce_sum(function(x + total * 1e-30))
        return total

    plugin.library.trim_buffers(0.0)
    plugin.active = True
    traced = tf.function(several)
    given = [x for _, x in sizes]
    traced(*given)
    plugin.active = False
    for _ in range(12):
        traced(*given)
    before = plugin.library.trim_buffers(60.0)
    for _ in range(20):
        traced(*given)
    after = plugin.library.trim_buffers(60.0)
    assert after.reused >= before.reused + 4 * 20
    assert after.fresh == before.fresh


def test_a_result_that_is_held_is_not_written_again(plugin: Plugin, step: Any) -> None:
    held = [step() for _ in range(6)]
    copies = [each.numpy().copy() for each in held]
    for _ in range(6):
        step()
    for each, copy in zip(held, copies, strict=True):
        np.testing.assert_array_equal(each.numpy(), copy)
    assert plugin.library.trim_buffers(60.0).live_bytes >= 6 * 3 * MIB


def test_idle_memory_goes_back_to_the_system(plugin: Plugin) -> None:
    import tensorflow as tf

    function, x = gradients(200)
    plugin.library.trim_buffers(0.0)
    plugin.active = True
    traced = tf.function(function)
    for _ in range(4):
        traced(x)
    plugin.active = False
    kept = plugin.library.trim_buffers(60.0).free_bytes
    assert kept >= 200 * MIB
    resident = resident_bytes()
    assert plugin.library.trim_buffers(0.0).free_bytes == 0
    assert resident_bytes() <= resident - 150 * MIB
