"""Writes the values of a loop body: each requested element once, in the outermost loop where everything that it depends on is
known.

So a value that does not change from lane to lane is computed once per row, and a value that does not change from row to row
once per task: loop-invariant code motion by construction.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..ir.graph import DType, Graph
from ..ir.index_maps import Guard, Index, Var
from ..loops import loops
from ..loops.loops import Let, LetIndex, Statement
from ..ops.c_text import literal_text
from ..ops.propagation import (
    Apply,
    Choose,
    ElementAnswer,
    ElementRequest,
    Forward,
    FromIndex,
    LoadOwn,
    Splat,
    StartSource,
    starts_in,
)
from ..planning.access import Trace
from .tiles import Tiles


@dataclass
class Scope:
    """The body of a task, of a row or of a loop, under construction. `names`: the values that have a name in it; `variables`: those
    that it defines."""

    variable: Var | None
    statements: list[Statement] = field(default_factory=list)
    names: dict[ElementRequest, str] = field(default_factory=dict)
    variables: set[Var] = field(default_factory=set)


@dataclass(frozen=True)
class RowResult:
    """Where a reduction's result of this row is: the value `name` or, if `is_local`, the local array `name` of `slice_size`
    accumulators of dtype `accumulator`."""

    name: str
    slice_size: int
    is_local: bool
    accumulator: DType


class Emitter:
    """Scopes, names, and the translation of steps into statements. `buffer_of`: by node, the number of the buffer that holds it.
    Depths count scopes from the outermost, 0: the task's, then the row's, then those of loops over the row."""

    def __init__(self, graph: Graph, buffer_of: Mapping[int, int], row: Var) -> None:
        self.graph = graph
        self.buffer_of = buffer_of
        self.row = row
        self.scopes: list[Scope] = []
        self.row_results: dict[int, RowResult] = {}
        self.tiles = Tiles(graph, row, row.extent)
        self._depth_of: dict[str, int] = {}
        self._numbers = itertools.count(1)

    def apart(self) -> Emitter:
        """An emitter for other loops of the same function. It knows no names of this one, and no name is given out twice."""
        other = Emitter(self.graph, self.buffer_of, self.row)
        other._numbers = self._numbers
        return other

    def within(self, depth: int, variable: Var) -> Emitter:
        """An emitter for another loop in the scope at `depth`, whose names it knows and adds to. The loop's scope is open."""
        other = self.apart()
        other.scopes = self.scopes[: depth + 1]
        other.row_results, other.tiles, other._depth_of = self.row_results, self.tiles, self._depth_of
        other.push(variable)
        return other

    def fresh(self, prefix: str = "t") -> str:
        """A new name."""
        return f"{prefix}{next(self._numbers)}"

    def push(self, variable: Var | None) -> Scope:
        """Opens a scope: the body of the loop over `variable`, or one without a variable."""
        scope = Scope(variable)
        if variable is not None:
            scope.variables.add(variable)
        self.scopes.append(scope)
        return scope

    def pop(self) -> tuple[Statement, ...]:
        """Closes the innermost scope and returns its statements."""
        return tuple(self.scopes.pop().statements)

    def put(self, statement: Statement, depth: int = -1) -> None:
        """Appends a statement to the scope at `depth`, by default to the innermost one."""
        self.scopes[depth].statements.append(statement)

    def depth_of_variable(self, variable: Var) -> int | None:
        """The depth of the scope that defines `variable`; None if no scope does."""
        for depth, scope in enumerate(self.scopes):
            if variable in scope.variables:
                return depth
        return None

    def depth_of_index(self, index: Index) -> int:
        """The depth of the outermost scope in which all variables of `index` are known. AssertionError if one is not in scope."""
        depths = [self.depth_of_variable(variable) for variable in index.variables]
        assert None not in depths, f"{index} mentions a variable that is not in scope"
        return max((depth for depth in depths if depth is not None), default=0)

    def depth_of_guard(self, guard: Guard) -> int:
        """The depth of the outermost scope in which all variables of `guard` are known."""
        return max((self.depth_of_index(bound.index) for bound in guard), default=0)

    def name_of(self, request: ElementRequest) -> str:
        """The name (or literal) of a request that has been emitted. Raises KeyError if it has not."""
        for scope in reversed(self.scopes):
            name = scope.names.get(request)
            if name is not None:
                return name
        raise KeyError(str(request))

    def is_known(self, request: ElementRequest) -> bool:
        """Whether the request's value has a name."""
        return any(request in scope.names for scope in self.scopes)

    def depth_of_name(self, name: str) -> int:
        """The depth of the scope that defines `name`; 0 if none is known (a literal, for example)."""
        return self._depth_of.get(name, 0)

    def let(self, dtype: DType, value: loops.Value, depth: int, request: ElementRequest | None = None) -> str:
        """Defines a new name for `value` in the scope at `depth` and returns it; remembers it as the value of `request`, if
        given."""
        name = self.fresh()
        self.put(Let(name, dtype, value), depth)
        self._depth_of[name] = depth
        if request is not None:
            self.scopes[depth].names[request] = name
        return name

    def note_depth(self, name: str, depth: int) -> None:
        """Records that the scope at `depth` defines `name`."""
        self._depth_of[name] = depth

    def emit(self, steps: Trace) -> None:
        """Writes all steps of a trace whose values are not known yet."""
        for request, step in steps.steps.items():
            if not self.is_known(request):
                self._define_starts(starts_in(request))
                self._emit_step(request, step)

    def define_starts_of(self, index: Index) -> None:
        """Makes the run-time indices of `index` available; their sources must have been emitted."""
        variables = sorted(index.variables, key=lambda variable: variable.name)
        self._define_starts((v, v.source) for v in variables if isinstance(v.source, StartSource))

    def _define_starts(self, starts: Iterable[tuple[Var, StartSource]]) -> None:
        for variable, source in starts:
            if self.depth_of_variable(variable) is None:
                name = self.name_of(source.request)
                depth = self.depth_of_name(name)
                self.put(LetIndex(variable, name, source.clamped), depth)
                self.scopes[depth].variables.add(variable)

    def _emit_step(self, request: ElementRequest, step: ElementAnswer) -> None:
        node = self.graph.nodes[request.node]
        if isinstance(step, Splat):
            self.scopes[0].names[request] = literal_text(node.dtype, step.value)
        elif isinstance(step, Forward):
            self._define_starts(starts_in(step.source))
            name = self.name_of(step.source)
            self.scopes[self.depth_of_name(name)].names[request] = name
        elif isinstance(step, LoadOwn):
            self._emit_load(request, step.flat)
        elif isinstance(step, FromIndex):
            self.let(node.dtype, loops.FromIndex(step.index), self.depth_of_index(step.index), request)
        elif isinstance(step, Apply):
            names = tuple(self.name_of(operand) for operand in step.operands)
            dtypes = tuple(self.graph.nodes[operand.node].dtype for operand in step.operands)
            depth = max(self.depth_of_name(name) for name in names)
            self.let(node.dtype, loops.Compute(node, dtypes, names), depth, request)
        else:
            self._emit_choose(request, step, node.dtype)

    def _emit_choose(self, request: ElementRequest, step: Choose, dtype: DType) -> None:
        for guard, _ in step.cases:
            self._define_starts(
                (variable, variable.source)
                for bound in guard
                for variable in sorted(bound.index.variables, key=lambda v: v.name)
                if isinstance(variable.source, StartSource)
            )
        cases = tuple((guard, self.name_of(source)) for guard, source in step.cases)
        otherwise = self.name_of(step.otherwise)
        depth = max(
            self.depth_of_name(otherwise),
            *(max(self.depth_of_guard(guard), self.depth_of_name(name)) for guard, name in cases),
        )
        self.let(dtype, loops.Choose(cases, otherwise), depth, request)

    def _emit_load(self, request: ElementRequest, flat: Index) -> None:
        node = self.graph.nodes[request.node]
        guard_depth = self.depth_of_guard(request.guard)
        if request in self.tiles:
            self._emit_kept(request, flat)
            return
        result = self.row_results.get(request.node)
        if result is None:
            value = loops.Load(self.buffer_of[request.node], node.dtype, flat, request.guard)
            self.let(node.dtype, value, max(self.depth_of_index(flat), guard_depth), request)
        elif not result.is_local:
            self.scopes[self.depth_of_name(result.name)].names[request] = result.name
        else:
            position = flat - Index.of_var(self.row) * result.slice_size
            # The array is filled within the row, so its elements cannot be read outside the row's scope.
            depth = max(self.depth_of_index(position), guard_depth, 1)
            read = loops.LoadLocal(result.name, position, request.guard)
            if result.accumulator is node.dtype:
                self.let(node.dtype, read, depth, request)
            else:
                name = self.let(result.accumulator, read, depth)
                converted = loops.Convert(result.accumulator, name)
                self.let(node.dtype, converted, depth, request)

    def _emit_kept(self, request: ElementRequest, flat: Index) -> None:
        """An element that an earlier pass of the row has kept in a tile, or in the output that it wrote."""
        node, kept = self.graph.nodes[request.node], self.tiles.kept[request.node]
        if kept.tile is None:
            assert kept.buffer is not None
            value: loops.Value = loops.Load(kept.buffer, node.dtype, flat)
        else:
            place = self.tiles.place(request)
            assert place is not None
            value = loops.LoadLocal(kept.tile, place)
        # It is filled within the row, so it cannot be read outside the row's scope.
        self.let(node.dtype, value, max(self.depth_of_index(flat), 1), request)
