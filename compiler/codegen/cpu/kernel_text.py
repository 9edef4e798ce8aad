"""C++ text of a kernel, for one core's vector unit and the caller's thread pool.

The text needs no headers except stitch_abi.h, kernel_prelude.h and kernel_math.h, whose text is put in front of it
(`translation_unit`). Vectorisation is requested loop by loop (`#pragma omp simd`), never by -ffast-math: each element is
computed as the graph says, and only the order of a reduction is ours (its lanes are in the source). Elementary functions
are part of the text too: no vector library is called.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import resources

from ... import kernel
from ...ir.graph import DType
from ...loops.loops import Buffer, BufferKind, Compute, Let, Loops, NestCode, Phase, walk
from ...ops.c_text import STORAGE_TYPE
from ...ops.table import libm_functions
from .. import c
from ..c.text import constant_text
from .body import PLUS_ZERO, ZERO_LINE, CpuWriter
from .forms import Facts

PARAMETERS = "STITCH_PARAMETERS;"
"""Where a function of a text for many shapes declares the numbers that differ between shapes (`many_shapes`)."""
SHAPED_CONSTANT_BYTES = 128
"""Largest constant array, in bytes, whose words may be parameters of a text for many shapes."""


def _nest_text(nest: NestCode, name: str, for_many_shapes: bool) -> str:
    """The function of one nest. It refers to its own buffers only, so that equal nests have equal text except for
    `name`."""
    writer = CpuWriter(Facts.of(nest, for_many_shapes))
    written = nest.written_buffers
    lines = [
        f"static void {name}(void* const* tensors, long long rows, long long rows_per_task, long long first_task, "
        f"long long last_task{', const long long* parameters' if for_many_shapes else ''}) {{"
    ]
    if for_many_shapes:
        lines.append(f"  {PARAMETERS}")
    for number, buffer in enumerate(nest.buffers):
        constness = "" if number in written else "const "
        restrict = "" if number in nest.may_alias else " __restrict"
        ctype = STORAGE_TYPE[buffer.dtype]
        lines.append(f"  {constness}{ctype}*{restrict} b{number} = ({constness}{ctype}*)tensors[{number}];")
    place_of_zero = len(lines)
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
    if any(PLUS_ZERO in line for line in lines[place_of_zero:]):
        lines.insert(place_of_zero, f"  {ZERO_LINE}")
    lines.append("}")
    return "\n".join(lines)


def render(kernel: Loops, symbol: str, input_count: int | None = None) -> str:
    """The kernel as C++ text without the common head: functions private to it, and `symbol` of type StitchKernel.

    With `input_count`, the number of the kernel's inputs, it is the text for many shapes that `many_shapes` works on. Each function
    has a place (PARAMETERS) to declare numbers, which it reads from the address after the last input's; sizes of locals are marked
    (CAPACITY). No table is static, since its numbers may differ from call to call, and neither is a constant of up to
    SHAPED_CONSTANT_BYTES, which may depend on the shape (the gradient of a mean divides by one).
    """
    for_many_shapes = input_count is not None
    functions: dict[str, str] = {}  # text with a neutral name: name
    texts: list[str] = []
    names: dict[int, str] = {}
    for phase in kernel.phases:
        for nest in phase.nests:
            neutral = _nest_text(nest, "NEST", for_many_shapes)
            if neutral not in functions:
                functions[neutral] = f"{symbol}_nest{len(functions)}"
                texts.append(neutral.replace("static void NEST(", f"static void {functions[neutral]}(", 1))
            names[id(nest)] = functions[neutral]
    number_of = {buffer: number for number, buffer in enumerate(kernel.buffers)}
    shaped = {
        number: data
        for number, data in kernel.constants.items()
        if for_many_shapes and len(data) <= SHAPED_CONSTANT_BYTES
    }
    lines = [_declarations(_functions(kernel))]
    lines.extend(
        constant_text(symbol, number, data) for number, data in kernel.constants.items() if number not in shaped
    )
    lines.extend(texts)
    for number, phase in enumerate(kernel.phases):
        lines.append(_phase_text(phase, f"{symbol}_phase{number}", names, number_of, for_many_shapes))
    lines.append(_entry_text(kernel, symbol, input_count, shaped))
    return "\n\n".join(line for line in lines if line) + "\n"


def _functions(kernel: Loops) -> set[tuple[str, bool, int]]:
    """The C library's functions that the kernel calls: name, whether it is the double version, number of operands."""
    computed = [
        each.value
        for phase in kernel.phases
        for nest in phase.nests
        for each in walk(nest.body)
        if isinstance(each, Let) and isinstance(each.value, Compute)
    ]
    return {
        (name, value.dtypes[-1] is DType.F64, len(value.operands))
        for value in computed
        for name in libm_functions(value.node.op, value.dtypes[-1])
    }


def _declarations(functions: set[tuple[str, bool, int]]) -> str:
    lines = []
    for name, double, count in sorted(functions):
        ctype = "double" if double else "float"
        lines.append(f'extern "C" {ctype} {name}({", ".join([ctype] * count)}) noexcept;')
    return "\n".join(lines)


def _phase_text(
    phase: Phase, name: str, names: dict[int, str], number_of: dict[Buffer, int], for_many_shapes: bool
) -> str:
    head = f"static void {name}(void* argument, long long first, long long last) {{\n  void* const* all = (void* const*)argument;"
    kind, last = "static const", ""
    if for_many_shapes:
        head += f"\n  const long long* parameters = (const long long*)all[{len(number_of)}];\n  {PARAMETERS}"
        kind, last = "const", ", parameters"
    if len(phase.nests) == 1 and not phase.nests[0].instances:
        nest = phase.nests[0]
        tensors = ", ".join(f"all[{number_of[buffer]}]" for buffer in nest.buffers)
        return (
            f"{head}\n  void* const tensors[] = {{{tensors}}};\n"
            f"  {names[id(nest)]}(tensors, {nest.rows}, {nest.rows_per_task}, first, last{last});\n}}"
        )
    starts: dict[int, int] = {}
    start = 0
    for nest in phase.nests:
        starts[id(nest)] = start
        start += nest.tasks
    plain = [nest for nest in phase.nests if not nest.instances]
    parts = [head]
    if plain:
        parts.append(_nest_table(plain, starts, names, number_of, kind, last))
    parts.extend(
        _instance_table(nest, starts[id(nest)], names[id(nest)], number_of, kind, last)
        for nest in phase.nests
        if nest.instances
    )
    return "\n".join([*parts, "}"])


def _nest_table(
    nests: Sequence[NestCode],
    starts: dict[int, int],
    names: dict[int, str],
    number_of: dict[Buffer, int],
    kind: str,
    last_argument: str,
) -> str:
    """Nests of one phase side by side: calls each nest of a table with its share of tasks [first, last). `kind`: the table's storage;
    `last_argument`: an additional argument of every nest."""
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
        f"      case {number}: {function}(tensors, row.rows, row.rows_per_task, begin, end{last_argument}); break;"
        for number, function in enumerate(used)
    )
    table = "\n".join(rows)
    return f"""\
  {kind} struct {{ int function, buffers; long long first, last, rows, rows_per_task; int numbers[{most}]; }} table[] = {{
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


def _instance_table(
    nest: NestCode, start: int, function: str, number_of: dict[Buffer, int], kind: str, last_argument: str
) -> str:
    """The components of a family, end to end: runs rows [begin, end) of all components, starting with the component that holds row
    `begin`. `function` is called with tasks of one row."""
    count, width = len(nest.instances), len(nest.buffers)
    table = "\n".join(
        f"      {{{instance.start}, {instance.rows}, {{{', '.join(str(number_of[buffer]) for buffer in instance.buffers)}}}}},"
        for instance in nest.instances
    )
    return f"""\
  if (first < {start + nest.tasks} && last > {start}) {{
    {kind} struct {{ long long start, rows; int numbers[{width}]; }} instances[] = {{
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
      {function}(tensors, one.rows, 1, from, to{last_argument});
    }}
  }}"""


def _entry_text(kernel: Loops, symbol: str, input_count: int | None, shaped: Mapping[int, bytes]) -> str:
    """The kernel's entry function. `shaped`: the constants that are locals, by node."""
    lines = [
        f'extern "C" STITCH_EXPORT void {symbol}(const void* const* inputs, void* const* outputs, void* scratch, '
        "StitchRuntime* runtime) {",
        "  (void)inputs; (void)outputs; (void)scratch; (void)runtime;",
    ]
    if input_count is not None:
        lines.append(f"  const long long* parameters = (const long long*)inputs[{input_count}];\n  {PARAMETERS}")
        lines.extend("  " + constant_text(symbol, number, data, shaped=True) for number, data in shaped.items())
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
    if input_count is not None:
        pointers.append("(void*)parameters")
    if pointers:
        lines.append("  void* all[] = {" + ", ".join(pointers) + "};")
    for number, phase in enumerate(kernel.phases):
        tasks = sum(nest.tasks for nest in phase.nests)
        function = f"{symbol}_phase{number}"
        cost = max(1, int(phase.cost_ns / tasks)) if tasks else 1
        alone, shared = (
            f"{function}(all, 0, {tasks});",
            f"runtime->parallel_for(runtime, {tasks}, {cost}, {function}, all);",
        )
        serial = phase.serial or tasks == 1
        if input_count is not None:
            lines.append(f"  if ({int(serial)}) {alone} else {shared}")
        else:
            lines.append(f"  {alone if serial else shared}")
    lines.append("}")
    return "\n".join(lines)


_HEAD = """
#define STITCH_EXPORT __attribute__((visibility("default")))
"""


HEADERS_OF_CALLS = {
    "kernel_trigonometry.h": ("stitch_sin", "stitch_cos", "stitch_tan"),
    "kernel_tables.h": ("stitch_erf", "stitch_pow"),
}
"""Headers that are part of the text only if a kernel calls one of their functions."""


def translation_unit(kernels: Iterable[str]) -> str:
    """The text of a whole compilation: the ABI, the prelude and the elementary functions, those of products if there are any, then
    the kernels."""
    texts = tuple(kernels)
    files = resources.files(c)
    head = [(resources.files(kernel) / "stitch_abi.h").read_text()]
    head += [(files / name).read_text() for name in ("kernel_prelude.h", "kernel_math.h")]
    for header, names in HEADERS_OF_CALLS.items():
        called = [name for name in names if any(f"{name}(" in text for text in texts)]
        if called:
            head += [*(f"#define STITCH_CALLS_{name} 1" for name in called), (files / header).read_text()]
    if any("stitch_product" in text for text in texts):
        head.append((resources.files(__package__) / "kernel_product.h").read_text())
    return "\n".join([*head, _HEAD, *texts])
