"""Parses HLO's text form, which `experimental_get_compiler_ir(...)(stage="hlo")`, `jax.jit(f).lower(...).as_text("hlo")` and
XLA's dumps print.

Why a parser of our own: jaxlib has one (`hlo_module_from_text`), but jaxlib is 370 MB and tied to its own versions of Python
and numpy. The grammar is small (XLA's hlo_parser.cc and hlo_lexer.cc): a header, then computations with one instruction per
line,

    [ROOT] %name = shape opcode(operands), attribute=value, ...

Attributes that the importer does not need are parsed and dropped. A syntax error names the line, the column, what was found and
what was expected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, TypeVar

import numpy as np

from ..ir.graph import Array, DType, GatherDimensions, WindowDimension
from ..support.sequences import zip_strict
from .module import (
    ConvolutionDimensions,
    DotDimensions,
    HloComputation,
    HloImportError,
    HloInstruction,
    HloModule,
    HloShape,
)

if TYPE_CHECKING:
    from typing import TypeAlias

_T = TypeVar("_T")


class HloSyntaxError(HloImportError):
    """Text that is not HLO. The message says where (1-based line and column), what was found and what was expected."""

    def __init__(self, line: int, column: int, given: str, expected: str) -> None:
        self.line, self.column = line, column
        super().__init__(f"HLO text line {line}, column {column}: given {given}, expected {expected}")


class _Token(NamedTuple):
    kind: str
    text: str
    start: int


# A name may contain dots and dashes; `-inf` and `-nan` are numbers. Window and padding fields such as 1x2x2 and 0_0x7_0
# are one token.
_TOKENS: Final = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
      | (?P<string>"(?:[^"\\]|\\.)*")
      | (?P<arrow>->)
      | (?P<number>-?(?:inf|nan)\b(?:\(0x[0-9a-fA-F]+\))?)
      | (?P<fields>-?\d+(?:_-?\d+)+(?:x-?\d+(?:_-?\d+)*)*|\d+(?:x\d+)+)
      | (?P<decimal>-?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?)
      | (?P<name>%?[A-Za-z_](?:[\w.]|-(?!>))*)
      | (?P<mark>\.\.\.|<=|[{}()\[\],=:*?@>])
    """,
    re.VERBOSE | re.DOTALL,
)

_Nested: TypeAlias = "str | list[_Nested]"


def read_hlo_text(text: str, *, elided_constants: bool = False) -> HloModule:
    """The module in `text`. `elided_constants`: if True, a constant whose elements were left out, `constant({...})`, is read as one
    without a literal, for callers that only look at the module's structure; if False, it is an error. Raises HloSyntaxError (an
    HloImportError) if `text` is not HLO, HloImportError for a broken reference."""
    return _Parser(text, elided_constants).module()


@dataclass
class _Attributes:
    """An instruction's attributes as parsed: each value is a token's text or nested lists of texts."""

    found: dict[str, _Nested]
    parser: _Parser
    at: _Token

    def fail(self, key: str, expected: str) -> NoReturn:
        self.parser.fail(f"{key}={self.found.get(key)}", expected, self.at)

    def word(self, key: str, default: str = "") -> str:
        value = self.found.get(key, default)
        if not isinstance(value, str):
            self.fail(key, "one word")
        return value

    def number(self, key: str, convert: Callable[[str], _T], default: _T) -> _T:
        if key not in self.found:
            return default
        try:
            return convert(self.word(key))
        except ValueError:
            self.fail(key, "a number")

    def integers(self, key: str) -> tuple[int, ...]:
        value = self.found.get(key, [])
        try:
            return tuple(int(item) for item in value if isinstance(item, str))
        except ValueError:
            self.fail(key, "integers in braces")

    def pairs(self, key: str) -> dict[str, str]:
        """The fields of `{name=value name=value}`; a value in brackets is left out."""
        value = self.found.get(key, [])
        items = value if isinstance(value, list) else []
        both = zip(items[::2], items[1::2])
        return {name: text for name, text in both if isinstance(name, str) and isinstance(text, str)}

    def names(self, key: str) -> tuple[str, ...]:
        value = self.found.get(key, [])
        words = [value] if isinstance(value, str) else [item for item in value if isinstance(item, str)]
        return tuple(word.lstrip("%") for word in words)


class _Parser:
    def __init__(self, text: str, elided_constants: bool) -> None:
        self.text = text
        self.elided_constants = elided_constants
        self.tokens = list(self._scan())
        self.position = 0

    # -- tokens --

    def _scan(self) -> Sequence[_Token]:
        tokens, at = [], 0
        while at < len(self.text):
            match = _TOKENS.match(self.text, at)
            if match is None:
                self.fail(repr(self.text[at]), "a token of HLO", _Token("", "", at))
            at = match.end()
            if match.lastgroup != "space":
                tokens.append(_Token(str(match.lastgroup), match.group(), match.start()))
        tokens.append(_Token("end", "the end", len(self.text)))
        return tokens

    def fail(self, given: str, expected: str, at: _Token | None = None) -> NoReturn:
        start = (at or self.peek).start
        line = self.text.count("\n", 0, start) + 1
        column = start - (self.text.rfind("\n", 0, start) + 1) + 1
        raise HloSyntaxError(line, column, given, expected)

    @property
    def peek(self) -> _Token:
        return self.tokens[self.position]

    def next(self) -> _Token:
        token = self.tokens[self.position]
        if token.kind != "end":
            self.position += 1
        return token

    def accept(self, text: str) -> bool:
        if self.peek.text == text and self.peek.kind != "string":
            self.position += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            self.fail(repr(self.peek.text), repr(text))

    def name(self, what: str) -> str:
        token = self.next()
        if token.kind != "name":
            self.fail(repr(token.text), what, token)
        return token.text.lstrip("%")

    def integer(self, what: str) -> int:
        token = self.next()
        try:
            return int(token.text)
        except ValueError:
            self.fail(repr(token.text), what, token)

    def listed(self, close: str, item: Callable[[], _T]) -> list[_T]:
        """Items separated by commas up to `close`, which is consumed."""
        found: list[_T] = []
        while not self.accept(close):
            if found:
                self.expect(",")
            found.append(item())
        return found

    # -- module and computations --

    def module(self) -> HloModule:
        if not self.accept("HloModule"):
            self.fail(repr(self.peek.text[:40]), "'HloModule'")
        name = self.name("the module's name")
        attributes = self.attributes()
        computations: dict[str, HloComputation] = {}
        entry = ""
        while self.peek.kind != "end":
            is_entry = self.accept("ENTRY")
            computation = self.computation()
            if computation.name in computations:
                self.fail(f"computation {computation.name} twice", "distinct names")
            computations[computation.name] = computation
            entry = computation.name if is_entry else entry
        if not computations:
            self.fail("no computation", "at least the entry")
        # A module with one computation need not mark it as the entry.
        entry = entry or (next(iter(computations)) if len(computations) == 1 else "")
        if not entry:
            self.fail("no ENTRY", "one computation marked ENTRY")
        self._check_calls(computations)
        layout = attributes.found.get("entry_computation_layout")
        return HloModule(name, computations, entry, layout if isinstance(layout, HloShape) else None)

    def _check_calls(self, computations: dict[str, HloComputation]) -> None:
        for computation in computations.values():
            for item in computation.instructions.values():
                for called in item.called:
                    if called not in computations:
                        raise HloImportError(
                            f"HLO instruction {item.name}: given computation {called!r}, expected one of the module"
                        )

    def computation(self) -> HloComputation:
        name = self.name("a computation's name")
        if self.accept("("):
            # The signature repeats what the parameter instructions say.
            self.skip_to_close("(", ")")
            self.expect("->")
            self.shape()
        self.expect("{")
        instructions: dict[str, HloInstruction] = {}
        root = ""
        while not self.accept("}"):
            at = self.peek
            is_root = self.accept("ROOT")
            item = self.instruction()
            if item.name in instructions:
                self.fail(f"instruction {item.name} twice", "distinct names", at)
            missing = [operand for operand in item.operands if operand not in instructions]
            if missing:
                self.fail(f"operand {missing[0]}", "an instruction above", at)
            instructions[item.name] = item
            root = item.name if is_root else root
        if not instructions:
            self.fail(f"no instructions in {name}", "at least a root")
        if self.accept(","):  # execution_thread="..."
            self.attributes(first=True)
        return HloComputation(name, instructions, root or next(reversed(instructions)))

    def skip_to_close(self, opening: str, closing: str) -> None:
        """Skips past the bracket that closes the one just consumed."""
        depth, start = 1, self.tokens[self.position - 1]
        while depth:
            token = self.next()
            if token.kind == "end":
                self.fail(f"no {closing!r} for this {opening!r}", repr(closing), start)
            if token.kind == "mark":
                depth += (token.text == opening) - (token.text == closing)

    # -- shapes --

    def shape(self) -> HloShape:
        if self.accept("("):
            parts = self.listed(")", self.shape)
            return HloShape("tuple", tuple_shapes=tuple(parts))
        element_type = self.name("a shape")
        self.expect("[")
        dynamic = False

        def extent() -> int:
            nonlocal dynamic
            if self.accept("?"):  # an unbounded dynamic extent
                dynamic = True
                return 0
            if self.accept("<="):
                dynamic = True
            return self.integer("an extent")

        extents: list[int] = []
        while not self.accept("]"):
            if extents:
                self.expect(",")
            extents.append(extent())
        layout: tuple[int, ...] | None = None
        if self.peek.text == "{" and self.is_layout():
            self.expect("{")
            order = []
            while self.peek.kind == "decimal":
                order.append(self.integer("a dimension"))
                self.accept(",")
            layout = tuple(order) if len(order) == len(extents) else None
            if not self.accept("}"):
                self.skip_to_close("{", "}")  # tiles, memory space
        return HloShape(element_type.lower(), tuple(extents), layout, (), dynamic)

    def is_layout(self) -> bool:
        """Whether the brace after a shape is its layout: a number, a colon or the closing brace follows."""
        after = self.tokens[min(self.position + 1, len(self.tokens) - 1)]
        return after.kind == "decimal" or after.text in ("}", ":")

    # -- instructions --

    def instruction(self) -> HloInstruction:
        name = self.name("an instruction's name")
        self.expect("=")
        shape = self.shape()
        at = self.peek
        opcode = self.name("an opcode")
        self.expect("(")
        literal: Array | None = None
        number = 0
        operands: tuple[str, ...] = ()
        if opcode == "constant":
            literal = self.literal(shape)
        elif opcode == "parameter":
            number = self.integer("the parameter's number")
            self.expect(")")
        else:
            operands = tuple(self.listed(")", self.operand))
        attributes = self.attributes()
        attributes.at = at
        return self.build(name, opcode, shape, operands, number, literal, attributes)

    def operand(self) -> str:
        """Parses `%name`, or `shape %name`."""
        after = self.tokens[min(self.position + 1, len(self.tokens) - 1)]
        if self.peek.text == "(" or (self.peek.kind == "name" and after.text == "["):
            self.shape()
        return self.name("an operand")

    def build(
        self,
        name: str,
        opcode: str,
        shape: HloShape,
        operands: tuple[str, ...],
        number: int,
        literal: Array | None,
        attributes: _Attributes,
    ) -> HloInstruction:
        a = attributes
        called = [name for key in ("to_apply", "calls", "called_computations") for name in a.names(key)]
        called += [
            name for key in ("body", "condition", "branch_computations", "select", "scatter") for name in a.names(key)
        ]
        numbers = (
            (a.integers("offset_dims"), a.integers("collapsed_slice_dims"), a.integers("start_index_map"))
            if opcode == "gather"
            else (
                *(a.integers("update_window_dims"), a.integers("inserted_window_dims")),
                a.integers("scatter_dims_to_operand_dims"),
            )
        )
        indexed = GatherDimensions(*numbers, a.number("index_vector_dim", int, 0), a.integers("slice_sizes"))
        origin = a.pairs("metadata")
        dimensions = a.integers("dimensions")
        if opcode == "iota":
            dimensions = (a.number("iota_dimension", int, 0),)
        return HloInstruction(
            name=name,
            opcode=opcode,
            shape=shape,
            operands=operands,
            called=tuple(called),
            literal=literal,
            parameter_number=number,
            tuple_index=a.number("index", int, 0),
            dimensions=dimensions,
            slices=self.slices(a),
            padding=self.padding(a),
            window=self.window(a) if opcode in ("reduce-window", "select-and-scatter", "convolution") else (),
            dynamic_slice_sizes=a.integers("dynamic_slice_sizes"),
            gather=indexed if opcode == "gather" else None,
            scatter=indexed if opcode == "scatter" else None,
            dot=DotDimensions(
                (a.integers("lhs_contracting_dims"), a.integers("rhs_contracting_dims")),
                (a.integers("lhs_batch_dims"), a.integers("rhs_batch_dims")),
            )
            if opcode == "dot"
            else None,
            convolution=self.convolution(a) if opcode == "convolution" else None,
            batching_dims=bool(a.integers("operand_batching_dims") or a.integers("input_batching_dims")),
            direction=a.word("direction"),
            total_order=a.word("type") == "TOTALORDER",
            epsilon=float(np.float32(a.number("epsilon", float, 0.0))),
            feature_index=a.number("feature_index", int, 0),
            exponent_bits=a.number("exponent_bits", int, 0),
            mantissa_bits=a.number("mantissa_bits", int, 0),
            custom_call_target=a.word("custom_call_target").strip('"'),
            rng_algorithm=a.word("algorithm") if opcode == "rng-bit-generator" else "",
            op_type=origin.get("op_type", "").strip('"'),
            op_name=origin.get("op_name", "").strip('"'),
        )

    # -- attributes --

    def attributes(self, first: bool = False) -> _Attributes:
        """Parses `, key=value` as often as it occurs (`first`: the comma before the first one is consumed already)."""
        found: dict[str, _Nested] = {}
        result = _Attributes(found, self, self.peek)
        while first or self.accept(","):
            first = False
            key = self.name("an attribute")
            self.expect("=")
            if key == "entry_computation_layout":
                found[key] = self.entry_layout()  # type: ignore[assignment]
            else:
                found[key] = self.value()
        return result

    def entry_layout(self) -> HloShape | str:
        """Parses `{(parameters)->result}` and returns the result's shape."""
        self.expect("{")
        self.expect("(")
        self.skip_to_close("(", ")")
        self.expect("->")
        shape = self.shape()
        self.expect("}")
        return shape

    def value(self) -> _Nested:
        """Parses a word, a string, a number, or brackets around words and brackets; punctuation inside brackets is dropped."""
        token = self.next()
        if token.text in ("{", "[", "("):
            closing = {"{": "}", "[": "]", "(": ")"}[token.text]
            items: list[_Nested] = []
            while not self.accept(closing):
                if self.peek.kind == "end":
                    self.fail(f"no {closing!r} for this {token.text!r}", repr(closing), token)
                if self.peek.text in ("{", "[", "("):
                    items.append(self.value())
                elif self.peek.kind in ("mark", "arrow"):
                    self.next()
                else:
                    items.append(self.next().text)
            return items
        if token.kind in ("mark", "end", "arrow"):
            self.fail(repr(token.text), "an attribute's value", token)
        text = token.text
        while self.peek.start == token.start + len(text):
            # Adjacent tokens are one value: a convolution's dim_labels=b01f_01io->b01f, devices=[1,2]0,1.
            if self.peek.text in ("[", "{"):
                self.value()
                break
            if self.peek.kind not in ("name", "arrow", "decimal", "fields", "number"):
                break
            text += self.next().text
        return text

    def slices(self, a: _Attributes) -> tuple[tuple[int, int, int], ...]:
        """Parses `slice={[0:4], [0:8:2]}`."""
        found = []
        for part in a.found.get("slice", []):
            words = [item for item in part if isinstance(item, str)] if isinstance(part, list) else []
            bounds = [int(word) for word in words if word.isdigit()]
            if len(bounds) not in (2, 3) or len(bounds) != len(words):
                a.fail("slice", "[start:limit] or [start:limit:stride] for each dimension")
            found.append((bounds[0], bounds[1], bounds[2] if len(bounds) == 3 else 1))
        return tuple(found)

    def padding(self, a: _Attributes) -> tuple[tuple[int, int, int], ...]:
        """Parses `padding=0_1x2_0_1`: low_high or low_high_interior for each dimension."""
        if "padding" not in a.found:
            return ()
        found = []
        for part in a.word("padding").split("x"):
            try:
                bounds = [int(item) for item in part.split("_")]
            except ValueError:
                bounds = []
            if len(bounds) not in (2, 3):
                a.fail("padding", "low_high or low_high_interior for each dimension")
            found.append((bounds[0], bounds[1], bounds[2] if len(bounds) == 3 else 0))
        return tuple(found)

    def window(self, a: _Attributes) -> tuple[WindowDimension, ...]:
        """Parses `window={size=1x2 stride=1x2 pad=0_0x1_0 lhs_dilate=1x1 rhs_dilate=1x1}`: lhs is the base, rhs the window."""
        fields = a.pairs("window")

        def column(key: str, default: str) -> list[str]:
            return fields[key].split("x") if key in fields else [default] * rank

        rank = len(fields["size"].split("x")) if "size" in fields else 0
        columns = [column(k, d) for k, d in (("size", "1"), ("stride", "1"), ("pad", "0_0"), ("rhs_dilate", "1"))]
        columns.append(column("lhs_dilate", "1"))
        if any(len(values) != rank for values in columns):
            a.fail("window", f"{rank} values for each of size, stride, pad, lhs_dilate, rhs_dilate")
        found = []
        for size, stride, pad, window_dilation, base_dilation in zip_strict(*columns):
            words = (size, stride, *pad.split("_"), window_dilation, base_dilation)
            try:
                found.append(WindowDimension(*map(int, words)))
            except (ValueError, TypeError):
                a.fail("window", "integers, and low_high for pad")
        return tuple(found)

    def convolution(self, a: _Attributes) -> ConvolutionDimensions | None:
        """Parses `dim_labels=b01f_01io->b01f`, with the numbers of groups; None if the window is reversed."""
        if "rhs_reversal" in a.pairs("window"):
            return None
        labels = re.fullmatch(r"([bf0-9]+)_([io0-9]+)->([bf0-9]+)", a.word("dim_labels"))
        if labels is None:
            a.fail("dim_labels", "such as b01f_01io->b01f")

        def numbers(word: str, names: str) -> tuple[int, int, tuple[int, ...]]:
            spatial = sorted(label for label in word if label.isdigit())
            if sorted(word) != sorted([*names, *map(str, range(len(word) - 2))]):
                a.fail("dim_labels", f"each of {names[0]}, {names[1]} and the spatial dimensions once")
            return word.index(names[0]), word.index(names[1]), tuple(word.index(label) for label in spatial)

        lhs, rhs, result = (numbers(word, names) for word, names in zip(labels.groups(), ("bf", "io", "bf")))
        groups = a.number("feature_group_count", int, 1), a.number("batch_group_count", int, 1)
        return ConvolutionDimensions(lhs, rhs, result, *groups)

    # -- constants --

    def literal(self, shape: HloShape) -> Array | None:
        """The constant's value, parsed up to the closing parenthesis; None for a dtype that kernels do not support, or if elided."""
        at = self.peek
        words: list[str] = []
        depth, elided = 1, False
        while depth:
            token = self.next()
            if token.kind == "end":
                self.fail("no ')' for this constant", "')'", at)
            elided |= token.text == "..."
            if elided and not self.elided_constants:
                self.fail("an elided constant {...}", "all its elements (print_large_constants)", token)
            if token.kind == "mark":
                depth += (token.text == "(") - (token.text == ")")
            else:
                words.append(token.text)
        if elided:
            return None
        try:
            dtype = DType(shape.element_type)
        except ValueError:
            return None
        if not dtype.is_available:
            return None
        count = int(np.prod(shape.dimensions, dtype=np.int64))
        if len(words) != count:
            self.fail(f"{len(words)} elements", f"{count} for {shape}", at)
        try:
            return np.array([_element(word, dtype) for word in words], dtype.numpy).reshape(shape.dimensions)
        except (ValueError, OverflowError) as error:
            self.fail(str(error), f"elements of {dtype.value}", at)


def _element(word: str, dtype: DType) -> bool | int | float:
    if dtype is DType.PRED:
        if word not in ("true", "false", "0", "1"):
            raise ValueError(f"{word!r}")
        return word in ("true", "1")
    if dtype.is_float:
        return float(word.partition("(")[0])  # nan(0x7fc00001) has its payload dropped
    integer, limits = int(word), np.iinfo(str(dtype.numpy))
    if not limits.min <= integer <= limits.max:
        raise ValueError(f"{word}")
    return integer
