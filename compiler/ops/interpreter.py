"""The interpreter: runs a graph in numpy, which defines what the graph means.

`evaluate` computes a graph's outputs. In `native` precision each op's result is rounded to its dtype, as HLO defines;
in `float64` every float is a float64 and nothing is rounded in between. Kernels are judged by `check/oracle.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import numpy.typing as npt

from ..ir.graph import Array, DType, Graph, Node
from ..support.sequences import zip_strict
from .infer import GraphError
from .table import OPS, Cost

if TYPE_CHECKING:
    from typing import TypeAlias

Precision: TypeAlias = Literal["native", "float64"]
_AnyArray: TypeAlias = npt.NDArray[Any]

_WORKING: Final = {DType.F16: np.dtype(np.float32), DType.BF16: np.dtype(np.float32)}
"""f16 and bf16 are computed in float32 and rounded once per op; all elementary functions in float64, since numpy's exp of a float32
is up to 2.5 units of the last place off."""


def evaluate(graph: Graph, inputs: Sequence[Array], *, precision: Precision = "native") -> list[Array]:
    """The outputs of `graph` for `inputs`, which are ordered by parameter number and have the parameters' shapes and dtypes.

    In `native` precision the results have the outputs' dtypes; in `float64` all floats are float64. Raises GraphError if
    the inputs do not fit or an op is unknown.
    """
    check_inputs(graph, inputs)
    dtypes = _DOUBLE if precision == "float64" else _NATIVE

    def compute(node: Node, sources: Sequence[Node], operands: Sequence[Array]) -> Array:
        if node.op == "parameter":
            return np.asarray(inputs[_number(node)]).astype(dtypes.stored(node.dtype), copy=False)
        if node.op == "reduce_general":
            widened = [x.astype(dtypes.working(s.dtype), copy=False) for s, x in zip_strict(sources, operands)]
            result = reduce_by_body(node, widened, lambda body, values: _run_body(body, values, dtypes))
            return np.asarray(result).astype(dtypes.stored(node.dtype), copy=False)
        return _value(node, sources, operands, dtypes)

    with quiet():
        return walk(graph, compute)


def native_value(node: Node, sources: Sequence[Node], operands: Sequence[Array]) -> Array:
    """The value of one node, computed and rounded as `evaluate` does in `native` precision. sources: the nodes of `operands`, which
    have their dtypes. Raises GraphError if the op has no reference."""
    with quiet():
        return _value(node, sources, operands, _NATIVE)


def _value(node: Node, sources: Sequence[Node], operands: Sequence[Array], dtypes: _Dtypes) -> Array:
    reference = reference_of(node)
    working = _double_dtype if OPS[node.op].cost is Cost.EXPENSIVE else dtypes.working
    widened = [x.astype(working(source.dtype), copy=False) for source, x in zip_strict(sources, operands)]
    return np.asarray(reference(node, sources, widened)).astype(dtypes.stored(node.dtype), copy=False)


@contextmanager
def quiet() -> Iterator[None]:
    """A context manager that turns numpy's floating-point warnings off: overflow, NaN and division by zero are ordinary here."""
    with np.errstate(all="ignore"):
        yield


def check_inputs(graph: Graph, inputs: Sequence[Array]) -> None:
    """Checks that `inputs` match the graph's parameters in number, shapes and dtypes. Raises GraphError if they do not."""
    parameters = graph.parameters
    if len(inputs) != len(parameters):
        raise GraphError(f"graph {graph.name}: given {len(inputs)} inputs, expected {len(parameters)}")
    for number, (index, value) in enumerate(zip_strict(parameters, inputs)):
        node = graph.nodes[index]
        if value.shape != node.shape or value.dtype != node.dtype.numpy:
            given = f"{value.dtype}{list(value.shape)}"
            raise GraphError(f"graph {graph.name}: input {number} given {given}, expected {node.type_text}")


def _number(node: Node) -> int:
    return int(node.attributes["number"])  # type: ignore[arg-type]


def _double_dtype(dtype: DType) -> np.dtype[Any]:
    return np.dtype(np.float64) if dtype.is_float else dtype.numpy


def _working_dtype(dtype: DType) -> np.dtype[Any]:
    return _WORKING.get(dtype, dtype.numpy)


def _own_dtype(dtype: DType) -> np.dtype[Any]:
    return dtype.numpy


@dataclass(frozen=True)
class _Dtypes:
    """By an IR dtype, numpy's: in which most ops are computed, and in which results are stored."""

    working: Callable[[DType], np.dtype[Any]]
    stored: Callable[[DType], np.dtype[Any]]


_DOUBLE: Final = _Dtypes(_double_dtype, _double_dtype)
_NATIVE: Final = _Dtypes(_working_dtype, _own_dtype)


def reference_of(node: Node) -> Callable[[Node, Sequence[Node], Sequence[Array]], Array]:
    """The numpy reference of the node's op. Raises GraphError if the op is unknown or has none."""
    row = OPS.get(node.op)
    if row is None or row.numpy is None:
        raise GraphError(f"op {node.op!r} has no reference")
    return row.numpy


def walk(graph: Graph, compute: Callable[[Node, tuple[Node, ...], list[Any]], Any]) -> list[Any]:
    """Computes the nodes in order by `compute(node, operand nodes, operand values)` and returns the outputs. A value is dropped
    after its last use."""
    last_use = list(range(len(graph.nodes)))
    for i, node in enumerate(graph.nodes):
        for operand in node.operands:
            last_use[operand] = i
    for output in graph.outputs:
        last_use[output] = len(graph.nodes)
    values: dict[int, Any] = {}
    for i, node in enumerate(graph.nodes):
        sources = tuple(graph.nodes[operand] for operand in node.operands)
        result = compute(node, sources, [values[operand] for operand in node.operands])
        for operand in set(node.operands):
            if last_use[operand] == i:
                del values[operand]
        if last_use[i] > i:
            values[i] = result
    return [values[output] for output in graph.outputs]


# ---- reductions with a body of their own ---------------------------------------------------------------------------


def _run_body(body: Graph, values: Sequence[Array], dtypes: _Dtypes) -> list[Array]:
    """Applies a scalar graph to arrays, element by element. Only element-wise ops and constants are allowed in it."""

    def compute(node: Node, sources: Sequence[Node], operands: Sequence[Array]) -> Array:
        if node.op == "parameter":
            return values[_number(node)]
        check_body_op(body, node)
        return _value(node, sources, operands, dtypes)

    shape = np.broadcast_shapes(*(value.shape for value in values))
    return [np.broadcast_to(result, shape) for result in walk(body, compute)]


def check_body_op(body: Graph, node: Node) -> None:
    """Checks that `node` may be in a reduction's body: an element-wise op or a constant. Raises GraphError if it may not."""
    row = OPS.get(node.op)
    if row is None or not (row.elementwise or node.op == "constant"):
        raise GraphError(f"reduction body {body.name}: given op {node.op}, expected element-wise ops and constants")


def reduce_by_body(
    node: Node,
    operands: Sequence[Array],
    run: Callable[[Graph, Sequence[Array]], list[Array]],
    bounded: bool = False,
) -> Any:
    """A reduction by the node's body, done as a tree that keeps the elements' order (HLO leaves the order open and requires
    associativity).

    `operands` are the inputs, then the initial values. With `bounded`, the bounds of all of these follow, and the result is
    the value and its bound.
    """
    body, result = node.attributes["body"], int(node.attributes["result"])  # type: ignore[arg-type]
    dimensions = node.attributes["dimensions"]
    assert isinstance(body, Graph)
    assert isinstance(dimensions, tuple)
    axes = [int(axis) for axis in dimensions]  # type: ignore[arg-type]
    halves = [operands[: len(operands) // 2], operands[len(operands) // 2 :]] if bounded else [operands]
    inputs = [x for half in halves for x in half[: len(half) // 2]]
    inits = [x for half in halves for x in half[len(half) // 2 :]]

    def rows(x: Array) -> Array:
        """`x` with shape (kept dimensions..., number of reduced elements)."""
        moved = np.moveaxis(x, axes, range(x.ndim - len(axes), x.ndim)) if axes else x
        kept = moved.shape[: x.ndim - len(axes)]
        return moved.reshape(*kept, int(np.prod([x.shape[axis] for axis in axes], dtype=np.int64)))

    def combine(left: Sequence[Array], right: Sequence[Array]) -> list[Array]:
        if not bounded:
            return run(body, [*left, *right])
        n = len(left) // 2
        return run(body, [*left[:n], *right[:n], *left[n:], *right[n:]])

    items = [rows(x) for x in inputs]
    while items[0].shape[-1] > 1:
        pairs = items[0].shape[-1] // 2
        combined = combine([x[..., : 2 * pairs : 2] for x in items], [x[..., 1 : 2 * pairs : 2] for x in items])
        items = [np.concatenate([new, old[..., 2 * pairs :]], axis=-1) for new, old in zip_strict(combined, items)]
    starts = [np.broadcast_to(init, node.shape) for init in inits]
    if items[0].shape[-1] == 0:
        found: Sequence[Array] = starts
    else:
        found = combine(starts, [x[..., 0] for x in items])
    return (found[result], found[len(found) // 2 + result]) if bounded else found[result]
