"""The compiler's one intermediate representation: an immutable list of operations in topological order.

It is small on purpose: every stage (HLO import, verifier, interpreter, planner, both backends) reads the same few fields, and a
graph prints as text that reads like HLO. What an operation *means* stands in the op table (`ops/table.py`), not here.

    Graph(name, nodes, outputs)
      nodes:   Node(op, operands, shape, dtype, attributes, name), each operand the index of an earlier node
      outputs: indices of nodes, in the order of the HLO root's tuple

Conventions (they keep every later stage simple):
- All shapes are static; a scalar has shape `()`.
- A node has exactly one result. An HLO op with several results (a variadic reduce) becomes one node per result; these nodes
  differ only in the attribute `result`.
- `reduce` with a `kind` of REDUCE_KINDS starts from the kind's identity; a different HLO init value is applied by an explicit
  op afterwards. A reduction with any other region is `reduce_general`, with the region as a scalar Graph in the attribute
  `body`.
- There are no tuples, calls, maps, batch norms or other composites: the importer expands them.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from typing import TypeAlias

try:
    from ml_dtypes import bfloat16 as _bfloat16
except ImportError:  # TensorFlow 2.13 brings no ml_dtypes: its operators on bf16 stay its own
    _bfloat16 = None
BFLOAT16: Final[np.dtype[np.generic] | None] = None if _bfloat16 is None else np.dtype(_bfloat16)
"""The numpy dtype of bf16; None if there is none, and then no graph has bf16."""

Shape: TypeAlias = tuple[int, ...]
Array: TypeAlias = npt.NDArray[np.generic]


class DType(enum.Enum):
    """Element type; the value is HLO's own spelling."""

    PRED = "pred"
    S8 = "s8"
    S16 = "s16"
    S32 = "s32"
    S64 = "s64"
    U8 = "u8"
    U16 = "u16"
    U32 = "u32"
    U64 = "u64"
    F16 = "f16"
    BF16 = "bf16"
    F32 = "f32"
    F64 = "f64"

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The numpy dtype; that of bf16 comes from ml_dtypes."""
        return _NUMPY[self]

    @property
    def is_available(self) -> bool:
        """Whether there is a numpy dtype, without which no graph may have the type: bf16 needs ml_dtypes."""
        return self in _NUMPY

    @property
    def size_bytes(self) -> int:
        """Bytes of one element."""
        return int(_NUMPY[self].itemsize)

    @property
    def is_float(self) -> bool:
        """Whether it is f16, bf16, f32 or f64."""
        return self in (DType.F16, DType.BF16, DType.F32, DType.F64)

    @property
    def is_signed(self) -> bool:
        """Whether it is a signed integer."""
        return self in (DType.S8, DType.S16, DType.S32, DType.S64)

    @property
    def is_unsigned(self) -> bool:
        """Whether it is an unsigned integer; pred is not one."""
        return self in (DType.U8, DType.U16, DType.U32, DType.U64)

    @property
    def is_integer(self) -> bool:
        """Whether it is an integer; pred is not one."""
        return self.is_signed or self.is_unsigned

    @classmethod
    def of(cls, dtype: npt.DTypeLike) -> DType:
        """The element type of a numpy dtype. Raises KeyError for one that kernels do not support (complex,
        strings, big-endian)."""
        found = np.dtype(dtype)
        if found.byteorder == ">":
            raise KeyError(found)
        # Look up by name: unpickling an array of bfloat16 changes the hash of that (shared) dtype object, so that a
        # dictionary keyed by dtype no longer finds it.
        return _BY_NAME[found.name]


_NUMPY: Final[dict[DType, np.dtype[np.generic]]] = {
    DType.PRED: np.dtype(np.bool_),
    DType.S8: np.dtype(np.int8),
    DType.S16: np.dtype(np.int16),
    DType.S32: np.dtype(np.int32),
    DType.S64: np.dtype(np.int64),
    DType.U8: np.dtype(np.uint8),
    DType.U16: np.dtype(np.uint16),
    DType.U32: np.dtype(np.uint32),
    DType.U64: np.dtype(np.uint64),
    DType.F16: np.dtype(np.float16),
    **({} if BFLOAT16 is None else {DType.BF16: BFLOAT16}),
    DType.F32: np.dtype(np.float32),
    DType.F64: np.dtype(np.float64),
}
_BY_NAME: Final[dict[str, DType]] = {numpy.name: dtype for dtype, numpy in _NUMPY.items()}

REDUCE_KINDS: Final = ("sum", "product", "min", "max", "and", "or")


@dataclass(frozen=True, eq=False)
class Literal:
    """A constant's value. Literals compare and hash by content."""

    value: Array

    @property
    def digest(self) -> str:
        """A SHA-256 hash (hex) of dtype, shape and bytes."""
        head = f"{self.value.dtype}{self.value.shape}".encode()
        return hashlib.sha256(head + np.ascontiguousarray(self.value).tobytes()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        flat = np.ravel(self.value)
        shown = ", ".join(str(x) for x in flat[:4])
        return "{" + shown + (", ..." if flat.size > 4 else "") + "}"


@dataclass(frozen=True)
class GatherDimensions:
    """Dimension numbers of an HLO gather or scatter, under gather's names.

    For scatter: `offset_dims` is update_window_dims, `collapsed_slice_dims` is inserted_window_dims,
    `start_index_map` is scatter_dims_to_operand_dims. `slice_sizes` is gather's only.
    """

    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    index_vector_dim: int
    slice_sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class WindowDimension:
    """One dimension of a reduce-window, as HLO has it."""

    size: int
    stride: int = 1
    padding_low: int = 0
    padding_high: int = 0
    window_dilation: int = 1
    base_dilation: int = 1


Attribute: TypeAlias = (
    "int | bool | str | tuple[int, ...] | Literal | GatherDimensions | tuple[WindowDimension, ...] | Graph"
)


@dataclass(frozen=True)
class Node:
    """One operation. `attributes` by op (all dimension numbers non-negative):

    parameter        number: int
    constant         literal: Literal
    iota             dimension: int
    broadcast        dimensions: tuple, result dimension of each operand dimension, increasing
    transpose        permutation: tuple, result dimension i is operand dimension permutation[i]
    slice            start, limit, strides: tuples
    pad              low, high, interior: tuples (low, high may be negative); operands (x, scalar value)
    concatenate      dimension: int
    reverse          dimensions: tuple
    patches          dimensions, sizes, strides, dilations: tuples, one entry for each of the increasing dimensions that windows of
                     `sizes` elements slide along. The result has the dimensions up to the last of these, with the windows' numbers
                     as extents, then one dimension for each window's elements, then the other dimensions (im2col is one)
    compare          direction: "EQ" "NE" "LT" "LE" "GT" "GE"; total_order: bool (floats only)
    reduce           dimensions: tuple; kind: one of REDUCE_KINDS; one operand
    reduce_general   dimensions: tuple; body: Graph of 2n scalar parameters (n accumulators, then n values) and n outputs;
                     result: int; operands: n inputs, then n scalar inits
    reduce_window    window: tuple[WindowDimension, ...]; kind; operands (x, scalar init)
    scan             dimension: int; kind; reverse, exclusive: bool; operands (x, starts: x's shape without the dimension)
    gather           gather: GatherDimensions; operands (x, start_indices)
    scatter          scatter: GatherDimensions; kind: one of REDUCE_KINDS or "replace"; operands (x, indices, updates)
    dynamic_slice    sizes: tuple; operands (x, one scalar start per dimension)
    dynamic_update_slice   operands (x, update, one scalar start per dimension)
    reduce_precision exponent_bits, mantissa_bits: int
    """

    op: str
    operands: tuple[int, ...]
    shape: Shape
    dtype: DType
    attributes: Mapping[str, Attribute] = field(default_factory=lambda: MappingProxyType({}))
    name: str = ""

    @property
    def element_count(self) -> int:
        """Number of elements of the result."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    @property
    def size_bytes(self) -> int:
        """Bytes of the result."""
        return self.element_count * self.dtype.size_bytes

    @property
    def type_text(self) -> str:
        """Dtype and shape as HLO writes them, such as `f32[64,128]`."""
        return f"{self.dtype.value}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Graph:
    """Operations in topological order, and the indices of the outputs. See the module's conventions."""

    name: str
    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]

    @property
    def parameters(self) -> tuple[int, ...]:
        """Indices of the parameter nodes, by parameter number."""
        found = [(int(node.attributes["number"]), i) for i, node in enumerate(self.nodes) if node.op == "parameter"]  # type: ignore[arg-type]
        return tuple(i for _, i in sorted(found))

    def users(self) -> tuple[tuple[int, ...], ...]:
        """For each node, the nodes that read it, each listed once, in order. Takes O(nodes + edges): call it once and keep the
        result."""
        users: list[list[int]] = [[] for _ in self.nodes]
        for i, node in enumerate(self.nodes):
            for operand in dict.fromkeys(node.operands):
                users[operand].append(i)
        return tuple(map(tuple, users))

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"graph {self.name} {{"
        for i, node in enumerate(self.nodes):
            operands = ", ".join(f"%{operand}" for operand in node.operands)
            attributes = "".join(f", {key}={_attribute_text(value)}" for key, value in sorted(node.attributes.items()))
            comment = f"  # {node.name}" if node.name else ""
            yield f"  %{i} = {node.type_text} {node.op}({operands}){attributes}{comment}"
        yield "  return " + ", ".join(f"%{i}" for i in self.outputs)
        yield "}"

    @property
    def digest(self) -> str:
        """A SHA-256 hash (hex) of structure, shapes, dtypes and constants. Names do not count."""
        text = hashlib.sha256()
        for node in self.nodes:
            text.update(f"{node.op}{node.operands}{node.shape}{node.dtype.value}".encode())
            for key, value in sorted(node.attributes.items()):
                shown = value.digest if isinstance(value, (Literal, Graph)) else repr(value)
                text.update(f"{key}={shown};".encode())
        text.update(repr(self.outputs).encode())
        return text.hexdigest()


def _attribute_text(value: Attribute) -> str:
    if isinstance(value, Graph):
        return f"<{value.name}>"
    if isinstance(value, tuple):
        return "{" + ",".join(map(str, value)) + "}"
    return str(value)


class GraphBuilder:
    """Builds a Graph node by node. `add` takes a node's shape and dtype as given; `ops.table.build` infers them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[Node] = []

    def add(
        self,
        op: str,
        operands: Iterable[int],
        shape: Shape,
        dtype: DType,
        name: str = "",
        **attributes: Attribute,
    ) -> int:
        """Appends a node and returns its index. Nothing is checked: `ops.verify` does that."""
        self.nodes.append(Node(op, tuple(operands), tuple(shape), dtype, MappingProxyType(dict(attributes)), name))
        return len(self.nodes) - 1

    def finish(self, outputs: Iterable[int]) -> Graph:
        """The graph of all nodes so far, with the given outputs."""
        return Graph(self.name, tuple(self.nodes), tuple(outputs))
