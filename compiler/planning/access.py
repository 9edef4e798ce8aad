"""What an element of a node is computed from, followed down to memory.

Each op's row says which operand elements one of its elements needs (ops/propagation.py). The planner follows these steps to find
out what a loop would read, and the lowering follows the same steps to write the loop, so that both always agree.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from ..ir.graph import Graph
from ..ir.index_maps import Index, linear
from ..ops.propagation import ElementAnswer, ElementRequest, LoadOwn, sources, starts_in
from ..ops.table import OPS

_T = TypeVar("_T")


def expand(graph: Graph, request: ElementRequest) -> ElementAnswer:
    """The step that computes the requested element from operand elements. Reductions, scatters and other nodes that are always read
    from memory are not expanded: a request for one is an error of the planner (AssertionError)."""
    node = graph.nodes[request.node]
    rule = OPS[node.op].propagation
    assert rule is not None, f"{node.op} is read from memory only, but was asked for as {request}"
    return rule(graph, node, request)


@dataclass(frozen=True)
class Trace:
    """Everything that a set of requested elements depends on, down to memory: each request with its step, in topological order."""

    steps: dict[ElementRequest, ElementAnswer]

    def loads(self) -> list[tuple[ElementRequest, Index]]:
        """The elements that are read from memory, with their row-major positions in elements."""
        return [(request, step.flat) for request, step in self.steps.items() if isinstance(step, LoadOwn)]


class TraceTooLargeError(Exception):
    """Inlining would make so many copies of `node` that it should be computed once and kept in memory."""

    def __init__(self, node: int) -> None:
        super().__init__(f"%{node} is wanted at too many positions")
        self.node = node


COPIES_ALLOWED = 4  # a node that is inlined at more positions of one loop body counts as multiplied
STEPS_ALLOWED = 6000  # steps of one loop body, of any kind


def _check_copies(graph: Graph, steps: Mapping[ElementRequest, ElementAnswer]) -> None:
    counts: dict[int, int] = {}
    total = 0
    for request, step in steps.items():
        total += 1
        if not isinstance(step, LoadOwn) and OPS[graph.nodes[request.node].op].elementwise:
            counts[request.node] = counts.get(request.node, 0) + 1
    copies = sum(count - 1 for count in counts.values())
    if copies <= len(counts) + 64 and total <= STEPS_ALLOWED:
        return
    multiplied = [node for node, count in counts.items() if count > COPIES_ALLOWED]
    if multiplied:
        raise TraceTooLargeError(max(multiplied))


class Answers:
    """The steps of a graph's requests, each found once: what many traces of one graph share."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._expanded: dict[ElementRequest, ElementAnswer] = {}
        self._loads: dict[ElementRequest, LoadOwn] = {}

    def expanded(self, request: ElementRequest) -> ElementAnswer:
        """The step that computes the requested element."""
        answer = self._expanded.get(request)
        if answer is None:
            answer = self._expanded[request] = expand(self.graph, request)
        return answer

    def load(self, request: ElementRequest) -> LoadOwn:
        """The step that reads the requested element from memory."""
        answer = self._loads.get(request)
        if answer is None:
            flat = linear(request.position, self.graph.nodes[request.node].shape)
            answer = self._loads[request] = LoadOwn(flat)
        return answer


def trace(
    graph: Graph,
    roots: Iterable[ElementRequest],
    stored: Callable[[int], bool],
    known: Container[ElementRequest] = (),
    answers: Answers | None = None,
) -> Trace:
    """Follows `roots` down to memory: to parameters, constant arrays and nodes for which `stored` is true (they are read from
    memory), and to requests whose value is already available (`known`). Iterative, so that a chain of thousands of ops is no
    problem. answers: the steps that are known of the graph. Raises TraceTooLargeError if too many copies of ops would be inlined."""
    answers = answers or Answers(graph)
    steps: dict[ElementRequest, ElementAnswer] = {}
    opened: dict[ElementRequest, ElementAnswer] = {}
    stack: list[tuple[ElementRequest, bool]] = [(root, False) for root in reversed(list(roots))]
    while stack:
        request, done = stack.pop()
        if done:
            steps[request] = opened[request]
            continue
        if request in opened:
            continue
        kept = stored(request.node) or request in known
        step = answers.load(request) if kept else answers.expanded(request)
        opened[request] = step
        if len(opened) % 2048 == 0:
            _check_copies(graph, opened)
        stack.append((request, True))
        needed = [*sources(step), *(source.request for _, source in starts_in(request))]
        stack.extend((source, False) for source in reversed(needed) if source not in opened)
    _check_copies(graph, steps)
    return Trace(steps)
