"""The text of a PTX module with one kernel, taken apart: constants, parameters, registers, statements."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

WIDTHS = {
    **{f"{kind}{width}": width for kind in "bus" for width in (8, 16, 32, 64)},
    **{"f16": 16, "bf16": 16, "f16x2": 32, "bf16x2": 32, "f32": 32, "f64": 64, "pred": 1},
}
"""Bits of each type."""


class PtxError(ValueError):
    """PTX that the translator does not know: one line that names it."""


@dataclass(frozen=True)
class Constant:
    """A variable of the module with its bytes."""

    name: str
    align: int
    data: bytes


@dataclass(frozen=True)
class Parameter:
    name: str
    offset: int
    size: int


@dataclass(frozen=True)
class Local:
    """Some of each thread's memory, from `offset` on."""

    name: str
    offset: int
    size: int


@dataclass(frozen=True)
class Label:
    name: str


@dataclass(frozen=True)
class Instruction:
    """`@guard opcode operands`; text: all of it, as it is in the module."""

    text: str
    guard: str
    opcode: str
    operands: tuple[str, ...]


@dataclass
class Module:
    """A kernel and what it refers to. registers: the type of each."""

    target: str
    entry: str
    constants: list[Constant] = field(default_factory=list)
    parameters: list[Parameter] = field(default_factory=list)
    shared: set[str] = field(default_factory=set)
    locals: list[Local] = field(default_factory=list)
    registers: dict[str, str] = field(default_factory=dict)
    statements: list[Label | Instruction] = field(default_factory=list)

    @property
    def parameter_bytes(self) -> int:
        """Bytes of all launch parameters."""
        return max((each.offset + each.size for each in self.parameters), default=0)

    @property
    def local_bytes(self) -> int:
        """Bytes of each thread's own memory."""
        return max((each.offset + each.size for each in self.locals), default=0)


_VARIABLE = re.compile(
    r"\.(?:visible\s+)?(?:global|const)\s+\.align\s+(\d+)\s+\.(\w+)\s+(\w+)(?:\[(\d+)\])?(?:\s*=\s*\{?([^;}]*)\}?)?;"
)
_SHARED = re.compile(r"\.extern\s+\.shared\s+\.align\s+\d+\s+\.b8\s+(\w+)\[\];")
_ENTRY = re.compile(r"\.visible\s+\.entry\s+(\w+)\s*\((.*?)\)([^{]*)\{(.*?)^\}\s*$", re.DOTALL | re.MULTILINE)
_FUNCTION = re.compile(
    r"^\.func\s*(?:\((?P<results>[^)]*)\))?\s*(?P<name>\w+)\s*\((?P<parameters>[^)]*)\)\s*(?:;|(?:\.\w+\s*)*\{(?P<body>.*?)^\})",
    re.DOTALL | re.MULTILINE,
)
_CALL = re.compile(
    r"call(?:\.uni)?\s*(?:\((?P<results>[^)]*)\)\s*,\s*)?(?P<name>\w+)\s*(?:,\s*\((?P<parameters>[^)]*)\)\s*)?;"
)
_PARAMETER = re.compile(r"\s*\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+(\w+)(?:\[(\d+)\])?\s*$")
_PARAMETER_ACCESS = re.compile(r"(?:@!?%\w+ )?(ld|st)\.param\.[^\[]*\[\s*([\w$]+)")
_STATEMENT = re.compile(r"\s*(?:(\$?\w+):|([^;:]+);)")
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s{\[][^,]*")


def parse(ptx: str) -> Module:
    """The module of a PTX text with one kernel, into which its functions are inlined. Raises PtxError."""
    text = re.sub(r"/\*.*?\*/", "", re.sub(r"//[^\n]*", "", ptx), flags=re.DOTALL)
    functions = {match["name"]: match for match in _FUNCTION.finditer(text) if match["body"] is not None}
    text = _FUNCTION.sub(lambda match: "" if match["name"] in functions else match[0], text)
    entry = _ENTRY.search(text)
    if entry is None:
        raise PtxError("no .visible .entry")
    head = text[: entry.start()]
    target = re.search(r"\.target\s+(\w+)", head)
    module = Module(target[1] if target else "", entry[1])
    module.constants = [_constant(match) for match in _VARIABLE.finditer(head)]
    module.shared = {match[1] for match in _SHARED.finditer(head)}
    rest = re.sub(r"\.(version|target|address_size)[^\n]*", "", _SHARED.sub("", _VARIABLE.sub("", head))).strip()
    if rest:
        raise PtxError(f"declaration {rest.splitlines()[0]!r}")
    _read_parameters(module, entry[2])
    body = _flattened(re.sub(r"\.pragma[^;]*;", "", _inlined(entry[4], functions)))
    position = 0
    for match in _STATEMENT.finditer(body):
        if body[position : match.start()].strip():
            break
        position = match.end()
        if match[1]:
            module.statements.append(Label(match[1]))
        else:
            _read_statement(module, " ".join(match[2].split()))
    if body[position:].strip():
        raise PtxError(f"statement {body[position:].strip().splitlines()[0]!r}")
    return module


def instruction(text: str) -> Instruction:
    """The parts of one instruction, without its semicolon."""
    guarded = re.match(r"@(!?%\w+) (.*)$", text)
    opcode, _, operands = (guarded[2] if guarded else text).partition(" ")
    found = tuple(each.strip() for each in _OPERAND.findall(operands) if each.strip())
    return Instruction(text, guarded[1] if guarded else "", opcode, found)


def _names(declarations: str) -> list[str]:
    """The names at the ends of declarations or of operands, with commas between them."""
    return [re.sub(r"\[\d+\]$", "", each.split()[-1]) for each in declarations.split(",") if each.strip()]


def _replaced(text: str, names: Mapping[str, str]) -> str:
    return re.sub(r"[%$\w]+", lambda word: names.get(word[0], word[0]), text)


def _distinct(text: str, number: int) -> str:
    """The text with a number in the names of the registers, labels and memory that it declares."""
    names = re.findall(r"^\s*(\$\w+):", text, re.MULTILINE)
    for declared in re.findall(r"\.(?:local|param)\s([^;]*);", text):
        names += _names(declared)
    for declared in re.findall(r"\.reg\s+\.\w+\s+([^;]*);", text):
        for name in _names(declared):
            kind = re.sub(r"<\d+>$", "", name)
            names += re.findall(rf"{re.escape(kind)}\d*\b", text) if kind != name else [name]
    return _replaced(text, {name: f"{name[0]}from_{number}_{name[1:]}" for name in names})


def _inlined(body: str, functions: Mapping[str, re.Match[str]]) -> str:
    """The body without calls: in the place of each is the body of the function, with the caller's parameters as its own.
    Raises PtxError."""
    numbers = itertools.count()

    def inline(call: re.Match[str]) -> str:
        called, end = functions.get(call["name"]), f"$L__end_{next(numbers)}"
        if called is None:
            return call[0]
        parameters = {}
        for part in ("results", "parameters"):
            formal, actual = (_names(match[part] or "") for match in (called, call))
            if len(formal) != len(actual):
                raise PtxError(f"{len(actual)} {part} of {call['name']!r} instead of {len(formal)}")
            parameters |= dict(zip(formal, actual))
        text = re.sub(r"\bret;", f"bra {end};", called["body"])
        return f"{{\n{_replaced(text, parameters)}\n{end}:\n}}\n"

    return _CALL.sub(inline, body)


def _flattened(body: str) -> str:
    """The body without scopes, whose names become distinct. A scope is in braces, as calls and inline assembly are; so are operands
    that are vectors."""
    numbers = itertools.count()
    innermost = re.compile(r"(?P<before>(?:^|[;:{])\s*)\{(?P<scope>(?:[^{}]|\{[^{};:]*\})*[;:]\s*)\}")
    while scope := innermost.search(body):
        body = body[: scope.start()] + scope["before"] + _distinct(scope["scope"], next(numbers)) + body[scope.end() :]
    return body


def _constant(match: re.Match[str]) -> Constant:
    align, kind, name, count, values = match.groups()
    size = WIDTHS[kind] // 8
    data = b""
    for value in (values or "").split(",") if values else ():
        number = int(value.strip()[2:], 16) if re.match(r"\s*0[fdFD]", value) else int(value, 0)
        data += (number & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    return Constant(name, int(align), data.ljust(size * int(count or 1), b"\0"))


def _read_parameters(module: Module, text: str) -> None:
    offset = 0
    for each in text.split(",") if text.strip() else ():
        match = _PARAMETER.match(each)
        if match is None:
            raise PtxError(f"parameter {each.strip()!r}")
        width = WIDTHS[match[2]] // 8
        align = int(match[1] or width)
        offset = -(-offset // align) * align
        module.parameters.append(Parameter(match[3], offset, width * int(match[4] or 1)))
        offset += module.parameters[-1].size


def _read_statement(module: Module, text: str) -> None:
    if text.startswith(".reg "):
        _, kind, names = text.split(" ", 2)
        for name in names.split(","):
            many = re.match(r"\s*(%\w+?)<(\d+)>\s*$", name)
            for each in [f"{many[1]}{n}" for n in range(int(many[2]))] if many else [name.strip()]:
                module.registers[each] = kind[1:]
    elif text.startswith((".local ", ".param ")):
        match = _PARAMETER.match(text.replace(".local", ".param"))
        if match is None:
            raise PtxError(f"declaration {text!r}")
        size = WIDTHS[match[2]] // 8 * int(match[4] or 1)
        module.locals.append(Local(match[3], -(-module.local_bytes // 16) * 16, size))
    elif (match := _PARAMETER_ACCESS.match(text)) and match[2] in {each.name for each in module.locals}:
        module.statements.append(instruction(text.replace(".param", ".local", 1)))  # of a function that is called
    elif text.startswith("."):
        raise PtxError(f"declaration {text!r}")
    else:
        module.statements.append(instruction(text))
