"""Text that somebody else chose, for a terminal, a page or a spreadsheet.

A job's name, its labels and what its events say come from the job. Raw in a terminal they could move the cursor or rewrite what
stands above (ESC), make lines of their own (a newline), or show letters in another order (bidirectional overrides); in a
spreadsheet they could be formulas."""

from __future__ import annotations

import sys
import unicodedata

MAX_SHOWN = 120
"""Letters of a name in a table; JSON and CSV have all."""
REPLACEMENT = "\ufffd"
_FORMULA = "=+-@"


def printable(text: str, most: int | None = None) -> str:
    """The text on one line: what is no letter, sign or space is replaced; cut to `most` letters."""
    if not text.isprintable():
        text = "".join(sign if sign.isprintable() else REPLACEMENT for sign in text)
    return text if most is None or len(text) <= most else text[: most - 1] + "…"


def spreadsheet_cell(text: str) -> str:
    """The text with a quote before it if a spreadsheet would take it for a formula: spaces and line ends before a formula's sign are
    passed over by some, and full-width signs are taken for the signs themselves."""
    start = text.lstrip("".join(sign for sign in set(text) if sign.isspace() or not sign.isprintable()))[:1]
    # a text that begins with a tab or a carriage return is itself taken for a command by some
    is_formula = bool(start) and unicodedata.normalize("NFKC", start)[:1] in _FORMULA
    return f"'{text}" if is_formula or text[:1] in ("\t", "\r", "\n") else text


def write_out(text: str, is_document: bool = False) -> None:
    """To standard output: a document in UTF-8, as it says of itself; text for a terminal in its encoding, with a question mark for
    what that does not have. Raises OSError."""
    if is_document:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8"))
        sys.stdout.buffer.flush()
    else:
        encoding = sys.stdout.encoding or "utf-8"
        print(text.encode(encoding, "replace").decode(encoding), end="")
