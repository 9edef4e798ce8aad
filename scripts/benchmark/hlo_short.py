"""Shortens the text of HLO to the form that XLA prints with HloPrintOptions::ShortParsable, which every parser of HLO reads.

Left out are the shapes of operands, which are in their own lines; the signatures of computations; row-major layouts, which are the
default; source locations; settings of backends. The types and names of the TensorFlow operators that instructions come from stay,
except those of constants, parameters and tuples, which compute nothing.

XLA prints a constant of more than some ten elements as `constant({...})`. Its elements are written if it has at most MAX_ELEMENTS. A
larger one becomes a parameter of the entry, named `elided_constant...`, with the same shape, dtype and readers, so plans do not
change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from stitchfleet.compiler.ir.graph import Array

MAX_ELEMENTS = 4096
"""Most elements of a constant that is written: at most some 50 KB of text."""

_NAMELESS = frozenset("constant parameter tuple get-tuple-element".split())
_INDEX = re.compile(r"/\*index=\d+\*/")
_LAYOUT = re.compile(r"(\b[a-z]\w*\[([\d,<=]*)\])\{([\d,]*)\}")
_INSTRUCTION = re.compile(r"^(\s+(?:ROOT )?)(%?[\w.\-]+) = ")
_OPCODE = re.compile(r" ([a-z][\w\-]*)\(")
_NAME = re.compile(r"%[\w.\-]+")
_COMPUTATION = re.compile(r"^(ENTRY )?(%?[\w.\-]+) \(.*\) -> .* \{$")
_METADATA = re.compile(r", metadata=\{((?:[^{}\"]|\"(?:[^\"\\]|\\.)*\")*)\}")
_ORIGIN = re.compile(r"\b(?:op_type|op_name)=\"(?:[^\"\\]|\\.)*\"")
_BACKEND = re.compile(r", (?:backend_config|frontend_attributes|sharding)=(?:\"(?:[^\"\\]|\\.)*\"|\{[^{}]*\})")
_ELIDED = re.compile(r"^\s+(?:ROOT )?(%[\w.\-]+) = (\S+) constant\(\{\.\.\.\}\)")
_PARAMETER = re.compile(r"^\s+(?:ROOT )?%[\w.\-]+ = .* parameter\((\d+)\)")


class HloFormError(ValueError):
    """A text cannot be shortened. The message says what was given and what was expected."""


def shorten(text: str, constants: Mapping[str, Array]) -> str:
    """Shortens the module in `text`. constants: name -> value of its constants.

    Raises HloFormError for a line that is not HLO, and for a constant outside the entry that is too large to be written.
    """
    lines = [_written_out(line, constants) for line in text.splitlines()]
    return "\n".join(_line(line) for line in _without_elided(lines)) + "\n"


def _written_out(line: str, constants: Mapping[str, Array]) -> str:
    found = _ELIDED.match(line)
    if found is None or found[1][1:] not in constants or constants[found[1][1:]].size > MAX_ELEMENTS:
        return line
    return line.replace("{...}", _nested(constants[found[1][1:]].tolist()), 1)


def _nested(values: Any) -> str:
    if isinstance(values, list):
        return f"{{{', '.join(map(_nested, values))}}}"
    if isinstance(values, bool):
        return str(int(values))
    short = f"{values:g}"
    return short if float(short) == values else str(values)


def _line(line: str) -> str:
    line = _INDEX.sub("", line)
    if found := _COMPUTATION.match(line):
        return f"{found[1] or ''}{found[2]} {{"
    line = _LAYOUT.sub(_row_major, line)
    if found := _INSTRUCTION.match(line):
        return found[0] + _instruction(line[found.end() :])
    return line


def _row_major(match: re.Match[str]) -> str:
    order = [int(number) for number in match[3].split(",") if number]
    return match[1] if order == sorted(order, reverse=True) else match[0]


def _instruction(text: str) -> str:
    """Shortens `shape opcode(operands), attributes`: operands become names, and only some attributes stay."""
    shape = _closing(text, 0) if text.startswith("(") else 0
    opcode = _OPCODE.search(text, shape)
    if opcode is None:
        raise HloFormError(f"given {text[:80]!r}, expected a shape and an opcode")
    begin = opcode.end()
    end = _closing(text, begin - 1) - 1
    operands = text[begin:end]
    if opcode[1] not in ("constant", "parameter"):
        operands = ", ".join(_NAME.findall(operands))
    attributes = _METADATA.sub("" if opcode[1] in _NAMELESS else _origin, text[end:])
    return f"{text[:begin]}{operands}{_BACKEND.sub('', attributes)}"


def _origin(match: re.Match[str]) -> str:
    kept = " ".join(_ORIGIN.findall(match[1]))
    return f", metadata={{{kept}}}" if kept else ""


def _closing(text: str, opening: int) -> int:
    """The position after the bracket that closes the one at `opening`."""
    depth, quoted = 0, False
    for position in range(opening, len(text)):
        letter = text[position]
        if letter == '"' and text[position - 1] != "\\":
            quoted = not quoted
        elif not quoted:
            depth += (letter == "(") - (letter == ")")
            if not depth:
                return position + 1
    raise HloFormError(f"given {text[opening : opening + 80]!r}, expected a closing bracket")


def _without_elided(lines: list[str]) -> list[str]:
    """Makes large constants the last parameters of the entry."""
    large = [number for number, line in enumerate(lines) if _ELIDED.match(line)]
    if not large:
        return lines
    entry = next(number for number, line in enumerate(lines) if line.startswith("ENTRY "))
    end = next(number for number in range(entry, len(lines)) if lines[number].startswith("}"))
    parameters = sum(_PARAMETER.match(line) is not None for line in lines[entry:end])
    made, shapes, renamed = list(lines), "", {}
    for position, number in enumerate(large, parameters):
        found = _ELIDED.match(lines[number])
        if found is None or not entry < number < end:
            raise HloFormError(f"given a large constant outside the entry, expected it inside: {lines[number][:80]}")
        renamed[found[1]] = f"%elided_{found[1][1:]}"
        made[number] = made[number].replace("constant({...})", f"parameter({position})", 1)
        shapes += f", {found[2]}"
    made[entry:end] = [_NAME.sub(lambda name: renamed.get(name[0], name[0]), line) for line in made[entry:end]]
    made[0] = made[0].replace(")->", f"{shapes})->", 1)  # entry_computation_layout={(parameters)->result}
    return made
