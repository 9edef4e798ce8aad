"""Kernels that are run without a framework: when they are timed, they meet what they meet in TensorFlow's threads."""

from __future__ import annotations

import numpy as np
import pytest

from stitchfleet.compiler.ir.graph import DType, GraphBuilder
from stitchfleet.compiler.kernel.host_kernel import Prepared, aligned, aligned_copy

from ..native import build_all

LARGE = 1 << 20  # so many elements that threads share them


@pytest.mark.parametrize("threads", [1, 2])
def test_subnormals_are_flushed_where_a_kernel_is_timed_and_only_there(threads: int) -> None:
    builder = GraphBuilder("square")
    value = builder.add("parameter", (), (LARGE,), DType.F32, number=0)
    (built,) = build_all([builder.finish([builder.add("multiply", (value, value), (LARGE,), DType.F32)])])
    kernel = built.load()
    tiny = aligned_copy(np.full(LARGE, 1e-20, np.float32))
    (kept,) = kernel.run([tiny], threads)
    assert np.all(kept == tiny * tiny)
    assert np.all(kept > 0)
    flushed = aligned((LARGE,), np.dtype(np.float32), fill=1)
    with Prepared(kernel, [tiny], [flushed], threads) as prepared:
        prepared.call()
    assert np.all(flushed == 0)
    assert np.all(kernel.run([tiny], threads)[0] == kept)  # this thread is as it was
