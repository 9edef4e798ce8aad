"""Numbers of TensorFlow's DataType, as in a GraphDef (tensorflow/core/framework/types.proto)."""

from __future__ import annotations

DT_FLOAT, DT_INT32, DT_INT64, DT_BOOL, DT_RESOURCE, DT_UINT32 = 1, 3, 9, 10, 20, 22
