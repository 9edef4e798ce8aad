"""Calls products by themselves and times them. `products` starts it with a workload's Python; it is not for use by hand.

    products_alone.py IN OUT

IN: JSON, a list of {"op", "operands": [[dtype, shape], ...], "attributes"}.
OUT: JSON, for each {"us": median of a call in microseconds, "threads": processor time divided by wall time}, or null for a product
that cannot be called by itself.

It needs nothing but TensorFlow.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

_SECONDS, _MOST, _WARM = 0.4, 200, 3
_LARGEST_BYTES = 1 << 30
"""A product whose operands are larger is not called."""
_TYPES = {"float": "float32", "double": "float64", "half": "float16"}


def _arguments(product: dict[str, Any], tensors: Sequence[Any]) -> dict[str, Any] | None:
    """The arguments of the raw operator."""
    given = product["attributes"]
    op = product["op"]
    if op == "MatMul":
        turned = {name: given.get(name) for name in ("transpose_a", "transpose_b")}
        return {"a": tensors[0], "b": tensors[1], **turned}
    if op.startswith("BatchMatMul"):
        return {"x": tensors[0], "y": tensors[1], "adj_x": given.get("adj_x"), "adj_y": given.get("adj_y")}
    if op == "Einsum":
        return {"inputs": tensors, "equation": given["equation"]}
    window = {name: given[name] for name in ("strides", "padding", "data_format", "dilations") if given.get(name)}
    if given.get("explicit_paddings") and op.startswith("Conv2D"):
        window["explicit_paddings"] = given["explicit_paddings"]
    if op in ("Conv2D", "Conv3D"):
        return {"input": tensors[0], "filter": tensors[1], **window}
    if op.endswith("BackpropInput"):
        return {"input_sizes": given["input 0"], "filter": tensors[1], "out_backprop": tensors[2], **window}
    if op.endswith("BackpropFilter"):
        return {"input": tensors[0], "filter_sizes": given["input 1"], "out_backprop": tensors[2], **window}
    return None


def _timed(call: Callable[[], Any]) -> dict[str, float]:
    for _ in range(_WARM):
        call()
    found: list[float] = []
    began, processor = time.perf_counter(), time.process_time()
    while len(found) < 5 or (len(found) < _MOST and time.perf_counter() - began < _SECONDS):
        started = time.perf_counter()
        call()
        found.append(time.perf_counter() - started)
    wall, processor = time.perf_counter() - began, time.process_time() - processor
    return {"us": statistics.median(found) * 1e6, "threads": processor / wall}


def _measure(product: dict[str, Any]) -> dict[str, float] | None:
    import tensorflow as tf

    kinds = [tf.dtypes.as_dtype(_TYPES.get(dtype, dtype)) for dtype, _ in product["operands"]]
    shapes = [shape for _, shape in product["operands"]]
    if sum(kind.size * math.prod(shape) for kind, shape in zip(kinds, shapes)) > _LARGEST_BYTES:
        return None
    tensors = [
        tf.cast(tf.random.stateless_uniform(shape, [1, 2]), kind) if kind.is_floating else tf.zeros(shape, kind)
        for kind, shape in zip(kinds, shapes)
    ]
    arguments = _arguments(product, tensors)
    if arguments is None:
        return None
    function = getattr(tf.raw_ops, product["op"])
    rest = {name: value for name, value in arguments.items() if value is not None and not _is_given(value, tensors)}
    given = {name: value for name, value in arguments.items() if _is_given(value, tensors)}

    def call(**given: Any) -> Any:
        return function(**given, **rest)

    concrete = tf.function(call, autograph=False).get_concrete_function(**given)
    return _timed(lambda: concrete(**given))


def _is_given(value: Any, tensors: Sequence[Any]) -> bool:
    return value is tensors or any(value is tensor for tensor in tensors)


def main(source: str, result: str) -> None:
    with open(source) as text:
        products = json.load(text)
    found: list[dict[str, float] | None] = []
    for product in products:
        try:
            found.append(_measure(product))
        except Exception as error:
            print(f"{product['op']}: {error}", file=sys.stderr)
            found.append(None)
    with open(result, "w") as text:
        json.dump(found, text)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main(*sys.argv[1:])
