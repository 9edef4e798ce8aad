"""Numbers of TensorFlow's DataType, as in a GraphDef (tensorflow/core/framework/types.proto), and the sets of them that several
modules ask for. The numbers are written out here because they are read where TensorFlow is not imported."""

from __future__ import annotations

DT_FLOAT = 1
DT_DOUBLE = 2
DT_INT32 = 3
DT_UINT8 = 4
DT_INT16 = 5
DT_INT8 = 6
DT_INT64 = 9
DT_BOOL = 10
DT_BFLOAT16 = 14
DT_UINT16 = 17
DT_HALF = 19
DT_RESOURCE = 20
DT_VARIANT = 21
DT_UINT32 = 22
DT_UINT64 = 23
REFERENCES = 100
"""Numbers above it are references to variables (TensorFlow 1)."""

WIDE_FLOATS = frozenset((DT_FLOAT, DT_DOUBLE))
"""float32 and float64: sums of other floats are rounded between their terms, or made in another dtype."""
PRODUCT_FLOATS = WIDE_FLOATS | {DT_BFLOAT16}
"""Floats whose matrix products a processor's library adds up in float32 or float64."""
FLOATS = WIDE_FLOATS | {DT_BFLOAT16, DT_HALF}
INTEGERS = frozenset((DT_INT8, DT_INT16, DT_INT32, DT_INT64, DT_UINT8, DT_UINT16, DT_UINT32, DT_UINT64))
INDEX_INTEGERS = frozenset((DT_INT32, DT_INT64))
"""Dtypes of indices, extents and axes."""
KERNEL_DTYPES = FLOATS | INTEGERS | {DT_BOOL}
"""The element types that kernels have (compiler.ir.graph.DType)."""
