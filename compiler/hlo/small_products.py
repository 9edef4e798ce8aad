"""Which matrix products are compiled; the others are left to the library. It imports nothing: a training process asks it too."""

from __future__ import annotations

FOR_ANY_ROWS = 1 << 14
"""Most elements of a right factor (64 KiB of floats) that is multiplied by any number of rows: it stays in the core's second cache
beside the rows that pass, and six rows at a time run at 90% of an AVX2 core's peak."""
FOR_SOME_ROWS = 1 << 16
"""Most elements of a right factor (256 KiB of floats) of a product of at most MOST_TERMS multiply-adds: 80% of the peak. Larger
factors would have to be packed."""
MOST_TERMS = 1 << 24
FOR_ONE_ROW = 1 << 21
"""Most elements of a right factor (8 MiB of floats) that is multiplied by a single row: each is read once. A core of a Zen 4
takes 9 us for 1 MiB and 98 for 9 MiB, where TensorFlow takes 10 and 137; for 16 MiB 210, where TensorFlow takes 178."""


def is_small(rows: int | None, terms: int, columns: int) -> bool:
    """Whether a product of [rows, terms] and [terms, columns] is worth compiling: its right factor stays in the second cache, so that
    the kernel runs about as fast as a library's; or it is read once, for a single row, as fast as memory is. rows: None if it is
    not known."""
    factor = terms * columns
    if rows == 1:
        return factor <= FOR_ONE_ROW
    if factor <= FOR_ANY_ROWS:
        return True
    return rows is not None and factor <= FOR_SOME_ROWS and rows * factor <= MOST_TERMS
