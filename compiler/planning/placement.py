"""Which segments share a loop over rows, and which results must be in memory for that.

A *nest* is one loop over rows, with all segments whose mappings agree on what row r is (AStitch fuses the vertical loops of
regionally connected groups; that fused loop is our nest). Inside a nest, values pass from segment to segment in registers (local)
or, once a row is complete, through the row's own scalars and tiles (regional). Between nests they pass through memory (global),
across a phase boundary: nests of one level run side by side (remote stitching), levels run one after the other.

Placement is greedy, in topological order. A segment joins a nest if a tensor that the nest has cut into rows determines the
segment's own rows (`mapping.match`: AStitch's passive and proactive block-locality in one), if everything that it reads from other
nests was complete before the nest started, and if the nest has enough rows for its work. Otherwise it starts a nest of its own,
with the mapping of its group's dominant if it can follow that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ..ir.graph import Graph
from ..ir.index_maps import Guard, Index, Var, unravel
from ..ops.propagation import ElementRequest
from ..ops.table import OPS, Cost
from ..targets.targets import CpuTarget, GpuTarget, Target
from .access import Answers, Trace, trace
from .groups import Candidate, Group, carriers
from .mapping import (
    RowMap,
    Segment,
    SegmentKind,
    boundaries,
    match,
    reduction_is_legal,
    roots_of,
    rows_agree,
    segments_of,
    slices_under,
    spans_rows,
)
from .mapping_choice import MIN_ROWS, choose
from .rules import ALL, Rules
from .schemes import OpScheme, Scheme

ROW = "r"
WITHIN = "k"
SOFT_LIGHT_OPS = 8  # another nest recomputes a light output of at most this many ops rather than wait for it
SMALL_WORK = 1 << 15  # a segment with fewer elements may join a nest of few rows
ALONE = (SegmentKind.SCATTER, SegmentKind.SCAN)  # segments that always have a nest of their own
KEPT_SHARE = 8
"""A row's slice of a value that its later passes read often takes at most this part of the room for tiles."""
MAX_STREAMS = 24  # with more tensors in a nest, sharing a parameter is no reason to join it


@dataclass
class Nest:
    """A loop over `rows` rows. `level`: the phase in which the nest runs. `slices`: elements per row of each tensor that is cut into
    rows, by node. `reads`: nodes that are read from memory. `group`: the dominant of the nest's group, or -1."""

    number: int
    rows: int
    level: int
    placed: list[tuple[Segment, RowMap]] = field(default_factory=list)
    slices: dict[int, int] = field(default_factory=dict)
    reads: set[int] = field(default_factory=set)
    group: int = -1

    @property
    def row(self) -> Var:
        """The variable of the row number."""
        return Var(ROW, self.rows)

    def computes(self) -> set[int]:
        """The nodes of all segments of the nest."""
        return {node for segment, _ in self.placed for node in segment.nodes}


@dataclass(frozen=True)
class Placement:
    """The nests in order, each candidate's nest (`nest_of`), and where each candidate's result lives, with the reason in words
    (`schemes`). `partial`: reductions over rows, complete only after all tasks. `reductions`: all candidates that reduce. `hard`:
    candidates that another nest may not recompute, `reductions` among them. `waits`: large segments that could not join the nest of a
    node because it runs too early, and from which level on they could."""

    nests: tuple[Nest, ...]
    nest_of: Mapping[int, Nest]
    schemes: Mapping[int, OpScheme]
    partial: frozenset[int]
    hard: frozenset[int]
    reductions: frozenset[int]
    waits: Mapping[int, int]

    def stored_in(self, nest: Nest) -> Callable[[int], bool]:
        """Returns a predicate: whether `nest` reads a node from memory or from its own row results, rather than computing it."""
        here = nest.computes() - self.reductions
        return lambda node: node in self.hard and node not in here


def within(size: int) -> Var:
    """The variable of the position within a row of `size` elements."""
    return Var(f"{WITHIN}{size}", size)


def mapped_roots(
    graph: Graph, segment: Segment, mapping: RowMap, row: Index, inner: Index
) -> tuple[ElementRequest, ...]:
    """The segment's roots at row `row` and position `inner` within the row."""
    return roots_of(graph, segment, mapping.point(row, inner))


def segment_list(graph: Graph, candidates: Mapping[int, Candidate]) -> list[tuple[Segment, ...]]:
    """The segments of all candidates in topological order; the results of one variadic reduction are together."""
    siblings: dict[object, list[int]] = {}
    for i in candidates:
        node = graph.nodes[i]
        key: object = i
        if node.op == "reduce_general":
            body = node.attributes["body"]
            assert isinstance(body, Graph)
            key = (node.operands, node.attributes["dimensions"], body.digest)
        siblings.setdefault(key, []).append(i)
    return [segments_of(graph, tuple(nodes)) for nodes in siblings.values()]


class Placer:
    """Places segments one by one; `finish` returns the Placement. `apart`: see `place_all`."""

    def __init__(
        self,
        graph: Graph,
        candidates: Mapping[int, Candidate],
        groups: Iterable[Group],
        target: Target,
        apart: Mapping[int, int],
        rules: Rules = ALL,
        later: Mapping[int, int] | None = None,
        answers: Answers | None = None,
    ) -> None:
        self.graph = graph
        self._answers = answers or Answers(graph)
        self.later = later or {}
        self.rules = rules
        self.apart = apart
        self.target = target
        self.candidates = candidates
        self.reductions = frozenset(i for i in candidates if OPS[graph.nodes[i].op].is_reduction)
        self.hard = frozenset(i for i in candidates if i in self.reductions or self._is_hard(i))
        self.group_of = {i: group for group in groups for i in group.candidates}
        self.carrying = carriers(graph) | frozenset(candidates)
        self.nests: list[Nest] = []
        self.nest_of: dict[int, Nest] = {}
        self.ready: dict[int, int] = {}
        self.partial: set[int] = set()
        self.crossing: set[int] = set()
        self.reasons: dict[int, str] = {}
        self._kin: dict[int, tuple[frozenset[int], set[int]]] = {}
        self.nests_by_tensor: dict[int, list[Nest]] = {}
        self.waits: dict[int, int] = {}

    def _trace(self, roots: Iterable[ElementRequest], stored: Callable[[int], bool]) -> Trace:
        return trace(self.graph, roots, stored, answers=self._answers)

    def _is_hard(self, i: int) -> bool:
        """Whether another nest must read an element-wise candidate from memory, because it is expensive or a long chain of
        ops."""
        candidate, node = self.candidates[i], self.graph.nodes[i]
        if candidate.cuts and not candidate.reason.startswith("it is an output"):
            return node.element_count > 1
        light, stack, seen = 0, [i], {i}
        while stack:
            current = self.graph.nodes[stack.pop()]
            cost = OPS[current.op].cost
            if cost is Cost.EXPENSIVE:
                return node.element_count > 1
            light += cost is Cost.LIGHT
            for operand in current.operands:
                if operand not in seen and operand not in self.candidates:
                    seen.add(operand)
                    stack.append(operand)
        return light > SOFT_LIGHT_OPS and node.element_count > 1

    def place(self, segment: Segment, after: int = 0) -> Nest:
        """Puts `segment` into a nest of level `after` or later and returns the nest. Raises TraceTooLargeError if ops would be
        inlined too often."""
        tried: dict[int, str] = {}
        after = max([after, *(self.later.get(node, 0) for node in segment.nodes)])
        stored = self._stored(None, segment)
        steps = self._trace(self._space_roots(segment), stored)
        if segment.kind not in ALONE and self.rules.hierarchy:
            for nest in self._homes(segment, steps):
                refusal = self._join(segment, nest, after)
                if refusal is None:
                    return nest
                tried[nest.number] = refusal
        return self._open(segment, steps, after, tried)

    def _space_roots(self, segment: Segment) -> tuple[ElementRequest, ...]:
        extra: list[ElementRequest] = []
        node = self.graph.nodes[segment.node]
        if node.op in ("reduce_general", "reduce_window"):  # initial values
            first = len(node.operands) // 2
            extra = [ElementRequest(operand, ()) for operand in node.operands[first:]]
        if segment.kind is SegmentKind.SCAN:
            starts = self.graph.nodes[node.operands[1]]
            extra = [
                ElementRequest(node.operands[1], unravel(Index.of_var(Var("i", starts.element_count)), starts.shape))
            ]
        if segment.kind is SegmentKind.SCATTER:
            indices = self.graph.nodes[node.operands[1]]
            variable = Var("i", max(indices.element_count, 1))
            extra = [ElementRequest(node.operands[1], unravel(Index.of_var(variable), indices.shape))]
        return (*roots_of(self.graph, segment, Index.of_var(segment.variable)), *extra)

    def _stored(self, nest: Nest | None, segment: Segment) -> Callable[[int], bool]:
        here = (nest.computes() if nest else set()) | set(segment.nodes)
        return lambda node: node in self.reductions or (node in self.hard and node not in here)

    def _homes(self, segment: Segment, steps: Trace) -> list[Nest]:
        """The nests worth trying, best first: those that compute its sources, the nest of its group, those that share
        tensors."""
        found: dict[int, tuple[int, int]] = {}
        group = self.group_of.get(segment.node)
        for request in steps.steps:
            for nest in self.nests_by_tensor.get(request.node, ()):
                made = request.node in self.candidates and self.nest_of.get(request.node) is nest
                same = group is not None and nest.group == group.dominant
                if not made and not self.rules.dominant_merging:
                    continue
                score = (2 if made else 1 if same else 0, self.graph.nodes[request.node].size_bytes)
                found[nest.number] = max(found.get(nest.number, (0, 0)), score)
        order = sorted(found, key=lambda number: (found[number], self.nests[number].level), reverse=True)
        return [self.nests[number] for number in order[:6]]

    def _join(self, segment: Segment, nest: Nest, after: int) -> str | None:
        """Adds the segment to the nest if that is allowed, and returns None; else returns the reason why not."""
        if any(self.apart.get(node) != self.apart.get(segment.node) for node in nest.computes()):
            return "one of them stands for a family of components"
        if nest.level < after:
            return "it runs before what the segment waits for"
        alone = next((placed.kind for placed, _ in nest.placed if placed.kind in ALONE), None)
        if alone is not None:
            return f"a {alone.value} runs alone"
        apart = {i for i in nest.computes() if i in self.candidates and self.candidates[i].apart}
        stored = self._stored(nest, segment)
        steps = self._trace(self._space_roots(segment), lambda node: node in apart or stored(node))
        made = apart & {request.node for request, _ in steps.loads()}
        if made and not (self._reads_again(segment, nest, steps) and all(self._keeps(node, nest) for node in made)):
            return "it would read from memory what the nest itself computes"
        if made:
            steps = self._trace(self._space_roots(segment), stored)
        for request, _ in steps.loads():
            source = request.node
            if source in self.hard and self.nest_of.get(source) is not nest and self.ready[source] >= nest.level:
                self._note_wait(segment, nest, source)
                return f"%{source} is not ready before it"
        if nest.rows < MIN_ROWS and segment.size > SMALL_WORK and self._own_rows(segment, steps) > 2 * nest.rows:
            return f"{nest.rows} rows are too few for {segment.size} elements"
        if segment.size // nest.rows * nest.rows != segment.size:
            return f"its {segment.size} elements do not divide into {nest.rows} rows"
        mapping, reason = self._find_mapping(segment, nest, steps)
        if mapping is None:
            return reason
        return self._accept(segment, nest, mapping, reason, stored)

    def _note_wait(self, segment: Segment, nest: Nest, source: int) -> None:
        """Notes that a segment could perhaps join the nest if that ran after `source`, of which it computes nothing."""
        first = nest.placed[0][0]
        if segment.size < SMALL_WORK or segment.size != first.size:
            return
        waiting, seen, own = [source], {source}, nest.computes()
        while waiting:
            current = waiting.pop()
            if current in own:
                return
            fresh = [operand for operand in self.graph.nodes[current].operands if operand not in seen]
            seen.update(fresh)
            waiting += fresh
        for node in first.nodes:
            self.waits[node] = max(self.waits.get(node, 0), self.ready[source] + 1)

    def _reads_again(self, segment: Segment, nest: Nest, steps: Trace) -> bool:
        """Whether a segment reads each element of a tensor that the nest reads anyway: then its row is still in the cache."""
        return any(
            request.node in nest.reads and self.graph.nodes[request.node].element_count == segment.size
            for request, _ in steps.loads()
        )

    def _keeps(self, node: int, nest: Nest) -> bool:
        """Whether a nest can keep, for a row, what it computes of the row's own reductions in `node`."""
        kept = self.graph.nodes[node].size_bytes // nest.rows <= self.target.tile_bytes // KEPT_SHARE
        if not (self.candidates[node].by_rows and kept and isinstance(self.target, CpuTarget)):
            return False
        waiting, seen = [node], {node}
        while waiting:
            current = waiting.pop()
            if current in self.reductions:
                if self.nest_of[current] is nest and self.graph.nodes[current].op == "reduce":
                    return True
                continue
            fresh = [operand for operand in self.graph.nodes[current].operands if operand not in seen]
            seen.update(fresh)
            waiting += fresh
        return False

    def _own_rows(self, segment: Segment, steps: Trace) -> int:
        return choose(self.graph, segment, steps, self.target).rows

    def _find_mapping(self, segment: Segment, nest: Nest, steps: Trace) -> tuple[RowMap | None, str]:
        """The mapping that a shared tensor dictates, or None with the reason. Values computed in the nest are tried first, then the
        largest tensors."""

        def importance(request: ElementRequest) -> tuple[bool, int, int]:
            made = self.nest_of.get(request.node) is nest
            return made, self.graph.nodes[request.node].element_count, request.node

        reason = "it shares no tensor that is cut into rows"
        tested: set[tuple[int, Index, Guard]] = set()
        for request in sorted(steps.steps, key=importance, reverse=True):
            node = request.node
            guard = self._known_guard(request)
            if node not in nest.slices or guard != request.guard:
                continue
            flat = self._answers.load(request).flat
            if (node, flat, guard) in tested:
                continue
            tested.add((node, flat, guard))
            mapping = match(segment.size, flat, nest.rows, nest.slices[node], guard)
            if mapping is None:
                reason = f"its rows do not follow those of %{node}"
                continue
            if mapping.is_strided and mapping.inner > self.target.unroll_row:
                reason = f"following the rows of %{node}, it would run across memory"
                continue
            illegal = reduction_is_legal(self.graph, segment, mapping, self.target)
            if illegal is None:
                return mapping, f"row r of it is made from slice r of %{node}"
            reason = illegal
        return None, reason

    def _accept(
        self, segment: Segment, nest: Nest, mapping: RowMap, reason: str, stored: Callable[[int], bool]
    ) -> str | None:
        row, inner = Index.of_var(nest.row), Index.of_var(within(mapping.inner))
        roots = mapped_roots(self.graph, segment, mapping, row, inner)
        steps = self._trace(roots, stored)
        made_here = {node for node in nest.computes() if self.nest_of[node] is nest}
        for request, flat in steps.loads():
            if request.node not in made_here or (nest.rows == 1 and request.node not in self.partial):
                continue
            if request.node in self.partial:
                return f"%{request.node} is complete only after all rows"
            size = self.graph.nodes[request.node].element_count // nest.rows
            found = slices_under([(request.node, flat)], nest.row, self._known_guard(request))
            if found.get(request.node) != size:
                return f"it reads %{request.node} from other rows than its own: global"
        streams = nest.reads | {request.node for request, _ in steps.loads()}
        if len(streams) > MAX_STREAMS and not (made_here & {request.node for request in steps.steps}):
            return f"{len(streams)} tensors would be streamed at once"
        if not rows_agree([*nest.placed, (segment, mapping)]):
            return "its row is cut into pieces that do not fit those of the nest"
        self._add(segment, nest, mapping, steps, reason)
        return None

    def _known_guard(self, request: ElementRequest) -> Guard:
        """The guard under which a nest reads the element of its own row. A GPU reads what a row has made without one."""
        return () if isinstance(self.target, GpuTarget) else request.guard

    def _cuts_of_kin(self, segment: Segment, steps: Trace) -> set[int]:
        """The strides at which later element-wise segments of the same size that share a node with this one split their elements. In
        one flat loop they would have to do it by division, element by element."""
        own = {request.node for request in steps.steps if self.graph.nodes[request.node].op != "constant"}
        found: set[int] = set()
        for node in self.candidates:
            later = node not in self.nest_of and node not in self.reductions and node not in segment.nodes
            if (
                not later
                or self.graph.nodes[node].element_count != segment.size
                or self.graph.nodes[node].op in ("scatter", "scan")
            ):
                continue
            if node not in self._kin:
                (other,) = segments_of(self.graph, (node,))
                traced = self._trace(self._space_roots(other), self._stored(None, other))
                cuts = boundaries([flat for _, flat in traced.loads()], other.variable)
                self._kin[node] = frozenset(request.node for request in traced.steps), cuts
            shared, cuts = self._kin[node]
            if not own.isdisjoint(shared):
                found |= cuts
        return found

    def _open(self, segment: Segment, steps: Trace, after: int, tried: Mapping[int, str]) -> Nest:
        """A new nest. It is mapped as the group's dominant would be if the segment can follow that, else for the segment itself."""
        needed = after
        for request, _ in steps.loads():
            if request.node in self.hard:
                needed = max(needed, self.ready[request.node] + 1)
        own = choose(self.graph, segment, steps, self.target, lambda: self._cuts_of_kin(segment, steps))
        nest = Nest(len(self.nests), own.rows, needed)
        group = self.group_of.get(segment.node)
        reason = "it starts a nest of its own"
        if tried:
            reason += "; " + "; ".join(f"not nest {number}: {why}" for number, why in tried.items())
        mapping: RowMap | None = own
        if group is not None and self.rules.dominant_merging:
            nest.group = group.dominant
            if segment.kind is SegmentKind.VALUE and group.dominant != segment.node:
                followed = self._follow_dominant(segment, group, steps, own)
                if followed is not None:
                    mapping, nest.rows = followed, followed.rows
                    reason = f"it follows %{group.dominant}, the dominant of its group"
        assert mapping is not None
        self.nests.append(nest)
        row, inner = Index.of_var(nest.row), Index.of_var(within(mapping.inner))
        mapped = self._trace(mapped_roots(self.graph, segment, mapping, row, inner), self._stored(nest, segment))
        self._add(segment, nest, mapping, mapped, reason)
        return nest

    def _follow_dominant(self, segment: Segment, group: Group, steps: Trace, own: RowMap) -> RowMap | None:
        dominant = segments_of(self.graph, (group.dominant,))[-1]
        if dominant.kind in ALONE:
            return None
        stored = self._stored(None, dominant)
        their_steps = self._trace(roots_of(self.graph, dominant, Index.of_var(dominant.variable)), stored)
        theirs = choose(self.graph, dominant, their_steps, self.target)
        if theirs.rows < MIN_ROWS and segment.size > SMALL_WORK and own.rows > theirs.rows:
            return None
        row = Var(ROW, theirs.rows)
        roots = mapped_roots(self.graph, dominant, theirs, Index.of_var(row), Index.of_var(within(theirs.inner)))
        everything = self._trace(roots, stored).steps
        slices = slices_under(((r.node, self._answers.load(r).flat) for r in everything if not r.guard), row)
        shared = Nest(-1, theirs.rows, 0, slices=dict(slices))
        mapping, _ = self._find_mapping(segment, shared, steps)
        return mapping

    def _add(self, segment: Segment, nest: Nest, mapping: RowMap, steps: Trace, reason: str) -> None:
        nest.placed.append((segment, mapping))
        for node in segment.nodes:
            self.reasons[node] = reason
            self.nest_of[node] = nest
            self.ready[node] = nest.level
            if spans_rows(segment, mapping):
                self.partial.add(node)
                self.ready[node] = nest.level + 1
        for request, _ in steps.loads():
            nest.reads.add(request.node)
        self._note_slices(segment, nest, mapping, steps)
        self._note_crossings(nest)

    def _note_slices(self, segment: Segment, nest: Nest, mapping: RowMap, steps: Trace) -> None:
        positions = [(r.node, self._answers.load(r).flat) for r in steps.steps if not r.guard]
        if segment.kind is SegmentKind.REDUCE and not spans_rows(segment, mapping):
            for node in segment.nodes:
                nest.slices[node] = self.graph.nodes[node].element_count // nest.rows
        for node, size in slices_under(positions, nest.row).items():
            if node in self.carrying and self.graph.nodes[node].element_count == size * nest.rows:
                nest.slices.setdefault(node, size)
        for node in nest.slices:
            known = self.nests_by_tensor.setdefault(node, [])
            if nest not in known:
                known.append(nest)

    def _note_crossings(self, nest: Nest) -> None:
        segment, _ = nest.placed[-1]
        steps = self._trace(self._space_roots(segment), self._stored(nest, segment))
        for request, _ in steps.loads():
            if request.node in self.hard and self.nest_of[request.node] is not nest:
                self.crossing.add(request.node)

    def finish(self) -> Placement:
        """The placement of all segments that were placed."""
        return Placement(
            tuple(self.nests),
            self.nest_of,
            {node: self._scheme(node) for node in self.candidates},
            frozenset(self.partial),
            self.hard,
            self.reductions,
            self.waits,
        )

    def _scheme(self, node: int) -> OpScheme:
        """Where a candidate's result lives, once every segment has its nest."""
        why = f"{self.candidates[node].reason}; {self.reasons[node]}"
        if node in self.partial:
            return OpScheme(node, Scheme.GLOBAL, f"it spans all rows, every task leaves a partial result; {why}")
        if node in self.crossing:
            return OpScheme(node, Scheme.GLOBAL, f"another nest reads it; {why}")
        is_read = any(node in user.operands for user in self.graph.nodes)
        if node in self.graph.outputs:
            return OpScheme(
                node, Scheme.OUTPUT, f"stored; its readers use the row's own value; {why}" if is_read else why
            )
        if self.graph.nodes[node].op == "scatter":
            return OpScheme(node, Scheme.GLOBAL, f"it is updated in place, in memory; {why}")
        if node in self.reductions:
            return OpScheme(node, Scheme.REGIONAL, f"row r of it is complete when row r has been read; {why}")
        is_vector = self.graph.nodes[node].element_count > self.nest_of[node].rows
        if self.candidates[node].is_long and is_vector:
            return OpScheme(node, Scheme.REGIONAL, f"its slice is kept for the row's later passes; {why}")
        return OpScheme(node, Scheme.LOCAL, f"its readers are in the same nest; {why}")


def place_all(
    graph: Graph,
    candidates: Mapping[int, Candidate],
    groups: Iterable[Group],
    target: Target,
    apart: Mapping[int, int] | None = None,
    rules: Rules = ALL,
    later: Mapping[int, int] | None = None,
    answers: Answers | None = None,
) -> Placement:
    """Places all segments of the graph in nests. `apart`: a family's number by node; segments share a nest only if they have the same
    number, or none. `later`: the earliest level of a node, if not 0. `answers`: what other placements of the graph have
    traced. Raises TraceTooLargeError if a node that is no candidate has to become one."""
    placer = Placer(graph, candidates, groups, target, apart or {}, rules, later, answers)
    for segments in segment_list(graph, candidates):
        after = 0
        for segment in segments:
            nest = placer.place(segment, after)
            after = nest.level + 1
    return placer.finish()
