"""Hoists a recurrent layer's product with its input: one product for all time steps, before the loop.

    rows -> TensorListFromTensor -> Enter -> TensorListGetItem[t] -> MatMul(., W)              in the loop, becomes
    rows -> StitchfleetRowsProduct(., W) -> TensorListFromTensor -> Enter -> TensorListGetItem[t]

Such a product does not depend on the previous iteration. With a small batch it reads all of W for a few rows at each time step, and
so takes the time of reading W from memory: that was more than half of ASR's step, whose layers read 2 MiB per iteration. One product
for all time steps reads W once. cuDNN does the same (Appleyard et al. 2016, "Optimizing Performance of Recurrent Neural Networks on
GPUs", section 3.2.1). The kernel is TensorFlow's, with more rows: its sums may be rounded differently from those of a few rows.

W, and a bias that TensorFlow has fused onto the product, must enter the loop as constants of its frame, or be computed in the loop
from such constants by operators that only rearrange or convert elements: Keras 3's GRU splits its bias at each time step. Copies of
these operators then compute the value before the loop. The list must enter as a constant too, and must be made from one tensor
before the loop. A product in a branch stays, as it may not be computed at every time step.

TensorFlow may have fused an operator onto the product that needs a value of the iteration: with oneDNN, the sum of a SimpleRNN's
product and its state's. This operator and those after it are taken off the product again and stay in the loop:

    _FusedMatMul[BiasAdd, Add](x[t], W, bias, state)   becomes   AddV2(_FusedMatMul[BiasAdd](rows, W, bias)[t], state)

Here too the rounding may differ: oneDNN begins the product's sum with the state, AddV2 adds it to the rounded sum.
"""

from __future__ import annotations

from typing import Any

from ..base.dtypes import DT_INT32, DT_VARIANT
from ..base.edges import control_inputs
from ..graph.control_flow import Liveness, analyse
from ..graph.fused import FUSED_WITH_PRODUCT, operands_of_fused
from ..graph.node_defs import RefusalOf, serialized, without_inputs
from ..graph.placed_graph import PlacedGraph, Port
from .variables import add_enter, is_constant_enter

ROWS_PRODUCT_OP = "StitchfleetRowsProduct"
_PRODUCTS = frozenset(("MatMul", "_FusedMatMul"))
_REARRANGES = frozenset("Cast ExpandDims Reshape Slice Split SplitV Squeeze StridedSlice Transpose Unpack".split())
"""Operators that are copied to before the loop with an operand of a product."""


def hoist_products(graph: Any, refusal_of: RefusalOf) -> int:
    """Hoists the products of recurrent layers with their inputs out of the loops of a placed GraphDef, in place. Returns their
    number.

    refusal_of: maps a serialized NodeDef to the reason why TensorFlow cannot create its operator, "" if it can. If it cannot, the
    product stays.
    """
    if not any(node.op == "TensorListGetItem" for node in graph.node):
        return 0
    placed = PlacedGraph(graph)
    live = analyse(placed)
    hoisted = 0
    for node in placed.nodes:
        if node.op in _PRODUCTS and live.frame[node.index] and not node.proto.attr["transpose_a"].b:
            hoisted += _hoist(graph, placed, live, node.index, refusal_of)
    return hoisted


def _through(placed: PlacedGraph, port: Port) -> Port:
    """The port that a value comes from, without the Identities in between."""
    while placed.nodes[port.node].op == "Identity":
        port = placed.nodes[port.node].inputs[0]
    return port


def _entered(placed: PlacedGraph, port: Port) -> int | None:
    """The constant Enter that a value came through; None if it came another way."""
    node = placed.nodes[_through(placed, port).node]
    return node.index if is_constant_enter(node.proto) else None


def _value_before(placed: PlacedGraph, port: Port, name: str, wait: list[str], copies: dict[int, Any]) -> str | None:
    """The input text of a node outside the loop that has the value of `port`; None if the value may differ between iterations.

    name: the beginning of the names of copied nodes. wait: the control inputs of copied constants. copies: node -> NodeDef of its
    copy outside; new copies are added, producers first.
    """
    port = _through(placed, port)
    node = placed.nodes[port.node]
    if is_constant_enter(node.proto):
        return str(node.proto.input[0])
    if node.device_type != "CPU" or not (node.op == "Const" or node.op in _REARRANGES):
        return None
    if port.node not in copies:
        inputs = [_value_before(placed, source, name, wait, copies) for source in node.inputs]
        copy = without_inputs(node.proto)
        for text in inputs or wait:
            if text is None:
                return None
            copy.input.append(text)
        copy.name = f"{name}_{len(copies)}"
        copies[port.node] = copy
    found = str(copies[port.node].name)
    return f"{found}:{port.index}" if port.index else found


def _hoist(graph: Any, placed: PlacedGraph, live: Liveness, index: int, refusal_of: RefusalOf) -> bool:
    product = placed.nodes[index]
    item = placed.nodes[_through(placed, product.inputs[0]).node]
    if product.device_type != "CPU" or item.op != "TensorListGetItem" or live.key(item.index) != live.key(index):
        return False
    listed = _entered(placed, item.inputs[0])
    if listed is None:
        return False
    made = placed.nodes[_through(placed, placed.nodes[listed].inputs[0]).node]
    if made.op != "TensorListFromTensor" or live.frame[made.index] == live.frame[listed]:
        return False
    copies: dict[int, Any] = {}
    # A constant is in the frame of what it waits for: if the loop is inside another one, its constants must wait for a value there.
    wait = [f"^{placed.nodes[made.inputs[0].node].name}"] if live.frame[made.index] else []
    before: list[str] = []  # the product's other operands outside the loop, up to the first that is not known there
    for port in product.inputs[1:]:
        more = dict(copies)
        operand = _value_before(placed, port, f"{product.name}/stitchfleet_operand", wait, more)
        if operand is None:
            break
        before.append(operand)
        copies = more
    if not before:
        return False
    inside = _operators_inside(product.proto, len(before))
    if any(op not in FUSED_WITH_PRODUCT for op, _ in inside):
        return False
    rows = _rows_product(product.proto, [str(made.proto.input[0]), *before], len(inside))
    if refusal_of(bytes(rows.SerializeToString())):
        return False
    graph.node.extend([*copies.values(), rows])
    dtype = product.proto.attr["T"].type

    def add(op: str, name: str, inputs: list[str]) -> Any:
        return graph.node.add(
            name=f"{product.name}/stitchfleet_{name}", op=op, device=product.proto.device, input=inputs
        )

    shape = add("Const", "shape", wait)
    shape.attr["dtype"].type = DT_INT32
    value = shape.attr["value"].tensor
    value.dtype = DT_INT32
    value.tensor_shape.dim.add().size = 2
    value.int_val.extend((-1, -1))  # any matrix
    products = add("TensorListFromTensor", "list", [rows.name, shape.name])
    products.attr["element_dtype"].type = dtype
    products.attr["shape_type"].type = DT_INT32
    enter = placed.nodes[listed].proto
    entered_list = add_enter(graph, enter, f"{product.name}/stitchfleet_enter_0", products.name, DT_VARIANT)  # a list
    # The shape waits for the list: if the loop is in a branch that is not taken, neither may enter.
    entered_shape = add_enter(
        graph, enter, f"{product.name}/stitchfleet_enter_1", shape.name, DT_INT32, [f"^{products.name}"]
    )
    control = control_inputs(product.proto)
    items = [entered_list.name, item.proto.input[1], entered_shape.name, *control]
    # The last node has the product's name.
    nodes = [add("", f"inside_{i}", []) for i in range(len(inside))] + [product.proto]
    _become(nodes[0], "TensorListGetItem", items, element_dtype=dtype)
    for (op, others), previous, node in zip(inside, nodes[:-1], nodes[1:], strict=True):
        _become(node, FUSED_WITH_PRODUCT[op], [previous.name, *others], T=dtype)
    return True


def _operators_inside(product: Any, before: int) -> list[tuple[str, list[str]]]:
    """The operators fused onto a product that need a value of the iteration, and those after them: each one's entry in `fused_ops`
    and its inputs besides the product.

    before: the number of the product's operands, besides the rows, that are known before the loop. The first is the matrix."""
    if product.op != "_FusedMatMul":  # a look at an attribute that it lacks would add it
        return []
    inside: list[tuple[str, list[str]]] = []
    taken = 0
    for op, inputs in operands_of_fused(product):
        taken += len(inputs)
        if inside or taken >= before:
            inside.append((op, inputs))
    return inside


def _become(node: Any, op: str, inputs: list[str], **types: int) -> None:
    """Makes a NodeDef one of another operator, under its name and on its device."""
    node.op = op
    del node.input[:]
    node.input.extend(inputs)
    for attribute in list(node.attr):
        del node.attr[attribute]
    for attribute, dtype in types.items():
        node.attr[attribute].type = dtype


def _rows_product(product: Any, inputs: list[str], inside: int) -> Any:
    """The NodeDef of the product of all rows. inputs: the rows, then the product's other operands outside the loop. inside: how many
    of the operators fused onto the product stay in the loop."""
    definition = without_inputs(product)
    if inside:
        del definition.attr["fused_ops"].list.s[-inside:]
        definition.attr["num_args"].i = len(inputs) - 2
    if definition.op == "_FusedMatMul" and not definition.attr["fused_ops"].list.s:
        definition.op = "MatMul"
        for attribute in [name for name in definition.attr if name not in ("T", "transpose_a", "transpose_b")]:
            del definition.attr[attribute]
    rows = type(product)(
        name=f"{product.name}/stitchfleet_rows", op=ROWS_PRODUCT_OP, device=product.device, input=inputs
    )
    rows.attr["T"].type = product.attr["T"].type
    rows.attr["count"].i = len(inputs) - 1
    rows.attr["product"].s = serialized(definition)
    return rows
