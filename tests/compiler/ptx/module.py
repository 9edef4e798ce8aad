"""The text of a PTX module with one kernel, taken apart: constants, parameters, registers, statements."""

from __future__ import annotations

import re
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
    """Memory of each thread."""

    name: str
    align: int
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
    local: Local | None = None
    registers: dict[str, str] = field(default_factory=dict)
    statements: list[Label | Instruction] = field(default_factory=list)

    @property
    def parameter_bytes(self) -> int:
        """Bytes of all launch parameters."""
        return max((each.offset + each.size for each in self.parameters), default=0)


_VARIABLE = re.compile(
    r"\.(?:visible\s+)?(?:global|const)\s+\.align\s+(\d+)\s+\.(\w+)\s+(\w+)(?:\[(\d+)\])?(?:\s*=\s*\{?([^;}]*)\}?)?;"
)
_SHARED = re.compile(r"\.extern\s+\.shared\s+\.align\s+\d+\s+\.b8\s+(\w+)\[\];")
_ENTRY = re.compile(r"\.visible\s+\.entry\s+(\w+)\s*\((.*?)\)([^{]*)\{(.*)\}\s*$", re.DOTALL)
_PARAMETER = re.compile(r"\s*\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+(\w+)(?:\[(\d+)\])?\s*$")
_STATEMENT = re.compile(r"\s*(?:(\$?\w+):|([^;:]+);)")
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s{\[][^,]*")


def parse(ptx: str) -> Module:
    """The module of a PTX text with one kernel. Raises PtxError."""
    text = re.sub(r"/\*.*?\*/", "", re.sub(r"//[^\n]*", "", ptx), flags=re.DOTALL)
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
    body = re.sub(r"\.pragma[^;]*;", "", entry[4])
    # Inline assembly may stand in braces of its own, as a scope without declarations.
    body = re.sub(r"(^|;)(\s*)\{([^{}]*;\s*)\}", r"\1\2\3", body)
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
    elif text.startswith(".local "):
        match = re.match(r"\.local \.align (\d+) \.b8 (\w+)\[(\d+)\]$", text)
        if match is None or module.local is not None:
            raise PtxError(f"declaration {text!r}")
        module.local = Local(match[2], int(match[1]), int(match[3]))
    elif text.startswith("."):
        raise PtxError(f"declaration {text!r}")
    else:
        module.statements.append(instruction(text))
