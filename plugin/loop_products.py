"""A recurrent layer's product with its input leaves the loop: of all points in time at once, before it.

    rows -> TensorListFromTensor -> Enter -> TensorListGetItem[t] -> MatMul(., W)              in the loop, becomes
    rows -> StitchfleetRowsProduct(., W) -> TensorListFromTensor -> Enter -> TensorListGetItem[t]

Such a product does not depend on the iteration before. With a small batch it reads the whole of W for a few rows at each point in
time and so takes as long as W takes to come from memory: of ASR's step, whose layers read 2 MiB an iteration, that was more than
half. All at once it reads W once. cuDNN does the same (Appleyard et al. 2016, "Optimizing Performance of Recurrent Neural Networks
on GPUs", section 3.2.1). The kernel is TensorFlow's, of more rows: its sums may be rounded otherwise than those of a few rows.

W, and a bias that TensorFlow has fused onto the product, must enter the loop as constants of its frame, and the list as well, made of
one tensor before it. A product in a branch stays, as it may not be computed at each point in time.
"""

from __future__ import annotations

from typing import Any

from .control_flow import Liveness, analyse
from .placed_graph import PlacedGraph, Port

ROWS_PRODUCT_OP = "StitchfleetRowsProduct"
_PRODUCTS = frozenset(("MatMul", "_FusedMatMul"))
_INT32, _VARIANT = 3, 21
"""DataType numbers; a list is a variant."""


def hoist_products(graph: Any) -> int:
    """Changes `graph`, a placed GraphDef; returns how many products left their loops."""
    if not any(node.op == "TensorListGetItem" for node in graph.node):
        return 0
    placed = PlacedGraph(graph)
    live = analyse(placed)
    hoisted = 0
    for node in list(placed.nodes):
        if node.op in _PRODUCTS and live.frame[node.index] and not node.proto.attr["transpose_a"].b:
            hoisted += _hoist(graph, placed, live, node.index)
    return hoisted


def _through(placed: PlacedGraph, port: Port) -> Port:
    """Where a value comes from that Identities hand on."""
    while placed.nodes[port.node].op == "Identity":
        port = placed.nodes[port.node].inputs[0]
    return port


def _entered(placed: PlacedGraph, port: Port) -> int | None:
    """The constant Enter that a value came through, None where it came another way."""
    node = placed.nodes[_through(placed, port).node]
    return node.index if node.op == "Enter" and node.proto.attr["is_constant"].b else None


def _hoist(graph: Any, placed: PlacedGraph, live: Liveness, index: int) -> bool:
    product = placed.nodes[index]
    item = placed.nodes[_through(placed, product.inputs[0]).node]
    if item.op != "TensorListGetItem" or live.key(item.index) != live.key(index):
        return False
    listed = _entered(placed, item.inputs[0])
    others = [_entered(placed, port) for port in product.inputs[1:]]
    if listed is None or None in others:
        return False
    made = placed.nodes[_through(placed, placed.nodes[listed].inputs[0]).node]
    if made.op != "TensorListFromTensor" or live.frame[made.index] == live.frame[listed]:
        return False
    enter = placed.nodes[listed].proto
    base = f"{product.name}/stitchfleet"

    def add(op: str, name: str, inputs: list[str]) -> Any:
        return graph.node.add(name=f"{base}_{name}", op=op, device=product.proto.device, input=inputs)

    def outside(i: int) -> str:
        return str(next(text for text in placed.nodes[i].proto.input if not text.startswith("^")))

    dtype = product.proto.attr["T"].type
    rows = add(ROWS_PRODUCT_OP, "rows", [made.proto.input[0], *(outside(i) for i in others if i is not None)])
    rows.attr["T"].type = dtype
    rows.attr["count"].i = len(others)
    definition = type(product.proto)()
    definition.CopyFrom(product.proto)
    definition.attr.pop("_class", None)
    del definition.input[:]
    rows.attr["product"].s = definition.SerializeToString(deterministic=True)
    any_matrix = add("Const", "shape", [])
    any_matrix.attr["dtype"].type = _INT32
    value = any_matrix.attr["value"].tensor
    value.dtype = _INT32
    value.tensor_shape.dim.add().size = 2
    value.int_val.extend((-1, -1))
    products = add("TensorListFromTensor", "list", [rows.name, any_matrix.name])
    products.attr["element_dtype"].type = dtype
    products.attr["shape_type"].type = _INT32
    waits = [text for text in enter.input if text.startswith("^")]
    for name, source, kind in (("enter", products, _VARIANT), ("enter_shape", any_matrix, _INT32)):
        entered = add("Enter", name, [source.name, *waits])
        entered.attr["T"].type = kind
        for attribute in ("frame_name", "is_constant", "parallel_iterations"):
            entered.attr[attribute].CopyFrom(enter.attr[attribute])
    control = [text for text in product.proto.input if text.startswith("^")]
    product.proto.op = "TensorListGetItem"
    for attribute in list(product.proto.attr):
        del product.proto.attr[attribute]
    product.proto.attr["element_dtype"].type = dtype
    del product.proto.input[:]
    product.proto.input.extend([f"{base}_enter", item.proto.input[1], f"{base}_enter_shape", *control])
    return True
