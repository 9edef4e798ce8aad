"""Adaptive thread mapping: which elements of a segment make a row (rows are cut into tasks), and which elements run inside
a row.

A segment is one candidate with the space that it runs over: its own elements, or its operand's if it reduces. All segments of a
nest agree on `rows`: row r of one segment belongs to row r of the others. A mapping writes the segment's linear element `u` as
digits; some of them make the row number r, the others the position k within the row (AStitch sections 3.3, 4.3 step 2; the GPU's
blocks are our tasks, its threads our lanes).

A mapping is either chosen, for a segment that starts a nest (`mapping_choice.choose`), or matched to a tensor that the nest has
already cut into rows (`match`): then the segment's row r must touch exactly slice r of that tensor. This one rule covers values
computed in the nest (AStitch's proactive adaption of element-wise groups), shared parameters, and reshaped or transposed uses of
both.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..ir.graph import Graph, Shape, WindowDimension
from ..ir.index_maps import Atom, Bound, Digit, Guard, Index, Var, guard_of, linear, normal, range_under, unravel
from ..ops.attributes import integers, window_of
from ..ops.propagation import ElementRequest
from ..support.sequences import pairwise, zip_strict
from ..targets.targets import Target

SPACE_VARIABLE = "u"
LANE_ALIGNMENT = 64
"""If rows are lanes, tasks are cut at multiples of the widest vector, so that only the last task has a remainder for scalar code."""


class SegmentKind(enum.Enum):
    """What a segment does with the elements of its space."""

    VALUE = "value"  # computes them, and stores them if anyone needs them in memory
    REDUCE = "reduce"
    BASE = "base"  # what a scatter starts from, written where the scatter's result will be
    SCATTER = "scatter"  # combines updates into what BASE wrote
    SCAN = "scan"  # stores each element combined with those before it in its dimension


@dataclass(frozen=True)
class Segment:
    """A candidate and the space that it runs over.

    `kind`: what is done with each element. `nodes`: the candidate, or all results of one variadic reduction. `space`: the space's
    dimensions; for a reduce_window, the window's dimensions followed by the result's; for a dot of [*batch, m, k] and [*batch, k, n],
    (*batch, m, k, n). `reduced`: which dimensions are reduced.
    """

    kind: SegmentKind
    nodes: tuple[int, ...]
    space: Shape
    reduced: tuple[bool, ...]

    @property
    def node(self) -> int:
        """The candidate, or the first of several results."""
        return self.nodes[0]

    @property
    def size(self) -> int:
        """Number of elements of the space."""
        return math.prod(self.space)

    @property
    def reduces(self) -> bool:
        """Whether any dimension of the space is reduced."""
        return any(self.reduced)

    @property
    def variable(self) -> Var:
        """The variable `u` of the space's linear element."""
        return Var(SPACE_VARIABLE, self.size)

    def flags(self) -> list[tuple[int, bool]]:
        """(extent, whether it is reduced) from the innermost dimension outwards. Adjacent dimensions with equal flags are joined;
        dimensions of extent 1 are left out."""
        found: list[tuple[int, bool]] = []
        for extent, reduced in zip_strict(reversed(self.space), reversed(self.reduced)):
            if extent == 1:
                continue
            if found and found[-1][1] == reduced:
                found[-1] = (found[-1][0] * extent, reduced)
            else:
                found.append((extent, reduced))
        return found

    def is_reduced_at(self, stride: int) -> bool:
        """Whether the digit of the linear space that starts at `stride` belongs to a reduced dimension."""
        start = 1
        for extent, reduced in self.flags():
            if start <= stride < start * extent:
                return reduced
            start *= extent
        return False


def segments_of(graph: Graph, nodes: tuple[int, ...]) -> tuple[Segment, ...]:
    """The segments that compute `nodes`, in order: one segment, or two for a scatter."""
    node = graph.nodes[nodes[0]]
    if node.op in ("reduce", "reduce_general"):
        space = graph.nodes[node.operands[0]].shape
        reduced = tuple(d in integers(node, "dimensions") for d in range(len(space)))
        return (Segment(SegmentKind.REDUCE, nodes, space, reduced),)
    if node.op == "dot":
        (*batch, rows, terms), columns = graph.nodes[node.operands[0]].shape, node.shape[-1]
        flags = (False,) * (len(batch) + 1) + (True, False)
        return (Segment(SegmentKind.REDUCE, nodes, (*batch, rows, terms, columns), flags),)
    if node.op == "reduce_window":
        sizes = tuple(dimension.size for dimension in window_of(graph.nodes[nodes[0]]))
        # The window's dimensions are the outer ones, so that neighbouring results may share a row (mapping_choice.py).
        flags = (True,) * len(sizes) + (False,) * len(node.shape)
        return (Segment(SegmentKind.REDUCE, nodes, sizes + node.shape, flags),)
    if node.op == "scan":
        return (Segment(SegmentKind.SCAN, nodes, node.shape, (False,) * len(node.shape)),)
    result = Segment(SegmentKind.VALUE, nodes, node.shape, (False,) * len(node.shape))
    if node.op == "scatter":
        updates = graph.nodes[node.operands[2]].shape
        base = Segment(SegmentKind.BASE, nodes, node.shape, (False,) * len(node.shape))
        return base, Segment(SegmentKind.SCATTER, nodes, updates, (False,) * len(updates))
    return (result,)


def side_by_side(graph: Graph, node: int) -> int:
    """How many neighbouring results of a reduce_window read neighbouring elements: the product of the innermost extents that the
    window does not cover."""
    extent = 1
    for size, window in zip(reversed(graph.nodes[node].shape), reversed(window_of(graph.nodes[node]))):
        if window != WindowDimension(1):
            break
        extent *= size
    return extent


def roots_of(graph: Graph, segment: Segment, point: Index) -> tuple[ElementRequest, ...]:
    """The operand elements that the segment combines, or the element that it stores, at element `point` of its space: of a dot the
    two factors of a term. A reduce_window's request has a guard: if it does not hold (padding), the initial value is used instead."""
    node = graph.nodes[segment.node]
    position = unravel(point, segment.space)
    if segment.kind is SegmentKind.VALUE:
        return (ElementRequest(segment.node, position),)
    if node.op in ("reduce", "scan") or segment.kind is SegmentKind.BASE:
        return (ElementRequest(node.operands[0], position),)
    if node.op == "reduce_general":
        return tuple(ElementRequest(operand, position) for operand in node.operands[: len(node.operands) // 2])
    if node.op == "reduce_window":
        return (_window_element(graph, segment.node, position),)
    if node.op == "dot":
        *batch, row, term, column = position
        factors = (*batch, row, term), (*batch, term, column)
        return tuple(ElementRequest(operand, factor) for operand, factor in zip_strict(node.operands, factors))
    return (ElementRequest(node.operands[2], position),)


def _window_element(graph: Graph, node: int, position: Sequence[Index]) -> ElementRequest:
    operand = graph.nodes[node].operands[0]
    rank = len(graph.nodes[node].shape)
    within_window, result = position[:rank], position[rank:]
    bounds: list[Bound] = []
    where: list[Index] = []
    for axis, window in enumerate(window_of(graph.nodes[node])):
        dilated = result[axis] * window.stride + within_window[axis] * window.window_dilation + -window.padding_low
        extent = graph.nodes[operand].shape[axis]
        if window.base_dilation > 1:
            bounds.append(Bound(dilated, 0, (extent - 1) * window.base_dilation + 1))
            dilated, hole = dilated.divide(window.base_dilation)
            bounds.append(Bound(hole, 0, 1))
        else:
            bounds.append(Bound(dilated, 0, extent))
        where.append(dilated)
    return ElementRequest(operand, tuple(where), guard_of(bounds))


def result_position(segment: Segment, point: Index) -> tuple[Index, ...]:
    """The position in the segment's result to which element `point` of its space belongs."""
    position = unravel(point, segment.space)
    return tuple(index for index, reduced in zip_strict(position, segment.reduced) if not reduced)


@dataclass(frozen=True)
class SegmentDigit:
    """One digit of a segment's linear element, `(u // stride) % extent`, and its source: `(row // row_stride) % extent` of the row
    number or, if `row_stride` is None, the next digit of the position within a row."""

    stride: int
    extent: int
    row_stride: int | None = None


@dataclass(frozen=True)
class RowMap:
    """A segment's space cut into `rows` rows of `inner` elements. `parts` are ordered from the innermost digit outwards."""

    rows: int
    inner: int
    parts: tuple[SegmentDigit, ...]

    @property
    def is_strided(self) -> bool:
        """Whether neighbours in memory belong to different rows, so that the loop over a row jumps in memory."""
        return bool(self.parts) and self.parts[0].row_stride is not None and self.inner > 1

    def point(self, row: Index, within: Index) -> Index:
        """The linear element at row number `row` and position `within` the row."""
        point, taken = Index(0), 1
        for part in self.parts:
            source, stride = (within, taken) if part.row_stride is None else (row, part.row_stride)
            digit = source.divide(stride)[0] if stride > 1 else source
            digit = digit.divide(part.extent)[1] if digit.high >= part.extent else digit
            point = point + digit * part.stride
            if part.row_stride is None:
                taken *= part.extent
        return point

    def __str__(self) -> str:
        def text(part: SegmentDigit) -> str:
            return f"{part.extent}{'' if part.row_stride is None else 'r'}"

        return " x ".join(text(part) for part in reversed(self.parts)) or "1"


def _parts(size: int, row_parts: Iterable[SegmentDigit]) -> tuple[SegmentDigit, ...] | None:
    """`row_parts` with the digits between them added, so that they cover [0, size); None if they overlap or do not divide."""
    found: list[SegmentDigit] = []
    reached = 1
    for part in sorted(row_parts, key=lambda part: part.stride):
        if part.stride % reached or part.stride < reached:
            return None
        if part.stride > reached:
            found.append(SegmentDigit(reached, part.stride // reached))
        found.append(part)
        reached = part.stride * part.extent
    if size % reached:
        return None
    if size > reached:
        found.append(SegmentDigit(reached, size // reached))
    return tuple(found)


def row_map(size: int, row_parts: Sequence[SegmentDigit]) -> RowMap | None:
    """The mapping of `size` elements whose row number consists of `row_parts`; all other digits are the position within a row. None
    if the parts overlap or do not divide `size`."""
    parts = _parts(size, row_parts)
    if parts is None:
        return None
    rows = math.prod(part.extent for part in row_parts)
    return RowMap(rows, size // max(rows, 1), parts)


def top_rows(size: int, inner: int) -> RowMap:
    """The mapping of `size` elements to rows of `inner` consecutive elements. AssertionError if `inner` does not divide `size`."""
    found = row_map(size, [SegmentDigit(inner, size // inner, 1)] if size > inner else [])
    assert found is not None
    return found


def match(size: int, flat: Index, rows: int, slice_size: int, guard: Guard = ()) -> RowMap | None:
    """The mapping under which row r of a segment of `size` elements touches slice r of a tensor that has `rows` slices of
    `slice_size` elements each; None if there is none. `flat`: the tensor's element in terms of the segment's linear element, which is
    touched if `guard` holds."""
    if rows == 1:
        return row_map(size, [])
    # Under a guard a digit may be larger than a slice, and yet not leave it where the guard holds.
    row_parts = _row_digits(flat, slice_size, guard, whole=True) if guard else None
    if row_parts is None:
        row_parts = _row_digits(flat, slice_size, guard, whole=False)
    if row_parts is None:
        return None
    reached = 1
    parts: list[SegmentDigit] = []
    for weight, digit in sorted(row_parts, key=lambda part: part[0]):
        if weight != reached:
            return None
        parts.append(SegmentDigit(digit.stride, digit.extent, weight))
        reached *= digit.extent
    return row_map(size, parts) if reached == rows else None


def _row_digits(flat: Index, slice_size: int, guard: Guard, whole: bool) -> list[tuple[int, Digit]] | None:
    """The digits of a segment's linear element that make the number of the slice in which `flat` lies, each with its weight; None if
    what is left may leave the slice where `guard` holds. Digits that are larger than a slice are split, unless `whole`."""
    found: list[tuple[int, Digit]] = []
    inside: list[tuple[int, Atom]] = []
    for coefficient, atom in flat.terms:
        if coefficient < 0:
            return None
        if not isinstance(atom, Digit) or atom.variable.name != SPACE_VARIABLE:
            inside.append((coefficient, atom))
        elif coefficient >= slice_size:
            if coefficient % slice_size:
                return None
            found.append((coefficient // slice_size, atom))
        elif whole or coefficient * atom.extent <= slice_size:
            inside.append((coefficient, atom))
        else:
            if slice_size % coefficient or atom.extent % (slice_size // coefficient):
                return None
            cut = slice_size // coefficient
            found.append((1, Digit(atom.variable, atom.stride * cut, atom.extent // cut)))
            inside.append((coefficient, Digit(atom.variable, atom.stride, cut)))
    low, high = range_under(normal(flat.constant, inside), guard)
    return found if low >= 0 and high < slice_size else None


def slice_size_of(flat: Index, row: Var, guard: Guard = ()) -> int | None:
    """The slice size S in elements if `flat` is always in slice number `row`: `flat = S*row + rest`, with 0 <= rest < S if `guard`
    holds; else None."""
    for coefficient, atom in flat.terms:
        if isinstance(atom, Digit) and atom.variable == row and atom.stride == 1 and atom.is_top:
            rest = flat - Index.of_var(row) * coefficient
            low, high = range_under(rest, guard)
            if coefficient > 0 and row not in rest.variables and low >= 0 and high < coefficient:
                return coefficient
    return None


def boundaries(flats: Iterable[Index], variable: Var) -> set[int]:
    """The strides at which positions split `variable` into digits: a loop over it must be split there to be affine."""
    found: set[int] = set()
    for flat in flats:
        for digit in flat.digits():
            if digit.variable == variable:
                found.add(digit.stride)
                if not digit.is_top:
                    found.add(digit.stride * digit.extent)
    return found - {1, variable.extent}


def reduction_is_legal(graph: Graph, segment: Segment, mapping: RowMap, target: Target) -> str | None:
    """Why a reduction cannot run under `mapping`; None if it can. Rows must consist of kept or of reduced digits only; a variadic
    reduction keeps its order, so it never spans rows; the accumulators of one task must fit a tile; and the results of a row must be
    one slice of the result."""
    if not segment.reduces:
        return None
    rows_reduced = {
        segment.is_reduced_at(stride)
        for part in mapping.parts
        if part.row_stride is not None
        for stride in _digits(segment, part)
    }
    if len(rows_reduced) > 1:
        return "its rows are partly kept and partly reduced"
    if True in rows_reduced and graph.nodes[segment.node].op != "reduce":
        return "only a plain reduction may be split over rows"
    kept_inner = 1
    for part in mapping.parts:
        if part.row_stride is None:
            for stride, extent in pieces_of(segment, part):
                kept_inner *= 1 if segment.is_reduced_at(stride) else extent
    if kept_inner * 8 > target.tile_bytes:
        return "its accumulators do not fit a tile"
    if not rows_reduced or True in rows_reduced:
        return None
    row = Var("r", mapping.rows)
    point = mapping.point(Index.of_var(row), Index.of_var(Var("k", mapping.inner)))
    shape = graph.nodes[segment.node].shape
    if slice_size_of(linear(result_position(segment, point), shape), row) != math.prod(shape) // mapping.rows:
        return "what a row leaves would lie scattered in its result"
    return None


def pieces_of(segment: Segment, part: SegmentDigit) -> Iterator[tuple[int, int]]:
    """`part` cut where the segment's dimensions change between kept and reduced: (stride, extent) of each piece."""
    start = 1
    low, high = part.stride, part.stride * part.extent
    for extent, _ in segment.flags():
        begin, end = max(start, low), min(start * extent, high)
        if begin < end:
            yield begin, end // begin
        start *= extent


def inner_pieces(segment: Segment, mapping: RowMap) -> list[tuple[int, int, bool]]:
    """The position within a row as digits: (stride, extent, reduced), cut where kept and reduced dimensions meet."""
    found: list[tuple[int, int, bool]] = []
    taken = 1
    for part in mapping.parts:
        if part.row_stride is not None:
            continue
        for stride, extent in pieces_of(segment, part):
            found.append((taken * (stride // part.stride), extent, segment.is_reduced_at(stride)))
        taken *= part.extent
    return found


def rows_agree(placed: Iterable[tuple[Segment, RowMap]]) -> bool:
    """Whether one set of loops over a row can follow the kept and reduced dimensions of all segments. If the pieces of one segment
    begin every 6 elements and those of another every 8, no set of loops ends at both."""
    strides: dict[int, set[int]] = {}
    for segment, mapping in placed:
        if segment.reduces:
            strides.setdefault(mapping.inner, {mapping.inner}).update(
                stride for stride, _, _ in inner_pieces(segment, mapping)
            )
    return all(outer % inner == 0 for cuts in strides.values() for inner, outer in pairwise(sorted(cuts)))


def _digits(segment: Segment, part: SegmentDigit) -> Iterator[int]:
    for stride, _ in pieces_of(segment, part):
        yield stride


def spans_rows(segment: Segment, mapping: RowMap) -> bool:
    """Whether the segment reduces across rows, so that every task stores a partial result."""
    return segment.reduces and any(
        segment.is_reduced_at(part.stride) for part in mapping.parts if part.row_stride is not None and part.extent > 1
    )


def slices_under(loads: Iterable[tuple[int, Index]], row: Var, guard: Guard = ()) -> Mapping[int, int]:
    """The slice size of each tensor of `loads` that is cut into rows. `loads`: (node, position in terms of the row and the position
    within it), which are made if `guard` holds."""
    found: dict[int, int | None] = {}
    for node, flat in loads:
        size = slice_size_of(flat, row, guard)
        found[node] = size if node not in found or found[node] == size else None
    return {node: size for node, size in found.items() if size is not None}


__all__ = [
    "RowMap",
    "Segment",
    "SegmentKind",
    "boundaries",
    "match",
    "reduction_is_legal",
    "result_position",
    "roots_of",
    "segments_of",
    "slices_under",
    "spans_rows",
]
