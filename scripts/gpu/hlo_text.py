"""A graph as HLO text, so that XLA compiles exactly what a stitch op computes.

hlo_text(graph)   one module whose entry has the graph's parameters and returns a tuple of its outputs
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from stitchfleet.compiler.ir.graph import DType, GatherDimensions, Graph, Literal, Node, Shape, WindowDimension
from stitchfleet.compiler.ops.reference import reduce_identity

_OPCODES: Final[Mapping[str, str]] = {
    "exp": "exponential",
    "expm1": "exponential-minus-one",
    "log1p": "log-plus-one",
    "sin": "sine",
    "cos": "cosine",
    "clz": "count-leading-zeros",
    "reduce_general": "reduce",
}
"""HLO's opcodes that differ in more than underscores."""
_REGION: Final[Mapping[str, str]] = {
    "sum": "add",
    "product": "multiply",
    "min": "minimum",
    "max": "maximum",
    "and": "and",
    "or": "or",
}


class NoHloError(ValueError):
    """HLO has no such operation, or XLA would not compile it but call a library; the text is one line."""


def hlo_text(graph: Graph) -> str:
    """The text of a module that computes the graph. Raises NoHloError if an op is none of HLO's (philox, scan, patches), or is a dot:
    a GPU's stitch ops have none."""
    writer = _Writer()
    body = writer.computation(graph)
    name = "".join(letter if letter.isalnum() else "_" for letter in graph.name)
    return "\n".join([f"HloModule {name}", *writer.regions, "ENTRY entry {", *body, "}"]) + "\n"


class _Writer:
    def __init__(self) -> None:
        self.regions: list[str] = []

    def computation(self, graph: Graph) -> list[str]:
        lines: list[str] = []
        for number, node in enumerate(graph.nodes):
            lines += self._instruction(number, node, graph)
        shapes = ", ".join(_type(graph.nodes[one].shape, graph.nodes[one].dtype) for one in graph.outputs)
        names = ", ".join(f"n{one}" for one in graph.outputs)
        lines.append(f"  ROOT result = ({shapes}) tuple({names})")
        return lines

    def _instruction(self, number: int, node: Node, graph: Graph) -> Iterable[str]:
        operands = [f"n{one}" for one in node.operands]
        given = node.attributes
        result = f"  n{number} = {_type(node.shape, node.dtype)}"
        if node.op in ("philox", "scan", "patches"):
            raise NoHloError(f"{graph.name}: {node.op} is no operation of HLO")
        if node.op == "dot":
            raise NoHloError(f"{graph.name}: a dot, for which XLA would call a library")
        if node.op == "parameter":
            return [f"{result} parameter({given['number']})"]
        if node.op == "constant":
            literal = given["literal"]
            assert isinstance(literal, Literal)
            return [f"{result} constant({_literal(literal.value, node.dtype)})"]
        if node.op == "reduce":
            first = f"n{number}_init"
            identity = reduce_identity(str(given["kind"]), node.dtype)
            return [
                f"  {first} = {_type((), node.dtype)} constant({_literal(np.asarray(identity), node.dtype)})",
                f"{result} reduce({operands[0]}, {first}), {_dimensions(given)}, "
                f"to_apply={self._combine(str(given['kind']), node.dtype)}",
            ]
        if node.op == "reduce_general":
            return self._general(number, node, operands, graph)
        opcode = _OPCODES.get(node.op, node.op.replace("_", "-"))
        text = f"{result} {opcode}({', '.join(operands)})"
        return [", ".join([text, *self._attributes(node, graph)])]

    def _general(self, number: int, node: Node, operands: list[str], graph: Graph) -> list[str]:
        body = node.attributes["body"]
        assert isinstance(body, Graph)
        name = f"region{len(self.regions)}"
        writer = _Writer()
        lines = writer.computation(body)
        if writer.regions:
            raise NoHloError(f"{graph.name}: a region inside of a region")
        count = len(body.outputs)
        if count == 1:
            lines[-1] = f"  ROOT result = {_type((), node.dtype)} copy(n{body.outputs[0]})"
        self.regions.append("\n".join([f"{name} {{", *lines, "}"]))
        shapes = [_type(node.shape, body.nodes[one].dtype) for one in body.outputs]
        shape = shapes[0] if count == 1 else f"({', '.join(shapes)})"
        called = f"reduce({', '.join(operands)}), {_dimensions(node.attributes)}, to_apply={name}"
        if count == 1:
            return [f"  n{number} = {shape} {called}"]
        return [
            f"  n{number}_all = {shape} {called}",
            f"  n{number} = {_type(node.shape, node.dtype)} get-tuple-element(n{number}_all), "
            f"index={node.attributes['result']}",
        ]

    def _combine(self, kind: str, dtype: DType) -> str:
        name = f"{kind}_{dtype.value}"
        text = (
            f"{name} {{\n  a = {dtype.value}[] parameter(0)\n  b = {dtype.value}[] parameter(1)\n"
            f"  ROOT c = {dtype.value}[] {_REGION[kind]}(a, b)\n}}"
        )
        if text not in self.regions:
            self.regions.append(text)
        return name

    def _replace(self, dtype: DType) -> str:
        text = (
            f"second_{dtype.value} {{\n  a = {dtype.value}[] parameter(0)\n  ROOT b = {dtype.value}[] parameter(1)\n}}"
        )
        if text not in self.regions:
            self.regions.append(text)
        return f"second_{dtype.value}"

    def _attributes(self, node: Node, graph: Graph) -> list[str]:
        given: Mapping[str, Any] = node.attributes
        op = node.op
        if op in ("broadcast", "reverse"):
            return [_dimensions(given)]
        if op == "transpose":
            return [f"dimensions={_braces(given['permutation'])}"]
        if op == "iota":
            return [f"iota_dimension={given['dimension']}"]
        if op == "concatenate":
            return [f"dimensions={{{given['dimension']}}}"]
        if op == "slice":
            parts = zip(given["start"], given["limit"], given["strides"], strict=True)
            return ["slice={" + ", ".join(f"[{a}:{b}:{c}]" for a, b, c in parts) + "}"]
        if op == "pad":
            parts = zip(given["low"], given["high"], given["interior"], strict=True)
            return ["padding=" + "x".join(f"{a}_{b}_{c}" for a, b, c in parts)] if given["low"] else []
        if op == "compare":
            order = ", type=TOTALORDER" if given.get("total_order") else ""
            return [f"direction={given['direction']}{order}"]
        if op == "reduce_precision":
            return [f"exponent_bits={given['exponent_bits']}", f"mantissa_bits={given['mantissa_bits']}"]
        if op == "dynamic_slice":
            return [f"dynamic_slice_sizes={_braces(given['sizes'])}"]
        if op == "reduce_window":
            return [_window(given["window"]), f"to_apply={self._combine(given['kind'], node.dtype)}"]
        if op == "gather":
            found: GatherDimensions = given["gather"]
            return [
                f"offset_dims={_braces(found.offset_dims)}",
                f"collapsed_slice_dims={_braces(found.collapsed_slice_dims)}",
                f"start_index_map={_braces(found.start_index_map)}",
                f"index_vector_dim={found.index_vector_dim}",
                f"slice_sizes={_braces(found.slice_sizes)}",
            ]
        if op == "scatter":
            found = given["scatter"]
            kind = given["kind"]
            region = self._replace(node.dtype) if kind == "replace" else self._combine(kind, node.dtype)
            return [
                f"update_window_dims={_braces(found.offset_dims)}",
                f"inserted_window_dims={_braces(found.collapsed_slice_dims)}",
                f"scatter_dims_to_operand_dims={_braces(found.start_index_map)}",
                f"index_vector_dim={found.index_vector_dim}",
                f"to_apply={region}",
            ]
        return []


def _type(shape: Shape, dtype: DType) -> str:
    return f"{dtype.value}[{','.join(map(str, shape))}]"


def _braces(numbers: Iterable[int]) -> str:
    return "{" + ",".join(map(str, numbers)) + "}"


def _dimensions(given: Mapping[str, Any]) -> str:
    return f"dimensions={_braces(given['dimensions'])}"


def _window(window: tuple[WindowDimension, ...]) -> str:
    parts = {
        "size": "x".join(str(one.size) for one in window),
        "stride": "x".join(str(one.stride) for one in window),
        "pad": "x".join(f"{one.padding_low}_{one.padding_high}" for one in window),
        "lhs_dilate": "x".join(str(one.base_dilation) for one in window),
        "rhs_dilate": "x".join(str(one.window_dilation) for one in window),
    }
    return "window={" + " ".join(f"{key}={value}" for key, value in parts.items()) + "}"


def _literal(value: Any, dtype: DType) -> str:
    if value.ndim:
        return "{" + ", ".join(_literal(one, dtype) for one in value) + "}" if value.size else "{}"
    if dtype is DType.PRED:
        return "true" if value else "false"
    if not dtype.is_float:
        return str(int(value))
    number = float(value)
    if math.isnan(number):
        return "nan"
    return ("-inf" if number < 0 else "inf") if math.isinf(number) else repr(number)


__all__ = ["NoHloError", "hlo_text"]
