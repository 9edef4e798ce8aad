"""A cluster's function as TensorFlow's own operators compute it, to compare a kernel with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from stitchfleet.compiler.check.conditioning import Reference, RefusedInputsError

from ..base.dtypes import DT_INT32, FLOATS
from ..clusters import rare_data
from ..graph import to_hlo
from ..graph.apply_ops import Expressions
from ..graph.to_hlo import Argument


def reference(body: bytes, arguments: Sequence[Argument], outputs: int) -> Reference:
    """A function that maps the kernel's inputs to TensorFlow's own results. It raises RefusedInputsError if TensorFlow's operators
    raise an error.

    A row of a Softmax and a segment's maximum or minimum are NaN if an element is, as documented and as in the kernel
    (clusters/rare_data.py). The CPU kernels return zeros at some positions of such a row, and the extreme of a segment's elements
    after its last NaN; what decides by them (an ArgMax, the gradient's Equal) would then decide otherwise. Likewise NaN and values
    out of an integer's range are cast to the table's integer at all positions.

    body: a serialized FunctionDefLibrary. arguments: the op's. outputs: the number of the kernel's results.
    """
    made: list[Any] = []

    def run(inputs: Sequence[Any]) -> list[Any]:
        import tensorflow as tf

        if not made:
            made.append(tf.function(to_hlo.body_function(_with_one_meaning(body)), autograph=False))
        given = iter(inputs)
        values = [argument.constant() if argument.value is not None else next(given) for argument in arguments]
        refusals = (tf.errors.InvalidArgumentError, tf.errors.OutOfRangeError, tf.errors.FailedPreconditionError)
        try:
            results = made[0](*map(tf.constant, values))
        except refusals as error:
            raise RefusedInputsError(f"{type(error).__name__}: {' '.join(error.message.split())[:300]}") from error
        found = [result.numpy() for result in results]
        # The compiled function has one more result if its operators have demands: that these are met.
        return found + [np.array(True)] * (outputs - len(found))

    return run


def _with_one_meaning(body: bytes) -> bytes:
    """The body with nodes after each operator of _SPREADS, and instead of some casts, so that no result depends on an element's
    position in a tensor. Results that do not, stay as they are."""
    from tensorflow.core.framework import function_pb2

    library: Any = function_pb2.FunctionDefLibrary()
    library.ParseFromString(body)
    for function in library.function:
        instead: dict[str, str] = {}
        for node in list(function.node_def):  # producers come first
            node.input[:] = [instead.get(name, name) for name in node.input]
            if node.op in _SPREADS and int(node.attr["T"].type) in FLOATS:
                output, spread = _SPREADS[node.op]
                instead[f"{node.name}:{output}:0"] = spread(function, node)
            elif rare_data.is_cast_by_position(node):
                instead[f"{node.name}:y:0"] = rare_data.cast_at_all_positions(function, node.name, node, node.input[0])
        for result, name in list(function.ret.items()):
            function.ret[result] = instead.get(name, name)
    return bytes(library.SerializeToString())


def _rows_of_nan(function: Any, softmax: Any) -> str:
    """Appends y + (sum(y) - sum(y)) for the rows y of a Softmax, which is NaN throughout a row that has one, and returns the name of
    the result."""
    y, prefix = f"{softmax.name}:softmax:0", f"{softmax.name}_rows"
    nodes = Expressions(function, prefix, int(softmax.attr["T"].type))
    total = nodes.bare("Sum", y, nodes.of(DT_INT32).constant([-1]))
    total.attr["T"].type, total.attr["Tidx"].type = int(softmax.attr["T"].type), DT_INT32
    total.attr["keep_dims"].b = True
    zero = nodes.node("Sub", "z", f"{total.name}:output:0", f"{total.name}:output:0")
    return nodes.node("AddV2", "z", y, zero)


def _segments_of_nan(function: Any, segments: Any) -> str:
    """Appends nodes that make NaN the extremes of segments that have one, and returns the name of the result: the sums of the
    segments' NaN and of zeros are NaN there, and 0 elsewhere."""
    x, y = segments.input[0], f"{segments.name}:output:0"
    nodes = Expressions(function, f"{segments.name}_segments", int(segments.attr["T"].type))
    missing = nodes.node("SelectV2", "output", nodes.node("NotEqual", "z", x, x), x, nodes.node("ZerosLike", "y", x))
    total = nodes.bare("UnsortedSegmentSum", missing, *segments.input[1:])
    for name in ("T", "Tindices", "Tnumsegments"):
        total.attr[name].CopyFrom(segments.attr[name])
    sums = f"{total.name}:output:0"
    return nodes.node("SelectV2", "output", nodes.node("NotEqual", "z", sums, sums), sums, y)


_SPREADS: Final = {
    "Softmax": ("softmax", _rows_of_nan),
    "UnsortedSegmentMax": ("output", _segments_of_nan),
    "UnsortedSegmentMin": ("output", _segments_of_nan),
}
"""An operator -> its output, and what appends the nodes after it."""
