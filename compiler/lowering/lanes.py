"""Lane-wise code of a nest whose rows are tiny, mostly single elements: the loop over rows is the vectorised one.

A row is straight-line code, so values pass between its segments in registers only. If a row number must be split into digits (a bias
along an inner dimension), that takes a division per lane; the planner prefers rows that do not need it.
"""

from __future__ import annotations

from ..ir.graph import DType, Graph
from ..ir.index_maps import Index, Var, linear
from ..loops import loops
from ..loops.loops import Collapse, Combine, Local, Loop, LoopKind, Store
from ..ops.propagation import ElementRequest
from ..planning.access import trace
from ..planning.accumulators import accumulator_dtype, kind_of, partial_dtype
from ..planning.mapping import SegmentKind, result_position, roots_of, spans_rows
from ..support.sequences import zip_strict
from ..targets.targets import CpuTarget
from .context import BufferNumbers, Context
from .passes import Member, result_number
from .reduction.reduce import flush_partials, scalar_graph
from .values import Emitter

FLAT_BLOCK = 8192  # after this many rows, a sum over rows is added from the lanes to the task's wider accumulator


class LaneLowering:
    """Lowers one nest. `body` returns the statements of a task."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.graph: Graph = context.graph
        self.emitter = Emitter(context.graph, BufferNumbers(context), context.row)
        self.members = [
            Member(segment, mapping, spans=spans_rows(segment, mapping)) for segment, mapping in context.placed()
        ]
        self.row_values: dict[tuple[int, int], str] = {}  # (node, position in the row's results): name
        self.flushes: list[tuple[Member, str, int]] = []

    def body(self) -> tuple[loops.Statement, ...]:
        """The task's scope, then the vector loop over the task's rows, then the task's partial results."""
        emitter = self.emitter
        emitter.push(None)
        partial = [member for member in self.members if member.spans]
        for member in partial:
            self._declare(member)
        if partial:
            self._blocked(partial)
        else:
            emitter.push(self.context.row)
            self._row()
            body = emitter.pop()
            emitter.put(
                Loop(self.context.row, self.context.nest.rows, LoopKind.SIMD, body, bounds=("first_row", "last_row"))
            )
        for member, local, count in self.flushes:
            flush_partials(self.context, emitter, member, local, count)
        return emitter.pop()

    def _declare(self, member: Member) -> None:
        dtype = partial_dtype(self.graph, member.segment, member.mapping)
        count = self.graph.nodes[member.segment.node].element_count
        member.accumulator = accumulator_dtype(self.graph, member.segment)
        is_logical = kind_of(self.graph, member.segment) in ("and", "or")
        if member.accumulator is DType.PRED and is_logical and isinstance(self.context.target, CpuTarget):
            member.accumulator = DType.S32  # gcc 12 finds no vectors for a loop that also keeps bytes of 32 lanes
        member.local, member.local_dtype = self.emitter.fresh("task"), dtype
        self.emitter.put(Local(member.local, dtype, count, kind_of(self.graph, member.segment)), 0)
        self.flushes.append((member, member.local, count))

    def _blocked(self, partial: list[Member]) -> None:
        """Blocks of rows: each is added up in lanes, and then added to the task's accumulators."""
        emitter = self.emitter
        width = self.context.target.lanes
        emitter.push(Var("block", max(1, -(-self.context.nest.rows // FLAT_BLOCK))))
        for member in partial:
            count = self.graph.nodes[member.segment.node].element_count
            member.lanes = [emitter.fresh("lane") for _ in range(count)]
            for name in member.lanes:
                emitter.put(Local(name, member.accumulator, width, kind_of(self.graph, member.segment)))
        emitter.push(self.context.row)
        self._row()
        body = emitter.pop()
        bounds = ("block_first", "block_last")
        emitter.put(Loop(self.context.row, FLAT_BLOCK, LoopKind.LANES, body, width, bounds))
        for member in partial:
            kind = kind_of(self.graph, member.segment)
            for position, name in enumerate(member.lanes):
                total = emitter.fresh("sum")
                emitter.put(Collapse(total, name, member.accumulator, width, kind))
                emitter.put(Combine(member.local, member.local_dtype, Index(position), kind, total))
        block = emitter.pop()
        emitter.put(loops.Blocks(FLAT_BLOCK, block))

    def _row(self) -> None:
        """One row: every segment, element by element. Stores come last."""
        writes: list[loops.Statement] = []
        for member in self.members:
            node = self.graph.nodes[member.segment.node]
            if node.op == "reduce_general":
                self._general(member, writes)
            elif member.segment.kind is SegmentKind.REDUCE:
                self._reduce(member, writes)
            else:
                self._store_value(member, writes)
        for statement in writes:
            self.emitter.put(statement)

    def _values_at(self, member: Member, inner: int) -> list[str]:
        point = member.mapping.point(Index.of_var(self.context.row), Index(inner))
        roots = roots_of(self.graph, member.segment, point)
        steps = trace(self.graph, roots, self.context.stored)
        self._name_row_values(steps.loads())
        self.emitter.emit(steps)
        names = []
        for root in roots:
            name = self.emitter.name_of(root)
            node = self.graph.nodes[member.segment.node]
            if node.op == "reduce_window" and root.guard:
                other = self._init(node.operands[1])
                depth = max(self.emitter.depth_of_name(name), self.emitter.depth_of_guard(root.guard))
                name = self.emitter.let(node.dtype, loops.Choose(((root.guard, name),), other), depth)
            names.append(name)
        return names

    def _name_row_values(self, loads: list[tuple[ElementRequest, Index]]) -> None:
        """Gives names to reads of this row's results, which are not in memory."""
        for request, flat in loads:
            if self.emitter.is_known(request):
                continue
            node = request.node
            if any(key[0] == node for key in self.row_values):
                size = self.graph.nodes[node].element_count // self.context.nest.rows
                position = flat - Index.of_var(self.context.row) * size
                assert position.is_constant, f"{request} is no result of its own row"
                name = self.row_values[node, position.constant]
                self.emitter.scopes[self.emitter.depth_of_name(name)].names[request] = name

    def _init(self, operand: int) -> str:
        request = ElementRequest(operand, ())
        self.emitter.emit(trace(self.graph, [request], self.context.stored))
        return self.emitter.name_of(request)

    def _positions(self, member: Member) -> dict[int, list[int]]:
        """For each result position within the row (or, if it spans rows, among all results): the row's elements that it combines."""
        row = Index(0) if member.spans else Index.of_var(self.context.row)
        node = self.graph.nodes[member.segment.node]
        size = 0 if member.spans else node.element_count // self.context.nest.rows
        found: dict[int, list[int]] = {}
        for inner in range(member.mapping.inner):
            point = member.mapping.point(row, Index(inner))
            flat = linear(result_position(member.segment, point), node.shape) - row * size
            assert flat.is_constant
            found.setdefault(flat.constant, []).append(inner)
        return found

    def _reduce(self, member: Member, writes: list[loops.Statement]) -> None:
        node = self.graph.nodes[member.segment.node]
        kind = kind_of(self.graph, member.segment)
        accumulator = accumulator_dtype(self.graph, member.segment)
        depth = len(self.emitter.scopes) - 1
        for position, elements in self._positions(member).items():
            names = [self._values_at(member, inner)[0] for inner in elements]
            if node.op == "reduce_window":
                names.append(self._init(node.operands[1]))
            name = self._merge(kind, accumulator, names)
            if member.spans:
                writes.append(Combine(member.lanes[position], member.accumulator, None, kind, name))
                continue
            if accumulator is not node.dtype:
                name = self.emitter.let(node.dtype, loops.Convert(accumulator, name), depth)
            self._publish(member.segment.node, position, name, writes)

    def _merge(self, kind: str, dtype: DType, names: list[str]) -> str:
        while len(names) > 1:
            pairs = [names[i : i + 2] for i in range(0, len(names), 2)]
            names = [
                pair[0]
                if len(pair) == 1
                else self.emitter.let(
                    dtype,
                    loops.Merge(kind, pair[0], pair[1]),
                    max(self.emitter.depth_of_name(name) for name in pair),
                )
                for pair in pairs
            ]
        return names[0]

    def _publish(self, node: int, position: int, name: str, writes: list[loops.Statement]) -> None:
        row = self.graph.nodes[node]
        self.row_values[node, position] = name
        size = row.element_count // self.context.nest.rows
        flat = Index.of_var(self.context.row) * size + position
        writes.extend(Store(buffer, row.dtype, flat, name) for buffer in self.context.stores_of(node))

    def _general(self, member: Member, writes: list[loops.Statement]) -> None:
        """A variadic reduction of the row, in order."""
        node = self.graph.nodes[member.segment.node]
        body = node.attributes["body"]
        assert isinstance(body, Graph)
        first = len(node.operands) // 2
        depth = len(self.emitter.scopes) - 1
        for position, elements in self._positions(member).items():
            state = [self._init(operand) for operand in node.operands[first:]]
            for inner in elements:
                values = self._values_at(member, inner)
                names = dict(zip_strict(body.parameters, [*state, *values]))
                state = scalar_graph(self.emitter, body, names, depth)
            for number in member.segment.nodes:
                self._publish(number, position, state[result_number(self.graph, number)], writes)

    def _store_value(self, member: Member, writes: list[loops.Statement]) -> None:
        node = member.segment.node
        source = self.graph.nodes[node]
        for inner in range(member.mapping.inner):
            name = self._values_at(member, inner)[0]
            flat = member.mapping.point(Index.of_var(self.context.row), Index(inner))
            writes.extend(Store(buffer, source.dtype, flat, name) for buffer in self.context.stores_of(node))
