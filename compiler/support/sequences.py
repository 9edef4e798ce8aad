"""Functions on sequences that the standard library has only in newer versions of Python."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar, overload

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
_HAS_STRICT: bool = sys.version_info >= (3, 10)


@overload
def zip_strict(a: Iterable[A], b: Iterable[B], /) -> Iterator[tuple[A, B]]: ...
@overload
def zip_strict(a: Iterable[A], b: Iterable[B], c: Iterable[C], /) -> Iterator[tuple[A, B, C]]: ...
@overload
def zip_strict(a: Iterable[A], b: Iterable[B], c: Iterable[C], d: Iterable[D], /) -> Iterator[tuple[A, B, C, D]]: ...
@overload
def zip_strict(*iterables: Iterable[Any]) -> Iterator[tuple[Any, ...]]: ...
def zip_strict(*iterables: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    """`zip(..., strict=True)`, which Python has since 3.10. Raises ValueError if the iterables differ in length."""
    if _HAS_STRICT:
        return zip(*iterables, strict=True)
    return _zip_strict(iterables)


def _zip_strict(iterables: tuple[Iterable[Any], ...]) -> Iterator[tuple[Any, ...]]:
    end = object()
    for together in itertools.zip_longest(*iterables, fillvalue=end):
        if any(value is end for value in together):
            raise ValueError("zip_strict: the iterables are not of one length")
        yield together


def pairwise(iterable: Iterable[A]) -> Iterator[tuple[A, A]]:
    """`itertools.pairwise`, which Python has since 3.10: (first, second), (second, third), ..."""
    first, second = itertools.tee(iterable)
    next(second, None)
    return zip(first, second)
