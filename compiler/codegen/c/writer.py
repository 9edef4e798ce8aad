"""C++ text of loops: expressions, guards and statements of a nest's body."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ...ir.graph import DType
from ...ir.index_maps import Atom, Bound, Digit, Guard, Index, Quotient, Var
from ...loops import loops
from ...loops.loops import Loop, LoopKind, NestCode, Statement
from ...loops.split import split_at_guards
from ...ops.c_text import cpp_combine
from ...ops.reference import reduce_identity
from ...ops.table import (
    OPS,
    REGISTER_TYPE,
    STORAGE_TYPE,
    Cost,
    cpp_expression,
    libm_functions,
    literal_text,
    load_text,
    round_text,
    store_text,
)
from ...planning.transposes import BLOCK_ROWS

INT_LIMIT = 1 << 31
CAPACITY = "STITCH_CAPACITY"
"""Marks the size of a local in a text for many shapes: `CAPACITY(128)`."""
ROW_VARIABLES = ("r", "task", "block", "block_first")


def index_text(index: Index) -> str:
    """A C++ expression of an integer type wide enough for every value that it takes."""
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
    return variable.name in ROW_VARIABLES or variable.source is not None or variable.extent >= INT_LIMIT


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


ZERO_NAME = "zero"
ZERO_LINE = f'int {ZERO_NAME} = 0; __asm__("" : "+r"({ZERO_NAME}));'
"""A zero that the compiler does not know. g++ 12 makes of a masked load whose mask it knows a blend with memory (vpblendd), which
reads the masked lanes too: outside of the tensor. Bounds of guarded accesses have this zero added, so that no mask is known."""


def guard_text(guard: Guard, bound_plus: str = "") -> str:
    """The conjunction as an expression without branches. bound_plus: what is added to each bound, such as " + zero"."""
    return "(" + " & ".join(text for bound in guard for text in _bound_text(bound, bound_plus)) + ")"


def _bound_text(bound: Bound, plus: str) -> Iterator[str]:
    text = f"({index_text(bound.index)})"
    unclamped = any(variable.extent >= 1 << 60 for variable in bound.index.variables)
    if bound.index.low < bound.low or unclamped:
        yield f"({text} >= {bound.low}{plus})"
    if bound.index.high >= bound.high or unclamped:
        yield f"({text} < {bound.high}{plus})"


DRAWN_AT_ONCE = 512
"""Random words that are drawn ahead of the loop that uses them, four from each of Philox's blocks."""
DRAWN_ROOM = DRAWN_AT_ONCE + 4 * 16 + 4
"""What stitch_philox_words asks for."""
FEWEST_DRAWN = 32
"""Iterations below which drawing ahead costs more than it saves."""


FETCHED_AHEAD = 4096
"""Bytes, rounded up to rows, by which a row's expensive pass asks for what the first passes of later rows will read. The hardware's
prefetcher follows a pass over one row but not over the passes that come before the next: memory would idle while exp is computed.
Measured on a Zen 5, tensors of 256 MiB: softmax of 256 numbers 1.9 times as fast, cross-entropy of 8,000 1.2 times. Rows without
such a pass gain nothing."""
FETCHED_ABOVE = 4 << 20
"""Bytes of a tensor below which it is taken to be in the processor's caches, where asking ahead costs 3% and gains nothing."""
CACHE_LINE = 64


@dataclass(frozen=True)
class _Ahead:
    """What a pass over a row asks for ahead: of each buffer, the position for its variable being 0, and the elements' type."""

    loop: Loop
    loads: tuple[tuple[int, Index, DType], ...]


def _is_expensive(loop: Loop) -> bool:
    return any(
        isinstance(statement, loops.Let)
        and isinstance(statement.value, loops.Compute)
        and OPS[statement.value.node.op].cost is Cost.EXPENSIVE
        and statement.value.dtypes[-1].is_float
        for statement in loop.body
    )


def _ahead(rows: Loop, sizes: Sequence[int]) -> _Ahead | None:
    """What to ask for ahead in a loop over rows, from its first to its last. sizes: bytes of each buffer."""
    passes = [statement for statement in rows.body if isinstance(statement, Loop)]
    last = next((number for number, loop in enumerate(passes) if _is_expensive(loop)), None)
    if last in (None, 0):
        return None
    expensive = passes[last]
    found: dict[int, tuple[int, Index, DType]] = {}
    for loop in passes[: last + 1]:
        for statement in loop.body:
            load = statement.value if isinstance(statement, loops.Let) else None
            if not isinstance(load, loops.Load) or load.guard or sizes[load.buffer] < FETCHED_ABOVE:
                continue
            rest = load.index - Index.of_var(loop.variable)
            of_row = [(c, atom) for c, atom in rest.terms if isinstance(atom, Digit) and atom.variable == rows.variable]
            if len(of_row) == len(rest.terms) == 1 and (stride := of_row[0][0]) >= loop.extent == expensive.extent:
                count = -(-FETCHED_AHEAD // (stride * load.dtype.size_bytes))
                found.setdefault(load.buffer, (load.buffer, rest + stride * count, load.dtype))
    return _Ahead(expensive, tuple(found.values())) if found and expensive.kind is LoopKind.LANES else None


@dataclass(frozen=True)
class _Draw:
    """A random word of each iteration of a loop: word `index`, which counts with the loop's variable."""

    state: tuple[str, ...]
    index: Index


SCANNED_AT_ONCE = 1024
"""Elements after which a scan by lanes looks whether it came near to an overflow."""
SCAN_STEP = {
    "sum": "StitchSum",
    "product": "StitchProduct",
    "max": "StitchMax",
    "min": "StitchMin",
    "and": "StitchAnd",
    "or": "StitchOr",
}
_PLACE = Index.of_var(Var("place", 256))
SQUARE: Final = BLOCK_ROWS
"""Rows and lanes of the squares in which a nest that transposes works."""


@dataclass(frozen=True)
class _Turned:
    """A load whose neighbours in memory belong to neighbours in the loop around the lanes: of a square it is read in memory's order
    and turned in registers. stride: elements between its lanes; wraps: what the first of SQUARE neighbours must be within, since
    there the position jumps."""

    load: loops.Load
    stride: int
    wraps: tuple[int, ...]


def _turned(loop: Loop, unsteady: frozenset[int]) -> dict[str, _Turned]:
    """Those loads of a loop around SQUARE lanes, by name, that can be turned. unsteady: buffers that the loop may write."""
    lanes = loop.body[-1] if loop.body else None
    if not isinstance(lanes, Loop) or lanes.extent != SQUARE or lanes.kind is not LoopKind.SIMD or lanes.bounds:
        return {}
    if loop.bounds != ("block_first", "block_last") and (loop.bounds or loop.extent % SQUARE):
        return {}
    found = {}
    for statement in lanes.body:
        load = statement.value if isinstance(statement, loops.Let) else None
        if not isinstance(load, loops.Load) or load.guard or load.buffer in unsteady or load.dtype.size_bytes != 4:
            continue
        assert isinstance(statement, loops.Let)
        of_loop = [(c, a) for c, a in load.index.terms if loop.variable in _variables(a)]
        of_lane = [(c, a) for c, a in load.index.terms if lanes.variable in _variables(a)]
        if not all(isinstance(atom, Digit) for _, atom in (*of_loop, *of_lane)) or len(of_lane) != 1:
            continue
        digits = [(c, a) for c, a in of_loop if isinstance(a, Digit)]
        inner = [(c, a) for c, a in digits if a.stride == 1]
        stride = of_lane[0][0]
        if [c for c, _ in inner] == [1] and stride >= SQUARE and load.index.low >= 0:
            wraps = {a.extent for _, a in inner if not a.is_top} | {a.stride for _, a in digits if a.stride > 1}
            found[statement.name] = _Turned(load, stride, tuple(sorted(wraps)))
    return found


def _variables(atom: Atom) -> frozenset[Var] | set[Var]:
    return {atom.variable} if isinstance(atom, Digit) else set(atom.index.variables)


_LANE = Var("lane", DRAWN_AT_ONCE)


def _draws(loop: Loop) -> dict[str, _Draw]:
    """Those of a loop's random words, by name, that can be drawn ahead: their state is the same, and their places follow each
    other."""
    if loop.bounds is None and loop.extent < FEWEST_DRAWN:
        return {}
    made = {statement.name: statement.value for statement in loop.body if isinstance(statement, loops.Let)}
    found = {}
    for name, value in made.items():
        if not isinstance(value, loops.Compute) or value.node.op != "philox":
            continue
        *state, place = value.operands
        source = made.get(place)
        if not isinstance(source, loops.FromIndex) or any(operand in made for operand in state):
            continue
        if loop.variable not in (source.index - Index.of_var(loop.variable)).variables:
            found[name] = _Draw(tuple(state), source.index)
    return found


ROWS_TOGETHER: Final = 4
"""Rows that are added to a task's accumulators at once (_adds_rows)."""
LEAST_COLUMNS: Final = 2048
"""Fewer accumulators stay in the first cache beside the rows; four rows at once were then 10% slower, above it 15% faster."""
MOST_STATEMENTS: Final = 12


def _adds_rows(loop: Loop) -> bool:
    """Whether a loop over rows does nothing but combine each row's elements with accumulators, one for each column. An accumulator is
    then read and written once for several rows, in whose order it combines them: the same result to the bit, with less to load."""
    inner = loop.body[0] if len(loop.body) == 1 else None
    if not isinstance(inner, Loop) or inner.kind is not LoopKind.SIMD or inner.bounds or _draws(inner):
        return False
    combined = [statement for statement in inner.body if isinstance(statement, loops.Combine)]
    others = [statement for statement in inner.body if not isinstance(statement, loops.Combine)]
    return (
        inner.extent >= LEAST_COLUMNS
        and len(inner.body) <= MOST_STATEMENTS
        and bool(combined)
        and all(c.index is not None and loop.variable not in c.index.variables for c in combined)
        and all(isinstance(let, loops.Let) and not isinstance(let.value, loops.LoadLocal) for let in others)
    )


REST: Final = "_rest"


def _split(statements: Sequence[Statement]) -> dict[str, int]:
    """Lanes that are declared, filled by one loop and folded in `statements`, of a loop that leaves a rest, with how many of that are
    to have lanes of their own. Written one by one into lanes that are read again as a vector, a rest of three elements took as long
    as 150 more: the processor waits until stores of other sizes have reached the cache. What fills half the lanes is none."""
    declared = {s.name for s in statements if isinstance(s, loops.Local) and s.size > 1}
    folded = {s.local: s for s in statements if isinstance(s, loops.Collapse)}
    filled = Counter(
        c.local
        for s in statements
        if isinstance(s, Loop)
        for c in s.body
        if isinstance(c, loops.Combine) and c.index is None
    )
    found: dict[str, int] = {}
    for loop in statements:
        if not isinstance(loop, Loop) or loop.kind is not LoopKind.LANES or loop.bounds or loop.extent < loop.width:
            continue
        rest = loop.extent % loop.width % max(loop.width // 2, 1)
        for c in loop.body:
            if (
                not isinstance(c, loops.Combine)
                or c.index is not None
                or c.local not in declared
                or filled[c.local] != 1
            ):
                continue
            whole = folded.get(c.local)
            if rest and whole is not None and whole.lanes == loop.width and whole.dtype is c.dtype:
                found[c.local] = rest
    return found


class Writer:
    """Renders statements, collecting the C library functions that they call. `for_many_shapes`: see `cpp.render`."""

    splits_rests = True
    """Whether the rest of a loop by lanes has lanes of its own."""
    bound_plus = f" + {ZERO_NAME}"
    """What the bounds of guarded accesses have added (ZERO_LINE)."""

    def __init__(self, for_many_shapes: bool = False) -> None:
        self.for_many_shapes = for_many_shapes
        self.functions: set[tuple[str, bool, int]] = set()
        self.sizes: tuple[int, ...] = ()
        """Bytes of the buffers of the nest that is being written."""
        self.unsteady: frozenset[int] = frozenset()
        """Those of its buffers that it writes, or that may be the same memory as one that it writes."""
        self.has_guards = False
        """Whether the text since this was set has accesses under a guard, so that the nest needs ZERO_LINE."""
        self._turning = True
        self._ahead: _Ahead | None = None
        self._rests: dict[str, int] = {}
        """Of lanes whose loop leaves a rest, how many of that have lanes of their own, in the local's name and REST (_split)."""

    def value(self, dtype: DType, value: loops.Value) -> str:
        if isinstance(value, loops.Load):
            element = f"b{value.buffer}[{index_text(value.index)}]"
            if value.guard:
                element = f"({self._guard(value.guard)} ? {element} : ({STORAGE_TYPE[dtype]})0)"
            return load_text(dtype, element)
        if isinstance(value, loops.LoadLocal):
            return f"{value.local}[{index_text(value.index)}]"
        if isinstance(value, loops.Compute):
            for name in libm_functions(value.node.op, value.dtypes[-1]):
                self.functions.add((name, value.dtypes[-1] is DType.F64, len(value.operands)))
            return cpp_expression(value.node, value.dtypes, value.operands)
        if isinstance(value, loops.Merge):
            return cpp_combine(value.kind, dtype, value.left, value.right)
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

    def _guard(self, guard: Guard) -> str:
        """A guard of an access to memory."""
        self.has_guards = True
        return guard_text(guard, self.bound_plus)

    def body(self, statements: Sequence[Statement], indent: int) -> Iterator[str]:
        if self.splits_rests and not self.for_many_shapes:
            for declared in statements:  # names come again in other nests
                if isinstance(declared, loops.Local):
                    self._rests.pop(declared.name, None)
            self._rests |= _split(statements)
        for statement in statements:
            yield from self.statement(statement, indent)

    def statement(self, statement: Statement, indent: int) -> Iterator[str]:
        pad = "  " * indent
        if isinstance(statement, loops.Let):
            value = self.value(statement.dtype, statement.value)
            yield f"{pad}const {REGISTER_TYPE[statement.dtype]} {statement.name} = {value};"
        elif isinstance(statement, loops.LetIndex):
            yield pad + self._let_index(statement)
        elif isinstance(statement, loops.Local):
            yield from self._local(statement, pad)
        elif isinstance(statement, loops.Store):
            value = store_text(statement.dtype, statement.value)
            yield f"{pad}b{statement.buffer}[{index_text(statement.index)}] = {value};"
        elif isinstance(statement, loops.Update):
            yield pad + self._update(statement)
        elif isinstance(statement, loops.Assign):
            yield f"{pad}{statement.local}[{index_text(statement.index)}] = {statement.value};"
        elif isinstance(statement, loops.Combine):
            place = "lane" if statement.index is None else index_text(statement.index)
            target = f"{statement.local}[{place}]"
            if statement.kind == "replace":
                yield f"{pad}{target} = {statement.value};"
                return
            yield f"{pad}{target} = {cpp_combine(statement.kind, statement.dtype, target, statement.value)};"
        elif isinstance(statement, loops.Collapse):
            yield from self._collapse(statement, pad)
        elif isinstance(statement, loops.Scan):
            yield from self._scan(statement, pad)
        elif isinstance(statement, loops.Fold):
            return  # one worker did the whole loop
        elif isinstance(statement, loops.Blocks):
            size = statement.size
            yield f"{pad}for (long long block_first = first_row; block_first < last_row; block_first += {size}) {{"
            yield f"{pad}  const long long block_last = block_first + {size} < last_row ? block_first + {size} : last_row;"
            yield from self.body(statement.body, indent + 1)
            yield pad + "}"
        elif isinstance(statement, loops.If):
            yield f"{pad}if ({self._guard(statement.guard) if statement.guard else 'true'}) {{"
            yield from self.body(statement.body, indent + 1)
            yield pad + "}"
        else:
            yield from self._loop(statement, indent)

    def _let_index(self, statement: loops.LetIndex) -> str:
        name, value = statement.variable.name, statement.value
        if not statement.clamped:
            return f"const long long {name} = stitch_index({value});"
        return f"const long long {name} = stitch_clamp_index({value}, {statement.variable.extent - 1}ll);"

    def _local(self, statement: loops.Local, pad: str) -> Iterator[str]:
        ctype = REGISTER_TYPE[statement.dtype]
        aligned = "__attribute__((aligned(64))) " if statement.size > 1 else ""
        size = f"{CAPACITY}({statement.size})" if self.for_many_shapes else str(statement.size)
        yield f"{pad}{aligned}{ctype} {statement.name}[{size}];"
        if statement.kind is not None:
            identity = literal_text(statement.dtype, reduce_identity(statement.kind, statement.dtype))
            yield f"{pad}for (int i = 0; i < {statement.size}; ++i) {statement.name}[i] = {identity};"

    def _update(self, statement: loops.Update) -> str:
        element = f"b{statement.buffer}[{index_text(statement.index)}]"
        value = statement.value
        if statement.kind != "replace":
            old = f"({REGISTER_TYPE[statement.dtype]}){load_text(statement.dtype, element)}"
            value = round_text(statement.dtype, cpp_combine(statement.kind, statement.dtype, old, value))
        return f"{element} = {store_text(statement.dtype, value)};"

    def _collapse(self, statement: loops.Collapse, pad: str) -> Iterator[str]:
        ctype = REGISTER_TYPE[statement.dtype]
        combine = f"[](auto a, auto b) {{ return {cpp_combine(statement.kind, statement.dtype, 'a', 'b')}; }}"
        folded = f"stitch_fold<{statement.lanes}>({statement.local}, {combine})"
        if statement.kind in ("max", "min") and ctype == "float":
            folded = (
                f"stitch_fold_extreme<{statement.lanes}, {str(statement.kind == 'max').lower()}>({statement.local})"
            )
        rest = self._rests.get(statement.local)
        if rest:
            whole, of_rest = f"{statement.name}_whole", f"{statement.name}{REST}"
            yield f"{pad}const {ctype} {whole} = {folded};"
            yield f"{pad}const {ctype} {of_rest} = stitch_fold_rest<{rest}>({statement.local}{REST}, {combine});"
            folded = cpp_combine(statement.kind, statement.dtype, whole, of_rest)
        yield f"{pad}const {ctype} {statement.name} = {folded};"

    def _scan(self, statement: loops.Scan, pad: str) -> Iterator[str]:
        target = f"{statement.local}[{index_text(statement.index)}]"
        name, dtype, wide = statement.name, statement.dtype, statement.accumulator
        yield f"{pad}{target} = {cpp_combine(statement.kind, wide, target, statement.value)};"
        yield f"{pad}const {REGISTER_TYPE[dtype]} {name} = {round_text(dtype, f'({REGISTER_TYPE[dtype]}){target}')};"
        if wide is DType.F64 and dtype is not wide:
            yield f"{pad}{target} = __builtin_fabsf({name}) < __builtin_inff() ? {target} : (double){name};"

    def _rows_together(self, loop: Loop, indent: int) -> Iterator[str]:
        """Those of the task's rows that make whole groups; `{variable}_base` is where they end."""
        pad, name, inner = "  " * indent, loop.variable.name, loop.body[0]
        assert isinstance(inner, Loop)
        column = inner.variable.name
        yield f"{pad}long long {name}_base = first_row;"
        yield f"{pad}for (; {name}_base + {ROWS_TOGETHER} <= last_row; {name}_base += {ROWS_TOGETHER}) {{"
        yield f"{pad}  #pragma omp simd"
        ctype = "long long" if is_wide_variable(inner.variable) else "int"
        yield f"{pad}  for ({ctype} {column} = 0; {column} < {inner.extent}; ++{column}) {{"
        for number in range(ROWS_TOGETHER):
            yield f"{pad}    {{"
            yield f"{pad}      const long long {name} = {name}_base + {number};"
            yield from self.body(inner.body, indent + 3)
            yield f"{pad}    }}"
        yield f"{pad}  }}"
        yield f"{pad}}}"

    def _scan_loop(self, loop: Loop, indent: int) -> Iterator[str]:
        """A SCAN loop: block by block, first by lanes, then what is left one by one, in order; a block whose sums might overflow all
        in order."""
        pad, name, width = "  " * indent, loop.variable.name, loop.width
        (place,) = (i for i, statement in enumerate(loop.body) if isinstance(statement, loops.Scan))
        scan = loop.body[place]
        assert isinstance(scan, loops.Scan)
        yield f"{pad}for (int {name}_block = 0; {name}_block < {loop.extent}; {name}_block += {SCANNED_AT_ONCE}) {{"
        end = f"{name}_block + {SCANNED_AT_ONCE}"
        yield f"{pad}  const int {name}_end = {end} < {loop.extent} ? {end} : {loop.extent};"
        yield f"{pad}  int {name}_base = {name}_block;"
        # What is scanned, and what it adds up to; of integers as unsigned ones, which wrap.
        each, total = (
            REGISTER_TYPE[DType.F32 if dtype in (DType.F16, DType.BF16) else dtype]
            for dtype in (scan.dtype, scan.accumulator)
        )
        if scan.dtype.is_integer and scan.kind in ("sum", "product") and not each.startswith("unsigned"):
            each = total = f"unsigned {each}"
        if scan.dtype.size_bytes >= 4 or scan.dtype.is_float:
            is_float = str(scan.dtype.is_float and scan.kind in ("sum", "product")).lower()
            lanes, state = f"{scan.name}_lanes", f"{scan.name}_state"
            identity = literal_text(scan.accumulator, reduce_identity(scan.kind, scan.accumulator))
            yield "#ifdef STITCH_SCANS"
            state_type = f"StitchScan<{SCAN_STEP[scan.kind]}, {each}, {total}, {is_float}>"
            yield f"{pad}  {state_type} {state}({scan.local}[0], ({each}){identity});"
            yield f"{pad}  for (; {name}_base + {width} <= {name}_end; {name}_base += {width}) {{"
            yield f"{pad}    __attribute__((aligned(64))) {each} {lanes}[{width}];"
            keep = loops.Assign(lanes, Index.of_var(_LANE), scan.value)
            before = replace(loop, body=(*loop.body[:place], keep))
            yield from self._lanes(before, str(width), f"{name}_base", "int", indent + 2)
            yield f"{pad}    {state}.step({lanes});"
            ctype = REGISTER_TYPE[scan.dtype]
            yield f"{pad}    #pragma omp simd"
            yield f"{pad}    for (int lane = 0; lane < {width}; ++lane) {{"
            yield f"{pad}      const int {name} = {name}_base + lane;"
            yield f"{pad}      const {ctype} {scan.name} = {round_text(scan.dtype, f'({ctype}){lanes}[lane]')};"
            yield from self.body(loop.body[place + 1 :], indent + 3)
            yield f"{pad}    }}"
            yield f"{pad}  }}"
            yield f"{pad}  if ({state}.is_steady()) {scan.local}[0] = {state}.total;"
            yield f"{pad}  else {name}_base = {name}_block;"
            yield "#endif"
        yield f"{pad}  for (int {name} = {name}_base; {name} < {name}_end; ++{name}) {{"
        yield from self.body(loop.body, indent + 2)
        yield f"{pad}  }}"
        yield f"{pad}}}"

    def _loop(self, loop: Loop, indent: int) -> Iterator[str]:
        if loop.kind is LoopKind.SCAN:
            yield from self._scan_loop(loop, indent)
            return
        parts = split_at_guards(loop) if self.splits_rests and not self.for_many_shapes else ()
        if parts:
            for part in parts:
                yield from self._loop(part, indent)
            return
        pad = "  " * indent
        name = loop.variable.name
        ctype = "long long" if is_wide_variable(loop.variable) else "int"
        first, last = loop.bounds if loop.bounds else ("0", str(loop.extent))
        if loop.kind is not LoopKind.LANES:
            if loop.kind is LoopKind.SIMD:
                if _draws(loop):
                    yield from self._drawing_loop(loop, ctype, first, last, indent)
                    return
                yield pad + "#pragma omp simd"
            turned = _turned(loop, self.unsteady) if self._turning and not self.for_many_shapes else {}
            if turned:
                yield from self._square(loop, turned, indent)
                return
            if loop.bounds == ("first_row", "last_row") and loop.kind is LoopKind.SERIAL and not self.for_many_shapes:
                self._ahead = _ahead(loop, self.sizes)
                if self.splits_rests and _adds_rows(loop):
                    yield from self._rows_together(loop, indent)
                    first = f"{name}_base"
            yield f"{pad}for ({ctype} {name} = {first}; {name} < {last}; ++{name}) {{"
            yield from self.body(loop.body, indent + 1)
            yield pad + "}"
            return
        width = loop.width
        if loop.bounds:
            yield f"{pad}long long {name}_base = {first};"
            yield f"{pad}for (; {name}_base + {width} <= {last}; {name}_base += {width}) {{"
            yield from self._lanes(loop, str(width), f"{name}_base", ctype, indent + 1)
            yield pad + "}"
            yield pad + "{"
            yield f"{pad}  const int rest = (int)({last} - {name}_base);"
            yield from self._lanes(loop, "rest", f"{name}_base", ctype, indent + 1)
            yield pad + "}"
            return
        whole, rest = loop.extent // width * width, loop.extent % width
        if whole or self.for_many_shapes:
            yield f"{pad}for (int {name}_base = 0; {name}_base < {whole}; {name}_base += {width}) {{"
            yield from self._prefetches(loop, pad)
            yield from self._lanes(loop, str(width), f"{name}_base", ctype, indent + 1)
            yield pad + "}"
        apart = {c.local for c in loop.body if isinstance(c, loops.Combine) and c.local in self._rests}
        if apart and rest >= width // 2:
            yield pad + "{"
            yield from self._lanes(loop, str(width // 2), str(whole), ctype, indent + 1)
            yield pad + "}"
            whole, rest = whole + width // 2, rest - width // 2
        if apart and rest:
            assigned = [
                replace(c, local=c.local + REST, kind="replace")
                if isinstance(c, loops.Combine) and c.local in apart
                else c
                for c in loop.body
            ]
            for c in loop.body:
                if isinstance(c, loops.Combine) and c.local in apart:
                    yield f"{pad}__attribute__((aligned(64))) {REGISTER_TYPE[c.dtype]} {c.local}{REST}[{rest}];"
            loop = replace(loop, body=tuple(assigned))
        if rest or self.for_many_shapes:
            yield pad + "{"
            yield from self._lanes(loop, str(rest), str(whole), ctype, indent + 1)
            yield pad + "}"

    def _square(self, loop: Loop, turned: dict[str, _Turned], indent: int) -> Iterator[str]:
        """A loop around lanes in squares: whole ones from memory read in its own order, others as they come."""
        pad, name = "  " * indent, loop.variable.name
        ctype = "long long" if is_wide_variable(loop.variable) else "int"
        wraps = sorted({wrap for one in turned.values() for wrap in one.wraps})
        first, conditions = "block_first", [f"block_last - block_first == {SQUARE}"]
        if loop.bounds is None:
            first, conditions = f"{name}_first", []
            yield f"{pad}for ({ctype} {first} = 0; {first} < {loop.extent}; {first} += {SQUARE}) {{"
        conditions += [f"{first} % {wrap} + {SQUARE} <= {wrap}" for wrap in wraps]
        yield f"{pad}  if ({' && '.join(conditions) or 'true'}) {{"
        yield from self._whole_square(loop, turned, first, ctype, indent + 2)
        yield f"{pad}  }} else {{"
        last = "block_last" if loop.bounds else f"{first} + {SQUARE}"
        self._turning = False
        yield from self._loop(replace(loop, bounds=(first, last)), indent + 2)
        self._turning = True
        yield f"{pad}  }}"
        if loop.bounds is None:
            yield f"{pad}}}"

    def _whole_square(
        self, loop: Loop, turned: dict[str, _Turned], first: str, ctype: str, indent: int
    ) -> Iterator[str]:
        pad, name, lanes = "  " * indent, loop.variable.name, loop.body[-1]
        assert isinstance(lanes, Loop)
        for load_name, one in turned.items():
            yield f"{pad}__attribute__((aligned(64))) {STORAGE_TYPE[one.load.dtype]} {load_name}_turned[{SQUARE * SQUARE}];"
            yield f"{pad}{{"
            yield f"{pad}  const {ctype} {name} = {first};"
            yield f"{pad}  const int {lanes.variable.name} = 0;"
            source = f"&b{one.load.buffer}[{index_text(one.load.index)}]"
            yield f"{pad}  stitch_turn_square({source}, {one.stride}ll, {load_name}_turned);"
            yield f"{pad}}}"
        body = tuple(
            replace(statement, value=loops.LoadLocal(f"{statement.name}_turned", _PLACE))
            if isinstance(statement, loops.Let) and statement.name in turned
            else statement
            for statement in lanes.body
        )
        yield f"{pad}for ({ctype} {name} = {first}; {name} < {first} + {SQUARE}; ++{name}) {{"
        yield from self.body(loop.body[:-1], indent + 1)
        yield f"{pad}  #pragma omp simd"
        yield f"{pad}  for (int {lanes.variable.name} = 0; {lanes.variable.name} < {SQUARE}; ++{lanes.variable.name}) {{"
        yield f"{pad}    const long long place = ({name} - {first}) * {SQUARE} + {lanes.variable.name};"
        yield from self.body(body, indent + 2)
        yield f"{pad}  }}"
        yield f"{pad}}}"

    def _prefetches(self, loop: Loop, pad: str) -> Iterator[str]:
        if self._ahead is None or loop is not self._ahead.loop:
            return
        base = Index.of_var(replace(loop.variable, name=f"{loop.variable.name}_base"))
        for buffer, rest, dtype in self._ahead.loads:
            for line in range(0, loop.width * dtype.size_bytes, CACHE_LINE):
                element = index_text(base + rest + line // dtype.size_bytes)
                yield f"{pad}  __builtin_prefetch(&b{buffer}[{element}], 0, 2);"

    def _lanes(self, loop: Loop, count: str, base: str, ctype: str, indent: int) -> Iterator[str]:
        pad = "  " * indent
        draws = _draws(loop)
        for name, draw in draws.items():
            yield from self._draw(name, draw, loop, count, base, ctype, pad)
        yield pad + "#pragma omp simd"
        yield f"{pad}for (int lane = 0; lane < {count}; ++lane) {{"
        yield f"{pad}  const {ctype} {loop.variable.name} = {base} + lane;"
        for statement in loop.body:
            if isinstance(statement, loops.Let) and statement.name in draws:
                word = loops.LoadLocal(f"{statement.name}_words", Index.of_var(_LANE))
                statement = replace(statement, value=word)
            yield from self.statement(statement, indent + 1)
        yield pad + "}"

    def _drawing_loop(self, loop: Loop, ctype: str, first: str, last: str, indent: int) -> Iterator[str]:
        """A SIMD loop in blocks, before each of which its random words are drawn."""
        pad, base, size = "  " * indent, f"{loop.variable.name}_base", DRAWN_AT_ONCE
        yield f"{pad}for ({ctype} {base} = {first}; {base} < {last}; {base} += {size}) {{"
        yield f"{pad}  const int block = (int)({last} - {base} < {size} ? {last} - {base} : {size});"
        yield from self._lanes(loop, "block", base, ctype, indent + 1)
        yield pad + "}"

    def _draw(self, name: str, draw: _Draw, loop: Loop, count: str, base: str, ctype: str, pad: str) -> Iterator[str]:
        place = f"(StitchWide)({index_text(draw.index)})"
        yield f"{pad}unsigned {name}_room[{DRAWN_ROOM}];"
        yield f"{pad}const unsigned* {name}_words;"
        yield f"{pad}{{"
        yield f"{pad}  const {ctype} {loop.variable.name} = {base};"
        yield f"{pad}  {name}_words = stitch_philox_words({name}_room, {count}, {', '.join(draw.state)}, {place});"
        yield f"{pad}}}"


def written_buffers(nest: NestCode) -> set[int]:
    """Those of its buffers that the nest's body writes."""
    found: set[int] = set()

    def visit(statements: Iterable[Statement]) -> None:
        for statement in statements:
            if isinstance(statement, loops.Store | loops.Update):
                found.add(statement.buffer)
            elif isinstance(statement, loops.Loop | loops.Blocks | loops.If):
                visit(statement.body)

    visit(nest.body)
    return found


def constant_text(symbol: str, node: int, data: bytes, shaped: bool = False, storage: str = "static const") -> str:
    """A constant as an array of 8-byte words. `shaped`: as a local whose words may differ from shape to shape (decimal:
    `parametric` takes them for numbers)."""
    padded = data + b"\0" * (-len(data) % 8)
    words = [int.from_bytes(padded[i : i + 8], "little") for i in range(0, len(padded), 8)]
    texts = [f"{word}ull" if shaped else f"{word:#x}ull" for word in words]
    body = ",\n  ".join(", ".join(texts[i : i + 8]) for i in range(0, len(texts), 8))
    kind = "const" if shaped else storage
    return f"{kind} unsigned long long __attribute__((aligned(64))) {symbol}_constant{node}[] = {{\n  {body}}};"
