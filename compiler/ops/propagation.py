"""Which operand elements an element of a node is computed from: index propagation, op by op (AStitch observation A).

An ElementRequest asks for one element of one node at a symbolic position, under a guard. The op's rule (the column `propagation` of
its row) answers with an ElementAnswer: what to do with which operand elements. Movement ops compute nothing: they only rewrite
positions. Ops without a rule, such as reductions, are always read from memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..ir.graph import Graph, Literal, Node
from ..ir.index_maps import ZERO, Bound, Guard, Index, Var, guard_of, linear, unravel
from ..support.sequences import zip_strict
from .attributes import attribute, gather_numbers, integers

if TYPE_CHECKING:
    from typing import TypeAlias


@dataclass(frozen=True)
class ElementRequest:
    """Element `position` of node `node`. If `guard` does not hold, the position may be out of bounds: nothing may be loaded there,
    and the value does not matter."""

    node: int
    position: tuple[Index, ...]
    guard: Guard = ()

    @property
    def variables(self) -> frozenset[Var]:
        """The variables of the position."""
        return frozenset(variable for index in self.position for variable in index.variables)

    def __hash__(self) -> int:  # positions cache their hashes
        return hash((self.node, self.position, self.guard))

    def __str__(self) -> str:
        text = f"%{self.node}[{', '.join(map(str, self.position))}]"
        return text + (f" if {' and '.join(map(str, self.guard))}" if self.guard else "")


@dataclass(frozen=True)
class LoadOwn:
    """Read the element from the node's own memory, at row-major position `flat`, in elements."""

    flat: Index


@dataclass(frozen=True)
class Splat:
    """A constant whose elements are all equal to `value`."""

    value: object


@dataclass(frozen=True)
class FromIndex:
    """The position itself as a number (iota's elements)."""

    index: Index


@dataclass(frozen=True)
class Apply:
    """An element-wise op applied to these elements of its operands."""

    operands: tuple[ElementRequest, ...]


@dataclass(frozen=True)
class Forward:
    """The element equals this element of another node."""

    source: ElementRequest


@dataclass(frozen=True)
class Choose:
    """The first case whose condition holds, else `otherwise`. The sources' guards already include the conditions."""

    cases: tuple[tuple[Guard, ElementRequest], ...]
    otherwise: ElementRequest


ElementAnswer: TypeAlias = "LoadOwn | Splat | FromIndex | Apply | Forward | Choose"

Propagation: TypeAlias = "Callable[[Graph, Node, ElementRequest], ElementAnswer]"


@dataclass(frozen=True)
class StartSource:
    """The source of an index that is known at run time only: an element of an index tensor, clamped to [0, extent) if `clamped`, else
    as it is."""

    request: ElementRequest
    clamped: bool = True


def start_variable(request: ElementRequest, extent: int, clamped: bool = True) -> Index:
    """The index whose value is loaded by `request`; in [0, extent) if `clamped`."""
    if clamped and extent == 1:
        return ZERO
    digest = hashlib.blake2s(f"{request} {extent} {clamped}".encode(), digest_size=6).hexdigest()
    name = f"start_{digest}"  # named by content: equal starts are one variable, in every process
    return Index.of_var(Var(name, extent, StartSource(request, clamped)))


def starts_in(request: ElementRequest) -> list[tuple[Var, StartSource]]:
    """The run-time indices in the request's position and guard, sorted by name."""
    found: dict[Var, StartSource] = {}
    for index in (*request.position, *(bound.index for bound in request.guard)):
        for variable in index.variables:
            if isinstance(variable.source, StartSource):
                found[variable] = variable.source
    return sorted(found.items(), key=lambda item: item[0].name)


def sources(step: ElementAnswer) -> tuple[ElementRequest, ...]:
    """The operand elements that a step reads."""
    if isinstance(step, Apply):
        return step.operands
    if isinstance(step, Forward):
        return (step.source,)
    if isinstance(step, Choose):
        return (*(source for _, source in step.cases), step.otherwise)
    return ()


def elementwise(graph: Graph, node: Node, request: ElementRequest) -> ElementAnswer:
    """The element at the same position of each operand; of a scalar its one element."""
    return Apply(
        tuple(
            ElementRequest(operand, request.position if graph.nodes[operand].shape else (), request.guard)
            for operand in node.operands
        )
    )


def parameter(graph: Graph, node: Node, request: ElementRequest) -> ElementAnswer:
    """An element of the parameter's own memory."""
    return LoadOwn(linear(request.position, node.shape))


def constant(graph: Graph, node: Node, request: ElementRequest) -> ElementAnswer:
    """The value itself if all elements are the same bits, else an element of the constant's memory."""
    value = attribute(node, "literal", Literal).value
    first = value.reshape(-1)[:1]
    if value.size == 1 or bytes(value.tobytes()) == bytes(first.tobytes()) * value.size:
        return Splat(first[0])
    return LoadOwn(linear(request.position, node.shape))


def iota(graph: Graph, node: Node, request: ElementRequest) -> ElementAnswer:
    """The position in `dimension`."""
    return FromIndex(request.position[attribute(node, "dimension", int)])


def broadcast(graph: Graph, node: Node, request: ElementRequest) -> ElementAnswer:
    """The operand's element at the position in `dimensions`."""
    position = tuple(request.position[d] for d in integers(node, "dimensions"))
    return Forward(ElementRequest(node.operands[0], position, request.guard))


def reshape(graph: Graph, node: Node, request: ElementRequest) -> ElementAnswer:
    """The operand's element with the same row-major number."""
    flat = linear(request.position, node.shape)
    return Forward(ElementRequest(node.operands[0], unravel(flat, graph.nodes[node.operands[0]].shape), request.guard))


def transpose(graph: Graph, node: Node, request: ElementRequest) -> ElementAnswer:
    """The operand's element at the permuted position."""
    position = [ZERO] * len(node.shape)
    for result_dim, operand_dim in enumerate(integers(node, "permutation")):
        position[operand_dim] = request.position[result_dim]
    return Forward(ElementRequest(node.operands[0], tuple(position), request.guard))


def slice_(graph: Graph, node: Node, request: ElementRequest) -> ElementAnswer:
    """The operand's element at `position * strides + start`."""
    position = tuple(
        index * stride + start
        for index, start, stride in zip_strict(request.position, integers(node, "start"), integers(node, "strides"))
    )
    return Forward(ElementRequest(node.operands[0], position, request.guard))


def patches(graph: Graph, node: Node, request: ElementRequest) -> ElementAnswer:
    """The operand's element at `window * stride + place * dilation`."""
    dimensions = integers(node, "dimensions")
    last, count = dimensions[-1] + 1, len(dimensions)
    position = [*request.position[:last], *request.position[last + count :]]
    columns = dimensions, integers(node, "strides"), integers(node, "dilations"), request.position[last : last + count]
    for dimension, stride, dilation, place in zip_strict(*columns):
        position[dimension] = position[dimension] * stride + place * dilation
    return Forward(ElementRequest(node.operands[0], tuple(position), request.guard))


def reverse(graph: Graph, node: Node, request: ElementRequest) -> ElementAnswer:
    """The operand's element, counted from the end in `dimensions`."""
    dimensions = integers(node, "dimensions")
    position = tuple(
        index * -1 + (extent - 1) if d in dimensions else index
        for d, (index, extent) in enumerate(zip_strict(request.position, node.shape))
    )
    return Forward(ElementRequest(node.operands[0], position, request.guard))


def _choose(cases: Sequence[tuple[Guard, ElementRequest]], otherwise: ElementRequest) -> ElementAnswer:
    """A Choose without the cases that cannot happen, and without those after a case that always happens."""
    kept: list[tuple[Guard, ElementRequest]] = []
    for guard, source in cases:
        if any(bound.never for bound in guard):
            continue
        if not guard:
            otherwise = source
            break
        kept.append((guard, source))
    return Choose(tuple(kept), otherwise) if kept else Forward(otherwise)


def _within(index: Index, extent: int) -> Index:
    """`index`, if a guard says that it is in [0, extent): the index of a dimension of extent 1 is 0."""
    return index if extent > 1 else ZERO


def pad(graph: Graph, node: Node, request: ElementRequest) -> ElementAnswer:
    """The operand's element if the position is one of the operand's, else the padding value."""
    operand = graph.nodes[node.operands[0]]
    bounds: list[Bound] = []
    position = []
    for index, low, interior, extent in zip_strict(
        request.position, integers(node, "low"), integers(node, "interior"), operand.shape
    ):
        shifted = index + -low
        gap = interior + 1
        if gap > 1:
            bounds.append(Bound(shifted, 0, (extent - 1) * gap + 1))
            shifted, off = shifted.divide(gap)
            bounds.append(Bound(off, 0, 1))
        else:
            bounds.append(Bound(shifted, 0, extent))
        position.append(_within(shifted, extent))
    guard = guard_of(bounds)
    inside = ElementRequest(node.operands[0], tuple(position), guard_of((*request.guard, *guard)))
    return _choose([(guard, inside)], ElementRequest(node.operands[1], (), request.guard))


def concatenate(graph: Graph, node: Node, request: ElementRequest) -> ElementAnswer:
    """The element of the operand in whose range the position lies."""
    dimension = attribute(node, "dimension", int)
    index = request.position[dimension]
    cases: list[tuple[Guard, ElementRequest]] = []
    offset = 0
    for operand in node.operands:
        extent = graph.nodes[operand].shape[dimension]
        # Earlier pieces are tried first, so the test needs the upper end only; the access itself is guarded on both
        # sides.
        test = guard_of([Bound(index, 0, offset + extent)])
        inside = guard_of((*request.guard, Bound(index, offset, offset + extent)))
        position = list(request.position)
        position[dimension] = _within(index + -offset, extent)
        if not any(bound.never for bound in inside[len(request.guard) :]):
            cases.append((test, ElementRequest(operand, tuple(position), inside)))
        offset += extent
    # The element is in one of the pieces, so the last case needs no test.
    return _choose([*cases[:-1], ((), cases[-1][1])], cases[-1][1])


def gather(graph: Graph, node: Node, request: ElementRequest) -> ElementAnswer:
    """The operand's element at the slice's start, which the indices give at run time, clamped, and the offset in the slice."""
    numbers = gather_numbers(node)
    operand, indices = (graph.nodes[i] for i in node.operands)
    batch = [request.position[d] for d in range(len(node.shape)) if d not in numbers.offset_dims]
    offsets = [request.position[d] for d in numbers.offset_dims]
    position = [ZERO if d in numbers.collapsed_slice_dims else offsets.pop(0) for d in range(len(operand.shape))]
    for k, d in enumerate(numbers.start_index_map):
        where = list(batch)
        if numbers.index_vector_dim < len(indices.shape):
            where.insert(numbers.index_vector_dim, Index(k))
        limit = operand.shape[d] - numbers.slice_sizes[d] + 1
        start = start_variable(ElementRequest(node.operands[1], tuple(where), request.guard), limit)
        position[d] = position[d] + start
    return Forward(ElementRequest(node.operands[0], tuple(position), request.guard))


def dynamic_slice(graph: Graph, node: Node, request: ElementRequest) -> ElementAnswer:
    """The operand's element at the start, which is clamped, and the position."""
    operand = graph.nodes[node.operands[0]]
    position = tuple(
        index + start_variable(ElementRequest(start, (), request.guard), extent - size + 1)
        for index, start, extent, size in zip_strict(request.position, node.operands[1:], operand.shape, node.shape)
    )
    return Forward(ElementRequest(node.operands[0], position, request.guard))


def dynamic_update_slice(graph: Graph, node: Node, request: ElementRequest) -> ElementAnswer:
    """The update's element if the position lies in the slice that begins at the clamped start, else the operand's."""
    update = graph.nodes[node.operands[1]]
    bounds: list[Bound] = []
    position: list[Index] = []
    for index, start, extent, size in zip_strict(request.position, node.operands[2:], node.shape, update.shape):
        shifted = index - start_variable(ElementRequest(start, (), request.guard), extent - size + 1)
        bounds.append(Bound(shifted, 0, size))
        position.append(_within(shifted, size))
    guard = guard_of(bounds)
    inside = ElementRequest(node.operands[1], tuple(position), guard_of((*request.guard, *guard)))
    return _choose([(guard, inside)], ElementRequest(node.operands[0], request.position, request.guard))
