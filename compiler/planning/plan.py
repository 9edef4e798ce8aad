"""The plan of a kernel: groups, nests, schemes, memory, phases and tasks of a graph, with the reasons. `plan_graph` is the middle of
the compiler; the later stages decide none of this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from ..ir.graph import Graph
from ..loops.loops import Buffer, BufferKind
from ..ops.table import OPS
from ..passes.transposes_last import transposes_last
from ..support.sequences import zip_strict
from ..targets.targets import CPU, CpuTarget, Target
from .access import Answers, TraceTooLargeError
from .accumulators import partial_dtype
from .cost import NestCost, nest_cost
from .execution import Execution, Mode, combination, execution_of, flat_execution
from .families import Family, ReducedGraph, reduce_families
from .groups import Candidate, Group, find_candidates, find_groups
from .mapping import RowMap, Segment, SegmentKind, spans_rows
from .normal import normalise
from .placement import Nest, Placement, place_all
from .products import single_rows_as_sums
from .rules import ALL, Rules
from .scans import find_scans
from .scatters import IndexTable, TableStep, index_table, scatter_work
from .schemes import OpScheme, Scheme
from .searches import searches_as_reductions
from .splitting import SplitDecision, split_long_rows
from .stored_first import moved_nodes

MAX_REPLANS = 64  # most attempts to plan a graph, each with one more node forced into memory (never seen above 9)


@dataclass(frozen=True)
class PhaseNest:
    """A nest in a phase. If `partial` is given, not the nest itself, but the code that combines the partial results that the nest's
    tasks have stored for that segment. If `table` is given, not the nest, a scatter, but that step for its table."""

    nest: Nest
    execution: Execution
    partial: tuple[Segment, RowMap] | None = None
    table: TableStep | None = None


@dataclass(frozen=True)
class PlannedPhase:
    """Nests that run side by side. is_serial: they run on the caller's thread, because there is too little work for two threads or
    only one task. cost_ns: on one core of a CPU, or on the whole GPU."""

    nests: tuple[PhaseNest, ...]
    is_serial: bool
    cost_ns: float


@dataclass(frozen=True)
class Plan:
    """What is computed where. `graph`: the simplified graph, with one component of each family; all node numbers refer to it.
    `output_numbers`: the kernel's number of each of its outputs. `families`: by the number of the nest that computes them. `splits`:
    the decisions about reductions of long rows (their node numbers are those before the split). `forced`: nodes kept in memory
    because inlining them would multiply work. `ops_left_out`: number of ops of the components that `graph` leaves out."""

    graph: Graph
    target: Target
    candidates: Mapping[int, Candidate]
    groups: tuple[Group, ...]
    placement: Placement
    forced: frozenset[int] = field(default_factory=frozenset)
    output_numbers: tuple[int, ...] = ()
    families: Mapping[int, Family] = field(default_factory=dict)
    ops_left_out: int = 0
    splits: tuple[SplitDecision, ...] = ()

    @property
    def op_count(self) -> int:
        """Number of ops with operands of the whole simplified graph, all components of families included."""
        return self.ops_left_out + sum(not OPS[node.op].is_leaf for node in self.graph.nodes)

    @property
    def nests(self) -> tuple[Nest, ...]:
        """All nests, by number."""
        return self.placement.nests

    @cached_property
    def levels(self) -> tuple[tuple[Nest, ...], ...]:
        """Nests by level."""
        count = max((nest.level for nest in self.nests), default=-1) + 1
        return tuple(tuple(nest for nest in self.nests if nest.level == level) for level in range(count))

    @cached_property
    def _outputs(self) -> Mapping[int, tuple[Buffer, ...]]:
        found: dict[int, list[Buffer]] = {}
        for number, node in zip_strict(self.output_numbers, self.graph.outputs):
            row = self.graph.nodes[node]
            found.setdefault(node, []).append(Buffer(BufferKind.OUTPUT, number, row.dtype, row.element_count))
        return {node: tuple(buffers) for node, buffers in found.items()}

    def memory_of(self, node: int) -> tuple[Buffer, ...]:
        """The buffers that must hold a node's value when its nest is done, as its scheme says: outputs, or scratch that another nest
        reads; or none."""
        if not self.scheme_of(node).scheme.is_in_memory:
            return ()
        row = self.graph.nodes[node]
        return self._outputs.get(node) or (Buffer(BufferKind.SCRATCH, node, row.dtype, row.element_count),)

    def read_from(self, node: int) -> Buffer:
        """The buffer from which a node is read. AssertionError if the plan gives it no memory."""
        row = self.graph.nodes[node]
        if row.op == "parameter":
            number = row.attributes["number"]
            assert isinstance(number, int)
            return Buffer(BufferKind.INPUT, number, row.dtype, row.element_count)
        if row.op == "constant":
            return Buffer(BufferKind.CONSTANT, node, row.dtype, row.element_count)
        memory = self.memory_of(node)
        assert memory, f"%{node} is read from memory, but the plan put it nowhere"
        return memory[0]

    def partial_buffer(self, segment: Segment, mapping: RowMap) -> Buffer:
        """Scratch for the partial results that the tasks of a reduction over rows store."""
        row = self.graph.nodes[segment.node]
        nest = self.placement.nest_of[segment.node]
        dtype = partial_dtype(self.graph, segment, mapping)
        return Buffer(
            BufferKind.SCRATCH, segment.node, dtype, self.executions[nest.number].tasks * row.element_count, "partial"
        )

    def stored_of(self, nest: Nest) -> tuple[tuple[Segment, RowMap], ...]:
        """The nest's segments whose results must be stored, or kept for later passes over the row; the others are computed where they
        are read."""
        return tuple(
            (segment, mapping)
            for segment, mapping in nest.placed
            if segment.kind is not SegmentKind.VALUE
            or self.memory_of(segment.node)
            or self.scheme_of(segment.node).scheme is Scheme.REGIONAL
        )

    @cached_property
    def costs(self) -> tuple[NestCost, ...]:
        """The cost of each nest; for a family, of its largest component."""
        return tuple(nest_cost(self.graph, self.placement, nest, self.target) for nest in self.nests)

    @cached_property
    def executions(self) -> tuple[Execution, ...]:
        """How each nest is executed, by nest number."""
        return tuple(
            execution_of(
                self.graph,
                nest,
                self.stored_of(nest),
                self.placement.stored_in(nest),
                self.costs[nest.number],
                self.families.get(nest.number),
                self.target,
            )
            for nest in self.nests
        )

    @cached_property
    def phases(self) -> tuple[PlannedPhase, ...]:
        """The kernel's phases in order: one per level, and one more if the last level leaves partial results. Each also combines the
        partial results of the level before it. The tables of a level's scatters are cleared beside the level before it, which fills
        what they update, and marked in a phase in between."""
        found: list[list[PhaseNest]] = [[] for _ in range(len(self.levels) + 1)]
        marks: list[list[PhaseNest]] = [[] for _ in found]
        known: set[IndexTable] = set()
        for level, nests in enumerate(self.levels):
            for nest in nests:
                execution = self.executions[nest.number]
                if self.stored_of(nest):
                    found[level].append(PhaseNest(nest, execution))
                for segment, mapping in nest.placed:
                    if segment.kind is SegmentKind.REDUCE and spans_rows(segment, mapping):
                        count, dtype = (
                            self.graph.nodes[segment.node].element_count,
                            partial_dtype(self.graph, segment, mapping),
                        )
                        combined = combination(count, execution.tasks, dtype, self.target)
                        found[level + 1].append(PhaseNest(nest, combined, (segment, mapping)))
                table = self.table_of(nest)
                if table is not None and table not in known:
                    known.add(table)
                    count = scatter_work(self.graph, self.graph.nodes[nest.placed[0][0].node]).count
                    clear, mark = (flat_execution(rows, 8 * rows, self.target) for rows in (table.places, count))
                    found[level - 1].append(PhaseNest(nest, clear, table=TableStep.CLEAR))
                    marks[level].append(PhaseNest(nest, mark, table=TableStep.MARK))
        ordered = (nests for pair in zip_strict(marks, found) for nests in pair)
        return tuple(self._phase(nests) for nests in ordered if nests)

    def table_of(self, nest: Nest) -> IndexTable | None:
        """The table of the places of a scatter's indices, if the nest is a scatter that has one."""
        if self.executions[nest.number].mode is not Mode.OWNERS:
            return None
        assert nest.level > 0, "what a scatter updates is filled before it"
        return index_table(self.graph, self.graph.nodes[nest.placed[0][0].node])

    def _phase(self, nests: list[PhaseNest]) -> PlannedPhase:
        cost = sum(nest.execution.cost_ns for nest in nests)
        is_serial = cost < self.target.serial_below_ns or sum(nest.execution.tasks for nest in nests) == 1
        return PlannedPhase(tuple(nests), is_serial, cost)

    @cached_property
    def intermediates(self) -> tuple[Buffer, ...]:
        """The scratch tensors that are written to memory between phases."""
        found: dict[Buffer, None] = {}
        for _, segment, mapping in self.segments():
            if segment.kind is SegmentKind.REDUCE and spans_rows(segment, mapping):
                found[self.partial_buffer(segment, mapping)] = None
            for node in segment.nodes:
                found.update((buffer, None) for buffer in self.memory_of(node) if buffer.kind is BufferKind.SCRATCH)
        return tuple(found)

    def scheme_of(self, node: int) -> OpScheme:
        """The scheme of a node's result, and the reason for it."""
        if node in self.placement.schemes:
            return self.placement.schemes[node]
        return OpScheme(node, Scheme.LOCAL, "each element is used where it is made, in a register")

    def segments(self) -> list[tuple[Nest, Segment, RowMap]]:
        """All segments with their nests and mappings, in the order of the nests."""
        return [(nest, segment, mapping) for nest in self.nests for segment, mapping in nest.placed]


def plan_graph(graph: Graph, target: Target = CPU, rules: Rules = ALL) -> Plan:
    """Plans one kernel for the whole of `graph`. If inlining a node would multiply its work, the node is forced into memory and the
    graph is planned again, so that every graph has a plan. rules: the rules that are on, fewer than all for ablations. Raises
    RuntimeError if there is still no plan after MAX_REPLANS attempts, TraceTooLargeError if forcing a node does not help."""
    simple = find_scans(transposes_last(normalise(graph)), target)
    simple = normalise(searches_as_reductions(single_rows_as_sums(simple, target), target))
    simple, splits = split_long_rows(simple, target)
    return replace(_plan_normal(normalise(simple), target, rules), splits=splits)


def _plan_normal(simple: Graph, target: Target, rules: Rules) -> Plan:
    reduced = reduce_families(simple)
    if reduced.families:
        node_of = dict(zip_strict(reduced.output_numbers, reduced.graph.outputs))
        apart = {
            node_of[output]: number
            for number, family in enumerate(reduced.families)
            for output in family.representative.outputs
        }
        plan = _plan_graph(reduced.graph, reduced.output_numbers, target, apart, rules)
        homes = _homes(plan, reduced)
        if homes is not None:
            return replace(plan, families=homes, ops_left_out=reduced.ops_left_out)
    return _plan_graph(simple, tuple(range(len(simple.outputs))), target, {}, rules)


def _homes(plan: Plan, reduced: ReducedGraph) -> Mapping[int, Family] | None:
    """The nest of each family, which must compute the representative as one flat loop and nothing else; None if a nest does
    not."""
    found: dict[int, Family] = {}
    node_of = dict(zip_strict(reduced.output_numbers, plan.graph.outputs))
    for family in reduced.families:
        theirs = {node_of[number] for number in family.representative.outputs}
        nests = {plan.placement.nest_of[node].number for node in theirs}
        if len(nests) != 1:
            return None
        nest = plan.nests[nests.pop()]
        flat = all(
            mapping.inner == 1 and segment.kind is SegmentKind.VALUE and node in theirs
            for segment, mapping in nest.placed
            for node in segment.nodes
        )
        if not flat or nest.rows != family.representative.size:
            return None
        found[nest.number] = family
    return found


@dataclass(frozen=True)
class _Choices:
    """What a plan is made with: nodes stored before transposes move them, and the earliest levels of nodes."""

    moved: frozenset[int] = frozenset()
    later: Mapping[int, int] = field(default_factory=dict)


def _plan_graph(
    simple: Graph, output_numbers: tuple[int, ...], target: Target, apart: Mapping[int, int], rules: Rules
) -> Plan:
    answers = Answers(simple)

    def placed(choices: _Choices) -> Plan:
        return _placed(answers, output_numbers, target, apart, rules, choices)

    choices = _Choices()
    plan = placed(choices)
    if not isinstance(target, CpuTarget):
        return plan
    if plan.placement.waits:
        waiting = replace(choices, later=plan.placement.waits)
        other = placed(waiting)
        if _traffic(other) < _traffic(plan):
            plan, choices = other, waiting
    moved = _moved_at_a_loss(plan)
    if any(moved):
        other = placed(replace(choices, moved=frozenset().union(*moved)))
        if sum(map(bool, _moved_at_a_loss(other))) < sum(map(bool, moved)):
            plan = other
    return plan


def _traffic(plan: Plan) -> int:
    """Bytes that all nests read and write."""
    return sum(cost.bytes_read + cost.bytes_written for cost in plan.costs)


def _moved_at_a_loss(plan: Plan) -> list[frozenset[int]]:
    """By nest, the nodes that should be stored before its transposes move them."""
    if all(node.op != "transpose" for node in plan.graph.nodes):
        return []
    return [
        moved_nodes(plan.graph, nest, plan.executions[nest.number], plan.placement.stored_in(nest))
        for nest in plan.nests
    ]


def _placed(
    answers: Answers,
    output_numbers: tuple[int, ...],
    target: Target,
    apart: Mapping[int, int],
    rules: Rules,
    choices: _Choices,
) -> Plan:
    """The plan with these choices, and as many nodes in memory as are needed for there to be a plan."""
    simple, forced = answers.graph, set[int]()
    for _ in range(MAX_REPLANS):
        candidates = find_candidates(simple, forced, choices.moved)
        groups = find_groups(simple, candidates)
        try:
            placement = place_all(simple, candidates, groups, target, apart, rules, choices.later, answers)
        except TraceTooLargeError as error:
            if error.node in forced:
                raise
            forced.add(error.node)
            continue
        return Plan(simple, target, candidates, groups, placement, frozenset(forced), output_numbers)
    raise RuntimeError(f"{simple.name}: {len(forced)} nodes taken out of line and still no plan")
