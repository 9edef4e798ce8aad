"""Decides the form of each loop on a CPU: which loops are cut, which run in strips of lanes or in squares, and what is prefetched.

`form_of` decides how a loop is written, and `body` writes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ...ir.graph import DType
from ...ir.index_maps import Atom, Digit, Index, Var
from ...loops import loops
from ...loops.loops import Loop, LoopKind, NestCode, Statement
from ...loops.split import split_at_guards
from ...ops.c_text import REGISTER_TYPE
from ...ops.table import OPS, Cost
from ...planning.transposes import BLOCK_ROWS, MOST_LANES
from .narrow import whole_of

if TYPE_CHECKING:
    from typing import TypeAlias

DRAWN_AT_ONCE = 512
"""Random words that are drawn before the loop that uses them; each of Philox's blocks gives four."""
DRAWN_ROOM = DRAWN_AT_ONCE + 4 * 16 + 4
"""The room that stitch_philox_words needs, in words."""
FEWEST_DRAWN = 32
"""With fewer iterations, drawing ahead costs more than it saves."""


FETCHED_AHEAD = 4096
"""How far ahead (bytes, rounded up to rows) a row's expensive pass prefetches what the first passes of later rows will read. The
hardware's prefetcher follows a pass over one row, but not the passes between it and the next row: memory would idle while exp is
computed. Measured on a Zen 5 with tensors of 256 MiB: softmax of 256 numbers is 1.9 times as fast, cross-entropy of 8,000 1.2 times.
Rows without such a pass gain nothing."""
FETCHED_ABOVE = 4 << 20
"""A smaller tensor (bytes) is assumed to be in the caches, where prefetching costs 3% and gains nothing."""


@dataclass(frozen=True)
class Ahead:
    """What a pass (the loop `loop`) over a row prefetches. loads: (buffer, position for the pass's first element, element type)."""

    loop: Loop
    loads: tuple[tuple[int, Index, DType], ...]


def _is_expensive(loop: Loop) -> bool:
    return any(
        isinstance(statement, loops.Let)
        and isinstance(statement.value, loops.Compute)
        and OPS[statement.value.node.op].cost is Cost.EXPENSIVE
        and statement.value.dtypes[-1].is_float
        for statement in loop.body
    )


OVER_ROWS: Final = (("first_row", "last_row"), ("group_first", "group_last"))
"""The bounds of a loop over a task's rows, or over those of a group (lowering/row_blocks.py)."""


def _ahead(rows: Loop, sizes: Sequence[int]) -> Ahead | None:
    """What to prefetch in a loop over rows, and in which of its passes; None if nothing. sizes: bytes of each buffer."""
    passes = [statement for statement in rows.body if isinstance(statement, Loop)]
    last = next((number for number, loop in enumerate(passes) if _is_expensive(loop)), None)
    if last in (None, 0):
        return None
    expensive = passes[last]
    found: dict[int, tuple[int, Index, DType]] = {}
    for loop in passes[: last + 1]:
        for statement in loop.body:
            load = statement.value if isinstance(statement, loops.Let) else None
            if not isinstance(load, loops.Load) or load.guard or sizes[load.buffer] < FETCHED_ABOVE:
                continue
            rest = load.index - Index.of_var(loop.variable)
            of_row = [(c, atom) for c, atom in rest.terms if isinstance(atom, Digit) and atom.variable == rows.variable]
            if len(of_row) == len(rest.terms) == 1 and (stride := of_row[0][0]) >= loop.extent == expensive.extent:
                count = -(-FETCHED_AHEAD // (stride * load.dtype.size_bytes))
                found.setdefault(load.buffer, (load.buffer, rest + stride * count, load.dtype))
    return Ahead(expensive, tuple(found.values())) if found and expensive.kind is LoopKind.LANES else None


@dataclass(frozen=True)
class Draw:
    """A random word in each iteration of a loop: word `index`, which advances with the loop's variable, of the Philox stream with
    state `state` (names of values)."""

    state: tuple[str, ...]
    index: Index


SQUARE: Final = BLOCK_ROWS
"""Rows and, if a row's lanes divide into them, lanes of the squares in which a nest that transposes works."""


@dataclass(frozen=True)
class Turned:
    """A load whose neighbours in memory belong to neighbouring iterations of the loop around the lanes. A square of it is read in
    memory's order and transposed in registers. stride: elements between its lanes. wraps: SQUARE neighbours must be within one run
    of each of these lengths, since the position jumps at its end."""

    load: loops.Load
    stride: int
    wraps: tuple[int, ...]


def _turned(loop: Loop, unsteady: frozenset[int]) -> dict[str, Turned]:
    """The loads of a loop around SQUARE lanes and more that can be transposed, by name. unsteady: buffers that the loop may write."""
    lanes = loop.body[-1] if loop.body else None
    if not isinstance(lanes, Loop) or lanes.kind is not LoopKind.SIMD or lanes.bounds:
        return {}
    if not SQUARE <= lanes.extent <= MOST_LANES or (lanes.extent != SQUARE and loop.bounds is None):
        return {}
    if loop.bounds != ("block_first", "block_last") and (loop.bounds or loop.extent % SQUARE):
        return {}
    found = {}
    for statement in lanes.body:
        load = statement.value if isinstance(statement, loops.Let) else None
        if not isinstance(load, loops.Load) or load.guard or load.buffer in unsteady or load.dtype.size_bytes != 4:
            continue
        assert isinstance(statement, loops.Let)
        of_loop = [(c, a) for c, a in load.index.terms if loop.variable in _variables(a)]
        of_lane = [(c, a) for c, a in load.index.terms if lanes.variable in _variables(a)]
        if not all(isinstance(atom, Digit) for _, atom in (*of_loop, *of_lane)) or len(of_lane) != 1:
            continue
        digits = [(c, a) for c, a in of_loop if isinstance(a, Digit)]
        inner = [(c, a) for c, a in digits if a.stride == 1]
        stride = of_lane[0][0]
        if [c for c, _ in inner] == [1] and stride >= SQUARE and load.index.low >= 0:
            wraps = {a.extent for _, a in inner if not a.is_top} | {a.stride for _, a in digits if a.stride > 1}
            found[statement.name] = Turned(load, stride, tuple(sorted(wraps)))
    return found


def _variables(atom: Atom) -> frozenset[Var] | set[Var]:
    return {atom.variable} if isinstance(atom, Digit) else set(atom.index.variables)


LANE = Var("lane", DRAWN_AT_ONCE)


def draws_of(loop: Loop) -> dict[str, Draw]:
    """The random words (results of `philox`) of a loop that can be drawn ahead, by name: their state does not change in the loop, and
    their indices are consecutive."""
    if loop.bounds is None and loop.extent < FEWEST_DRAWN:
        return {}
    made = {statement.name: statement.value for statement in loop.body if isinstance(statement, loops.Let)}
    found = {}
    for name, value in made.items():
        if not isinstance(value, loops.Compute) or value.node.op != "philox":
            continue
        *state, place = value.operands
        source = made.get(place)
        if not isinstance(source, loops.FromIndex) or any(operand in made for operand in state):
            continue
        if loop.variable not in (source.index - Index.of_var(loop.variable)).variables:
            found[name] = Draw(tuple(state), source.index)
    return found


ROWS_ADDED_AT_ONCE: Final = 4
"""Rows that are added to a task's accumulators at once (_adds_rows)."""
LEAST_COLUMNS: Final = 2048
"""Fewest accumulators of a task for which ROWS_ADDED_AT_ONCE rows are added at once. Fewer accumulators stay in L1 beside the rows:
adding four rows at once was 10% slower with fewer, and 15% faster with more."""
MOST_STATEMENTS: Final = 12


def _adds_rows(loop: Loop) -> bool:
    """Whether a loop over rows only combines each row's elements with accumulators, one per column. Then an accumulator is read and
    written once for several rows and combines them in their order: the result is the same to the bit, with fewer loads."""
    inner = loop.body[0] if len(loop.body) == 1 else None
    if not isinstance(inner, Loop) or inner.kind is not LoopKind.SIMD or inner.bounds or draws_of(inner):
        return False
    combined = [statement for statement in inner.body if isinstance(statement, loops.Combine)]
    others = [statement for statement in inner.body if not isinstance(statement, loops.Combine)]
    return (
        inner.extent >= LEAST_COLUMNS
        and len(inner.body) <= MOST_STATEMENTS
        and bool(combined)
        and all(c.index is not None and loop.variable not in c.index.variables for c in combined)
        and all(isinstance(let, loops.Let) and not isinstance(let.value, loops.LoadLocal) for let in others)
    )


VECTOR_BYTES: Final = 64
"""The widest vector that a processor has."""


def rests_of(statements: Sequence[Statement]) -> dict[str, int]:
    """Maps the name of each lane accumulator (a Local that one LANES loop of `statements` fills and a Collapse folds) to the
    number of elements that remain after the loop's strips. The remainder gets an accumulator of its own: if its elements were
    written one by one into lanes that are then read as a vector, three elements would take as long as 150, because the
    processor waits until stores of another size have reached the cache. If half a strip remains (`_half_of`), it is done first, and
    only the elements after it are counted."""
    declared = {s.name for s in statements if isinstance(s, loops.Local) and s.size > 1}
    folded = {s.local: s for s in statements if isinstance(s, loops.Collapse)}
    filled = Counter(
        c.local
        for s in statements
        if isinstance(s, Loop)
        for c in s.body
        if isinstance(c, loops.Combine) and c.index is None
    )
    found: dict[str, int] = {}
    for loop in statements:
        if not isinstance(loop, Loop) or loop.kind is not LoopKind.LANES or loop.bounds or loop.extent < loop.width:
            continue
        rest = loop.extent % loop.width
        rest -= _half_of(loop, rest)
        for c in loop.body:
            if (
                not isinstance(c, loops.Combine)
                or c.index is not None
                or c.local not in declared
                or filled[c.local] != 1
            ):
                continue
            whole = folded.get(c.local)
            if rest and whole is not None and whole.lanes == loop.width and whole.dtype is c.dtype:
                found[c.local] = rest
    return found


def _half_of(loop: Loop, rest: int) -> int:
    """Half the width of a loop's strips if as many of the `rest` iterations after its strips are done in the accumulators' lanes;
    else 0. They are if half the lanes are whole vectors, for the reason that `rests_of` gives: with halves of vectors, a LayerNorm
    of rows of 21 took four times as long."""
    half = loop.width // 2
    sizes = [each.dtype.size_bytes for each in loop.body if isinstance(each, loops.Combine) and each.index is None]
    return half if rest >= half and half * min(sizes, default=0) >= VECTOR_BYTES else 0


LEAST_STRIPS: Final = 8
"""A maximum of as many strips keeps flags beside its lanes. Of fewer strips they cost more than they save (2 to 5% of a softmax)."""


def extremes_of(statements: Sequence[Statement]) -> frozenset[str]:
    """Names of the lane accumulators of a long maximum or minimum of floats that a Collapse of `statements` folds. Whether one of its
    values was NaN is kept beside each (`stitch_extreme`)."""
    folded = {
        statement.local
        for statement in statements
        if isinstance(statement, loops.Collapse)
        and statement.kind in ("max", "min")
        and REGISTER_TYPE[statement.dtype] == "float"
    }
    long = (each for each in statements if isinstance(each, Loop) and each.extent >= LEAST_STRIPS * max(each.width, 1))
    filled = {c.local for loop in long for c in loop.body if isinstance(c, loops.Combine) and c.index is None}
    return frozenset(folded & filled)


@dataclass(frozen=True)
class Parts:
    """The loop is cut where its guards change."""

    loops: tuple[Loop, ...]


LAST_TOGETHER: Final = (8, 16, 32)
"""Numbers of last iterations that are computed together: whole vectors."""
IN_ONE_VECTOR: Final = 4
"""Of the iterations after strips, whose number g++ knows, it computes so many in one vector of 16 bytes: a softmax of 82 elements
took 1.2 times as long with its last 8 together, one of 53 takes 0.98 times as long."""


def last_together(loop: Loop, rest: int) -> int:
    """How many of the loop's last iterations are computed together, in whole vectors, before all others, if `rest` iterations remain
    after its strips: g++ would compute up to seven of these one by one, and an exp takes as long alone as in a vector. Some
    iterations are then computed twice. Whatever the remainder stores comes last, and each store's memory is read by its own iteration
    only. 0 if the remainder is written as it stands: it is of whole vectors, or takes no function, or does more than that."""
    known = (loops.Let, loops.LetIndex, loops.Store, loops.Assign)
    is_simple = all(
        isinstance(each, known) or (isinstance(each, loops.Combine) and each.index is None) for each in loop.body
    )
    if not rest % LAST_TOGETHER[0] or not is_simple or not _is_expensive(loop) or draws_of(loop):
        return 0
    return next((count for count in LAST_TOGETHER if rest <= count <= loop.extent), 0)


@dataclass(frozen=True)
class Strips:
    """By lanes: iterations [0, whole) in strips of the loop's width, then one strip of half the width if `half`, then `rest` single
    iterations. `apart`: the locals that have lanes of their own for the rest. together: as `last_together` says."""

    whole: int
    half: int
    rest: int
    apart: frozenset[str] = frozenset()
    together: int = 0


@dataclass(frozen=True)
class Whole:
    """A vector loop over [0, whole), and then the `rest` iterations, of which `together` are computed before (`last_together`)."""

    whole: int
    rest: int
    together: int


@dataclass(frozen=True)
class OpenStrips:
    """By lanes, between bounds that are known at run time only: strips, then a remainder."""


@dataclass(frozen=True)
class Scanned:
    """A scan, by lanes as long as no sum comes near an overflow."""


@dataclass(frozen=True)
class Narrowed:
    """A vector loop over few elements, some of them small: what is no whole vector of these goes in strips (narrow.py)."""


@dataclass(frozen=True)
class Drawn:
    """In blocks; before each block its random words are drawn."""


@dataclass(frozen=True)
class Squares:
    """Around lanes, in squares, or for as many lanes as there are. If no wrap is crossed, the loads of `turned` are read in memory's
    order."""

    turned: Mapping[str, Turned]

    @property
    def wraps(self) -> list[int]:
        """The lengths of runs within which a square's rows must be."""
        return sorted({wrap for one in self.turned.values() for wrap in one.wraps})


@dataclass(frozen=True)
class Plain:
    """One iteration after the other. rows_together: while ROWS_ADDED_AT_ONCE rows are left, that many are done at once.
    ahead: what one of the passes in the loop's body prefetches."""

    rows_together: bool = False
    ahead: Ahead | None = None


Form: TypeAlias = "Parts | Strips | Whole | Narrowed | OpenStrips | Scanned | Drawn | Squares | Plain"


@dataclass(frozen=True)
class Facts:
    """What a loop's form depends on besides the loop. sizes: bytes of the nest's buffers. unsteady: buffers that it writes, or that
    may share memory with one that it writes. for_many_shapes: whether the text must not depend on extents
    (`kernel_text.render`)."""

    sizes: tuple[int, ...]
    unsteady: frozenset[int]
    for_many_shapes: bool = False

    @classmethod
    def of(cls, nest: NestCode, for_many_shapes: bool = False) -> Facts:
        """The facts of a nest."""
        return cls(
            tuple(buffer.size_bytes for buffer in nest.buffers),
            nest.may_alias | nest.written_buffers,
            for_many_shapes,
        )


def form_of(loop: Loop, facts: Facts, rests: Mapping[str, int] = MappingProxyType({})) -> Form:
    """The form in which a loop is written. rests: the result of `rests_of` for the statements to which the loop belongs."""
    if loop.kind is LoopKind.SCAN:
        return Scanned()
    if not facts.for_many_shapes and (parts := split_at_guards(loop)):
        return Parts(parts)
    if loop.kind is LoopKind.LANES:
        return OpenStrips() if loop.bounds else strips_of(loop, rests, facts.for_many_shapes)
    if loop.kind is LoopKind.SIMD and draws_of(loop):
        return Drawn()
    if facts.for_many_shapes:
        return Plain()
    if turned := _turned(loop, facts.unsteady):
        return Squares(turned)
    if loop.kind is LoopKind.SIMD and not loop.bounds:
        rest = loop.extent % LAST_TOGETHER[1 if loop.extent > LAST_TOGETHER[1] else 0]
        if together := last_together(loop, rest):
            return Whole(loop.extent - rest, rest, together)
        if whole_of(loop) < loop.extent:
            return Narrowed()
    if loop.bounds in OVER_ROWS and loop.kind is LoopKind.SERIAL:
        return Plain(loop.bounds == OVER_ROWS[0] and _adds_rows(loop), _ahead(loop, facts.sizes))
    return Plain()


def strips_of(loop: Loop, rests: Mapping[str, int], for_many_shapes: bool = False) -> Strips:
    """How a loop by lanes of known extent is cut into strips. rests: as for `form_of`."""
    rest = loop.extent % loop.width
    apart = frozenset(c.local for c in loop.body if isinstance(c, loops.Combine) and c.local in rests)
    taken = _half_of(loop, rest) if apart else 0
    is_long = (rest - taken) % LAST_TOGETHER[0] > IN_ONE_VECTOR
    together = last_together(loop, rest - taken) if is_long and not for_many_shapes else 0
    return Strips(loop.extent - rest, taken, rest - taken, apart, together)
