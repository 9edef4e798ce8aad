"""The numbers of TensorFlow's dtypes, which the plugin writes out, are TensorFlow's."""

from __future__ import annotations

import pytest

from stitchfleet.compiler.ir.graph import DType
from stitchfleet.plugin.base import dtypes
from stitchfleet.plugin.native.library import numpy_dtype

NAMES = sorted(name for name in vars(dtypes) if name.startswith("DT_"))


@pytest.mark.parametrize("name", NAMES)
def test_a_number_is_that_of_tensorflow(name: str) -> None:
    from tensorflow.core.framework import types_pb2

    assert getattr(dtypes, name) == getattr(types_pb2, name)
    assert getattr(types_pb2, f"{name}_REF") == getattr(dtypes, name) + dtypes.REFERENCES


def test_kernels_have_the_dtypes_of_the_graph_that_is_compiled() -> None:
    assert {numpy_dtype(number) for number in dtypes.KERNEL_DTYPES} == {dtype.numpy for dtype in DType}
    assert len(dtypes.KERNEL_DTYPES) == len(DType)
