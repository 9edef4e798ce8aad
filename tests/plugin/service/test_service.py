"""The compile service on requests of real clusters: checks on numbers that the operators take, failures that are remembered."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stitchfleet.compiler.check import selfcheck
from stitchfleet.compiler.ir.graph import BFLOAT16
from stitchfleet.compiler.pipeline import cpu
from stitchfleet.plugin.base import descendants
from stitchfleet.plugin.graph.to_hlo import Argument
from stitchfleet.plugin.native.library import MismatchReport
from stitchfleet.plugin.service import bundle, messages
from stitchfleet.plugin.service import serving as module
from stitchfleet.plugin.service.framework import reference
from stitchfleet.plugin.service.messages import Answer, Compiled, CompileRequest, Failed, Sample
from stitchfleet.plugin.service.serving import Service

from ...broken_kernels.broken_kernels import break_kernels
from ..conftest import Plugin

Array = np.ndarray[Any, Any]


pytestmark = pytest.mark.usefixtures("kept_kernels")


@pytest.fixture(scope="module")
def request_of(plugin: Plugin) -> Callable[..., CompileRequest]:
    """The request that a function's stitch op makes for a kernel; `compute` has one cluster. Each asks once in a process."""
    import tensorflow as tf

    made: dict[tuple[Any, ...], CompileRequest] = {}

    def make(compute: Callable[..., Any], *operands: Array) -> CompileRequest:
        key = (compute, *(operand.shape for operand in operands))
        if key not in made:
            made[key] = ask(compute, *operands)
        return made[key]

    def ask(compute: Callable[..., Any], *operands: Array) -> CompileRequest:
        while plugin.library.next_request(0) is not None:
            pass  # of the tests before
        plugin.active, plugin.clusters = True, []
        try:
            tf.function(compute, autograph=False)(*map(tf.constant, operands))
        finally:
            plugin.active = False
        found: Any = plugin.library.next_request(0)
        assert found is not None
        (cluster,) = [cluster for cluster in plugin.clusters if cluster.name == found["cluster"]]
        fallback = cluster.fallback if cluster.fallback != cluster.body else b""
        inputs = tuple(Argument.from_json(described) for described in found["inputs"])
        samples = tuple(Sample.of(described) for described in found["samples"])
        return CompileRequest(cluster.name, cluster.body, inputs, samples=samples, fallback=fallback)

    return make


def answer(folder: pathlib.Path, request: CompileRequest) -> Answer:
    """The service's answer, as it comes to the client."""
    answers: list[bytes] = []
    service = Service(folder, 1 << 30, lambda number, found: answers.append(messages.to_line(number, found)))
    service.accept(*messages.request_of(messages.to_line(1, request)))
    while service.waiting:
        service.work_on()
    (line,) = answers
    return messages.answer_of(line)[1]


def compiled(folder: pathlib.Path, request: CompileRequest) -> Compiled:
    found = answer(folder, request)
    assert isinstance(found, Compiled), found
    return found


def refused(folder: pathlib.Path, request: CompileRequest) -> str:
    """The line of a failure."""
    found = answer(folder, request)
    assert isinstance(found, Failed), found
    return found.line


TABLE = np.linspace(-1, 1, 30 * 4, dtype=np.float32).reshape(30, 4)
FLOAT_IDS = np.arange(12, dtype=np.float32).reshape(3, 4)


def embedding_of_floats(table: Any, ids: Any) -> Any:
    import tensorflow as tf

    return tf.tanh(tf.gather(table, tf.cast(ids, tf.int32))) * 2.0


def cross_entropy_of_float_labels(logits: Any, labels: Any) -> Any:
    import tensorflow as tf

    flat = tf.cast(tf.reshape(labels, [-1]), tf.int64)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(logits=logits * 0.5, labels=flat) * 2.0


def segments_of_floats(values: Any, ids: Any) -> Any:
    import tensorflow as tf

    return tf.math.unsorted_segment_sum(tf.tanh(values), tf.cast(tf.reshape(ids, [-1]), tf.int32), 12) * 2.0


def divided_by_counts(values: Any, counts: Any) -> Any:
    return values * 3 // counts + 1


REACHED_THROUGH_CASTS: dict[str, tuple[Callable[..., Any], Array, Array]] = {
    "embedding": (embedding_of_floats, TABLE, FLOAT_IDS),
    "labels": (cross_entropy_of_float_labels, TABLE[:12], FLOAT_IDS % 4),
    "segments": (segments_of_floats, TABLE[:12], FLOAT_IDS),
    "divisors": (divided_by_counts, np.arange(12, dtype=np.int32), np.arange(1, 13, dtype=np.int32)),
}


@pytest.mark.parametrize("case", REACHED_THROUGH_CASTS)
def test_what_operators_refuse_is_not_drawn(case: str, request_of: Any, tmp_path: pathlib.Path) -> None:
    compute, *operands = REACHED_THROUGH_CASTS[case]
    made = compiled(tmp_path, replace(request_of(compute, *operands), samples=()))
    assert made.metadata.check.against_reference


def scrambled_ids(table: Any, ids: Any) -> Any:
    """Nothing is known of what an exclusive or must have been made of."""
    import tensorflow as tf

    return tf.tanh(tf.gather(table, tf.bitwise.bitwise_xor(ids, 1 << 20))) * 2.0


SCRAMBLED_IDS = (np.arange(12, dtype=np.int32).reshape(3, 4)) ^ (1 << 20)


def test_where_random_numbers_are_refused_the_jobs_own_are_taken(request_of: Any, tmp_path: pathlib.Path) -> None:
    request = request_of(scrambled_ids, TABLE, SCRAMBLED_IDS)
    line = refused(tmp_path / "without", replace(request, samples=()))
    assert "the framework refuses its inputs: InvalidArgumentError" in line
    assert compiled(tmp_path / "with", request).metadata.check.against_reference


def test_a_wrong_kernel_is_refused_on_the_jobs_own_numbers_too(
    request_of: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a kernel that no random input tells from a right one (every index is out of range for both)."""
    request = request_of(scrambled_ids, TABLE, SCRAMBLED_IDS)
    monkeypatch.setattr(cpu, "check_part", lambda *parts: selfcheck.RegimesOutcome(parts[4], 0.0, (1.0, 1.0)))
    break_kernels(cpu, "add_one_output", patch=monkeypatch.setattr)
    line = refused(tmp_path, request)
    assert "self-check of" in line
    assert "not what the framework computes" in line


def decided_by_softmax(x: Any) -> Any:
    import tensorflow as tf

    weights = tf.nn.softmax(tf.tanh(x) * 3.0)
    return weights, tf.argmax(weights, -1)


def test_a_row_of_a_softmax_with_a_nan_is_nan_for_what_decides_by_it(request_of: Any) -> None:
    """TensorFlow's kernel has zeros in such a row, one of which its ArgMax finds; a cluster with both was refused."""
    x = np.random.default_rng(0).standard_normal((64, 10)).astype(np.float32)
    x[::3, 0] = np.nan
    request = request_of(decided_by_softmax, x)
    results = reference(request.fallback or request.body, request.inputs, 2)([x])
    decided, weights = sorted(map(np.asarray, results), key=lambda result: result.ndim)
    import tensorflow as tf

    plain = tf.nn.softmax(tf.tanh(x) * 3.0).numpy()
    has_nan = np.isnan(x).any(-1)
    assert not np.isnan(plain[has_nan]).all()  # else nothing is tested
    assert np.isnan(weights[has_nan]).all()
    assert np.array_equal(weights[~has_nan], plain[~has_nan])
    assert (decided[has_nan] == 0).all()
    assert np.array_equal(decided[~has_nan], plain[~has_nan].argmax(-1))


def convolved_pools(x: Any, variance: Any, weights: Any) -> Any:
    import tensorflow as tf

    normal = x * tf.math.rsqrt(variance + 1e-3)
    return tf.nn.depthwise_conv2d(tf.nn.max_pool2d(normal, 2, 2, "VALID"), weights, [1, 1, 1, 1], "SAME")


def test_sums_that_overflow_may_be_nan_where_onednn_fuses_their_products(
    request_of: Any, tmp_path: pathlib.Path
) -> None:
    """A normalization of a variance that was drawn below zero is NaN, its largest elements the lowest finite number (rare_data.py),
    and their products with weights overflow; a cluster of them was refused."""
    shapes = (4, 8, 8, 32), (32,), (3, 3, 32, 1)
    request = request_of(convolved_pools, *(np.full(shape, 0.5, np.float32) for shape in shapes))
    assert b"MaxPool" in request.body
    assert b"DepthwiseConv2dNative" in request.body
    assert compiled(tmp_path, request).metadata.check.against_reference


SEGMENT_IDS = np.random.default_rng(1).integers(0, 7, 64).astype(np.int32)


@pytest.mark.parametrize("extreme", ["max", "min"])
def test_a_segment_with_a_nan_is_nan_for_the_gradient_that_decides_by_it(
    extreme: str, request_of: Any, tmp_path: pathlib.Path
) -> None:
    """TensorFlow's kernel has the extreme of the elements after the last NaN, which the gradient finds; a cluster with both was
    refused."""
    import tensorflow as tf

    x, of_segments = np.random.default_rng(0).standard_normal((64, 48)).astype(np.float32), np.ones((7, 48), np.float32)
    x[::5, ::3] = np.nan
    x[SEGMENT_IDS == 2] = -np.copysign(0.0, np.arange(48, dtype=np.float32) - 24)  # either zero stays as it is
    segments = getattr(tf.math, f"unsorted_segment_{extreme}")

    def gradient(x: Any, of_segments: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            found = segments(tf.minimum(x, 3.0), tf.constant(SEGMENT_IDS), 7)
        return found, tape.gradient(found, x, of_segments) * 0.5

    request = request_of(gradient, x, of_segments)
    inputs = [{x.shape: x, of_segments.shape: of_segments}[argument.shape] for argument in request.inputs]
    results = map(np.asarray, reference(request.fallback or request.body, request.inputs, 2)(inputs))
    found, plain = next(result for result in results if result.shape == (7, 48)), segments(x, SEGMENT_IDS, 7).numpy()
    has_nan = np.array([np.isnan(x[segment == SEGMENT_IDS]).any(0) for segment in range(7)])
    assert not np.isnan(plain[has_nan]).all()  # else nothing is tested
    assert np.isnan(found[has_nan]).all()
    assert found[~has_nan].tobytes() == plain[~has_nan].tobytes()
    assert compiled(tmp_path, request).metadata.check.against_reference


def without_largest(x: Any) -> Any:
    """Sums that cancel to nothing but rounding, behind a comparison that the oracle cannot decide: each column's deviations."""
    import tensorflow as tf

    rest = tf.where(tf.equal(x, tf.reduce_max(x)), 0.0, x * 0.7)
    return tf.reduce_sum(rest - tf.reduce_mean(rest, 0), 0)


def test_a_judgement_says_how_far_right_results_of_an_ill_conditioned_sum_are_apart(
    request_of: Any, tmp_path: pathlib.Path
) -> None:
    """So that the next comparison agrees, and the kernel is not judged in every call for ever."""
    x = np.random.default_rng(0).standard_normal((512, 8)).astype(np.float32)
    request = request_of(without_largest, x)
    results = reference(request.body, request.inputs, 1)([x])
    apart = np.abs(np.asarray(results[0])).max() + np.float32(1e-6)  # as far as rounding goes
    actual = [np.asarray(results[0]) + apart]
    report = MismatchReport(
        1, 0, 7, 0, float(results[0][0]), float(actual[0][0]), float(apart), [x], list(results), actual
    )
    folder = tmp_path / "bundle"
    bundle.write_bundle(folder, "norm", request.body, request.inputs, report, None, {})
    verdict = bundle.judge_bundle(folder)
    assert verdict.right
    assert apart <= verdict.bounds[0] < 1e-3 * np.abs(x).sum(0).max()


def sum_of_bf16(x: Any) -> Any:
    """TensorFlow 2.15 adds up the rows in bf16. (It optimizes a graph of this one operator in one pass only.)"""
    import tensorflow as tf

    return -tf.raw_ops.BiasAddGrad(out_backprop=-x)


def test_a_judgement_says_how_far_tensorflows_own_result_is_from_the_exact_one(
    request_of: Any, tmp_path: pathlib.Path
) -> None:
    """So that a job in mixed_bfloat16 is not judged, and computed by both, for ever: TensorFlow rounds the gradient of a bias in each
    of a thousand additions."""
    if BFLOAT16 is None:
        pytest.skip("without ml_dtypes there is no bf16")
    x = np.random.default_rng(0).standard_normal((1024, 64)).astype(BFLOAT16)
    request = request_of(sum_of_bf16, x)
    (theirs,) = reference(request.body, request.inputs, 1)([x])
    exact = x.astype(np.float64).sum(0)
    actual = exact.astype(BFLOAT16)
    error = np.abs(theirs.astype(np.float64) - exact).max()
    assert error > 0.3  # of sums of about 30
    report = MismatchReport(1, 0, 7, 0, float(theirs[0]), float(actual[0]), error, [x], [theirs], [actual])
    folder = tmp_path / "bundle"
    bundle.write_bundle(folder, "sum", request.body, request.inputs, report, None, {})
    verdict = bundle.judge_bundle(folder)
    assert verdict.right
    assert error <= verdict.bounds[0] <= 2.5 * error
    actual[0] += np.asarray(10 * error, BFLOAT16)  # a kernel that is wrong stays wrong
    wrong = tmp_path / "wrong"
    bundle.write_bundle(wrong, "sum", request.body, request.inputs, report, None, {})
    assert not bundle.judge_bundle(wrong).right


def test_a_bundle_with_the_kernels_hlo_is_judged_without_tensorflow(request_of: Any, tmp_path: pathlib.Path) -> None:
    """Its import takes seconds, on a busy machine a minute, and the cluster is not stitched until then."""
    x = np.random.default_rng(0).standard_normal((512, 8)).astype(np.float32)
    request = request_of(without_largest, x)
    made = compiled(tmp_path / "cache", request)
    results = reference(request.body, request.inputs, 1)([x])
    actual = [np.asarray(results[0])]
    report = MismatchReport(1, 0, 7, 0, 0.0, 0.0, 0.0, [x], list(results), actual)
    folder = tmp_path / "bundle"
    bundle.write_bundle(folder, "norm", request.body, request.inputs, report, None, {}, pathlib.Path(made.hlo))
    judge = f"from stitchfleet.plugin.service.bundle import judge_bundle; found = judge_bundle(pathlib.Path({str(folder)!r}))"
    ask = f"import pathlib, sys; {judge}; print(found.right, 'tensorflow' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["True", "False"]
    (folder / bundle.KEPT_HLO).unlink()
    assert bundle.judge_bundle(folder).right


TRAINER = """
import os, pathlib, sys
from stitchfleet.plugin.service.client import CompileClient
from stitchfleet.plugin.service.messages import request_of
folder, finish_s, end = pathlib.Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
client = CompileClient(folder / "cache", 1 << 30, 0, folder / "log", lambda line: print(line), finish_s=finish_s)
client.compile(request_of((folder / "request").read_bytes())[1], lambda answer: None)
if end == "in good order":
    client.close()
print(client.pid, flush=True)
os._exit(0)
"""


@pytest.mark.parametrize(
    ("finish_s", "end", "kernels"),
    [
        (300, "in good order", 1),
        pytest.param(300, "in a crash", 0, marks=pytest.mark.slow),
        pytest.param(0.1, "in good order", 0, marks=pytest.mark.slow),
    ],
)
def test_the_service_finishes_what_a_trainer_asked_for_before_its_end(
    request_of: Any, tmp_path: pathlib.Path, finish_s: float, end: str, kernels: int
) -> None:
    """A job of a few seconds would else never get kernels, however often it runs. The service ends in any case."""
    x = np.random.default_rng(0).standard_normal((512, 8)).astype(np.float32)
    (tmp_path / "request").write_bytes(messages.to_line(1, request_of(without_largest, x)))
    command = [sys.executable, "-c", TRAINER, str(tmp_path), str(finish_s), end]
    *told, pid = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(told) == (end == "in good order")
    deadline = time.monotonic() + 300
    while descendants.processor_seconds(int(pid)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not descendants.processor_seconds(int(pid))
    assert len(list((tmp_path / "cache" / "kernels").glob("*/*/kernel.so"))) == kernels


def test_a_service_that_finishes_leaves_kernels_to_the_one_that_has_the_turn(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([["a", "b"], ["b"], []])
    service = Service(tmp_path, 1 << 30, lambda number, found: None)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(service, "look_in_cache", lambda: setattr(service, "waiting", next(looks)))
    monkeypatch.setattr(service, "work_on", lambda: pytest.fail("the other service makes them"))
    service.waiting = ["a", "b"]  # type: ignore[list-item]
    other, own = (module.KernelTurn(tmp_path, "run") for _ in range(2))
    assert other.take(2)
    module.finish(service, own)
    assert not service.waiting
    assert next(looks, None) is None


def test_one_service_finishes_at_a_time(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has TensorFlow in memory, and the next job may be running."""
    service = Service(tmp_path, 1 << 30, lambda number, found: None)
    service.waiting = ["a"]  # type: ignore[list-item]
    monkeypatch.setattr(service, "work_on", lambda: pytest.fail("another service finishes"))
    other = module.KernelTurn(tmp_path, "finishing")
    assert other.take(1)
    module.finish(service, None)
    other.give_back()

    def work_on() -> None:
        assert not module.KernelTurn(tmp_path, "finishing").take(1)
        service.waiting.clear()

    monkeypatch.setattr(service, "work_on", work_on)
    module.finish(service, None)
    assert not service.waiting
    assert other.take(1)


def test_a_sample_is_bounded_and_begins_with_integers(request_of: Any) -> None:
    many = np.zeros((5000, 4), np.float32)
    request = request_of(embedding_of_floats, many, np.ones((3000, 4), np.float32))
    assert {sample.input for sample in request.samples} == {0, 1}
    assert all(len(sample.value) == 4 * 1024 for sample in request.samples)
    integers = request_of(scrambled_ids, TABLE, SCRAMBLED_IDS)
    assert integers.samples[0].value == SCRAMBLED_IDS.tobytes()
    nothing_to_refuse = request_of(lambda x: x * 2.0 + 1.0, many)
    assert nothing_to_refuse.samples == ()


def test_a_failure_is_remembered_unless_it_might_pass(
    request_of: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = replace(request_of(scrambled_ids, TABLE, SCRAMBLED_IDS), samples=())
    first = refused(tmp_path, request)
    with monkeypatch.context() as patched:
        patched.setattr(module.to_hlo, "lower", lambda *parts: pytest.fail("it is tried again"))
        again = refused(tmp_path, request)
    assert again == first
    assert "the framework refuses" in again


def test_an_answer_is_kept_for_the_importer_that_made_the_graph(
    request_of: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, what a new importer makes better reached no job whose kernels were kept."""
    request = replace(request_of(scrambled_ids, TABLE, SCRAMBLED_IDS), samples=())
    refused(tmp_path, request)
    lowered, lower = [], module.to_hlo.lower
    monkeypatch.setattr(module.to_hlo, "lower", lambda *parts: lowered.append(parts) or lower(*parts))
    refused(tmp_path, request)
    assert not lowered
    monkeypatch.setattr(module.backend, "importer_version", lambda: "another")
    refused(tmp_path, request)
    assert len(lowered) == 1
    (tmp_path / "framework.py").write_text("another")
    monkeypatch.setattr(module.framework, "__file__", str(tmp_path / "framework.py"))
    refused(tmp_path, request)
    assert len(lowered) == 2


@pytest.mark.parametrize("kind", ["time", "killed", "memory", "disk"])
def test_what_may_pass_is_tried_again(
    kind: str, request_of: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = request_of(embedding_of_floats, TABLE, FLOAT_IDS)

    def fail(*parts: Any, **more: Any) -> Any:
        raise {
            "time": selfcheck.CheckFailedError("the kernel did not end within 30 s", is_certain=False),
            "killed": cpu.CompilerFailedError("g++ failed: Killed signal terminated program cc1plus"),
            "memory": MemoryError(),
            "disk": OSError(28, "No space left on device"),
        }[kind]

    with monkeypatch.context() as patched:
        if kind == "killed":
            patched.setattr(cpu.Toolchain, "build", fail)
        else:
            patched.setattr(cpu, "plan_graph" if kind == "memory" else "finish_check", fail)
        assert refused(tmp_path, request)
    assert compiled(tmp_path, request)


def rare_operators(x: Any, y: Any) -> Any:
    """What XLA lowers to something else on NaN, zeros and beyond an integer's range."""
    import tensorflow as tf

    roots = tf.sqrt(tf.nn.relu(x))
    return (
        tf.argmax(x, 1),
        tf.cast(tf.clip_by_value(x * 1e3, -1e2, 1e20), tf.int32),
        tf.raw_ops.ReluGrad(gradients=tf.raw_ops.SqrtGrad(y=roots, dy=y), features=x),
        tf.raw_ops.SeluGrad(gradients=y, outputs=tf.nn.relu(x)),
        tf.sign(x) * tf.cast(tf.argmin(y, 0), tf.float32),
    )


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_kernels_are_tensorflows_operators_on_rare_data(dtype: str, request_of: Any, tmp_path: pathlib.Path) -> None:
    import tensorflow as tf

    kind = tf.as_dtype(dtype).as_numpy_dtype
    x, y = (np.linspace(-2, 2, 240).reshape(40, 6).astype(kind) for _ in range(2))
    if dtype != "float32":
        made = compiled(
            tmp_path,
            request_of(
                lambda a, b: (tf.argmax(a, 1), tf.nn.relu(a) * b, tf.raw_ops.ReluGrad(gradients=b, features=a)), x, y
            ),
        )
    else:
        made = compiled(tmp_path, request_of(rare_operators, x, y))
    assert made.metadata.check.against_reference


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_kernel_that_casts_to_any_integer_is_judged_where_tensorflow_defines_it(
    dtype: str, request_of: Any, tmp_path: pathlib.Path
) -> None:
    """Keras' quantization casts to int8. For NaN and out of range TensorFlow's result depends on the position in the tensor."""
    import tensorflow as tf

    def quantize(x: Any) -> Any:
        scaled = tf.round(x * 127.0 / tf.reduce_max(tf.abs(x), 1, keepdims=True))
        return [tf.cast(scaled, to) for to in ("int8", "uint8", "int16", "uint16", "uint32", "uint64")]

    x = np.linspace(-2, 2, 240).reshape(40, 6).astype(tf.as_dtype(dtype).as_numpy_dtype)
    assert compiled(tmp_path, request_of(quantize, x)).metadata.check.against_reference


def test_a_kernel_shifts_by_drawn_amounts_as_tensorflow_does(request_of: Any, tmp_path: pathlib.Path) -> None:
    """The check draws amounts that are negative or beyond the width."""
    import tensorflow as tf

    def hashes(x: Any, amount: Any) -> Any:
        return tf.reduce_sum(tf.bitwise.right_shift(x, amount) * 3, 1), tf.bitwise.left_shift(x, amount) + 1

    x = np.arange(240, dtype=np.int32).reshape(40, 6)
    assert compiled(tmp_path, request_of(hashes, x, np.array(5, np.int32))).metadata.check.against_reference


REARRANGING: dict[str, tuple[Callable[[Any, Any], Any], tuple[int, ...]]] = {
    "SpaceToBatchND": (
        lambda tf, x: tf.raw_ops.SpaceToBatchND(input=x, block_shape=[2, 3], paddings=[[1, 0], [2, 1]]),
        (4, 15, 12, 5),
    ),
    "SpaceToBatchND of a sequence": (
        lambda tf, x: tf.raw_ops.SpaceToBatchND(input=x, block_shape=[4], paddings=[[8, 1]]),
        (4, 31, 24),
    ),
    "BatchToSpaceND": (
        lambda tf, x: tf.raw_ops.BatchToSpaceND(input=x, block_shape=[2, 3], crops=[[1, 0], [2, 1]]),
        (12, 5, 6, 5),
    ),
    "SpaceToDepth": (lambda tf, x: tf.raw_ops.SpaceToDepth(input=x, block_size=2), (4, 8, 12, 5)),
    "DepthToSpace": (lambda tf, x: tf.raw_ops.DepthToSpace(input=x, block_size=2), (4, 8, 6, 12)),
    "Roll": (lambda tf, x: tf.roll(x, [-3, 2], [1, 2]), (4, 8, 8, 16)),
    "Roll, twice along one dimension": (lambda tf, x: tf.roll(x, [5, 9, -4], [0, 1, 1]), (14, 12)),
    "MirrorPadGrad": (
        lambda tf, x: tf.raw_ops.MirrorPadGrad(input=x, paddings=[[0, 0], [2, 1]], mode="REFLECT"),
        (30, 24),
    ),
    "MatrixDiagV3": (
        lambda tf, x: tf.raw_ops.MatrixDiagV3(diagonal=x, k=1, num_rows=-1, num_cols=-1, padding_value=0.5),
        (9, 16),
    ),
}


@pytest.mark.parametrize("name", REARRANGING)
def test_operators_that_rearrange_are_in_a_kernel_with_their_neighbours(
    name: str, request_of: Any, tmp_path: pathlib.Path
) -> None:
    """The operators of dilated convolutions, of super-resolution, and the gradients of padding."""
    import tensorflow as tf

    rearrange, shape = REARRANGING[name]
    x = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
    request = request_of(lambda x: tf.nn.relu(rearrange(tf, tf.tanh(x) * 0.5) + 0.25), x)
    assert all(op in request.body for op in (re.split(r"\W", name)[0].encode(), b"Tanh", b"Relu"))
    assert compiled(tmp_path, request).metadata.check.against_reference


MEMORY_BOUND: dict[str, tuple[Callable[[Any, Any, Any], Any], tuple[int, ...], tuple[int, ...]]] = {
    "BatchMatMulV2, outer": (lambda tf, x, y: tf.matmul(x, y), (6, 5, 7, 1), (6, 5, 1, 9)),
    "MatMul, outer": (lambda tf, x, y: tf.matmul(x, y, transpose_b=True), (70, 1), (30, 1)),
    "BatchMatMulV2 with vectors": (lambda tf, x, y: tf.matmul(x, y, transpose_a=True), (20, 17, 12), (20, 17, 1)),
    "BatchMatMulV2 of vectors": (lambda tf, x, y: tf.matmul(x, y), (20, 1, 17), (20, 17, 12)),
    "Einsum": (lambda tf, x, y: tf.einsum("bij,bj->bi", x, y), (20, 17, 12), (20, 12)),
    "Einsum, outer": (lambda tf, x, y: tf.einsum("bi,bj->bji", x, y), (20, 17), (20, 12)),
}


@pytest.mark.parametrize("name", MEMORY_BOUND)
def test_products_that_only_read_and_write_are_in_a_kernel_and_judged(
    name: str, request_of: Any, tmp_path: pathlib.Path
) -> None:
    """Also on rare data, beside TensorFlow's own kernel of the product."""
    import tensorflow as tf

    multiply, *shapes = MEMORY_BOUND[name]
    x, y = (np.random.default_rng(5).standard_normal(shape).astype(np.float32) for shape in shapes)
    request = request_of(lambda x, y: tf.tanh(multiply(tf, x * 0.5, tf.cos(y))) + 0.25, x, y)
    assert all(op in request.body for op in (name.split()[0].strip(",").encode(), b"Tanh", b"Cos"))
    assert compiled(tmp_path, request).metadata.check.against_reference


XLAS_OWN: dict[str, Callable[[Any, Any], Any]] = {
    "a gradient times zero": lambda tf, x: tf.raw_ops.ReluGrad(gradients=tf.math.rsqrt(tf.nn.relu(x)), features=x),
    "the gradient of a root": lambda tf, x: tf.raw_ops.SqrtGrad(y=tf.nn.relu(x), dy=tf.nn.relu(x)),
    "an integer of NaN": lambda tf, x: tf.cast(tf.clip_by_value(x, -1.0, 1.0), tf.int32),
    "a small integer of NaN": lambda tf, x: tf.cast(tf.clip_by_value(x, -1.0, 1.0), tf.int8),
    "the gradient of selu": lambda tf, x: tf.raw_ops.SeluGrad(gradients=tf.cos(x), outputs=tf.nn.relu(x)),
}


@pytest.mark.parametrize("name", XLAS_OWN)
def test_a_kernel_that_is_xlas_and_not_tensorflows_on_rare_data_is_refused(
    name: str, request_of: Any, tmp_path: pathlib.Path
) -> None:
    """As a body would be in which nothing is spelled out."""
    import tensorflow as tf

    x = np.linspace(-2, 2, 240, dtype=np.float32).reshape(40, 6)
    request = request_of(lambda x: (XLAS_OWN[name](tf, x), tf.tanh(x) * 2.0), x)
    assert request.fallback, "the operator is spelled out"
    line = refused(tmp_path / "xla", replace(request, body=request.fallback, fallback=b""))
    assert "not what the framework computes" in line
    assert compiled(tmp_path / "ours", request)
