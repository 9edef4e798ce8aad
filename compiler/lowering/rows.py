"""Row-wise code of a nest: for each row, passes over its elements (the regional scheme on a CPU).

A pass is one loop over the row, shared by all segments that can run at the same time; the result of a row reduction is known to the
next pass. An element that several passes need is recomputed if that is cheap. Otherwise it is kept in a tile (or read back from the
output where it was just written), so that softmax's exp is computed once. Reductions over rows accumulate in locals of the task and
store one partial result per task.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from types import MappingProxyType

from ..ir.graph import DType, Graph, Node
from ..ir.index_maps import ZERO, Digit, Index, Var, linear
from ..loops import loops
from ..loops.loops import Assign, Collapse, Combine, Local, Loop, LoopKind, Store
from ..ops.propagation import ElementRequest, LoadOwn
from ..planning.access import Trace, trace
from ..planning.accumulators import accumulator_dtype, kind_of, partial_dtype
from ..planning.mapping import (
    RowMap,
    Segment,
    SegmentKind,
    boundaries,
    inner_pieces,
    result_position,
    roots_of,
    spans_rows,
)
from ..planning.placement import within
from ..planning.schemes import Scheme
from ..planning.transposes import BLOCK_ROWS, MOST_LANES, SQUARE_LANES
from ..support.divisors import divisor_near
from ..support.sequences import zip_strict
from ..targets.targets import GpuTarget
from .ahead import Ahead
from .context import BufferNumbers, Context
from .passes import (
    Member,
    RowSplit,
    assign_passes,
    by_shape,
    indices_of,
    is_reduced,
    result_number,
    split_row,
)
from .product import ProductLowering
from .reduction.reduce import flush_partials, fold_across, fold_body
from .tiles import SegmentVisit, Tiles, plan_tiles
from .values import Emitter, RowResult

LONG_SUM = 16384  # a sum over a longer row is cut into blocks, so that a lane adds up at most 512 numbers in sequence
BLOCK = 4096
CHAINS = {16: 8, 32: 4}
"""By the largest number of results that all rows of a task share: accumulators per result, used in rotation row by row. With one
accumulator, each row would wait about seven cycles for the addition of the previous row, whose result is still in the store
buffer."""
FEWEST_ROWS = 64
"""With fewer rows, several accumulators (CHAINS) are not worth their final addition."""


class RowLowering:
    """Lowers one nest. `body` returns the statements of a task."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.graph: Graph = context.graph
        self.emitter = Emitter(context.graph, BufferNumbers(context), context.row)
        self.row_index = Index.of_var(context.row)
        self.splits: dict[int, RowSplit] = {}
        self.flushes: list[tuple[Member, str, int]] = []
        self._filling: set[int] = set()  # nodes that the current pass keeps for later passes
        self._ahead: Ahead | None = Ahead(context, self.emitter)

    def body(self) -> tuple[loops.Statement, ...]:
        """The task's scope, the loop over the task's rows with all passes, and the task's partial results."""
        emitter, nest = self.emitter, self.context.nest
        passes = assign_passes(self.context)
        for size in {mapping.inner for _, mapping in nest.placed}:
            self.splits[size] = self._split(size)
        emitter.push(None)
        emitter.push(self.context.row)
        self._plan_tiles(passes)
        for members in passes:
            for group in by_shape(self.graph, members):
                self._pass(group)
            emitter.tiles.filled |= self._filling
            self._filling.clear()
        row_body = emitter.pop()
        emitter.put(Loop(self.context.row, nest.rows, LoopKind.SERIAL, row_body, bounds=("first_row", "last_row")))
        for member, local, count in self.flushes:
            self._add_chains(member, count)
            flush_partials(self.context, emitter, member, local, count)
        return emitter.pop()

    def squares(self, order: Index, panel_rows: int) -> tuple[loops.Statement, ...]:
        """The statements of a task of a nest that transposes: squares of BLOCK_ROWS rows by about SQUARE_LANES lanes, with the rows
        in `order`. Within a panel of `panel_rows` rows, all squares of one group of lanes are processed before those of the next
        group."""
        self.row_index, self._ahead = order, None
        (members,) = assign_passes(self.context)
        emitter, size = self.emitter, members[0].mapping.inner
        split = self._split(size)
        innermost, stride = split.variables[-1]
        lanes = divisor_near(innermost.extent, SQUARE_LANES)
        if innermost.extent % SQUARE_LANES:
            fitting = (count for count in range(MOST_LANES, SQUARE_LANES, -1) if innermost.extent % count == 0)
            lanes = next(fitting, lanes)
        if lanes >= self.context.target.unroll_row:
            split = split_row(size, {s * stride for s in (1, lanes)} | {s for _, s in split.variables}, set(), 1)
        self.splits[size] = split
        emitter.push(None)
        for variable, _ in split.variables[:-1]:
            emitter.push(variable)
        emitter.push(self.context.row)
        emitter.push(split.variables[-1][0])
        self._innermost(members, split, general=False)
        lane, body = split.variables[-1][0], emitter.pop()
        emitter.put(Loop(lane, lane.extent, LoopKind.SIMD, body))
        body = emitter.pop()
        row = self.context.row
        over_rows = Loop(row, row.extent, LoopKind.SERIAL, body, bounds=("block_first", "block_last"))
        panels = len(split.variables) > 1 and panel_rows > BLOCK_ROWS
        run = self._run_of_rows(members)
        emitter.put(
            loops.Blocks(BLOCK_ROWS, (over_rows,), bounds=("panel_first", "panel_last"), within=run)
            if panels
            else over_rows
        )
        for variable, _ in reversed(split.variables[:-1]):
            body = emitter.pop()
            emitter.put(Loop(variable, variable.extent, LoopKind.SERIAL, body))
        return (
            loops.Blocks(panel_rows, emitter.pop(), "panel")
            if panels
            else loops.Blocks(BLOCK_ROWS, emitter.pop(), within=run),
        )

    def _run_of_rows(self, members: Iterable[Member]) -> int | None:
        """Rows after which those that are neighbours in a tensor begin anew, if that is within a square: no block goes beyond."""
        row = self.context.row
        runs = {
            atom.extent
            for member in members
            for _, flat in trace(
                self.graph, self._roots(member, Index.of_var(within(member.mapping.inner))), self.context.stored
            ).loads()
            for coefficient, atom in flat.terms
            if coefficient == 1
            and isinstance(atom, Digit)
            and atom.variable == row
            and atom.stride == 1
            and not atom.is_top
        }
        shortest = min(runs, default=0)
        is_one_run = shortest >= BLOCK_ROWS and shortest % BLOCK_ROWS and not any(run % shortest for run in runs)
        return shortest if is_one_run else None

    def _roots(self, member: Member, inner: Index) -> tuple[ElementRequest, ...]:
        return roots_of(self.graph, member.segment, member.mapping.point(self.row_index, inner))

    def _split(self, size: int) -> RowSplit:
        variable = within(size)
        wanted: set[int] = set()
        required: set[int] = set()
        longest = 0
        for segment, mapping in self.context.nest.placed:
            if mapping.inner != size:
                continue
            member = Member(segment, mapping)
            roots = self._roots(member, Index.of_var(variable))
            steps = trace(self.graph, roots, self.context.stored)
            wanted |= boundaries(indices_of(self.graph, steps, roots), variable)
            if segment.reduces:
                pieces = inner_pieces(segment, mapping)
                required |= {stride for stride, _, _ in pieces} - {1}
                longest = max([longest, *(extent for stride, extent, reduced in pieces if reduced and stride == 1)])
        split = split_row(size, wanted, required, self.context.target.unroll_row - 1)
        if longest > LONG_SUM and split.variables[-1][0].extent > LONG_SUM:
            block = divisor_near(split.variables[-1][0].extent, BLOCK)
            if block >= 256:
                cut = block * split.variables[-1][1]
                split = split_row(size, wanted | {cut}, required | {cut}, self.context.target.unroll_row - 1)
        return split

    def _split_of(self, member: Member) -> RowSplit:
        """The loops over the member's row. On a GPU, a variadic reduction to one result per row has a single loop, which workers
        share; with several results per row, each worker computes some of them."""
        size, node = member.mapping.inner, self.graph.nodes[member.segment.node]
        if product := self._product_of(member):
            return product.split
        if not isinstance(self.context.target, GpuTarget) or node.op != "reduce_general":
            return self.splits[size]
        pieces = inner_pieces(member.segment, member.mapping)
        several = any(not reduced for _, _, reduced in pieces)
        return split_row(size, set(), {stride for stride, _, _ in pieces} - {1} if several else set(), 0)

    def _product_of(self, member: Member) -> ProductLowering | None:
        """The member as a product of rows, if the plan computes it so."""
        form = self.context.plan.executions[self.context.nest.number].row_products.get(member.segment.node)
        return None if form is None else ProductLowering(self.context, self.emitter, member, form)

    def _plan_tiles(self, passes: list[list[Member]]) -> None:
        """Finds the elements that a pass should keep for a later pass, and declares tiles of the row for them."""
        visits: list[SegmentVisit] = []
        for number, members in enumerate(passes):
            for member in members:
                split = self._split_of(member)
                node = member.segment.node
                if product := self._product_of(member):
                    left = (product.left,)
                    visits.append(
                        SegmentVisit(number, left, self._tracer(left), Index.of_var(product.term), split.size, None)
                    )
                    continue
                value = member.segment.kind is SegmentKind.VALUE and bool(
                    self.context.plan.memory_of(member.segment.node)
                )
                for unrolled in range(split.unrolled if split.variables else 0):
                    inner = split.inner(unrolled)
                    roots = self._roots(member, inner)
                    buffer = self.context.stores_of(node)[0] if value else None
                    visits.append(SegmentVisit(number, roots, self._tracer(roots), inner, split.size, buffer))
        splits = [self._split_of(member) for members in passes for member in members]
        variables = frozenset(variable for split in splits for variable, _ in split.variables)
        plan_tiles(self.emitter.tiles, visits, variables, self.context.target, self._declare_tile, self._is_wanted)

    def _tracer(self, roots: tuple[ElementRequest, ...]) -> Callable[[Tiles], Trace]:
        return lambda tiles: trace(self.graph, roots, self.context.stored, tiles)

    def _is_wanted(self, node: int) -> bool:
        return self.context.plan.scheme_of(node).scheme is Scheme.REGIONAL

    def _declare_tile(self, node: int, size: int) -> str:
        name = self.emitter.fresh("tile")
        self.emitter.put(Local(name, self.graph.nodes[node].dtype, size, None), 1)
        return name

    # ---- passes -----------------------------------------------------------------------------------------------------------

    def _pass(self, members: list[Member]) -> None:
        """One loop over the row for `members`, whose rows have the same size."""
        if product := self._product_of(members[0]):
            self._product_pass(members[0], product)
            return
        general = self.graph.nodes[members[0].segment.node].op == "reduce_general"
        split = self._split_of(members[0])
        reductions = [member for member in members if member.segment.kind is SegmentKind.REDUCE]
        for member in reductions:
            self._prepare(member, split)
        lanes = any(member.lane_reduced for member in reductions) and not general
        # One result per row, by one loop: workers may share it, each taking a stretch.
        alone = general and self._kept_count(members[0]) == 1 and len(split.variables) == 1
        width = self._width(split)
        emitter = self.emitter
        for member in reductions:
            self._declare(member, general)
        for depth in range(-1, len(split.variables)):
            if depth >= 0:
                emitter.push(split.variables[depth][0])
            for member in reductions:
                if member.lane_reduced and not general and member.kept_depth == depth:
                    count = self._kept_unrolled(member, split)
                    member.lanes = [emitter.fresh("lane") for _ in range(count)]
                    for name in member.lanes:
                        emitter.put(Local(name, member.accumulator, width, kind_of(self.graph, member.segment)))
        self._innermost(members, split, general)
        for depth in range(len(split.variables) - 1, -1, -1):
            innermost = depth == len(split.variables) - 1
            kind = LoopKind.SERIAL
            if innermost and split.variables[depth][0].extent > 1:
                if not general:
                    kind = LoopKind.LANES if lanes else LoopKind.SIMD
                elif alone:
                    kind = LoopKind.FOLD
                elif not members[0].lane_reduced:
                    kind = LoopKind.SIMD  # each iteration has an accumulator of its own
            variable = split.variables[depth][0]
            body = emitter.pop()
            emitter.put(Loop(variable, variable.extent, kind, body, width if kind is LoopKind.LANES else 0))
            for member in reductions:
                if member.lane_reduced and not general and member.kept_depth == depth - 1:
                    self._collapse(member, split, width)
        if not split.variables:
            for member in reductions:
                if member.lane_reduced and not general:
                    self._collapse(member, split, width)
        if alone and split.variables[0][0].extent > 1:
            (member,) = reductions
            fold = self.graph.nodes[member.segment.node].attributes["body"]
            assert isinstance(fold, Graph)
            emitter.put(fold_across(emitter, fold, member.lanes))
        for member in reductions:
            self._finish(member, general)

    def _product_pass(self, member: Member, product: ProductLowering) -> None:
        """The row of a product, which is then readable like the results of any reduction of the row."""
        self._prepare(member, self.splits[member.mapping.inner])
        member.local, member.local_dtype = self.emitter.fresh("row"), member.accumulator
        self.emitter.put(Local(member.local, member.accumulator, member.slice_size, None), 1)
        product.lower(member.local)
        self._finish(member, general=False)

    def _width(self, split: RowSplit) -> int:
        if not split.variables:
            return 1
        extent = split.variables[-1][0].extent
        width = self.context.target.lanes
        while width > 8 and extent < 2 * width:
            width //= 2
        return width

    def _prepare(self, member: Member, split: RowSplit) -> None:
        segment, mapping = member.segment, member.mapping
        node = self.graph.nodes[segment.node]
        member.spans = spans_rows(segment, mapping)
        member.reduced_strides = inner_pieces(segment, mapping)
        kept_inner = math.prod(extent for _, extent, reduced in member.reduced_strides if not reduced)
        member.slice_size = 0 if member.spans else node.element_count // self.context.nest.rows
        assert member.spans or member.slice_size == kept_inner
        member.accumulator = accumulator_dtype(self.graph, segment)
        flags = [is_reduced(member.reduced_strides, stride) for _, stride in split.variables]
        member.kept_depth = max((depth for depth, reduced in enumerate(flags) if not reduced), default=-1)
        member.lane_reduced = not flags or flags[-1]
        member.in_lanes = bool(flags)

    def _kept_count(self, member: Member) -> int:
        return math.prod(extent for _, extent, reduced in member.reduced_strides if not reduced)

    def _kept_unrolled(self, member: Member, split: RowSplit) -> int:
        """Number of result elements among the unrolled elements of the row."""
        return len({str(self._kept_position(member, Index(u))) for u in range(split.unrolled)})

    def _kept_position(self, member: Member, inner: Index) -> Index:
        """The index of a result element among the accumulators of the row (or, if it spans rows, of the task)."""
        row = ZERO if member.spans else self.row_index
        point = member.mapping.point(row, inner)
        shape = self.graph.nodes[member.segment.node].shape
        return linear(result_position(member.segment, point), shape) - row * member.slice_size

    def _declare(self, member: Member, general: bool) -> None:
        """Declares the accumulators, which live for a row or for the task."""
        count = self._kept_count(member)
        if general:
            self._declare_general(member, count)
            return
        kind = kind_of(self.graph, member.segment)
        if member.spans:
            dtype = partial_dtype(self.graph, member.segment, member.mapping)
            member.local, member.local_dtype = self.emitter.fresh("task"), dtype
            is_chain = not member.lane_reduced and count > 1 and self.context.nest.rows >= FEWEST_ROWS
            if is_chain and not isinstance(self.context.target, GpuTarget):
                member.chains = next((chains for most, chains in CHAINS.items() if count <= most), 1)
            self.emitter.put(Local(member.local, dtype, count * member.chains, kind), 0)
            self.flushes.append((member, member.local, count))
        elif count > 1 or member.kept_depth >= 0:
            member.local, member.local_dtype = self.emitter.fresh("row"), member.accumulator
            self.emitter.put(Local(member.local, member.accumulator, count, kind), 1)

    def _declare_general(self, member: Member, count: int) -> None:
        node = self.graph.nodes[member.segment.node]
        first = len(node.operands) // 2
        inits = [ElementRequest(operand, ()) for operand in node.operands[first:]]
        self.emitter.emit(trace(self.graph, inits, self.context.stored))
        member.lanes = []
        for request in inits:
            name = self.emitter.fresh("row")
            self.emitter.put(Local(name, self.graph.nodes[request.node].dtype, count, None), 1)
            variable = Var(f"i{name}", count)
            fill = Assign(name, Index.of_var(variable), self.emitter.name_of(request))
            self.emitter.put(Loop(variable, count, LoopKind.SIMD if count > 1 else LoopKind.SERIAL, (fill,)), 1)
            member.lanes.append(name)

    def _innermost(self, members: list[Member], split: RowSplit, general: bool) -> None:
        """The body of the innermost loop: all values first, then all stores, because an output may be in an input's
        memory."""
        emitter = self.emitter
        writes: list[loops.Statement] = []
        collected: dict[int, dict[str, tuple[Index, list[str]]]] = {}
        for unrolled in range(split.unrolled):
            inner = split.inner(unrolled)
            for number, member in enumerate(members):
                roots = self._roots(member, inner)
                steps = trace(self.graph, roots, self.context.stored, emitter.tiles)
                if self._ahead is not None and split.unrolled == 1 and split.variables:
                    steps = self._ahead.computed(steps, roots, split)
                emitter.emit(steps)
                writes.extend(self._keep(steps, inner, split.size))
                names = [self._value(member, root) for root in roots]
                if self.graph.nodes[member.segment.node].op == "dot":
                    names = [self._term(member, names)]
                if general:
                    self._fold_general(member, inner, names)
                elif member.segment.kind is SegmentKind.REDUCE:
                    position = self._kept_position(member, inner)
                    by_place = collected.setdefault(number, {})
                    by_place.setdefault(str(position), (position, []))[1].append(names[0])
                else:
                    writes.extend(self._stores(member.segment, inner, member.mapping, names[0]))
        for number, places in collected.items():
            writes.extend(self._accumulate(members[number], places))
        for statement in writes:
            emitter.put(statement)

    def _keep(self, steps: Trace, inner: Index, size: int) -> list[loops.Statement]:
        """Stores into the tiles the elements computed here that later passes need."""
        tiles = self.emitter.tiles
        found: list[loops.Statement] = []
        for request, step in steps.steps.items():
            kept = tiles.kept.get(request.node)
            if kept is None or isinstance(step, LoadOwn) or request.node in tiles.filled or kept.slice_size != size:
                continue
            if tiles.place(request) == inner:
                self._filling.add(request.node)
                if kept.tile is not None:
                    found.append(Assign(kept.tile, inner, self.emitter.name_of(request)))
        return found

    def _term(self, member: Member, factors: list[str]) -> str:
        """A term of a dot: the product of its factors, in the accumulator's dtype."""
        node, depth = self.graph.nodes[member.segment.node], max(map(self.emitter.depth_of_name, factors))
        times = Node("multiply", node.operands, (), member.accumulator, MappingProxyType({}))
        return self.emitter.let(
            member.accumulator, loops.Compute(times, (member.accumulator,) * 2, tuple(factors)), depth
        )

    def _value(self, member: Member, root: ElementRequest) -> str:
        """The name of a root's value; outside the window of a reduce_window, that is the initial value."""
        name = self.emitter.name_of(root)
        node = self.graph.nodes[member.segment.node]
        if node.op != "reduce_window" or not root.guard:
            return name
        init = ElementRequest(node.operands[1], ())
        self.emitter.emit(trace(self.graph, [init], self.context.stored))
        other = self.emitter.name_of(init)
        depth = max(self.emitter.depth_of_name(name), self.emitter.depth_of_guard(root.guard))
        return self.emitter.let(node.dtype, loops.Choose(((root.guard, name),), other), depth)

    def _stores(self, segment: Segment, inner: Index, mapping: RowMap, name: str) -> list[loops.Statement]:
        node = segment.node
        flat = mapping.point(self.row_index, inner)
        dtype = self.graph.nodes[node].dtype
        return [Store(buffer, dtype, flat, name) for buffer in self.context.stores_of(node)]

    def _accumulate(self, member: Member, places: dict[str, tuple[Index, list[str]]]) -> list[loops.Statement]:
        found: list[loops.Statement] = []
        kind = kind_of(self.graph, member.segment)
        for order, (position, names) in enumerate(places.values()):
            name = self._merge(kind, member.accumulator, names)
            if member.lane_reduced:
                lane = None if member.in_lanes else ZERO
                found.append(Combine(member.lanes[order], member.accumulator, lane, kind, name))
            else:
                _, chain = Index.of_var(self.context.row).divide(member.chains)
                place = position + chain * self._kept_count(member) if member.chains > 1 else position
                found.append(Combine(member.local, member.local_dtype, place, kind, name))
        return found

    def _add_chains(self, member: Member, count: int) -> None:
        """Adds all accumulators of a task into the first one."""
        emitter, kind = self.emitter, kind_of(self.graph, member.segment)
        for chain in range(1, member.chains):
            variable = Var(f"i{emitter.fresh()}", count)
            position, name = Index.of_var(variable), emitter.fresh()
            body = (
                loops.Let(name, member.local_dtype, loops.LoadLocal(member.local, position + chain * count)),
                Combine(member.local, member.local_dtype, position, kind, name),
            )
            emitter.put(Loop(variable, count, LoopKind.SIMD, body), 0)

    def _merge(self, kind: str, dtype: DType, names: list[str]) -> str:
        """Combines all of `names`, pairwise, and returns the name of the result."""
        while len(names) > 1:
            pairs = [names[i : i + 2] for i in range(0, len(names), 2)]
            merged: list[str] = []
            for pair in pairs:
                if len(pair) == 1:
                    merged.append(pair[0])
                else:
                    depth = max(self.emitter.depth_of_name(name) for name in pair)
                    merged.append(self.emitter.let(dtype, loops.Merge(kind, pair[0], pair[1]), depth))
            names = merged
        return names[0]

    def _fold_general(self, member: Member, inner: Index, names: list[str]) -> None:
        """One step of a variadic reduction, in order: its body, applied to the accumulators and the values."""
        node = self.graph.nodes[member.segment.node]
        body = node.attributes["body"]
        assert isinstance(body, Graph)
        position = self._kept_position(member, inner)
        emitter = self.emitter
        depth = len(emitter.scopes) - 1
        results = fold_body(emitter, body, [(local, position) for local in member.lanes], names, depth)
        for local, name in zip_strict(member.lanes, results):
            emitter.put(Assign(local, position, name))

    def _collapse(self, member: Member, split: RowSplit, width: int) -> None:
        """Combines the lanes to one number, which is stored where the result is kept."""
        emitter = self.emitter
        kind = kind_of(self.graph, member.segment)
        positions: dict[str, Index] = {}
        for unrolled in range(split.unrolled):
            inner = Index(unrolled)
            for depth, (variable, stride) in enumerate(split.variables):
                if depth <= member.kept_depth:
                    inner = inner + Index.of_var(variable) * stride
            position = self._kept_position(member, inner)
            positions.setdefault(str(position), position)
        for lanes, position in zip_strict(member.lanes, positions.values()):
            name = emitter.fresh("sum")
            depth = len(emitter.scopes) - 1
            emitter.put(Collapse(name, lanes, member.accumulator, width, kind))
            emitter.note_depth(name, depth)
            if member.local:
                emitter.put(Combine(member.local, member.local_dtype, position, kind, name))
            else:
                self._publish_scalar(member, name)

    def _publish_scalar(self, member: Member, name: str) -> None:
        """A row's only result: rounds it, names it, and stores it if it is needed in memory."""
        emitter = self.emitter
        node = self.graph.nodes[member.segment.node]
        name = self._with_init(member, name)
        if member.accumulator is not node.dtype:
            name = emitter.let(node.dtype, loops.Convert(member.accumulator, name), 1)
        emitter.note_depth(name, 1)
        emitter.row_results[member.segment.node] = RowResult(name, 1, False, node.dtype)
        for buffer in self.context.stores_of(member.segment.node):
            emitter.put(Store(buffer, node.dtype, self.row_index, name), 1)

    def _with_init(self, member: Member, name: str) -> str:
        """`name` combined with the initial value, if the member is a reduce_window."""
        node = self.graph.nodes[member.segment.node]
        if node.op != "reduce_window":
            return name
        init = ElementRequest(node.operands[1], ())
        self.emitter.emit(trace(self.graph, [init], self.context.stored))
        merge = loops.Merge(kind_of(self.graph, member.segment), name, self.emitter.name_of(init))
        return self.emitter.let(member.accumulator, merge, len(self.emitter.scopes) - 1)

    def _finish(self, member: Member, general: bool) -> None:
        """After the pass: results that are arrays become readable, and are stored if they are needed in memory."""
        if member.spans or (not member.local and not general):
            return
        nodes = member.segment.nodes
        for node_number in nodes:
            node = self.graph.nodes[node_number]
            local = member.lanes[result_number(self.graph, node_number)] if general else member.local
            accumulator = node.dtype if general else member.accumulator
            self._apply_init_to(member, local, accumulator)
            self.emitter.row_results[node_number] = RowResult(local, member.slice_size, True, accumulator)
            for buffer in self.context.stores_of(node_number):
                self._store_array(member, node_number, local, accumulator, buffer)

    def _apply_init_to(self, member: Member, local: str, accumulator: DType) -> None:
        node = self.graph.nodes[member.segment.node]
        if node.op != "reduce_window":
            return
        init = ElementRequest(node.operands[1], ())
        self.emitter.emit(trace(self.graph, [init], self.context.stored))
        count = self._kept_count(member)
        variable = Var(f"i{self.emitter.fresh()}", count)
        step = Combine(
            local, accumulator, Index.of_var(variable), kind_of(self.graph, member.segment), self.emitter.name_of(init)
        )
        self.emitter.put(Loop(variable, count, LoopKind.SIMD, (step,)), 1)

    def _store_array(self, member: Member, node_number: int, local: str, accumulator: DType, buffer: int) -> None:
        node = self.graph.nodes[node_number]
        count = member.slice_size
        variable = Var(f"i{self.emitter.fresh()}", count)
        position = Index.of_var(variable)
        name = self.emitter.fresh()
        body: list[loops.Statement] = [loops.Let(name, accumulator, loops.LoadLocal(local, position))]
        if accumulator is not node.dtype:
            rounded = self.emitter.fresh()
            body.append(loops.Let(rounded, node.dtype, loops.Convert(accumulator, name)))
            name = rounded
        body.append(Store(buffer, node.dtype, self.row_index * count + position, name))
        self.emitter.put(Loop(variable, count, LoopKind.SIMD, tuple(body)), 1)
