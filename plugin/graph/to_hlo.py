"""Lowers a cluster's body to HLO, by TensorFlow's own bridge. Runs in the compile service, which imports TensorFlow for it.

Arguments with known values (shapes, axes) become constants; the HLO's parameters are the other arguments in their order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.edges import node_of
from ..native.library import numpy_dtype


class LoweringError(Exception):
    """TensorFlow cannot lower the cluster. The text is the reason, in one line.

    ops: the TensorFlow operators at fault, if TensorFlow's message names them. is_certain: whether it would fail again; False for
    a lack of memory and the like.
    """

    def __init__(self, line: str, ops: tuple[str, ...] = (), is_certain: bool = True) -> None:
        super().__init__(line)
        self.ops = ops
        self.is_certain = is_certain


@dataclass(frozen=True)
class Argument:
    """One input of a Stitch op in a call: DataType number, shape, and the raw bytes if lowering needs the value."""

    dtype: int
    shape: tuple[int, ...]
    value: bytes | None = None

    @classmethod
    def from_json(cls, described: Mapping[str, Any]) -> Argument:
        """Reads the form that the op's request, messages and bundles share. Raises KeyError, TypeError or ValueError for another."""
        value = bytes.fromhex(described["value"]) if "value" in described else None
        return cls(int(described["dtype"]), tuple(int(extent) for extent in described["shape"]), value)

    def to_json(self) -> dict[str, Any]:
        """The form that `from_json` reads; the value is in hexadecimal."""
        described: dict[str, Any] = {"dtype": self.dtype, "shape": list(self.shape)}
        return described if self.value is None else {**described, "value": self.value.hex()}

    def constant(self) -> np.ndarray[Any, Any]:
        """The value as an array. Raises ValueError if it is not known."""
        if self.value is None:
            raise ValueError("this argument has no known value")
        return np.frombuffer(self.value, numpy_dtype(self.dtype)).reshape(self.shape)


def kernel_inputs(arguments: Sequence[Argument]) -> list[int]:
    """Positions of the arguments that are the HLO's parameters, in order."""
    return [i for i, argument in enumerate(arguments) if argument.value is None]


def lower(body: bytes, arguments: Sequence[Argument]) -> bytes:
    """Lowers a body, a serialized FunctionDefLibrary of one function, to HLO on the CPU. arguments: its arguments in a call, in
    order. Returns a serialized HloModuleProto. Raises LoweringError."""
    import tensorflow as tf

    function = body_function(body)

    def wrapped(*parameters: Any) -> Any:
        given = iter(parameters)
        values = [
            tf.constant(argument.constant()) if argument.value is not None else next(given) for argument in arguments
        ]
        return function(*values)

    specs = [tf.TensorSpec(argument.shape, argument.dtype) for argument in arguments if argument.value is None]
    try:
        with tf.device("/device:CPU:0"):
            compiled = tf.function(wrapped, jit_compile=True, autograph=False)
            return bytes(compiled.experimental_get_compiler_ir(*specs)(stage="hlo_serialized"))
    except Exception as error:
        text = " ".join(str(error).split())
        found = re.findall(r"(\w+) \(No registered '(\w+)' OpKernel|No registered '(\w+)' OpKernel", text)
        ops = tuple(dict.fromkeys(name for groups in found for name in groups[1:] if name))
        passing = isinstance(error, (MemoryError, OSError, tf.errors.ResourceExhaustedError))
        raise LoweringError(f"TensorFlow cannot lower it: {text[:300]}", ops, is_certain=not passing) from error


def body_function(body: bytes) -> Any:
    """The function of a serialized FunctionDefLibrary as a callable that maps tensors to a tuple of tensors."""
    import tensorflow as tf
    from tensorflow.core.framework import function_pb2
    from tensorflow.python.framework import function_def_to_graph

    library: Any = function_pb2.FunctionDefLibrary()
    library.ParseFromString(body)
    definition = library.function[0]

    def call(*values: Any) -> Any:
        graph = function_def_to_graph.function_def_to_graph(definition)
        named = {tensor.name: value for tensor, value in zip(graph.inputs, values)}
        placeholders = {tensor.op.name for tensor in graph.inputs}
        nodes = graph.as_graph_def()
        kept = [node for node in nodes.node if node.name not in placeholders]
        del nodes.node[:]
        nodes.node.extend(kept)
        # a result that is an argument (an assign of a value just read) is not a node of the body
        computed = [tensor.name for tensor in graph.outputs if tensor.op.name not in placeholders]
        read = {node_of(name) for node in kept for name in node.input}
        given = {name: value for name, value in named.items() if node_of(name) in read}
        results = iter(tf.graph_util.import_graph_def(nodes, input_map=given, return_elements=computed, name=""))
        return tuple(
            tf.identity(named[tensor.name]) if tensor.op.name in placeholders else next(results)
            for tensor in graph.outputs
        )

    return call
