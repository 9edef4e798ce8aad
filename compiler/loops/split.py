"""Cuts loops over concatenated or padded tensors where their guards change.

A concatenation is lowered to accesses under guards and a choice between them: each element computes all parts, with masked reads
(`t = x[k] if 0 <= k < 36`). Within a part each guard is known, so that only the part's own accesses remain; what no longer depends
on the element (a row's place in a table) leaves the loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ..ir.index_maps import Bound, Guard, Index, Var
from ..support.sequences import pairwise
from . import loops
from .loops import Loop, LoopKind, Statement
from .uses import read_guard, read_value

LEAST_EXTENT: Final = 16
LEAST_PART: Final = 8
"""Least extent of a vector loop that is cut, and least average length of its parts: short loops are faster as masked vectors."""
FEWEST_PIECES: Final = 4
"""A vector loop below LEAST_EXTENT is cut into this many parts and more: as vectors its elements would compute all of them."""
MOST_PARTS: Final = 64
MOST_GROWTH: Final = 3
"""A loop around other loops, and one over rows, is cut into at most MOST_PARTS parts, which have at most MOST_GROWTH times its
statements in all, since every part repeats the statements without a guard; or MOST_STATEMENTS, if a part has half as many as the
loop."""
MOST_STATEMENTS: Final = 1000
ROW_BOUNDS: Final = (("first_row", "last_row"), ("block_first", "block_last"))
"""The bounds of loops over the rows of a task, or of a block of them. Such a loop is cut although they are not known."""
_FLAT: Final = (loops.Let, loops.LetIndex, loops.Store, loops.Combine, loops.Assign)
_KNOWN: Final = (*_FLAT, loops.Update)
_KNOWN_IN_SERIAL: Final = (*_KNOWN, Loop, loops.If, loops.Local, loops.Collapse)


def split_at_guards(loop: Loop) -> tuple[Loop, ...]:
    """Cuts `loop`, a vector loop or a serial one, into loops whose guards are known:

    before: for k in [0, 72) simd: t1 = a[k] if 0 <= k < 36; t2 = b[k - 36] if 36 <= k < 72; c[k] = t1 if 0 <= k < 36 else t2
    after:  for k in [0, 36) simd: t1 = a[k]; c[k] = t1        for k in [36, 72) simd: t2 = b[k - 36]; c[k] = t2

    Returns () if cutting is not worth it. The parts carry their ends as `bounds`, if they are not cut further.
    """
    is_of_rows = loop.bounds in ROW_BOUNDS
    is_of_vectors = loop.kind is LoopKind.SIMD or (loop.kind is LoopKind.LANES and is_of_rows)
    if not (loop.kind is LoopKind.SERIAL or is_of_vectors) or (loop.bounds and not is_of_rows):
        return ()
    known = _KNOWN if is_of_vectors else _KNOWN_IN_SERIAL
    if not all(isinstance(statement, known) for statement in loops.walk(loop.body)):
        return ()
    extent = _extent(loop)
    cuts = {0, extent}
    for bound in _bounds_in(loop.body):
        values = _values(bound, loop)
        if values is not None:
            cuts |= {cut for cut in values if 0 < cut < extent}
    pieces = len(cuts) - 1
    if pieces == 1 or pieces > MOST_PARTS:
        return ()
    if is_of_vectors and (pieces < FEWEST_PIECES if extent < LEAST_EXTENT else extent < pieces * LEAST_PART):
        return ()
    parts = [part for first, last in pairwise(sorted(cuts)) for part in _part(loop, first, last)]
    if is_of_rows or any(isinstance(statement, Loop) for statement in loop.body):
        size, of_parts = _size((loop,)), _size(parts)
        if len(parts) > MOST_PARTS:
            return ()
        if of_parts > MOST_GROWTH * size and (of_parts > MOST_STATEMENTS or 2 * of_parts > len(parts) * size):
            return ()
    return tuple(parts)


def _part(loop: Loop, first: int, last: int) -> tuple[Loop, ...]:
    """The loop for elements [first, last). Guards may still depend on a digit of the element, which has fewer values in the part:
    then the part's elements are counted from 0, and it may be cut further."""
    ends = _ends(loop, first, last, 0)
    part = replace(loop, body=_within(loop, first, last), bounds=ends)
    if not any(loop.variable in bound.index.variables for bound in _bounds_in(part.body)):
        return (part,)
    fewer = Var(loop.variable.name, last - first)
    values = {loop.variable: Index.of_var(fewer) + first}
    moved = replace(
        loop,
        variable=fewer,
        extent=last - first,
        body=tuple(substituted(statement, values) for statement in part.body),
        bounds=_ends(loop, first, last, first) if loop.bounds else None,
    )
    if cut := split_at_guards(moved):
        return cut
    known = replace(moved, body=_within(moved, 0, moved.extent))
    return (known if _guards_of(known) < _guards_of(part) else part,)


def _extent(loop: Loop) -> int:
    """The number of iterations, of a loop over rows of all tasks together."""
    return loop.extent if loop.bounds is None else loop.variable.extent


def _ends(loop: Loop, first: int, last: int, origin: int) -> tuple[str, str]:
    """The bounds of the part of a loop for elements [first, last), counted from `origin`. A loop over rows has bounds of its own."""
    if loop.bounds is None:
        return str(first - origin), str(last - origin)
    begin, end = loop.bounds
    begin = begin if first == 0 else f"({begin} > {first} ? {begin} : {first})"
    end = end if last == _extent(loop) else f"({end} < {last} ? {end} : {last})"
    return (f"{begin} - {origin}", f"{end} - {origin}") if origin else (begin, end)


def _guards_of(loop: Loop) -> int:
    return sum(1 for _ in _bounds_in(loop.body))


def _size(statements: Iterable[Statement]) -> int:
    return sum(1 for _ in loops.walk(statements))


SUBSTITUTED: Final = (*_KNOWN_IN_SERIAL, loops.Turn)
"""The statements that `substituted` knows."""


def substituted(statement: Statement, values: Mapping[Var, Index]) -> Statement:
    """The statement, of one of the kinds SUBSTITUTED, with each variable of `values` replaced in its indices."""

    def guard(bounds: Guard) -> Guard:
        return tuple(bound.substitute(values) for bound in bounds)

    if isinstance(statement, Loop):
        return replace(statement, body=tuple(substituted(inner, values) for inner in statement.body))
    if isinstance(statement, loops.If):
        body = tuple(substituted(inner, values) for inner in statement.body)
        return loops.If(guard(statement.guard), body)
    if isinstance(statement, loops.Turn):
        return replace(statement, index=statement.index.substitute(values), place=statement.place.substitute(values))
    if isinstance(statement, (loops.Store, loops.Update, loops.Combine, loops.Assign)):
        return statement if statement.index is None else replace(statement, index=statement.index.substitute(values))
    if not isinstance(statement, loops.Let):
        return statement
    value = statement.value
    if isinstance(value, (loops.Load, loops.LoadLocal)):
        value = replace(value, index=value.index.substitute(values), guard=guard(value.guard))
    elif isinstance(value, loops.FromIndex):
        value = replace(value, index=value.index.substitute(values))
    elif isinstance(value, loops.Choose):
        value = replace(value, cases=tuple((guard(case), name) for case, name in value.cases))
    return replace(statement, value=value)


def _bounds_in(body: Iterable[Statement]) -> Iterator[Bound]:
    for statement in loops.walk(body):
        yield from _bounds_of(statement)


def _bounds_of(statement: Statement) -> Guard:
    if isinstance(statement, loops.If):
        return statement.guard
    if not isinstance(statement, loops.Let):
        return ()
    if isinstance(statement.value, (loops.Load, loops.LoadLocal)):
        return statement.value.guard
    if isinstance(statement.value, loops.Choose):
        return tuple(bound for guard, _ in statement.value.cases for bound in guard)
    return ()


def _values(bound: Bound, loop: Loop) -> tuple[int, int] | None:
    """[low, high) if the bound holds for these values of the loop's variable and no others, whatever the other variables are: its
    index is the variable plus a constant, or a multiple of it plus what cannot reach the next multiple. None if it depends on
    more."""
    variable, extent = loop.variable, _extent(loop)
    itself = Index.of_var(variable).terms  # none if it is always 0
    scale = next((coefficient for coefficient, atom in bound.index.terms if itself and atom == itself[0][1]), 0)
    if scale <= 0:
        return None
    rest = bound.index - Index.of_var(variable) * scale
    if variable in rest.variables:
        return None
    (least, low), (high, most) = (
        (-(-(end - rest.high) // scale), -(-(end - rest.low) // scale)) for end in (bound.low, bound.high)
    )
    if low <= 0:
        least = low = 0
    if high >= extent:
        high = most = extent
    return (low, high) if least == low and high == most else None


def _within(loop: Loop, first: int, last: int) -> tuple[Statement, ...]:
    """The body for elements [first, last), without statements that no result needs."""

    def holds(bound: Bound) -> bool | None:
        values = _values(bound, loop)
        if values is None:
            return None
        low, high = values
        if low <= first and last <= high:
            return True
        return False if last <= low or high <= first else None

    def rest(guard: Guard) -> Guard:
        return tuple(bound for bound in guard if holds(bound) is not True)

    def never(guard: Guard) -> bool:
        return any(holds(bound) is False for bound in guard)

    def known(statement: Statement) -> Statement:
        if isinstance(statement, Loop):
            return replace(statement, body=tuple(map(known, statement.body)))
        if isinstance(statement, loops.If):
            return loops.If(rest(statement.guard), () if never(statement.guard) else tuple(map(known, statement.body)))
        if not isinstance(statement, loops.Let):
            return statement
        value = statement.value
        if isinstance(value, (loops.Load, loops.LoadLocal)) and not never(value.guard):
            value = replace(value, guard=rest(value.guard))
        elif isinstance(value, loops.Choose):
            value = _chosen([(rest(guard), name) for guard, name in value.cases if not never(guard)], value.otherwise)
        return replace(statement, value=value)

    return _needed(tuple(map(known, loop.body)), set(), set())


def _chosen(cases: list[tuple[Guard, str]], otherwise: str) -> loops.Choose:
    for number, (guard, name) in enumerate(cases):
        if not guard:
            return loops.Choose(tuple(cases[:number]), name)
    return loops.Choose(tuple(cases), otherwise)


def _needed(body: Sequence[Statement], names: set[str], variables: set[Var]) -> tuple[Statement, ...]:
    """The body without statements that no result needs. names, variables: what the statements after it read; what it reads is
    added."""
    kept: list[Statement] = []
    for statement in reversed(body):
        if isinstance(statement, Loop):
            statement = replace(statement, body=_needed(statement.body, names, variables))
        elif isinstance(statement, loops.If):
            statement = loops.If(statement.guard, _needed(statement.body, names, variables))
            if not statement.body:
                continue
            read_guard(statement.guard, variables)
        elif isinstance(statement, loops.Let):
            if statement.name not in names:
                continue
            read_value(statement.value, names, variables)
        elif isinstance(statement, loops.LetIndex):
            if statement.variable not in variables:
                continue
            names.add(statement.value)
        elif isinstance(statement, (loops.Store, loops.Update, loops.Combine, loops.Assign)):
            names.add(statement.value)
            if statement.index is not None:
                variables |= statement.index.variables
        kept.append(statement)
    return tuple(reversed(kept))
