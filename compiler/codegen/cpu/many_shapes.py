"""One binary for many shapes: the numbers in which a kernel's texts differ from shape to shape become parameters.

A job whose batches change in length requests the same cluster at every length. The generator knows no symbolic extents: it plans
and writes the kernel of each shape as if it were the only shape, with all checks for that shape. Texts that differ only in
numbers make one *template*:

    text at length 12  ┐
    text at length 17  ┴─> Template: skeleton, slots ─> one text that reads p0, p1, ... ─> one binary, checked
    text at length 23  ──> do its numbers fit the slots? ─> its parameters: no compiler, no new binary

So a kernel for a third length runs, number by number, what the generator writes for that length. If the generator decides
otherwise there (another scheme, a loop without a remainder), the skeleton differs and it belongs to another template. A number
of the text may be:

    a value     int, long long, unsigned long long, float or double, by its spelling; declared at the start of each function
    a capacity  of a local array: a constant of the binary, with room to spare; a shape that needs more requires a new binary

The parameters are 64-bit words at the address after the last input's (stitch_abi.h): integers as they are, floats as the bits of
a double.

PyTorch's dynamic shapes achieve the same by tracing symbolic integers through the generator, with guards on every decision
(torch.fx.experimental.symbolic_shapes). This way needs no symbolic arithmetic in the planner, whose decisions are many and mostly
about cost. It shows by comparing texts what PyTorch has to ensure by guards.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final

from ...support.whole_files import write_whole
from .body import CAPACITY
from .kernel_text import PARAMETERS

NEUTRAL: Final = "STITCH_SYMBOL"
"""The symbol in a text whose skeleton is compared."""
STATIC_SHAPES: Final = 2
"""Shapes of one cluster that get a binary of their own: constants make faster code, and most jobs have no more shapes."""
CHECKED_SHAPES: Final = 3
"""Shapes on which a template's binary passes the whole self-check, including the one that it was built for."""
MAX_SEEN: Final = 16
"""Most shapes that a template is made of. Each shape after the first STATIC_SHAPES is one that the previous binary did not serve."""

_NUMBER: Final = re.compile(
    r"(?<![\w.])(?:"
    r"(?P<fixed>0x[0-9a-f]+(?:u?l*)(?![\w.])|(?<=<)\d+(?=>))"  # constants, and arguments of C++ templates, are never parameters
    r"|(?P<float>0x[0-9a-f]+(?:\.[0-9a-f]*)?p[+-]?\d+f?)"
    r"|(?P<decimal>\d+\.\d*(?:e[+-]?\d+)?f?|\d+e[+-]?\d+f?)"
    r"|(?P<integer>\d+(?:ull|ll)?)"
    r")(?![\w.])"
)
_VARIABLE: Final = re.compile(r"\bk\d+_\d+(?=_base\b|\b)")  # a loop variable, named for row and stride (split_row)
_PLACE: Final = re.compile("\x01[iwluxfd]")
_TYPES: Final = {"i": "int", "w": "long long", "l": "long long", "u": "unsigned long long", "f": "float", "d": "double"}
_CAPACITY_KIND: Final = "x"
_INT_LIMIT: Final = 1 << 31


class NotParametricError(Exception):
    """The texts of these shapes cannot become one template; the message says why."""


@dataclass(frozen=True)
class ShapedText:
    """A kernel's text at one shape, split up: `skeleton` has a placeholder (two characters, the second is the kind) for each of
    `numbers`."""

    skeleton: str
    numbers: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> ShapedText:
        """Splits up what `kernel_text.render` wrote for many shapes with the symbol NEUTRAL."""
        numbers: list[str] = []

        def place(match: re.Match[str]) -> str:
            found = match.group()
            if match.group("fixed"):
                return found
            numbers.append(found)
            before = match.string[max(0, match.start() - len(CAPACITY) - 1) : match.start()]
            return f"\x01{_CAPACITY_KIND if before == CAPACITY + '(' else _kind_of(found)}"

        return cls(_NUMBER.sub(place, _name_by_order(text)), tuple(numbers))

    @cached_property
    def digest(self) -> str:
        """A SHA-256 hash (hex) of the skeleton alone."""
        return hashlib.sha256(self.skeleton.encode()).hexdigest()

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kind of each number, in order: a key of `_TYPES`, or that of a capacity."""
        return tuple(place[1] for place in _PLACE.findall(self.skeleton))


def _name_by_order(text: str) -> str:
    """Names loop variables by the order in which each function mentions them, instead of by their extents."""
    functions = text.split(PARAMETERS)
    for number, function in enumerate(functions):
        names: dict[str, str] = {}
        functions[number] = _VARIABLE.sub(
            lambda match, names=names: names.setdefault(match.group(), f"k{len(names)}"),  # type: ignore[misc]
            function,
        )
    return PARAMETERS.join(functions)


def _kind_of(number: str) -> str:
    if number.endswith("ull"):
        return "u"
    if number.endswith("ll"):
        return "l"
    if number.isdigit():
        return "i" if int(number) < _INT_LIMIT else "w"
    return "f" if number.endswith("f") else "d"


def _word(number: str) -> int:
    """The parameter's 64 bits as a signed integer."""
    kind = _kind_of(number)
    if kind in "iwlu":
        value = int(number.rstrip("ul"))
        return value - (1 << 64) if value >= 1 << 63 else value
    digits = number.rstrip("f") if kind == "f" else number
    value_bits = struct.pack("<d", float.fromhex(digits) if "x" in digits else float(digits))
    return int(struct.unpack("<q", value_bits)[0])


def _declaration(slot: int, kind: str) -> str:
    ctype = _TYPES[kind]
    word = f"parameters[{slot}]"
    value = f"__builtin_bit_cast(double, {word})" if kind in "fd" else word
    return f"const {ctype} p{slot} = ({ctype}){value};"


@dataclass(frozen=True)
class Template:
    """What the texts of several shapes have in common (`skeleton`), and the numbers of each of these shapes (`seen`).

    Two places of the skeleton share a slot, that is, a parameter, if their numbers are equal at each shape of `seen`.
    """

    skeleton: str
    seen: tuple[tuple[str, ...], ...]

    @cached_property
    def _kinds(self) -> tuple[str, ...]:
        return ShapedText(self.skeleton, ()).kinds

    @cached_property
    def _slots(self) -> dict[int, int]:
        """The slot of each place whose numbers differ and that is no capacity."""
        slots: dict[tuple[str, ...], int] = {}
        found = {}
        for place, kind in enumerate(self._kinds):
            values = tuple(numbers[place] for numbers in self.seen)
            if kind != _CAPACITY_KIND and len(set(values)) > 1:
                found[place] = slots.setdefault((kind, *values), len(slots))
        return found

    @cached_property
    def _capacities(self) -> dict[int, int]:
        """By place: the number of elements that the binary has room for."""
        found = {}
        for place, kind in enumerate(self._kinds):
            if kind == _CAPACITY_KIND:
                sizes = {int(numbers[place]) for numbers in self.seen}
                largest = max(sizes)
                found[place] = largest if len(sizes) == 1 else 1 << (largest - 1).bit_length()
        return found

    def parameters(self, numbers: tuple[str, ...]) -> tuple[int, ...] | None:
        """The 64-bit parameter words, as signed integers, for the shape whose text has `numbers` in this skeleton; None if the binary
        does not serve it."""
        if len(numbers) != len(self._kinds):
            return None
        words: dict[int, str] = {}
        constant = self.seen[0]
        for place, number in enumerate(numbers):
            slot = self._slots.get(place)
            if slot is not None:
                if words.setdefault(slot, number) != number:
                    return None
            elif place in self._capacities:
                if int(number) > self._capacities[place]:
                    return None
            elif number != constant[place]:
                return None
        return tuple(_word(words[slot]) for slot in range(len(words)))

    def text(self, symbol: str) -> str:
        """The kernel's text for all these shapes, named `symbol`. Raises NotParametricError if a number outside of functions
        differs."""
        functions = self.skeleton.split(PARAMETERS)
        place = 0
        parts: list[str] = []
        for number, function in enumerate(functions):
            used: dict[int, str] = {}

            def fill(match: re.Match[str], used: dict[int, str] = used) -> str:
                nonlocal place
                here, place = place, place + 1
                slot = self._slots.get(here)
                if slot is None:
                    return str(self._capacities.get(here, self.seen[0][here]))
                used[slot] = match.group()[1]
                return f"p{slot}"

            filled = _PLACE.sub(fill, function)
            if number == 0:
                if used:
                    raise NotParametricError("a number outside of functions differs")
                parts.append(filled)
                continue
            parts.append("\n  ".join(_declaration(slot, kind) for slot, kind in sorted(used.items())) + filled)
        return "".join(parts).replace(f"{CAPACITY}(", "(").replace(NEUTRAL, symbol)


@dataclass(frozen=True)
class ShapeFamily:
    """What is stored on disk for the texts of one cluster with one skeleton: the numbers of its shapes, and the key of the binary for
    many shapes (`entry`) if there is one. `checked`: shapes on which it passed the self-check; `refused`: why there will be none."""

    seen: tuple[tuple[str, ...], ...] = ()
    entry: str = ""
    covered: int = 0
    """How many of `seen` the binary was made from."""
    checked: int = 0
    refused: str = ""

    def add(self, numbers: tuple[str, ...]) -> ShapeFamily:
        """The family with one more shape, given by its numbers; unchanged if it is known."""
        if numbers in self.seen:
            return self
        return replace(self, seen=(*self.seen, numbers))


class Families:
    """The families stored below a folder that only this user can write. A family that cannot be read is treated as absent, which
    costs a compilation."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, key: str) -> ShapeFamily:
        """The family stored under `key`; an empty one if there is none or it cannot be read."""
        try:
            known = json.loads((self._folder / key[:2] / key).read_text())
            seen = tuple(tuple(map(str, numbers)) for numbers in known["seen"])
            return ShapeFamily(
                seen, str(known["entry"]), int(known["covered"]), int(known["checked"]), str(known["refused"])
            )
        except (OSError, ValueError, KeyError, TypeError):
            return ShapeFamily()

    def save(self, key: str, family: ShapeFamily) -> None:
        """Stores a family. If two processes write at once, the later one wins, and what the other learned is learned again."""
        path = self._folder / key[:2] / key
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_whole(path, json.dumps(family.__dict__))
        except OSError:
            pass


def family_key(parts: Iterable[str]) -> str:
    """The key of a family: a SHA-256 hash (hex) of the parts."""
    return hashlib.sha256("|".join(parts).encode()).hexdigest()


__all__ = [
    "CHECKED_SHAPES",
    "MAX_SEEN",
    "NEUTRAL",
    "STATIC_SHAPES",
    "Families",
    "NotParametricError",
    "ShapeFamily",
    "ShapedText",
    "Template",
    "family_key",
]
