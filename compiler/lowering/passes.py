"""How the segments of a nest run over a row: in which pass, over which loops, and which of these loops are reduced."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..ir.graph import DType, Graph
from ..ir.index_maps import Index, Var, linear
from ..ops.propagation import Choose, ElementRequest, FromIndex, LoadOwn
from ..planning.access import Trace, trace
from ..planning.mapping import RowMap, Segment, SegmentKind, roots_of
from ..planning.placement import within
from ..planning.schemes import Scheme
from ..support.sequences import pairwise
from .context import Context


@dataclass
class RowSplit:
    """The loops over a row of `size` elements: (variable, stride) from the outermost loop inwards, then `unrolled` elements that
    are written out."""

    size: int
    variables: tuple[tuple[Var, int], ...]
    unrolled: int

    def inner(self, unrolled: int) -> Index:
        """The position within the row of unrolled element `unrolled`."""
        position = Index(unrolled)
        for variable, stride in self.variables:
            position = position + Index.of_var(variable) * stride
        return position


def split_row(size: int, wanted: set[int], required: set[int], unroll_below: int) -> RowSplit:
    """The loops over a row of `size` elements, split at all strides of `required` and at those of `wanted` that divide evenly. The
    innermost loops are unrolled as long as that gives at most `unroll_below` elements and at most 16; one loop always remains."""
    chosen = sorted(required)
    for cut in sorted(wanted - required):
        fits = all(cut % c == 0 if c < cut else c % cut == 0 for c in chosen)
        if fits and size % cut == 0:
            chosen = sorted([*chosen, cut])
    cuts = [1, *[cut for cut in chosen if 1 < cut < size], size]
    extents = [(above // below, below) for below, above in pairwise(cuts) if above > below]
    unrolled = 1
    while len(extents) > 1 and extents[0][0] * unrolled <= unroll_below and unrolled * extents[0][0] <= 16:
        unrolled *= extents.pop(0)[0]
    variables = tuple((Var(f"k{size}_{stride}", extent), stride) for extent, stride in reversed(extents))
    return RowSplit(size, variables, unrolled)


@dataclass
class Member:
    """A segment of a pass, with what its lowering needs to know. `spans`: it reduces over rows. `slice_size`: its result elements per
    row (0 if it spans rows). `reduced_strides`: `mapping.inner_pieces`. `local`, `lanes`: the names of its accumulators."""

    segment: Segment
    mapping: RowMap
    number: int = 0
    spans: bool = False
    slice_size: int = 1
    accumulator: DType = DType.F32
    reduced_strides: list[tuple[int, int, bool]] = field(default_factory=list)
    local: str = ""
    local_dtype: DType = DType.F32
    in_lanes: bool = True
    lanes: list[str] = field(default_factory=list)
    kept_depth: int = -1  # position of the innermost kept loop
    lane_reduced: bool = False
    chains: int = 1  # accumulators per result, if all rows of a task share the result


def is_reduced(pieces: list[tuple[int, int, bool]], stride: int) -> bool:
    """Whether the digit that starts at `stride` belongs to a reduced piece. `pieces`: from `mapping.inner_pieces`."""
    return any(reduced for start, extent, reduced in pieces if start <= stride < start * extent)


def assign_passes(context: Context) -> list[list[Member]]:
    """The nest's segments by pass. A segment runs in the pass after the last of those whose row results it reads, or whose slice is
    kept for it."""
    pass_of: dict[int, int] = {}
    kept: dict[int, int] = {}  # by node whose slice is kept for later passes, the pass that computes it
    passes: list[list[Member]] = []
    row = Index.of_var(context.row)
    for segment, mapping in context.placed():
        roots = roots_of(context.graph, segment, mapping.point(row, Index.of_var(within(mapping.inner))))
        steps = trace(context.graph, roots, context.stored)
        number = max((pass_of[r.node] + 1 for r, _ in steps.loads() if r.node in pass_of), default=0)
        number = max([number, *(kept[r.node] + 1 for r in steps.steps if r.node in kept and r.node != segment.node)])
        if segment.kind is SegmentKind.REDUCE:
            for node in segment.nodes:
                pass_of[node] = number
        elif context.plan.scheme_of(segment.node).scheme is Scheme.REGIONAL:
            kept[segment.node] = number
        while len(passes) <= number:
            passes.append([])
        passes[number].append(Member(segment, mapping, number))
    return passes


def by_shape(graph: Graph, members: list[Member]) -> list[list[Member]]:
    """Groups members that share a loop: their rows have one size. A variadic reduction has a loop of its own, which stays in
    order, and so has a dot."""
    found: dict[object, list[Member]] = {}
    for number, member in enumerate(members):
        alone = graph.nodes[member.segment.node].op in ("reduce_general", "dot")
        found.setdefault((member.mapping.inner, number if alone else -1), []).append(member)
    return list(found.values())


def result_number(graph: Graph, node: int) -> int:
    """Which result of a variadic reduction the node is; 0 for any other node."""
    value = graph.nodes[node].attributes.get("result", 0)
    assert isinstance(value, int)
    return value


def indices_of(graph: Graph, steps: Trace, roots: tuple[ElementRequest, ...]) -> list[Index]:
    """All indices that a loop with the trace `steps` would have to compute: positions of roots and loads, guards, and iotas."""
    found = [linear(root.position, graph.nodes[root.node].shape) for root in roots]
    for request, step in steps.steps.items():
        if isinstance(step, LoadOwn):
            found.append(step.flat)
            found.extend(bound.index for bound in request.guard)
        elif isinstance(step, FromIndex):
            found.append(step.index)
        elif isinstance(step, Choose):
            found.extend(bound.index for guard, _ in step.cases for bound in guard)
    return found
