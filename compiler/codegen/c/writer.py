"""C text of the statements that all backends write the same way: values, accesses to memory, blocks and conditions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ...ir.graph import DType
from ...loops import loops
from ...loops.loops import Statement
from ...ops.c_text import REGISTER_TYPE, STORAGE_TYPE, cpp_combine, load_text, round_text, store_text
from ...ops.table import cpp_expression
from .text import guard_text, index_text, is_narrow_start


@dataclass(frozen=True)
class Writer:
    """Renders statements as C text. It decides nothing and is immutable: a backend renders a loop's body with a changed copy of its
    writer if statements are written differently there."""

    bound_plus: ClassVar[str] = ""
    """Text that is added to the bounds of guarded accesses."""

    @property
    def row_type(self) -> str:
        """The C type of a row number."""
        return "long long"

    def value(self, dtype: DType, value: loops.Value) -> str:
        """The expression of a value, in the register type of `dtype`."""
        if isinstance(value, loops.Load):
            element = f"b{value.buffer}[{index_text(value.index)}]"
            if value.guard:
                element = f"({guard_text(value.guard, self.bound_plus)} ? {element} : ({STORAGE_TYPE[dtype]})0)"
            return load_text(dtype, element)
        if isinstance(value, loops.LoadLocal):
            element = f"{value.local}[{index_text(value.index)}]"
            return f"({guard_text(value.guard, self.bound_plus)} ? {element} : 0)" if value.guard else element
        if isinstance(value, loops.Compute):
            return cpp_expression(value.node, value.dtypes, value.operands)
        if isinstance(value, loops.Merge):
            return cpp_combine(value.kind, dtype, value.left, value.right)
        if isinstance(value, loops.Masked):
            return f"stitch_masked({value.value}, {value.keep})"
        if isinstance(value, loops.Either):
            return f"stitch_either({value.left}, {value.right})"
        if isinstance(value, loops.FromIndex):
            if dtype is DType.PRED:
                return f"(({index_text(value.index)}) != 0)"
            return round_text(dtype, f"({REGISTER_TYPE[dtype]})({index_text(value.index)})")
        if isinstance(value, loops.Choose):
            cases = "".join(f"{guard_text(guard)} ? {name} : " for guard, name in value.cases)
            return f"({cases}{value.otherwise})"
        if dtype.is_float and not value.source.is_float:
            raise AssertionError("accumulators of floats are floats")
        return round_text(dtype, f"({REGISTER_TYPE[dtype]}){value.value}")

    def body(self, statements: Sequence[Statement], indent: int) -> Iterator[str]:
        """The lines of `statements` in their order, indented by `indent` steps of two spaces."""
        for statement in statements:
            yield from self.statement(statement, indent)

    def statement(self, statement: Statement, indent: int) -> Iterator[str]:
        """The lines of one statement. Raises AssertionError for the kinds that every backend's writer must render itself."""
        pad = "  " * indent
        if isinstance(statement, loops.Let):
            value = self.value(statement.dtype, statement.value)
            yield f"{pad}const {REGISTER_TYPE[statement.dtype]} {statement.name} = {value};"
        elif isinstance(statement, loops.LetIndex):
            yield pad + self._let_index(statement)
        elif isinstance(statement, loops.Store):
            value = store_text(statement.dtype, statement.value)
            yield f"{pad}b{statement.buffer}[{index_text(statement.index)}] = {value};"
        elif isinstance(statement, loops.Update):
            yield pad + self._update(statement)
        elif isinstance(statement, loops.Blocks):
            size, (first, last) = statement.size, statement.bounds
            here, end = f"{statement.name}_first", f"{statement.name}_last"
            ctype = self.row_type
            step = f"{here} = {end}" if statement.within else f"{here} += {size}"
            outside = f", {end} = {first}" if statement.within else ""
            yield f"{pad}for ({ctype} {here} = {first}{outside}; {here} < {last}; {step}) {{"
            if statement.within:
                wrap = f"{here} - {here} % {statement.within} + {statement.within}"
                yield f"{pad}  {end} = {here} + {size} < {last} ? {here} + {size} : {last};"
                yield f"{pad}  if ({end} > {wrap}) {end} = {wrap};"
            else:
                yield f"{pad}  const {ctype} {end} = {here} + {size} < {last} ? {here} + {size} : {last};"
            yield from self.body(statement.body, indent + 1)
            yield pad + "}"
        elif isinstance(statement, loops.If):
            yield f"{pad}if ({guard_text(statement.guard, self.bound_plus) if statement.guard else 'true'}) {{"
            yield from self.body(statement.body, indent + 1)
            yield pad + "}"
        else:
            raise AssertionError(f"{type(statement).__name__} is written by a backend")

    def _let_index(self, statement: loops.LetIndex) -> str:
        name, value = statement.variable.name, statement.value
        if not statement.clamped:
            return f"const long long {name} = stitch_index({value});"
        if is_narrow_start(statement.variable):
            return f"const int {name} = stitch_clamp_to_int({value}, {statement.variable.extent - 1});"
        return f"const long long {name} = stitch_clamp_index({value}, {statement.variable.extent - 1}ll);"

    def _update(self, statement: loops.Update) -> str:
        assert not statement.atomic, "a CPU's tasks never update one element side by side"
        element = f"b{statement.buffer}[{index_text(statement.index)}]"
        value = statement.value
        if statement.kind != "replace":
            old = f"({REGISTER_TYPE[statement.dtype]}){load_text(statement.dtype, element)}"
            value = round_text(statement.dtype, cpp_combine(statement.kind, statement.dtype, old, value))
        return f"{element} = {store_text(statement.dtype, value)};"
