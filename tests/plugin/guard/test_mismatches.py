"""Comparisons that fail in the op: whatever was set to SUSPECT is reported with its tensors, however many fail at once."""

from __future__ import annotations

import pathlib
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from stitchfleet.compiler.kernel.metadata import KernelMetadata, TensorType
from stitchfleet.plugin.native.library import MismatchReport, State

from ..conftest import ROOT, Plugin

WRONG_KERNEL = """
#include "stitch_abi.h"
extern "C" void wrong(const void* const*, void* const* outputs, void*, StitchRuntime*) { *(float*)outputs[0] = -1.0f; }
extern "C" void zeros(const void* const*, void* const* outputs, void*, StitchRuntime*) {
  for (int i = 0; i < 80 * 8; ++i) ((float*)outputs[0])[i] = 0.0f;
}
"""
"""The first writes one element of its output and leaves the others as they are in the memory that it gets."""
CLUSTERS = 7


@pytest.fixture(scope="module")
def wrong_kernel(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "wrong.cc").write_text(WRONG_KERNEL)
    command = [
        "g++",
        "-shared",
        "-fPIC",
        "-I",
        str(ROOT / "compiler" / "kernel"),
        str(folder / "wrong.cc"),
        "-o",
        str(folder / "wrong.so"),
    ]
    subprocess.run(command, check=True)
    return folder / "wrong.so"


def described(symbol: str, shape: tuple[int, ...]) -> KernelMetadata:
    """A kernel of one float input and one float output of the same shape."""
    tensor = TensorType("f32", shape)
    return KernelMetadata(
        symbol,
        (tensor,),
        (tensor,),
        scratch_bytes=0,
        aliases=(),
        bytes_read=tensor.size_bytes,
        bytes_written=tensor.size_bytes,
        intermediate_bytes=0,
        op_count=1,
        phases=1,
        parallel_phases=0,
        estimated_ns=0.0,
        tolerances=((1e-6, 1e-6),),
        graph_digest="",
        generator="",
        compiler="",
    )


Verifying = Callable[..., tuple[Callable[[], Any], list[int]]]


@pytest.fixture
def verifying(plugin: Plugin, wrong_kernel: pathlib.Path) -> Iterator[Verifying]:
    """verifying(rows, symbol="wrong"): a step of CLUSTERS stitch ops on so many rows of 8, and the signatures. Each has that one of
    WRONG_KERNEL as its kernel, and is in VERIFY."""
    import tensorflow as tf

    def make(rows: int, symbol: str = "wrong") -> tuple[Callable[[], Any], list[int]]:
        operand = tf.constant(np.linspace(0.5, 2.0, rows * 8, dtype=np.float32).reshape(rows, 8))
        weights = tf.eye(8)

        @tf.function(autograph=False)
        def step(x: Any) -> Any:
            for k in range(CLUSTERS):  # each of another structure; the product keeps them apart
                x = tf.sqrt(x) + 1.0
                for _ in range(k):
                    x = tf.abs(x) * 1.5
                x = tf.matmul(x, weights)
            return x

        plugin.active = True
        while plugin.library.next_request(0) is not None:
            pass  # of the tests before
        step(operand)
        signatures = []
        while (request := plugin.library.next_request(0)) is not None:
            signature: Any = request["signature"]
            signatures.append(signature)
            plugin.library.install(signature, wrong_kernel, described(symbol, (rows, 8)), [0], [1])
            assert plugin.library.move(signature, State.READY, State.VERIFY)
        assert len(signatures) == CLUSTERS
        return lambda: step(operand), signatures

    yield make
    plugin.active = False
    reports(plugin)
    while plugin.library.next_postponed() is not None:
        pass


def reports(plugin: Plugin) -> list[MismatchReport]:
    found = []
    while (report := plugin.library.next_mismatch()) is not None:
        found.append(report)
    return found


def states(plugin: Plugin, signatures: list[int]) -> list[int]:
    return [plugin.library.statistics(signature).state for signature in signatures]


def test_every_kernel_that_is_suspect_has_been_reported(plugin: Plugin, verifying: Verifying) -> None:
    step, signatures = verifying(64)
    before = plugin.library.unverified_calls
    step()
    step()
    assert states(plugin, signatures) == [State.SUSPECT] * CLUSTERS
    assert plugin.library.unverified_calls == before + 2 * CLUSTERS
    found = reports(plugin)
    assert [report.signature for report in found] == signatures, "each once"
    for report in found:
        assert report.actual[0].ravel()[0] == -1.0
        assert (report.expected[0] >= 1.0).all()
    assert plugin.library.next_postponed() is None


@pytest.mark.slow
def test_what_there_is_no_memory_to_keep_stays_in_verification_until_there_is(
    plugin: Plugin, verifying: Verifying
) -> None:
    """Each report holds 96 MiB. A kernel that was stitched is compared in every call from then on."""
    step, signatures = verifying(1 << 20)
    for signature in signatures:
        assert plugin.library.move(signature, State.VERIFY, State.STITCHED)
    before = plugin.library.unverified_calls
    plugin.library.begin_step(5, 1, 0)  # all of them sampled
    try:
        step()
    finally:
        plugin.library.begin_step(6, 0, 0)
    assert plugin.library.unverified_calls == before, "samples are no such calls"
    kept = states(plugin, signatures).count(State.SUSPECT)
    assert 1 <= kept < CLUSTERS
    assert states(plugin, signatures).count(State.VERIFY) == CLUSTERS - kept, "none is left stitched"
    postponed = [plugin.library.next_postponed() for _ in range(CLUSTERS - kept)]
    assert plugin.library.next_postponed() is None
    judged: list[int] = []
    while len(judged) < CLUSTERS:
        found = [report.signature for report in reports(plugin)]
        assert found, "one more call reports what had to wait"
        judged += found
        step()
    assert sorted(judged) == sorted(signatures)
    assert set(postponed) == set(judged[kept:])


def test_calls_of_one_kernel_that_fail_in_one_step_are_one_report(plugin: Plugin, verifying: Verifying) -> None:
    step, signatures = verifying(72)
    step()
    (first, *_) = reports(plugin)
    assert plugin.library.move(first.signature, State.SUSPECT, State.VERIFY), "the guard has found it right"
    step()
    step()
    assert [report.signature for report in reports(plugin)] == [first.signature]
    assert states(plugin, signatures) == [State.SUSPECT] * CLUSTERS


def test_what_the_guard_has_allowed_is_not_taken_back(plugin: Plugin, verifying: Verifying) -> None:
    """The oracle's bound goes with the size of a step's numbers: a smaller one of another step would make the next one suspect."""
    step, signatures = verifying(80, "zeros")
    step()
    reports(plugin)
    first, second = signatures[:2]
    for signature, bounds in ((first, (1e3, 1e-3)), (second, (1e-3, 1e-3))):
        for bound in bounds:
            plugin.library.allow(signature, 0, bound)
        assert plugin.library.move(signature, State.SUSPECT, State.VERIFY)
    step()
    assert states(plugin, [first, second]) == [State.VERIFY, State.SUSPECT]
