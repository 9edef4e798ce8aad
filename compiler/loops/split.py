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
from .uses import read_value

LEAST_EXTENT: Final = 16
LEAST_PART: Final = 8
"""Least extent of a vector loop that is cut, and least average length of its parts: short loops are faster as masked vectors."""
MOST_PARTS: Final = 64
MOST_GROWTH: Final = 3
"""A loop around other loops is cut into at most MOST_PARTS parts, which have at most MOST_GROWTH times its statements in all:
every part repeats the statements without a guard."""
_KNOWN: Final = (loops.Let, loops.LetIndex, loops.Store, loops.Combine, loops.Assign)


def split_at_guards(loop: Loop) -> tuple[Loop, ...]:
    """Cuts `loop`, a vector loop or a serial one around vector loops, into loops whose guards are known:

    before: for k in [0, 72) simd: t1 = a[k] if 0 <= k < 36; t2 = b[k - 36] if 36 <= k < 72; c[k] = t1 if 0 <= k < 36 else t2
    after:  for k in [0, 36) simd: t1 = a[k]; c[k] = t1        for k in [36, 72) simd: t2 = b[k - 36]; c[k] = t2

    Returns () if cutting is not worth it. The parts carry their ends as `bounds`, if they are not cut further.
    """
    is_outer = loop.kind is LoopKind.SERIAL and any(isinstance(statement, Loop) for statement in loop.body)
    if loop.bounds or not (is_outer or (loop.kind is LoopKind.SIMD and loop.extent >= LEAST_EXTENT)):
        return ()
    allowed = (*_KNOWN, Loop) if is_outer else _KNOWN
    if not all(isinstance(statement, allowed) for statement in loops.walk(loop.body)):
        return ()
    cuts = {0, loop.extent}
    for bound in _bounds_in(loop.body):
        offset = _offset(bound, loop.variable)
        if offset is not None:
            cuts |= {cut for cut in (bound.low - offset, bound.high - offset) if 0 < cut < loop.extent}
    pieces = len(cuts) - 1
    if pieces == 1 or (pieces > MOST_PARTS if is_outer else loop.extent < pieces * LEAST_PART):
        return ()
    parts = [part for first, last in pairwise(sorted(cuts)) for part in _part(loop, first, last)]
    if is_outer and (len(parts) > MOST_PARTS or _size(parts) > MOST_GROWTH * _size((loop,))):
        return ()
    return tuple(parts)


def _part(loop: Loop, first: int, last: int) -> tuple[Loop, ...]:
    """The loop for elements [first, last). Guards may still depend on a digit of the element, which has fewer values in the part:
    then the part's elements are counted from 0, and it may be cut further."""
    part = replace(loop, body=_within(loop, first, last), bounds=(str(first), str(last)))
    if not any(loop.variable in bound.index.variables for bound in _bounds_in(part.body)):
        return (part,)
    fewer = Var(loop.variable.name, last - first)
    moved = replace(
        loop,
        variable=fewer,
        extent=last - first,
        body=tuple(substituted(statement, {loop.variable: Index.of_var(fewer) + first}) for statement in part.body),
    )
    return split_at_guards(moved) or (part,)


def _size(statements: Iterable[Statement]) -> int:
    return sum(1 for _ in loops.walk(statements))


SUBSTITUTED: Final = (*_KNOWN, Loop, loops.Local, loops.Collapse, loops.Turn)
"""The statements that `substituted` knows."""


def substituted(statement: Statement, values: Mapping[Var, Index]) -> Statement:
    """The statement, of one of the kinds SUBSTITUTED, with each variable of `values` replaced in its indices."""

    def guard(bounds: Guard) -> Guard:
        return tuple(bound.substitute(values) for bound in bounds)

    if isinstance(statement, Loop):
        return replace(statement, body=tuple(substituted(inner, values) for inner in statement.body))
    if isinstance(statement, loops.Turn):
        return replace(statement, index=statement.index.substitute(values), place=statement.place.substitute(values))
    if isinstance(statement, (loops.Store, loops.Combine, loops.Assign)):
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
    if not isinstance(statement, loops.Let):
        return ()
    if isinstance(statement.value, (loops.Load, loops.LoadLocal)):
        return statement.value.guard
    if isinstance(statement.value, loops.Choose):
        return tuple(bound for guard, _ in statement.value.cases for bound in guard)
    return ()


def _offset(bound: Bound, variable: Var) -> int | None:
    """c, if the bound's index is `variable + c`; else None."""
    rest = bound.index - Index.of_var(variable)
    return rest.constant if rest.is_constant else None


def _within(loop: Loop, first: int, last: int) -> tuple[Statement, ...]:
    """The body for elements [first, last), without statements that no result needs."""

    def holds(bound: Bound) -> bool | None:
        offset = _offset(bound, loop.variable)
        if offset is None:
            return None
        if bound.low <= first + offset and last + offset <= bound.high:
            return True
        return False if last + offset <= bound.low or bound.high <= first + offset else None

    def rest(guard: Guard) -> Guard:
        return tuple(bound for bound in guard if holds(bound) is not True)

    def never(guard: Guard) -> bool:
        return any(holds(bound) is False for bound in guard)

    def known(statement: Statement) -> Statement:
        if isinstance(statement, Loop):
            return replace(statement, body=tuple(map(known, statement.body)))
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
        elif isinstance(statement, loops.Let):
            if statement.name not in names:
                continue
            read_value(statement.value, names, variables)
        elif isinstance(statement, loops.LetIndex):
            if statement.variable not in variables:
                continue
            names.add(statement.value)
        elif isinstance(statement, (loops.Store, loops.Combine, loops.Assign)):
            names.add(statement.value)
            if statement.index is not None:
                variables |= statement.index.variables
        kept.append(statement)
    return tuple(reversed(kept))
