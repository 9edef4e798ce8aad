"""Answers of TensorFlow's lookup of traces that are kept must be the answers that it would give."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from stitchfleet.plugin.base.containment import HEALTH
from stitchfleet.plugin.base.settings import Settings
from stitchfleet.plugin.commands.run import job_environment
from stitchfleet.plugin.entry import trace_lookup
from stitchfleet.plugin.versions import places

tracing: Any = places.tracing_module()
if tracing is None:
    pytest.skip("this TensorFlow looks traces up in another way", allow_module_level=True)


@pytest.fixture(scope="module", autouse=True)
def installed() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("call_function", "trace_function"):
            patch.setattr(tracing, name, getattr(tracing, name))
        trace_lookup.install(tracing)
        yield


class Counted:
    """A tf.function whose result names the trace that ran, and how often TensorFlow was asked for one."""

    def __init__(self, patch: pytest.MonkeyPatch, **options: Any) -> None:
        self.traces = 0
        self.lookups = 0

        @tf.function(autograph=False, **options)
        def function(*given: Any) -> Any:
            self.traces += 1
            return tf.constant(self.traces)

        self.function = function
        lookup = tracing._maybe_define_function

        def counted(*given: Any) -> Any:
            self.lookups += 1
            return lookup(*given)

        patch.setattr(tracing, "_maybe_define_function", counted)

    def __call__(self, *given: Any) -> int:
        return int(self.function(*given))

    def as_tensorflow(self, *given: Any) -> int:
        """The trace that TensorFlow's own lookup finds."""
        trace = self.function.get_concrete_function(*given)
        return int(
            trace._call_flat(trace.function_type.unpack_inputs(trace.function_type.bind(*given)), trace.captured_inputs)
        )


def _elements(spec: Any) -> Any:
    return iter(tf.data.Dataset.from_tensors(spec).repeat())


VARIABLE = tf.Variable([1.0, 2.0])
ITERATORS = [_elements(tf.ones([2])), _elements(tf.ones([2])), _elements(tf.ones([3]))]
KINDS: list[list[Callable[[], Any]]] = [
    [
        lambda: tf.ones([2]),
        lambda: tf.zeros([2]),
        lambda: tf.ones([3]),
        lambda: tf.ones([2, 1]),
        lambda: tf.ones([2], tf.int32),
    ],
    [
        lambda: [tf.ones([2])],
        lambda: (tf.ones([2]),),
        lambda: {"a": tf.ones([2])},
        lambda: {"b": tf.ones([2])},
        lambda: [tf.ones([2]), tf.ones([2])],
        lambda: [[tf.ones([2])], tf.ones([2])],
        lambda: [[tf.ones([2]), tf.ones([2])]],
    ],
    [lambda: VARIABLE, lambda: tf.ragged.constant([[1.0], [2.0, 3.0]]), lambda: tf.sparse.from_dense([[0.0, 1.0]])],
    [lambda one=one: one for one in ITERATORS],
    [lambda one=one: one for one in (None, True, False, 0, 1, 0.0, -0.0, 1.0, "a", "b", b"a")],
]
"""Makers of arguments, in groups whose members are easily taken for one another."""


def _nested(leaf: Any) -> Any:
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.lists(inner, max_size=2).map(lambda of: lambda: [one() for one in of]),
            st.lists(inner, max_size=2).map(lambda of: lambda: tuple(one() for one in of)),
            st.dictionaries(st.sampled_from("ab"), inner, max_size=2).map(
                lambda of: lambda: {name: one() for name, one in of.items()}
            ),
        ),
        max_leaves=2,
    )


arguments = st.one_of(*(_nested(st.sampled_from(kind)) for kind in KINDS))
calls = st.one_of(
    st.lists(st.sampled_from(kind).map(lambda one: [one]), min_size=2, max_size=5) for kind in KINDS
) | st.integers(0, 2).flatmap(
    lambda count: st.lists(st.lists(arguments, min_size=count, max_size=count), min_size=1, max_size=4)
)


@settings(max_examples=80, deadline=None)
@given(calls, st.booleans(), st.randoms())
def test_the_trace_is_the_one_that_tensorflow_finds(kinds: list[Any], reduces: bool, random: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        counted = Counted(patch, reduce_retracing=reduces)
        for kind in [*kinds, *kinds, *random.choices(kinds, k=6)]:
            given = [make() for make in kind]
            traces = counted.traces
            ran = counted(*given)
            assert ran == counted.as_tensorflow(*given)
            assert counted.traces in (traces, ran)


@pytest.mark.parametrize(
    "given",
    [
        (),
        (tf.ones([2]), tf.ones([2])),
        ((tf.ones([2]), [tf.ones([3])]), True, None, "a", 3),
        ({"x": tf.ones([2]), "a": tf.zeros([1])},),
        (ITERATORS[0],),
    ],
)
def test_a_repeated_call_is_not_looked_up(monkeypatch: pytest.MonkeyPatch, given: Any) -> None:
    counted = Counted(monkeypatch)
    counted(*given)
    counted(*given)
    asked = counted.lookups
    assert [counted(*given) for _ in range(4)] == [1] * 4
    assert counted.lookups == asked


def test_a_new_trace_makes_answers_void(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    x = tf.ones([2])
    assert [counted(x), counted(x), counted(tf.ones([3]))] == [1, 1, 2]
    asked = counted.lookups
    assert [counted(x), counted(x), counted(x)] == [1, 1, 1]
    assert counted.lookups == asked + 1


def test_other_surroundings_are_another_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    x = tf.ones([2])
    assert [counted(x) for _ in range(3)] == [1, 1, 1]
    with strategy.scope():
        assert [counted(x) for _ in range(3)] == [2, 2, 2]
    assert counted(x) == 1
    with tf.Graph().as_default():
        tf.compat.v1.Session().run(counted.function(tf.ones([2])))
    assert counted(x) == 1


def test_an_iterator_of_the_same_address_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    for size in (2, 3, 2, 3):
        for _ in range(3):
            given = _elements(tf.ones([size]))
            assert counted(given) == counted.as_tensorflow(given)
            del given


def test_captures_that_change_are_seen() -> None:
    variables: list[tf.Variable] = []

    @tf.function
    def total(x: Any) -> Any:
        for variable in variables:
            x = x + variable
        return x

    variables.append(tf.Variable(1.0))
    x = tf.constant(1.0)
    assert [float(total(x)) for _ in range(3)] == [2.0] * 3
    variables[0].assign(5.0)
    assert float(total(x)) == 6.0
    variables.append(tf.Variable(10.0))
    assert float(total(tf.constant([1.0]))[0]) == 16.0  # another shape: traced with both
    assert float(total(x)) == 6.0


def test_a_capture_that_is_replaced_is_seen() -> None:
    first, second = tf.fill([200], 2.0), tf.fill([200], 3.0)  # smaller ones become constants

    @tf.function
    def scaled(x: Any) -> Any:
        return x * first

    x = tf.constant(1.0)
    assert [float(scaled(x)[0]) for _ in range(3)] == [2.0] * 3
    trace = scaled.get_concrete_function(x)
    trace.set_external_captures([second])
    assert [float(scaled(x)[0]) for _ in range(3)] == [3.0] * 3
    values = iter([5.0, 6.0, 7.0])
    trace._captured_inputs[0] = lambda: tf.fill([200], next(values))  # as replace_capture_with_deferred_capture does
    assert [float(scaled(x)[0]) for _ in range(3)] == [5.0, 6.0, 7.0]


def test_a_capture_of_each_call_is_seen() -> None:
    values = iter([5.0, 6.0, 7.0, 8.0])

    @tf.function
    def deferred(x: Any) -> Any:
        graph = tf.compat.v1.get_default_graph()
        return x * graph.capture_call_time_value(lambda: tf.constant(next(values)), tf.TensorSpec([], tf.float32))

    assert [float(deferred(tf.constant(1.0))) for _ in range(4)] == [5.0, 6.0, 7.0, 8.0]


def test_gradients_are_recorded() -> None:
    variable = tf.Variable(3.0)

    @tf.function
    def square(x: Any) -> Any:
        return x * variable * variable

    for _ in range(4):
        with tf.GradientTape() as tape:
            result = square(tf.constant(2.0))
        assert float(tape.gradient(result, variable)) == 12.0


def test_an_input_signature_converts_as_before() -> None:
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def count(x: Any) -> Any:
        return tf.shape(x)[0]

    for _ in range(3):
        assert int(count(tf.ones([2]))) == 2
        assert int(count([1.0, 2.0, 3.0])) == 3
    with pytest.raises((TypeError, ValueError)):
        count(tf.ones([2], tf.int32))


def test_a_lookup_without_a_call_is_not_kept() -> None:
    @tf.function(input_signature=[tf.TensorSpec([2], tf.float32)])
    def signed(x: Any) -> Any:
        return x * 2.0

    @tf.function
    def optional(x: Any, scale: Any = 3.0) -> Any:
        return x * scale

    x = tf.ones([2])
    failures = HEALTH.failures
    for _ in range(3):
        signed.get_concrete_function()
        optional.get_concrete_function(x)
        assert float(signed(x)[0]) == 2.0
        assert float(optional(x)[0]) == 3.0
        assert float(optional(x, 4.0)[0]) == 4.0
    assert HEALTH.failures == failures


def test_a_call_that_raises_is_followed_by_right_ones() -> None:
    @tf.function
    def checked(x: Any) -> Any:
        tf.debugging.assert_positive(x)
        return x + 1.0

    for value in (1.0, -1.0, 2.0, -2.0, 3.0):
        x = tf.constant([value])
        if value < 0.0:
            with pytest.raises(tf.errors.InvalidArgumentError):
                checked(x)
        else:
            assert float(checked(x)[0]) == value + 1.0


def test_the_number_of_kept_answers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch, input_signature=[tf.TensorSpec([None], tf.float32)])
    for size in range(3 * trace_lookup.MOST_KEPT):
        assert counted(tf.ones([size])) == 1
    (options,) = {id(one): one for one in _options_of(counted.function)}.values()
    assert len(getattr(options, trace_lookup._NAME).of_key) == trace_lookup.MOST_KEPT


def _options_of(function: Any) -> list[Any]:
    named = (function._variable_creation_config, function._no_variable_creation_config)
    return [one for one in named if one is not None and hasattr(one, trace_lookup._NAME)]


def test_a_failure_leaves_the_lookup_to_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: Any) -> bool:
        raise RuntimeError("broken for this test")

    counted = Counted(monkeypatch)
    monkeypatch.setattr(trace_lookup.Describer, "describe", broken)
    monkeypatch.setattr(HEALTH, "reason", None)
    monkeypatch.setattr(HEALTH, "on_failure", [])
    monkeypatch.setattr(HEALTH, "failures", 0)
    assert [counted(tf.ones([2])) for _ in range(3)] == [1, 1, 1]
    assert "broken for this test" in str(HEALTH.reason)


SAYS = """
import tensorflow
from tensorflow.python.eager.polymorphic_function import tracing_compilation as tracing
print(hasattr(tracing.call_function, "_stitchfleet"))
"""


def test_a_version_on_which_no_job_is_stitched_looks_up_as_ever(cache: Path, tmp_path: Path) -> None:
    def says(folder: Path) -> str:
        variables = job_environment(Settings(cache=folder))
        job = subprocess.run([sys.executable, "-c", SAYS], env=variables, capture_output=True, text=True, check=True)
        return job.stdout.strip()

    assert says(cache) == "True"
    assert says(tmp_path) == "False"  # the op is not there, as it is not for a version that fails its self-test
