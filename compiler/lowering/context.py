"""What all lowerings of a nest share: where each node is in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..ir.graph import Graph
from ..ir.index_maps import Var
from ..loops.loops import Buffer
from ..ops.propagation import Apply, ElementRequest, sources
from ..ops.table import OPS, Cost
from ..planning.access import Trace
from ..planning.cost import light_ops
from ..planning.mapping import RowMap, Segment
from ..planning.placement import Nest
from ..planning.plan import Plan
from ..targets.targets import Target


@dataclass(frozen=True)
class Context:
    """A plan and one of its nests, with the buffers that the nest has used so far, in order of first use."""

    plan: Plan
    nest: Nest
    buffers: list[Buffer]

    @property
    def graph(self) -> Graph:
        """The plan's graph, to which all node numbers refer."""
        return self.plan.graph

    @property
    def target(self) -> Target:
        """The device for which the plan was made."""
        return self.plan.target

    @property
    def row(self) -> Var:
        """The variable of the row number."""
        return self.nest.row

    @property
    def stored(self) -> Callable[[int], bool]:
        """A predicate: whether the nest reads a node from memory or from its own row results, rather than computing it."""
        return self.plan.placement.stored_in(self.nest)

    def placed(self) -> list[tuple[Segment, RowMap]]:
        """The nest's segments whose results must be stored, in order."""
        return sorted(self.plan.stored_of(self.nest), key=lambda item: item[0].node)

    def number_of(self, buffer: Buffer) -> int:
        """The buffer's index in this nest's list. A new buffer is appended."""
        if buffer not in self.buffers:
            self.buffers.append(buffer)
        return self.buffers.index(buffer)

    def stores_of(self, node: int) -> list[int]:
        """Numbers of the buffers that must hold the node's value when its nest is done."""
        return [self.number_of(buffer) for buffer in self.plan.memory_of(node)]


class BufferNumbers(dict[int, int]):
    """Node -> number of the buffer from which it is read, resolved on demand."""

    def __init__(self, context: Context) -> None:
        super().__init__()
        self._context = context

    def __missing__(self, node: int) -> int:
        self[node] = self._context.number_of(self._context.plan.read_from(node))
        return self[node]


def slice_cost(
    graph: Graph, request: ElementRequest, steps: Trace, stop: set[ElementRequest], target: Target
) -> tuple[int, int]:
    """Number of light and of expensive ops needed to compute `request`, down to memory or to the requests of `stop`."""
    light = expensive = 0
    stack, seen = [request], {request}
    while stack:
        current = stack.pop()
        step = steps.steps[current]
        if isinstance(step, Apply):
            node = graph.nodes[current.node]
            if OPS[node.op].cost is Cost.EXPENSIVE:
                expensive += 1
            else:
                light += light_ops(node, target)
        for source in sources(step):
            if source not in seen and source not in stop:
                seen.add(source)
                stack.append(source)
    return light, expensive
