"""Slow values that are computed in vectors ahead of the loops that use them.

ahead of rows    vectors that are the same for all rows of a task, computed once before the rows. For x * rsqrt(variance + e) with
                 a variance per channel, the reciprocal roots of all channels are computed once per task instead of once per row.
                 A value qualifies if it depends on the innermost loop's variable alone, involves an op that is not cheap, and
                 is used often enough in a task
ahead of a loop  values that the innermost loop only reads: for logistic(x[i]) * y[i, k], the logistic of each i would be computed
                 by scalar instructions, which take as long as a vector's. All of a row's are computed by a loop over i first.
                 A value qualifies if it depends on the variable of the second innermost loop, not on the innermost one's, and
                 takes a function such as exp
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..ir.graph import Node
from ..ir.index_maps import Index, Var
from ..loops.loops import Assign, LoadLocal, Local, Loop, LoopKind
from ..ops.propagation import Apply, ElementAnswer, ElementRequest, FromIndex, LoadOwn, sources, starts_in
from ..ops.table import OPS, Cost
from ..planning.access import Trace, trace
from ..planning.cost import light_ops
from ..planning.groups import LONG_INSTRUCTIONS
from ..targets.targets import GpuTarget, Target
from .context import Context
from .passes import RowSplit
from .values import Emitter, Scope

MOST_ELEMENTS = 4096
"""Most elements of a vector: it stays in L1 beside the row."""
MOST_VECTORS = 4
FEWEST_USES = 4
"""If each element is used less often in a task, filling the vector does not pay."""
FEWEST_ELEMENTS = 8
"""Fewest iterations of a second innermost loop whose functions are computed ahead of it."""


def _is_slow(node: Node, target: Target) -> bool:
    is_long = node.op in LONG_INSTRUCTIONS or light_ops(node, target) > 1
    return is_long or OPS[node.op].cost is Cost.EXPENSIVE


class Ahead:
    """The vectors of one nest that are computed ahead of its rows, or ahead of a loop."""

    def __init__(self, context: Context, emitter: Emitter) -> None:
        self._context, self._emitter = context, emitter
        self._vectors: dict[ElementRequest, str] = {}
        self._of_loops: list[tuple[Scope, ElementRequest, str]] = []
        """The vectors ahead of a loop: the scope that has the vector, the value, the vector's name."""

    def computed(self, steps: Trace, roots: tuple[ElementRequest, ...], split: RowSplit) -> Trace:
        """The steps of an innermost loop's body that are still needed. The values that are computed ahead have names in the emitter
        afterwards."""
        if isinstance(self._context.target, GpuTarget):
            return steps
        steps = self._ahead_of_rows(steps, roots, split)
        return self._ahead_of_loop(steps, roots, split) if len(split.variables) > 1 else steps

    def _ahead_of_loop(self, steps: Trace, roots: tuple[ElementRequest, ...], split: RowSplit) -> Trace:
        variable, emitter = split.variables[-2][0], self._emitter
        if not FEWEST_ELEMENTS <= variable.extent <= MOST_ELEMENTS:
            return steps
        inner = split.variables[-1][0]
        functions = _slow_ones(
            steps,
            roots,
            lambda request, step: self._is_before(request, step, inner),
            lambda request: variable in request.variables and OPS[self._node(request).op].cost is Cost.EXPENSIVE,
        )
        chosen = [request for request in functions if variable in request.variables]
        for request in chosen:
            if not emitter.is_known(request):
                read = LoadLocal(self._vector_of_loop(steps, request, variable), Index.of_var(variable))
                emitter.let(self._node(request).dtype, read, len(emitter.scopes) - 2, request)
        return _without(steps, roots, set(chosen))

    def _is_before(self, request: ElementRequest, step: ElementAnswer, inner: Var) -> bool:
        """Whether the value can be computed before the loop over `inner`, by a loop of its own."""
        if request.guard or any(True for _ in starts_in(request)) or inner in request.variables:
            return False
        if isinstance(step, LoadOwn):
            return request not in self._emitter.tiles and inner not in step.flat.variables
        return not isinstance(step, FromIndex) or inner not in step.index.variables

    def _node(self, request: ElementRequest) -> Node:
        return self._context.graph.nodes[request.node]

    def _vector_of_loop(self, steps: Trace, request: ElementRequest, variable: Var) -> str:
        """The vector of the value for all of `variable`, which is filled just outside of the loop over it."""
        emitter = self._emitter
        depth = len(emitter.scopes) - 3
        scope = emitter.scopes[depth]
        for owner, known, name in self._of_loops:
            if owner is scope and known == request:
                return name
        name = emitter.fresh("ahead")
        self._of_loops.append((scope, request, name))
        body = emitter.within(depth, variable)
        body.emit(_without(steps, (request,), set()))
        body.put(Assign(name, Index.of_var(variable), body.name_of(request)))
        emitter.put(Local(name, self._node(request).dtype, variable.extent, None), depth)
        emitter.put(Loop(variable, variable.extent, LoopKind.SIMD, body.pop()), depth)
        return name

    def _ahead_of_rows(self, steps: Trace, roots: tuple[ElementRequest, ...], split: RowSplit) -> Trace:
        variable, _ = split.variables[-1]
        context = self._context
        rows = context.plan.executions[context.nest.number].rows_per_task
        uses = rows * math.prod(other.extent for other, _ in split.variables[:-1])
        if uses < FEWEST_USES or not 1 < variable.extent <= MOST_ELEMENTS:
            return steps
        slow = _slow_ones(
            steps,
            roots,
            lambda request, step: self._is_alone(request, step, variable),
            lambda request: _is_slow(self._node(request), context.target),
        )
        chosen = [request for request in slow if self._vector_of(request, variable)]
        if not chosen:
            return steps
        emitter = self._emitter
        for request in chosen:
            if not emitter.is_known(request):
                read = LoadLocal(self._vectors[request], Index.of_var(variable))
                emitter.let(context.graph.nodes[request.node].dtype, read, len(emitter.scopes) - 1, request)
        return _without(steps, roots, set(chosen))

    def _is_alone(self, request: ElementRequest, step: ElementAnswer, variable: Var) -> bool:
        if request.guard or any(True for _ in starts_in(request)):
            return False
        if isinstance(step, LoadOwn):
            is_of_the_row = request in self._emitter.tiles or request.node in self._emitter.row_results
            return not is_of_the_row and step.flat.variables <= {variable}
        return not isinstance(step, FromIndex) or step.index.variables <= {variable}

    def _vector_of(self, request: ElementRequest, variable: Var) -> bool:
        """Whether the value has a vector. If it has none and there is room for one, makes the vector, which is filled ahead of the
        rows."""
        if request in self._vectors:
            return True
        emitter, context = self._emitter, self._context
        steps = trace(context.graph, [request], context.stored)
        # a value that does not change from lane to lane either is computed once per task anyway
        is_vector = any(variable in flat.variables for _, flat in steps.loads())
        if len(self._vectors) == MOST_VECTORS or not is_vector:
            return False
        apart = emitter.apart()
        apart.push(None)
        apart.push(variable)
        apart.emit(steps)
        name = self._vectors[request] = emitter.fresh("ahead")
        apart.put(Assign(name, Index.of_var(variable), apart.name_of(request)))
        body = apart.pop()
        emitter.put(Local(name, context.graph.nodes[request.node].dtype, variable.extent, None), 0)
        for statement in apart.pop():
            emitter.put(statement, 0)
        emitter.put(Loop(variable, variable.extent, LoopKind.SIMD, body), 0)
        return True


def _slow_ones(
    steps: Trace,
    roots: tuple[ElementRequest, ...],
    is_before: Callable[[ElementRequest, ElementAnswer], bool],
    is_slow: Callable[[ElementRequest], bool],
) -> list[ElementRequest]:
    """The values that can be computed before the loop, take a slow op and are needed by something else, a root or a step of the loop.
    is_before: whether nothing but its sources keeps a value in the loop. is_slow: whether a value's own op is slow."""
    found: dict[ElementRequest, bool] = {}  # values that can be computed before: whether they are slow
    needed = set(roots)
    for request, step in steps.steps.items():
        if is_before(request, step) and all(one in found for one in sources(step)):
            own = isinstance(step, Apply) and is_slow(request)
            found[request] = own or any(found[one] for one in sources(step))
        else:
            needed.update(sources(step))
    return [request for request, slow in found.items() if slow and request in needed]


def _without(steps: Trace, roots: tuple[ElementRequest, ...], known: set[ElementRequest]) -> Trace:
    """The part of a trace that is still needed if the values of `known` are available."""
    needed: set[ElementRequest] = set()
    stack = [root for root in roots if root not in known]
    while stack:
        request = stack.pop()
        if request in needed or request not in steps.steps:
            continue
        needed.add(request)
        after = [*sources(steps.steps[request]), *(source.request for _, source in starts_in(request))]
        stack += [one for one in after if one not in known]
    return Trace({request: step for request, step in steps.steps.items() if request in needed})
