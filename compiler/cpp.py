"""C++ text of a kernel, for one core's vector unit and the caller's thread pool.

The text needs no header beyond stitch_abi.h and kernel_prelude.h, whose text is put in front (`translation_unit`).
Vectorisation is asked for loop by loop (`#pragma omp simd`), never by -ffast-math: each element is computed as the
graph says, and only a reduction's order is ours (its lanes are in the source). C library functions are declared with
`simd("notinbranch")`, by which gcc calls the vector variants of glibc's libmvec.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from importlib import resources

from . import loops
from .graph import DType
from .loops import Buffer, BufferKind, Loop, LoopKind, Loops, NestCode, Phase, Statement
from .ops import REGISTER_TYPE, STORAGE_TYPE, libm_functions, literal_text, load_text, round_text, store_text
from .ops_numpy import reduce_identity
from .ops_text import LIBM, cpp_combine, cpp_expression
from .plan_index import Atom, Bound, Digit, Guard, Index, Quotient, Var

INT_LIMIT = 1 << 31
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
        return _is_wide_variable(atom.variable)
    return any(_is_wide_variable(variable) for variable in atom.index.variables)


def _is_wide_variable(variable: Var) -> bool:
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


def guard_text(guard: Guard) -> str:
    """The conjunction as an expression without branches."""
    return "(" + " & ".join(text for bound in guard for text in _bound_text(bound)) + ")"


def _bound_text(bound: Bound) -> Iterator[str]:
    text = f"({index_text(bound.index)})"
    unclamped = any(variable.extent >= 1 << 60 for variable in bound.index.variables)
    if bound.index.low < bound.low or unclamped:
        yield f"({text} >= {bound.low})"
    if bound.index.high >= bound.high or unclamped:
        yield f"({text} < {bound.high})"


class _Writer:
    """Renders statements, collecting the C library functions that they call."""

    def __init__(self) -> None:
        self.functions: set[tuple[str, bool, int]] = set()

    def value(self, dtype: DType, value: loops.Value) -> str:
        if isinstance(value, loops.Load):
            element = f"b{value.buffer}[{index_text(value.index)}]"
            if value.guard:
                element = f"({guard_text(value.guard)} ? {element} : ({STORAGE_TYPE[dtype]})0)"
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

    def body(self, statements: Sequence[Statement], indent: int) -> Iterator[str]:
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
            yield f"{pad}{target} = {cpp_combine(statement.kind, statement.dtype, target, statement.value)};"
        elif isinstance(statement, loops.Collapse):
            yield from self._collapse(statement, pad)
        elif isinstance(statement, loops.Blocks):
            size = statement.size
            yield f"{pad}for (long long block_first = first_row; block_first < last_row; block_first += {size}) {{"
            yield f"{pad}  const long long block_last = block_first + {size} < last_row ? block_first + {size} : last_row;"
            yield from self.body(statement.body, indent + 1)
            yield pad + "}"
        elif isinstance(statement, loops.If):
            yield f"{pad}if ({guard_text(statement.guard) if statement.guard else 'true'}) {{"
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
        yield f"{pad}{aligned}{ctype} {statement.name}[{statement.size}];"
        if statement.kind is not None:
            identity = literal_text(statement.dtype, reduce_identity(statement.kind, statement.dtype))
            yield f"{pad}for (int i = 0; i < {statement.size}; ++i) {statement.name}[i] = {identity};"

    def _update(self, statement: loops.Update) -> str:
        element = f"b{statement.buffer}[{index_text(statement.index)}]"
        value = statement.value
        if statement.kind != "replace":
            old = load_text(statement.dtype, element)
            value = round_text(statement.dtype, cpp_combine(statement.kind, statement.dtype, old, value))
        return f"{element} = {store_text(statement.dtype, value)};"

    def _collapse(self, statement: loops.Collapse, pad: str) -> Iterator[str]:
        lanes = statement.lanes
        while lanes > 1:
            lanes //= 2
            left, right = f"{statement.local}[i]", f"{statement.local}[i + {lanes}]"
            combined = cpp_combine(statement.kind, statement.dtype, left, right)
            yield f"{pad}for (int i = 0; i < {lanes}; ++i) {left} = {combined};"
        yield f"{pad}const {REGISTER_TYPE[statement.dtype]} {statement.name} = {statement.local}[0];"

    def _loop(self, loop: Loop, indent: int) -> Iterator[str]:
        pad = "  " * indent
        name = loop.variable.name
        ctype = "long long" if _is_wide_variable(loop.variable) else "int"
        first, last = loop.bounds if loop.bounds else ("0", str(loop.extent))
        if loop.kind is not LoopKind.LANES:
            if loop.kind is LoopKind.SIMD:
                yield pad + "#pragma omp simd"
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
        if whole:
            yield f"{pad}for (int {name}_base = 0; {name}_base < {whole}; {name}_base += {width}) {{"
            yield from self._lanes(loop, str(width), f"{name}_base", ctype, indent + 1)
            yield pad + "}"
        if rest:
            yield pad + "{"
            yield from self._lanes(loop, str(rest), str(whole), ctype, indent + 1)
            yield pad + "}"

    def _lanes(self, loop: Loop, count: str, base: str, ctype: str, indent: int) -> Iterator[str]:
        pad = "  " * indent
        yield pad + "#pragma omp simd"
        yield f"{pad}for (int lane = 0; lane < {count}; ++lane) {{"
        yield f"{pad}  const {ctype} {loop.variable.name} = {base} + lane;"
        yield from self.body(loop.body, indent + 1)
        yield pad + "}"


def _written(nest: NestCode) -> set[int]:
    found: set[int] = set()

    def visit(statements: Iterable[Statement]) -> None:
        for statement in statements:
            if isinstance(statement, loops.Store | loops.Update):
                found.add(statement.buffer)
            elif isinstance(statement, loops.Loop | loops.Blocks | loops.If):
                visit(statement.body)

    visit(nest.body)
    return found


def _nest_text(nest: NestCode, name: str, writer: _Writer) -> str:
    """The function of one nest, in terms of its own buffers only, so that equal nests have equal text but for
    `name`."""
    written = _written(nest)
    lines = [
        f"static void {name}(void* const* tensors, long long rows, long long rows_per_task, long long first_task, "
        "long long last_task) {"
    ]
    for number, buffer in enumerate(nest.buffers):
        constness = "" if number in written else "const "
        restrict = "" if number in nest.may_alias else " __restrict"
        ctype = STORAGE_TYPE[buffer.dtype]
        lines.append(f"  {constness}{ctype}*{restrict} b{number} = ({constness}{ctype}*)tensors[{number}];")
    clip = "last_row = last_row < rows ? last_row : rows;"
    if nest.per_task:
        lines.append("  for (long long task = first_task; task < last_task; ++task) {")
        lines.append("    const long long first_row = task * rows_per_task;")
        lines.append("    long long last_row = first_row + rows_per_task;")
        lines.append(f"    {clip}")
        lines.extend(writer.body(nest.body, 2))
        lines.append("  }")
    else:
        lines.append("  const long long first_row = first_task * rows_per_task;")
        lines.append("  long long last_row = last_task * rows_per_task;")
        lines.append(f"  {clip}")
        lines.extend(writer.body(nest.body, 1))
    lines.append("}")
    return "\n".join(lines)


def render(kernel: Loops, symbol: str) -> str:
    """The kernel as C++ text without the common head: functions private to it and `symbol`, of type StitchKernel."""
    writer = _Writer()
    functions: dict[str, str] = {}  # text with a neutral name: name
    texts: list[str] = []
    names: dict[int, str] = {}
    for phase in kernel.phases:
        for nest in phase.nests:
            neutral = _nest_text(nest, "NEST", writer)
            if neutral not in functions:
                functions[neutral] = f"{symbol}_nest{len(functions)}"
                texts.append(neutral.replace("static void NEST(", f"static void {functions[neutral]}(", 1))
            names[id(nest)] = functions[neutral]
    number_of = {buffer: number for number, buffer in enumerate(kernel.buffers)}
    lines = [_declarations(writer.functions)]
    lines.extend(_constant_text(symbol, number, data) for number, data in kernel.constants.items())
    lines.extend(texts)
    for number, phase in enumerate(kernel.phases):
        lines.append(_phase_text(phase, f"{symbol}_phase{number}", names, number_of))
    lines.append(_entry_text(kernel, symbol))
    return "\n\n".join(line for line in lines if line) + "\n"


def _declarations(functions: set[tuple[str, bool, int]]) -> str:
    lines = []
    for name, double, count in sorted(functions):
        ctype = "double" if double else "float"
        lines.append(f'extern "C" STITCH_SIMD_{name} {ctype} {name}({", ".join([ctype] * count)}) noexcept;')
    return "\n".join(lines)


def _constant_text(symbol: str, node: int, data: bytes) -> str:
    padded = data + b"\0" * (-len(data) % 8)
    words = [int.from_bytes(padded[i : i + 8], "little") for i in range(0, len(padded), 8)]
    rows = [", ".join(f"{word:#x}ull" for word in words[i : i + 8]) for i in range(0, len(words), 8)]
    body = ",\n  ".join(rows)
    return f"static const unsigned long long __attribute__((aligned(64))) {symbol}_constant{node}[] = {{\n  {body}}};"


def _phase_text(phase: Phase, name: str, names: dict[int, str], number_of: dict[Buffer, int]) -> str:
    head = f"static void {name}(void* argument, long long first, long long last) {{\n  void* const* all = (void* const*)argument;"
    if len(phase.nests) == 1 and not phase.nests[0].instances:
        nest = phase.nests[0]
        tensors = ", ".join(f"all[{number_of[buffer]}]" for buffer in nest.buffers)
        return (
            f"{head}\n  void* const tensors[] = {{{tensors}}};\n"
            f"  {names[id(nest)]}(tensors, {nest.rows}, {nest.rows_per_task}, first, last);\n}}"
        )
    starts: dict[int, int] = {}
    start = 0
    for nest in phase.nests:
        starts[id(nest)] = start
        start += nest.tasks
    plain = [nest for nest in phase.nests if not nest.instances]
    parts = [head]
    if plain:
        parts.append(_nest_table(plain, starts, names, number_of))
    parts.extend(
        _instance_table(nest, starts[id(nest)], names[id(nest)], number_of) for nest in phase.nests if nest.instances
    )
    return "\n".join([*parts, "}"])


def _nest_table(
    nests: Sequence[NestCode], starts: dict[int, int], names: dict[int, str], number_of: dict[Buffer, int]
) -> str:
    """Nests side by side: for each of a table its share of tasks [first, last)."""
    most = max(len(nest.buffers) for nest in nests)
    used = list(dict.fromkeys(names[id(nest)] for nest in nests))
    rows = []
    for nest in nests:
        buffers = ", ".join(str(number_of[buffer]) for buffer in nest.buffers)
        start = starts[id(nest)]
        rows.append(
            f"    {{{used.index(names[id(nest)])}, {len(nest.buffers)}, {start}, {start + nest.tasks}, {nest.rows}, "
            f"{nest.rows_per_task}, {{{buffers}}}}},"
        )
    calls = "\n".join(
        f"      case {number}: {function}(tensors, row.rows, row.rows_per_task, begin, end); break;"
        for number, function in enumerate(used)
    )
    table = "\n".join(rows)
    return f"""\
  static const struct {{ int function, buffers; long long first, last, rows, rows_per_task; int numbers[{most}]; }} table[] = {{
{table}
  }};
  for (const auto& row : table) {{
    if (row.last <= first || row.first >= last) continue;
    const long long begin = (first > row.first ? first : row.first) - row.first;
    const long long end = (last < row.last ? last : row.last) - row.first;
    void* tensors[{most}];
    for (int i = 0; i < row.buffers; ++i) tensors[i] = all[row.numbers[i]];
    switch (row.function) {{
{calls}
    }}
  }}"""


def _instance_table(nest: NestCode, start: int, function: str, number_of: dict[Buffer, int]) -> str:
    """A family of components end to end: rows [begin, end) of them all, beginning with the one that holds row `begin`.
    `function` is called with tasks of one row."""
    count, width = len(nest.instances), len(nest.buffers)
    table = "\n".join(
        f"      {{{one.start}, {one.rows}, {{{', '.join(str(number_of[buffer]) for buffer in one.buffers)}}}}},"
        for one in nest.instances
    )
    return f"""\
  if (first < {start + nest.tasks} && last > {start}) {{
    static const struct {{ long long start, rows; int numbers[{width}]; }} instances[] = {{
{table}
    }};
    const long long begin = (first > {start} ? first - {start} : 0) * {nest.rows_per_task};
    const long long end = last < {start + nest.tasks} ? (last - {start}) * {nest.rows_per_task} : {nest.rows};
    int at = 0;
    for (int above = {count}; above - at > 1;) {{
      const int middle = (at + above) / 2;
      if (instances[middle].start <= begin) at = middle; else above = middle;
    }}
    for (; at < {count} && instances[at].start < end; ++at) {{
      const auto& one = instances[at];
      const long long from = begin > one.start ? begin - one.start : 0;
      const long long to = end - one.start < one.rows ? end - one.start : one.rows;
      if (from >= to) continue;
      void* tensors[{width}];
      for (int i = 0; i < {width}; ++i) tensors[i] = all[one.numbers[i]];
      {function}(tensors, one.rows, 1, from, to);
    }}
  }}"""


def _entry_text(kernel: Loops, symbol: str) -> str:
    lines = [
        f'extern "C" STITCH_EXPORT void {symbol}(const void* const* inputs, void* const* outputs, void* scratch, '
        "StitchRuntime* runtime) {",
        "  (void)inputs; (void)outputs; (void)scratch; (void)runtime;",
    ]
    pointers = []
    for buffer in kernel.buffers:
        if buffer.kind is BufferKind.INPUT:
            pointers.append(f"(void*)inputs[{buffer.number}]")
        elif buffer.kind is BufferKind.OUTPUT:
            pointers.append(f"outputs[{buffer.number}]")
        elif buffer.kind is BufferKind.CONSTANT:
            pointers.append(f"(void*){symbol}_constant{buffer.number}")
        else:
            pointers.append(f"(char*)scratch + {kernel.scratch_offsets[buffer]}")
    if pointers:
        lines.append("  void* all[] = {" + ", ".join(pointers) + "};")
    for number, phase in enumerate(kernel.phases):
        tasks = sum(nest.tasks for nest in phase.nests)
        function = f"{symbol}_phase{number}"
        if phase.serial or tasks == 1:
            lines.append(f"  {function}(all, 0, {tasks});")
        else:
            cost = max(1, int(phase.cost_ns / tasks))
            lines.append(f"  runtime->parallel_for(runtime, {tasks}, {cost}, {function}, all);")
    lines.append("}")
    return "\n".join(lines)


_HEAD = """
#define STITCH_EXPORT __attribute__((visibility("default")))

/* An index tensor's element as a position: kept as it is (an unsigned one beyond the range stays out of range), or
clamped. */ template <class T> STITCH_INLINE long long stitch_index(T value) {
  const bool above = T(-1) > T(0) && (unsigned long long)value > 0x3fffffffffffffffull;
  return above ? 0x3fffffffffffffffll : (long long)value;
}
template <class T> STITCH_INLINE long long stitch_clamp_index(T value, long long high) {
  const long long index = stitch_index(value);
  return index < 0 ? 0 : index > high ? high : index;
}
STITCH_INLINE long long stitch_floor_divide(long long a, long long b) { return a / b - (a % b < 0); }
STITCH_INLINE long long stitch_floor_modulo(long long a, long long b) { return a % b + (a % b < 0 ? b : 0); }
"""


def libm_names() -> tuple[str, ...]:
    """All C library functions that a kernel may call, by the op table."""
    return tuple(sorted({name + suffix for name in LIBM.values() for suffix in ("", "f")}))


def translation_unit(kernels: Iterable[str], vectorised: Container[str] = ()) -> str:
    """The text of a whole compilation: the ABI and the prelude, then the kernels. `vectorised`: C library functions
    that the machine's libmvec has in all widths; calls of others stay scalar."""
    files = resources.files(__package__)
    head = [(files / name).read_text() for name in ("stitch_abi.h", "kernel_prelude.h")]
    simd = '__attribute__((simd("notinbranch")))'
    macros = [f"#define STITCH_SIMD_{name} {simd if name in vectorised else ''}".rstrip() for name in libm_names()]
    macros += [f"#define STITCH_VECTOR_{name} 1" for name in libm_names() if name in vectorised]
    return "\n".join([*macros, "", *head, _HEAD, *kernels])
