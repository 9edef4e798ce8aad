"""C text of positions, guards, loop variables and constants."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.index_maps import Atom, Bound, Digit, Guard, Index, Quotient, Var
from ...loops.loops import Loop
from ...ops.propagation import StartSource

INT_LIMIT = 1 << 31
ROW_VARIABLES = ("r", "task", "block", "block_first", "group_first")


def index_text(index: Index) -> str:
    """A C++ integer expression of the index. It is evaluated in long long if a value or a product might not fit int."""
    wide = index.high >= INT_LIMIT or index.low < -INT_LIMIT
    parts = []
    for coefficient, atom in index.terms:
        text = _atom_text(atom)
        product = abs(coefficient) * max(atom.high, 1)
        if (wide or product >= INT_LIMIT) and not _is_wide(atom):
            text = f"(long long){text}"
        sign = "-" if coefficient < 0 else "+"
        parts.append(f"{sign} {text}" if abs(coefficient) == 1 else f"{sign} {text} * {abs(coefficient)}")
    if index.constant or not parts:
        parts.append(f"{'-' if index.constant < 0 else '+'} {abs(index.constant)}")
    joined = " ".join(parts)
    return joined[2:] if joined.startswith("+ ") else joined


def _is_wide(atom: Atom) -> bool:
    if isinstance(atom, Digit):
        return is_wide_variable(atom.variable)
    return any(is_wide_variable(variable) for variable in atom.index.variables)


def is_wide_variable(variable: Var) -> bool:
    """Whether the variable is declared as long long."""
    is_loaded = variable.source is not None and not is_narrow_start(variable)
    return variable.name in ROW_VARIABLES or is_loaded or variable.extent >= INT_LIMIT


def is_narrow_start(variable: Var) -> bool:
    """Whether the variable is a start that is clamped to a range of ints: it is declared as int. Processors gather more elements at a
    time by such positions, and g++ 12 finds no vector instruction for a long long that is multiplied by more than 2."""
    return isinstance(variable.source, StartSource) and variable.source.clamped and variable.extent < INT_LIMIT


def variable_type(loop: Loop) -> str:
    """The C type of a loop's variable."""
    return "long long" if is_wide_variable(loop.variable) else "int"


def ends(loop: Loop) -> tuple[str, str]:
    """The first value of the loop's variable and its (exclusive) end, as C text."""
    return loop.bounds or ("0", str(loop.extent))


def _atom_text(atom: Atom) -> str:
    if isinstance(atom, Digit):
        text = atom.variable.name
        if atom.stride != 1:
            text = f"{text} / {atom.stride}"
        if not atom.is_top:
            text = f"{text} % {atom.extent}"
        return text if text == atom.variable.name else f"({text})"
    inner = index_text(atom.index)
    if atom.index.low >= 0:
        return f"(({inner}) {'/' if isinstance(atom, Quotient) else '%'} {atom.divisor})"
    helper = "stitch_floor_divide" if isinstance(atom, Quotient) else "stitch_floor_modulo"
    return f"{helper}({inner}, {atom.divisor})"


def guard_text(guard: Guard, bound_plus: str = "") -> str:
    """The conjunction as an expression without branches. bound_plus: text added to each bound, such as " + zero"."""
    return "(" + " & ".join(text for bound in guard for text in _bound_text(bound, bound_plus)) + ")"


def _bound_text(bound: Bound, plus: str) -> Iterator[str]:
    text = f"({index_text(bound.index)})"
    unclamped = any(variable.extent >= 1 << 60 for variable in bound.index.variables)
    if bound.index.low < bound.low or unclamped:
        yield f"({text} >= {bound.low}{plus})"
    if bound.index.high >= bound.high or unclamped:
        yield f"({text} < {bound.high}{plus})"


def constant_text(symbol: str, node: int, data: bytes, shaped: bool = False, storage: str = "static const") -> str:
    """The C definition of array `{symbol}_constant{node}` with the bytes `data`, as 8-byte words padded with zeros. `shaped`: as a
    local whose words may differ from shape to shape; they are decimal, because `many_shapes` treats decimal numbers as possible
    parameters."""
    padded = data + b"\0" * (-len(data) % 8)
    words = [int.from_bytes(padded[i : i + 8], "little") for i in range(0, len(padded), 8)]
    texts = [f"{word}ull" if shaped else f"{word:#x}ull" for word in words]
    body = ",\n  ".join(", ".join(texts[i : i + 8]) for i in range(0, len(texts), 8))
    kind = "const" if shaped else storage
    return f"{kind} unsigned long long __attribute__((aligned(64))) {symbol}_constant{node}[] = {{\n  {body}}};"
