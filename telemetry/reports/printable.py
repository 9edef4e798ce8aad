"""Makes text chosen by somebody else safe for a terminal, a page or a spreadsheet.

A job's name, its labels and its events' messages come from the job. Printed raw, they could move a terminal's cursor or rewrite
earlier output (ESC), begin lines of their own (a newline), or show characters in another order (bidirectional overrides). In a
spreadsheet they could be formulas."""

from __future__ import annotations

import sys
import unicodedata

MAX_SHOWN = 120
"""Most characters of a name in a table; JSON and CSV have all."""
REPLACEMENT = "\ufffd"
_FORMULA = "=+-@"


def printable(text: str, most: int | None = None) -> str:
    """The text on one line: characters that are not printable are replaced. Cut to `most` characters, if given."""
    if not text.isprintable():
        text = "".join(sign if sign.isprintable() else REPLACEMENT for sign in text)
    return text if most is None or len(text) <= most else text[: most - 1] + "…"


def spreadsheet_cell(text: str) -> str:
    """The text, preceded by a quote if a spreadsheet would take it for a formula. Some spreadsheets ignore spaces and line ends
    before a formula's sign, and take full-width signs for the signs themselves."""
    start = text.lstrip("".join(sign for sign in set(text) if sign.isspace() or not sign.isprintable()))[:1]
    # some spreadsheets treat a text that begins with a tab or a carriage return as a command
    is_formula = bool(start) and unicodedata.normalize("NFKC", start)[:1] in _FORMULA
    return f"'{text}" if is_formula or text[:1] in ("\t", "\r", "\n") else text


def write_out(text: str, is_document: bool = False) -> None:
    """Writes to standard output: a document in UTF-8, as it declares; other text in the terminal's encoding, with a question mark for
    characters that it lacks. Raises OSError."""
    if is_document:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8"))
        sys.stdout.buffer.flush()
    else:
        encoding = sys.stdout.encoding or "utf-8"
        print(text.encode(encoding, "replace").decode(encoding), end="")
