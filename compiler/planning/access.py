"""Which elements of its operands an element of a node is made of: index propagation, op by op (AStitch observation A).

A Request asks for one element of one node at a symbolic position, under a guard. `expand` answers with a Step: what has
to be done with which operand elements. The planner follows steps to see what a loop would touch, the lowering follows
the same steps to write the loop, so that both always agree. Movement ops never do anything: they only rewrite
positions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from ..ir.graph import GatherDimensions, Graph, Literal, Node
from ..ir.index_maps import ZERO, Bound, Guard, Index, Var, guard_of, linear, unravel
from ..ops.table import OPS

_T = TypeVar("_T")


@dataclass(frozen=True)
class Request:
    """Element `position` of node `node`. Where `guard` does not hold the position may lie outside: nothing may be
    loaded there, and the value does not matter."""

    node: int
    position: tuple[Index, ...]
    guard: Guard = ()

    def __hash__(self) -> int:  # positions cache their hashes
        return hash((self.node, self.position, self.guard))

    def __str__(self) -> str:
        text = f"%{self.node}[{', '.join(map(str, self.position))}]"
        return text + (f" if {' and '.join(map(str, self.guard))}" if self.guard else "")


@dataclass(frozen=True)
class Load:
    """Read the element from the node's own memory, at row-major position `flat`."""

    flat: Index


@dataclass(frozen=True)
class Splat:
    """A constant all of whose elements are equal."""

    value: object


@dataclass(frozen=True)
class FromIndex:
    """The position itself as a number (iota)."""

    index: Index


@dataclass(frozen=True)
class Apply:
    """An element-wise op on elements of its operands."""

    operands: tuple[Request, ...]


@dataclass(frozen=True)
class Forward:
    """The element is this element of another node."""

    source: Request


@dataclass(frozen=True)
class Choose:
    """The first case whose condition holds, else `otherwise`. The sources' guards already include the conditions."""

    cases: tuple[tuple[Guard, Request], ...]
    otherwise: Request


Step: TypeAlias = "Load | Splat | FromIndex | Apply | Forward | Choose"


@dataclass(frozen=True)
class StartSource:
    """Where a runtime index comes from: an element of an index tensor, clamped to [0, extent) (`clamped`) or as it
    is."""

    request: Request
    clamped: bool = True


def attribute(node: Node, key: str, kind: type[_T]) -> _T:
    """Attribute `key` of `node`, which the verifier has checked to be there."""
    value = node.attributes[key]
    assert isinstance(value, kind), f"{node.op}.{key}"
    return value


def integers(node: Node, key: str) -> tuple[int, ...]:
    return attribute(node, key, tuple)


def gather_numbers(node: Node) -> GatherDimensions:
    return attribute(node, "gather" if node.op == "gather" else "scatter", GatherDimensions)


def start_variable(request: Request, extent: int, clamped: bool = True) -> Index:
    """The index that is loaded as `request` asks, in [0, extent) if clamped."""
    if clamped and extent == 1:
        return ZERO
    digest = hashlib.blake2s(f"{request} {extent} {clamped}".encode(), digest_size=6).hexdigest()
    name = f"start_{digest}"  # by content: the same start asked for twice is one variable, in every process
    return Index.of_var(Var(name, extent, StartSource(request, clamped)))


def expand(graph: Graph, request: Request) -> Step:
    """The step that makes the requested element from operand elements. Reductions, scatters and other nodes that are
    only ever read from memory are not expanded here: asking for one is a planner's error (AssertionError)."""
    node = graph.nodes[request.node]
    row = OPS[node.op]
    if row.elementwise:
        return Apply(
            tuple(
                Request(operand, request.position if graph.nodes[operand].shape else (), request.guard)
                for operand in node.operands
            )
        )
    return _EXPAND[node.op](graph, node, request)


def _parameter(graph: Graph, node: Node, request: Request) -> Step:
    return Load(linear(request.position, node.shape))


def _constant(graph: Graph, node: Node, request: Request) -> Step:
    value = attribute(node, "literal", Literal).value
    first = value.reshape(-1)[:1]
    if value.size == 1 or bytes(value.tobytes()) == bytes(first.tobytes()) * value.size:
        return Splat(first[0])
    return Load(linear(request.position, node.shape))


def _iota(graph: Graph, node: Node, request: Request) -> Step:
    return FromIndex(request.position[attribute(node, "dimension", int)])


def _broadcast(graph: Graph, node: Node, request: Request) -> Step:
    position = tuple(request.position[d] for d in integers(node, "dimensions"))
    return Forward(Request(node.operands[0], position, request.guard))


def _reshape(graph: Graph, node: Node, request: Request) -> Step:
    flat = linear(request.position, node.shape)
    return Forward(Request(node.operands[0], unravel(flat, graph.nodes[node.operands[0]].shape), request.guard))


def _transpose(graph: Graph, node: Node, request: Request) -> Step:
    position = [ZERO] * len(node.shape)
    for result_dim, operand_dim in enumerate(integers(node, "permutation")):
        position[operand_dim] = request.position[result_dim]
    return Forward(Request(node.operands[0], tuple(position), request.guard))


def _slice(graph: Graph, node: Node, request: Request) -> Step:
    position = tuple(
        index * stride + start
        for index, start, stride in zip(
            request.position, integers(node, "start"), integers(node, "strides"), strict=True
        )
    )
    return Forward(Request(node.operands[0], position, request.guard))


def _reverse(graph: Graph, node: Node, request: Request) -> Step:
    dimensions = integers(node, "dimensions")
    position = tuple(
        index * -1 + (extent - 1) if d in dimensions else index
        for d, (index, extent) in enumerate(zip(request.position, node.shape, strict=True))
    )
    return Forward(Request(node.operands[0], position, request.guard))


def _choose(cases: Sequence[tuple[Guard, Request]], otherwise: Request) -> Step:
    """Choose, without the cases that cannot happen or after one that always does."""
    kept: list[tuple[Guard, Request]] = []
    for guard, source in cases:
        if any(bound.never for bound in guard):
            continue
        if not guard:
            otherwise = source
            break
        kept.append((guard, source))
    return Choose(tuple(kept), otherwise) if kept else Forward(otherwise)


def _pad(graph: Graph, node: Node, request: Request) -> Step:
    operand = graph.nodes[node.operands[0]]
    bounds: list[Bound] = []
    position = []
    for index, low, interior, extent in zip(
        request.position, integers(node, "low"), integers(node, "interior"), operand.shape, strict=True
    ):
        shifted = index + -low
        gap = interior + 1
        if gap > 1:
            bounds.append(Bound(shifted, 0, (extent - 1) * gap + 1))
            shifted, off = shifted.divide(gap)
            bounds.append(Bound(off, 0, 1))
        else:
            bounds.append(Bound(shifted, 0, extent))
        position.append(shifted)
    guard = guard_of(bounds)
    inside = Request(node.operands[0], tuple(position), guard_of((*request.guard, *guard)))
    return _choose([(guard, inside)], Request(node.operands[1], (), request.guard))


def _concatenate(graph: Graph, node: Node, request: Request) -> Step:
    dimension = attribute(node, "dimension", int)
    index = request.position[dimension]
    cases: list[tuple[Guard, Request]] = []
    offset = 0
    for operand in node.operands:
        extent = graph.nodes[operand].shape[dimension]
        # Earlier pieces are taken first, so only the upper end needs a test; the access itself is guarded on both
        # sides.
        test = guard_of([Bound(index, 0, offset + extent)])
        inside = guard_of((*request.guard, Bound(index, offset, offset + extent)))
        position = list(request.position)
        position[dimension] = index + -offset
        if not any(bound.never for bound in inside[len(request.guard) :]):
            cases.append((test, Request(operand, tuple(position), inside)))
        offset += extent
    # One of the pieces it is: the last case needs no test.
    return _choose([*cases[:-1], ((), cases[-1][1])], cases[-1][1])


def _gather(graph: Graph, node: Node, request: Request) -> Step:
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
        start = start_variable(Request(node.operands[1], tuple(where), request.guard), limit)
        position[d] = position[d] + start
    return Forward(Request(node.operands[0], tuple(position), request.guard))


def _dynamic_slice(graph: Graph, node: Node, request: Request) -> Step:
    operand = graph.nodes[node.operands[0]]
    position = tuple(
        index + start_variable(Request(start, (), request.guard), extent - size + 1)
        for index, start, extent, size in zip(
            request.position, node.operands[1:], operand.shape, node.shape, strict=True
        )
    )
    return Forward(Request(node.operands[0], position, request.guard))


def _dynamic_update_slice(graph: Graph, node: Node, request: Request) -> Step:
    update = graph.nodes[node.operands[1]]
    bounds: list[Bound] = []
    position: list[Index] = []
    for index, start, extent, size in zip(request.position, node.operands[2:], node.shape, update.shape, strict=True):
        shifted = index - start_variable(Request(start, (), request.guard), extent - size + 1)
        bounds.append(Bound(shifted, 0, size))
        position.append(shifted)
    guard = guard_of(bounds)
    inside = Request(node.operands[1], tuple(position), guard_of((*request.guard, *guard)))
    return _choose([(guard, inside)], Request(node.operands[0], request.position, request.guard))


def _never_inlined(graph: Graph, node: Node, request: Request) -> Step:
    raise AssertionError(f"{node.op} is read from memory only, but was asked for as {request}")


_EXPAND = {
    "parameter": _parameter,
    "constant": _constant,
    "iota": _iota,
    "broadcast": _broadcast,
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "reverse": _reverse,
    "pad": _pad,
    "concatenate": _concatenate,
    "gather": _gather,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "reduce": _never_inlined,
    "reduce_general": _never_inlined,
    "reduce_window": _never_inlined,
    "scan": _never_inlined,
    "scatter": _never_inlined,
}


def starts_in(request: Request) -> list[tuple[Var, StartSource]]:
    """The runtime indices that the request's position and guard mention."""
    found: dict[Var, StartSource] = {}
    for index in (*request.position, *(bound.index for bound in request.guard)):
        for variable in index.variables:
            if isinstance(variable.source, StartSource):
                found[variable] = variable.source
    return sorted(found.items(), key=lambda item: item[0].name)


def sources(step: Step) -> tuple[Request, ...]:
    """The operand elements that a step reads."""
    if isinstance(step, Apply):
        return step.operands
    if isinstance(step, Forward):
        return (step.source,)
    if isinstance(step, Choose):
        return (*(source for _, source in step.cases), step.otherwise)
    return ()


@dataclass(frozen=True)
class Trace:
    """Everything that a set of roots needs: each request with its step, sources before users."""

    steps: dict[Request, Step]

    def loads(self) -> list[tuple[Request, Index]]:
        """The elements read from memory, with their row-major positions."""
        return [(request, step.flat) for request, step in self.steps.items() if isinstance(step, Load)]


class TraceTooLargeError(Exception):
    """Inlining made so many copies of `node` that it had better be computed once, in memory."""

    def __init__(self, node: int) -> None:
        super().__init__(f"%{node} is wanted at too many positions")
        self.node = node


COPIES_ALLOWED = 4  # positions of one node in one loop body before it counts as multiplied
STEPS_ALLOWED = 6000  # steps of one loop body, whatever they are


def _check_copies(graph: Graph, steps: Iterable[Request]) -> None:
    counts: dict[int, int] = {}
    total = 0
    for request in steps:
        total += 1
        if OPS[graph.nodes[request.node].op].elementwise:
            counts[request.node] = counts.get(request.node, 0) + 1
    copies = sum(count - 1 for count in counts.values())
    if copies <= len(counts) + 64 and total <= STEPS_ALLOWED:
        return
    multiplied = [node for node, count in counts.items() if count > COPIES_ALLOWED]
    if multiplied:
        raise TraceTooLargeError(max(multiplied))


def trace(
    graph: Graph, roots: Iterable[Request], stored: Callable[[int], bool], known: Container[Request] = ()
) -> Trace:
    """Follows `roots` down to memory: to parameters, constant arrays and the nodes of which `stored` says that they are
    read from theirs, or to requests whose value is `known` to be kept somewhere. Iterative, so that a chain of
    thousands of ops is no problem. Raises TraceTooLargeError."""
    steps: dict[Request, Step] = {}
    opened: dict[Request, Step] = {}
    stack: list[tuple[Request, bool]] = [(root, False) for root in reversed(list(roots))]
    while stack:
        request, done = stack.pop()
        if done:
            steps[request] = opened[request]
            continue
        if request in opened:
            continue
        node = graph.nodes[request.node]
        kept = stored(request.node) or request in known
        step = Load(linear(request.position, node.shape)) if kept else expand(graph, request)
        opened[request] = step
        if len(opened) % 2048 == 0:
            _check_copies(graph, opened)
        stack.append((request, True))
        needed = [*sources(step), *(source.request for _, source in starts_in(request))]
        stack.extend((source, False) for source in reversed(needed) if source not in opened)
    _check_copies(graph, steps)
    return Trace(steps)
