"""Einsums become batches of matrix products of transposed operands; the transposes are operators that a cluster can have.

    Einsum "BTNH,BSNH->BNTS" of x, y      becomes      BatchMatMulV2(Transpose(x), Transpose(y), adj_y=True), of BNTH and BNSH

TensorFlow's kernel computes it in this way too, but with transposes of its own, which take several times as long as the products of
an attention and cannot be merged with what lies around them. XLA too makes products of einsums, and merges the transposes.

The products are rounded differently in the last bit, so the new op has the einsum's own operands as well: its first calls do both and
compare them (native/products/batch_product_op.cc).

An einsum of two operands qualifies if its letters are these, each at most once in an operand or in the result:

    batch   in both operands and in the result; at least one
    M       in the first operand and in the result; exactly one
    N       in the second operand and in the result; exactly one
    K       in both operands, summed over; exactly one
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ..base.dtypes import DT_INT32, WIDE_FLOATS
from ..base.edges import control_inputs, data_inputs, node_of
from .memory_bound import letters_of
from .node_defs import RefusalOf, copy_of, replace, serialized, without_inputs
from .placed_graph import device_type
from .tf_ops import MEMORY_BOUND

EINSUM_OP: Final = "StitchfleetEinsum"


@dataclass(frozen=True)
class Factors:
    """An einsum as transposes and a BatchMatMul. Each text has one letter per dimension. operands: the einsum's operands, in
    the order in which the BatchMatMul takes them; first, second: these operands after their transposes. is_swapped: whether the
    BatchMatMul takes the einsum's second operand first. adj_x, adj_y: the BatchMatMul's flags. product: its result. result: the
    einsum's result."""

    operands: tuple[str, str]
    first: str
    second: str
    is_swapped: bool
    adj_x: bool
    adj_y: bool
    product: str
    result: str


def factors(equation: str) -> Factors | None:
    """How an einsum is computed by a batch of products; None if it does not qualify (see the module). equation: as
    "BTNH,BSNH->BNTS"."""
    lists = letters_of(equation)
    if len(lists) != 3 or any(not word.isalpha() or len(set(word)) != len(word) for word in lists):
        return None
    x, y, result = lists
    batch = [letter for letter in result if letter in x and letter in y]
    rows = [letter for letter in x if letter in result and letter not in y]
    columns = [letter for letter in y if letter in result and letter not in x]
    summed = [letter for letter in x if letter in y and letter not in result]
    if not batch or [len(rows), len(columns), len(summed)] != [1, 1, 1]:
        return None
    if len(x) != len(batch) + 2 or len(y) != len(batch) + 2 or len(result) != len(batch) + 2:
        return None  # a letter that only one list has
    (m,), (n,), (k,) = rows, columns, summed
    is_swapped = result.index(n) < result.index(m)
    if is_swapped:
        (x, m), (y, n) = (y, n), (x, m)
    # The operand's last two letters keep their order, so that a transpose moves long runs of elements.
    first, second = _in_order(x, m, k), _in_order(y, k, n)
    letters = "".join(batch)
    return Factors(
        (x, y), letters + first, letters + second, is_swapped, first != m + k, second != k + n, letters + m + n, result
    )


def _in_order(operand: str, first: str, second: str) -> str:
    return first + second if operand.index(first) < operand.index(second) else second + first


def expand(graph: Any, refusal_of: RefusalOf) -> int:
    """Replaces the einsums of a placed GraphDef that qualify (see the module), in place. Returns their number. refusal_of: if it
    returns a reason for the new op, the einsum stays."""
    count = 0
    for node in [node for node in graph.node if node.op == "Einsum" and _is_plain(node)]:
        found = factors(node.attr["equation"].s.decode())
        if found is not None:
            count += _expand(graph, node, found, refusal_of)
    return count


def _is_plain(node: Any) -> bool:
    return device_type(node.device) == "CPU" and node.attr["T"].type in WIDE_FLOATS and MEMORY_BOUND not in node.attr


def _expand(graph: Any, node: Any, found: Factors, refusal_of: RefusalOf) -> bool:
    """Makes a product of an einsum. Returns whether it did."""
    name = str(node.name)
    data = data_inputs(node)
    added: list[Any] = []
    turned = []
    sources = zip(data[::-1] if found.is_swapped else data, found.operands, (found.first, found.second), strict=True)
    for number, (source, letters, wanted) in enumerate(sources):
        if letters != wanted:
            made = _transpose(node, f"{name}/stitchfleet_operand_{number}", source, letters, wanted, source)
            added += made
            source = str(made[0].name)
        turned.append(source)
    is_last = found.product == found.result
    product = copy_of(node)
    product.name, product.op = name if is_last else f"{name}/stitchfleet_product", EINSUM_OP
    del product.input[:]
    product.input.extend([*data, *turned, *control_inputs(node)])
    for key in ("N", "equation"):
        product.attr.pop(key, None)
    product.attr["adj_x"].b, product.attr["adj_y"].b = found.adj_x, found.adj_y
    product.attr["permutation"].list.i.extend(_permutation(found.result, found.product))
    product.attr["einsum"].s = serialized(without_inputs(node))
    if not replace(node, product, refusal_of):
        return False
    if not is_last:
        last, constant = _transpose(node, name, product.name, found.product, found.result, product.name)
        added += [copy_of(node), constant]
        node.CopyFrom(last)
    graph.node.extend(added)
    return True


def _permutation(given: str, wanted: str) -> list[int]:
    return [given.index(letter) for letter in wanted]


def _transpose(node: Any, name: str, source: str, given: str, wanted: str, anchor: str) -> tuple[Any, Any]:
    """A Transpose and its constant. The constant runs after `anchor`, and so in its frame of a loop."""
    from tensorflow.python.framework import tensor_util

    constant, made = type(node)(), type(node)()
    constant.name, constant.op, constant.device = f"{name}/stitchfleet_permutation", "Const", node.device
    constant.input.append("^" + node_of(anchor))
    constant.attr["dtype"].type = DT_INT32
    constant.attr["value"].tensor.CopyFrom(tensor_util.make_tensor_proto(_permutation(given, wanted), dtype="int32"))
    made.name, made.op, made.device = name, "Transpose", node.device
    made.input.extend([source, constant.name])
    made.attr["T"].type, made.attr["Tperm"].type = node.attr["T"].type, DT_INT32
    return made, constant
