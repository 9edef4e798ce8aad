"""Which matrix products are compiled; the others are left to the library. It imports nothing: a training process asks it too."""

from __future__ import annotations

IN_FIRST_CACHE = 1 << 13
"""Elements of a right factor (32 KiB of floats) that each row of the left one finds in the core's first cache."""
IN_SECOND_CACHE = 1 << 16
"""Elements of a right factor (256 KiB of floats) that each row finds in the second cache."""
MOST_TERMS = 1 << 22
"""Most multiply-adds of a product whose right factor is in the second cache only. A library runs a larger one near the peak."""


def is_small(rows: int | None, terms: int, columns: int) -> bool:
    """Whether a product of [rows, terms] and [terms, columns] is worth compiling: either its right factor stays in the first cache,
    so that the rows, however many, run near the core's peak, or the library would hardly work longer than it takes to start.
    rows: None if it is not known."""
    factor = terms * columns
    if factor <= IN_FIRST_CACHE:
        return True
    return rows is not None and factor <= IN_SECOND_CACHE and rows * factor <= MOST_TERMS
