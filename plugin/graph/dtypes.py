"""Numbers of TensorFlow's DataType, as in a GraphDef (tensorflow/core/framework/types.proto)."""

from __future__ import annotations

WIDE_FLOATS = frozenset((1, 2))
"""float32 and float64: sums of other floats are rounded between their terms, or made in another dtype."""
DT_FLOAT, DT_INT32, DT_INT64, DT_BOOL, DT_RESOURCE, DT_UINT32 = 1, 3, 9, 10, 20, 22
DT_BFLOAT16, DT_HALF = 14, 19
PRODUCT_FLOATS = WIDE_FLOATS | {DT_BFLOAT16}
"""Floats whose matrix products a processor's library adds up in float32 or float64."""
