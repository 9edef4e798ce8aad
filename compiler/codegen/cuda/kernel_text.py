"""CUDA C of a kernel: one `__global__` function for a whole stitch op, with all its phases.

    blocks of the grid       take the phase's work items in a grid-stride loop (AStitch's vertical packing)
    a work item              is one task for each group of threads (horizontal packing); the nests of a phase lie end to end
    a group                  is 1 to 32 threads of a warp, or the whole block, depending on the length of the nest's rows
    between phases           all blocks wait for each other at a grid barrier, so the grid must be co-resident (cooperative launch);
                             if both phases are the work of one block, only its threads wait

The result depends on shapes alone, neither on the grid's size nor on the order in which blocks run. NVRTC compiles the text
(`translation_unit`), and an emulator can execute it on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources

from ...ir.graph import Graph
from ...loops.loops import Buffer, BufferKind, Find, Loops, NestCode, Visit, walk
from ...lowering.gpu_cost import KernelCost, PhaseWork, kernel_cost, phase_works
from ...lowering.kernel_loops import lower
from ...ops.c_text import STORAGE_TYPE
from ...planning.plan import Plan, plan_graph
from ...planning.rules import ALL, Rules
from ...support.sequences import zip_strict
from ...targets.targets import WARP, GpuTarget
from .. import c
from ..c.text import constant_text
from .body import CudaWriter, aligned_text
from .chain import chain_of
from .layout import MOST_KEPT, THREAD, Layout, assign
from .reduction import task_body
from .survey import NARROW, distributed_loops, is_interleaved
from .vectors import only_computes, row_widths

MOST_PARAMETERS = 400
"""Most pointers that are passed as launch parameters (4 KiB in all); with more, a table of pointers is in memory."""

LINE_THREADS = 8
"""Threads whose vectors are one line of the cache."""
MOST_CONSTANT_BYTES = 32 << 10
"""Most bytes of families' tables in constant memory, of which a module has 64 KiB; the others are in the device's memory."""


class CudaError(ValueError):
    """The kernel cannot be a CUDA kernel; the text is one line for the user."""


@dataclass(frozen=True)
class CudaKernel:
    """A kernel's text and how to launch it.

    tensors: the buffers whose addresses it takes, in order: inputs and outputs, then (None) the scratch memory if it needs any.
    blocks: work items of the largest phase; a larger grid has idle blocks. cooperative: the kernel has a grid barrier, so the grid
    must not exceed what is co-resident, and `semaphore` is used. work: the work of each phase. loops: what the text was made from.
    """

    symbol: str
    text: str
    block: int
    blocks: int
    shared_bytes: int
    scratch_bytes: int
    tensors: tuple[Buffer | None, ...]
    cooperative: bool
    target: GpuTarget
    work: tuple[PhaseWork, ...]
    loops: Loops = field(repr=False)

    @property
    def by_table(self) -> bool:
        """Whether the addresses are in memory rather than among the launch parameters."""
        return len(self.tensors) > MOST_PARAMETERS

    @property
    def grid(self) -> int:
        """Blocks to launch: at most the co-resident ones if the launch is cooperative, else one per work item."""
        return min(self.blocks, self.resident) if self.cooperative else self.blocks

    @property
    def resident(self) -> int:
        """Blocks that are co-resident on the device; `register_cap` ensures it."""
        return self.target.blocks_at_once(self.shared_bytes)

    @property
    def register_cap(self) -> int:
        """The most registers per thread that allow `resident` blocks."""
        return self.target.most_registers(self.resident // self.target.multiprocessors)

    def cost(self, spill_bytes: int = 0, registers: int | None = None) -> KernelCost:
        """The estimated cost of a call. spill_bytes: spilled bytes per thread; registers: per thread; both if the kernel is built. A
        grid without a barrier is not limited to `resident` blocks: more run at once if the compiler needs fewer registers."""
        barriers = self.text.count("stitch_grid_barrier(semaphore);")
        resident = self.resident
        if registers is not None and not self.cooperative:
            resident = max(resident, self.target.blocks_at_once(self.shared_bytes, registers))
        return kernel_cost(self.work, self.target, resident, barriers, spill_bytes)


@dataclass(frozen=True)
class _Nest:
    """One nest and the name of its function."""

    code: NestCode
    name: str
    layout: Layout

    @property
    def blocks(self) -> int:
        """Number of work items."""
        return -(-self.code.tasks // (1 if self.layout.together else self.layout.groups))


def plan_for_gpu(graph: Graph, target: GpuTarget, symbol: str = "", rules: Rules = ALL) -> tuple[Plan, CudaKernel]:
    """Plans and renders one kernel for all of `graph`. If its tiles overflow shared memory, it is planned again with smaller tiles,
    so that values move from tiles to memory (AStitch section 4.4: demotion). Raises CudaError if the device cannot run it."""
    symbol = symbol or f"stitch_{graph.digest[:12]}"
    smaller = target
    while True:
        plan = plan_graph(graph, smaller, rules)
        kernel = render(plan, symbol, target)
        if kernel.cooperative and not target.cooperative:
            raise CudaError(
                f"{graph.name}: its blocks have to wait for each other, and {target.name} has no cooperative launch"
            )
        if kernel.shared_bytes <= target.shared_bytes_per_block:
            return plan, kernel
        if smaller.tile_bytes <= 256:
            raise CudaError(
                f"{graph.name}: needs {kernel.shared_bytes} bytes of shared memory in a block, {target.name} has "
                f"{target.shared_bytes_per_block}"
            )
        smaller = replace(smaller, tile_bytes=smaller.tile_bytes // 2)


def threads_of(nest: NestCode, target: GpuTarget) -> int:
    """Threads per group for `nest`: a power of two, up to a warp, that its longest distributed loop keeps busy; a whole block if a
    warp would take too long over that loop. Searches are the work of one warp.

    If the row is accessed by vectors, it gets at most one thread per vector: a thread with one float of a row of 32 would spend
    its time on the start of the row and on exchanges with other threads. If there are enough rows for all threads of the
    device, a thread takes several vectors, which saves more starts and exchanges."""
    if any(isinstance(each, (Find, Visit)) for each in walk(nest.body)):
        return WARP
    # A loop over a task's rows counts as longer than any other loop.
    distributed = [*distributed_loops(nest.body)]
    longest = max((1 << 30 if loop.bounds else loop.extent for loop in distributed), default=1)
    if longest > WARP * target.row_per_thread:
        return target.block
    if only_computes(nest.body) and longest >= target.block and nest.rows <= target.multiprocessors:
        return target.block  # a row for each multiprocessor at most
    threads = 1
    while threads < min(WARP, longest):
        threads *= 2
    if nest.per_task or not all(map(is_interleaved, distributed)):
        return threads
    all_threads = target.multiprocessors * target.threads_per_multiprocessor
    fewer = 1
    while fewer < threads:
        width = row_widths(nest.body, fewer).get(longest, 1)
        few = -(-longest // fewer) <= MOST_KEPT and nest.rows * fewer >= all_threads
        if width > 1 and (fewer * width >= longest or (fewer >= LINE_THREADS and few)):
            return fewer
        fewer *= 2
    return threads


def groups_of(nest: NestCode, threads: int, target: GpuTarget) -> int:
    """Groups of `threads` threads per block for `nest`: as many as a block has room for; fewer, down to a warp, if a few blocks would
    otherwise do all tasks while most multiprocessors have none. The other threads of a block then have no part in the nest."""
    room = target.block // threads
    if nest.per_task or nest.instances or threads > WARP:
        return room
    return min(room, max(WARP // threads, -(-nest.tasks // target.multiprocessors)))


def render(plan: Plan, symbol: str, target: GpuTarget) -> CudaKernel:
    """The kernel of a plan: its text without the common head (`head`), and how it is launched. Raises CudaError if a family cannot be
    written as one table of components."""
    kernel = lower(plan)
    tensors = _tensors(kernel)
    places = {buffer: number for number, buffer in enumerate(tensors)}
    functions: dict[str, str] = {}
    phases: list[list[_Nest]] = []
    for phase in kernel.phases:
        nests = []
        for code in phase.nests:
            threads = threads_of(code, target)
            layout = assign(code, threads, groups_of(code, threads, target))
            neutral = _nest_text(code, layout, target.block)
            name = functions.setdefault(neutral, f"{symbol}_nest{len(functions)}")
            nests.append(_Nest(code, name, layout))
        phases.append(nests)
    lines = [
        constant_text(symbol, number, data, storage="static __device__ const")
        for number, data in kernel.constants.items()
    ]
    by_table = len(tensors) > MOST_PARAMETERS
    held = "void* const* p" if by_table else f"void* p[{max(1, len(tensors))}]"
    lines.append(f"struct {symbol}_Tensors {{ {held}; }};")
    lines.extend(text.replace("NEST", name) for text, name in functions.items())
    tables: dict[int, str] = {}
    constant_bytes = 0
    for nest in (nest for nests in phases for nest in nests if nest.code.instances):
        table = f"{symbol}_table{len(tables)}"
        constant_bytes += len(nest.code.instances) * (20 + 4 * len(nest.code.buffers))
        memory = "__constant__" if constant_bytes <= MOST_CONSTANT_BYTES else "__device__"
        lines.append(_table_text(nest, table, places, memory))
        tables[id(nest.code)] = table
    shared_bytes = max((nest.layout.block_bytes for nests in phases for nest in nests), default=0)
    # As many blocks must be co-resident as the grid was sized for, whatever number of registers the compiler would like.
    at_once = max(1, target.blocks_at_once(shared_bytes) // target.multiprocessors)
    lines.append(_entry_text(kernel, symbol, target, phases, places, tables, at_once))
    return CudaKernel(
        symbol,
        "\n\n".join(lines) + "\n",
        target.block,
        max((_blocks(nests) for nests in phases), default=1),
        shared_bytes,
        kernel.scratch_bytes,
        tensors,
        "stitch_grid_barrier(" in lines[-1],
        target,
        phase_works(
            plan,
            kernel,
            [[nest.blocks for nest in nests] for nests in phases],
            [[chain_of(nest.code, nest.layout) for nest in nests] for nests in phases],
        ),
        kernel,
    )


def _blocks(nests: Sequence[_Nest]) -> int:
    """Number of work items of a phase."""
    return sum(nest.blocks for nest in nests)


def _tensors(kernel: Loops) -> tuple[Buffer | None, ...]:
    given = [b for b in kernel.buffers if b.kind in (BufferKind.INPUT, BufferKind.OUTPUT)]
    ordered = sorted(given, key=lambda b: (b.kind is BufferKind.OUTPUT, b.number))
    return (*ordered, None) if kernel.scratch_bytes else tuple(ordered)


def _nest_text(nest: NestCode, layout: Layout, block: int) -> str:
    """The function of one nest: the tasks of one work item, referring to the nest's own buffers only. block: threads per block."""
    written = nest.written_buffers
    many = bool(nest.instances)
    lines = []
    for number, buffer in enumerate(nest.buffers):
        elements = buffer.elements if not many or buffer.elements == 1 else "last_row"
        fixed = number not in written and number not in nest.may_alias and buffer.kind is BufferKind.INPUT
        macro = "STITCH_GLOBAL_CONST" if fixed else "STITCH_GLOBAL"
        lines.append(f"  {macro}({STORAGE_TYPE[buffer.dtype]}, b{number}, p{number}, {elements});")
    threads, groups, shared_bytes, writer = (
        layout.threads,
        layout.groups,
        layout.places.shared_bytes,
        CudaWriter(layout),
    )
    body = task_body(writer, nest.body, 1) if layout.together else writer.body(nest.body, 1)
    if groups * threads < block:
        lines.append(f"  if (threadIdx.x >= {groups * threads}) return;")
    if groups > 1:
        lines.append(f"  const int {THREAD} = threadIdx.x % {threads}, group = threadIdx.x / {threads};")
    else:
        lines.append(f"  const int {THREAD} = threadIdx.x;")
    if shared_bytes:
        offset = f"group * {shared_bytes}" if groups > 1 else "0"
        lines.append(f"  const int group_shared = {offset};")
    if layout.reduces:
        lines.append(f"  const int reduce_shared = {groups * shared_bytes};")
    if many:
        return _function_text(nest, layout, [*lines, *body])
    apart = groups > 1 and not layout.together
    ctype = f"const {layout.row_type}"
    lines.append(f"  {ctype} task = work{f' * {groups} + group' if apart else ''};")
    if apart and nest.tasks % groups:
        lines.append(f"  if (task >= {nest.tasks}) return;")
    lines.append(f"  {ctype} first_row = task * {nest.rows_per_task};")
    last = f"first_row + {nest.rows_per_task}"
    if nest.rows % nest.rows_per_task:
        last = f"{last} < {nest.rows} ? {last} : {nest.rows}"
    lines.append(f"  {ctype} last_row = {last};")
    return _function_text(nest, layout, [*lines, *body])


def _function_text(nest: NestCode, layout: Layout, lines: Sequence[str]) -> str:
    """The function around a nest's text. If the nest uses vectors, there are two versions."""
    aligned = layout.aligned
    names = [f"p{number}" for number in range(len(nest.buffers))] + (
        ["first_row", "last_row"] if nest.instances else ["work"]
    )
    types = ["void*"] * len(nest.buffers) + [f"const {layout.row_type}"] * (2 if nest.instances else 1)
    parameters = ", ".join(f"{ctype} {name}" for ctype, name in zip_strict(types, names))
    head = "static __device__ __forceinline__ void"
    if not aligned:
        return "\n".join([f"{head} NEST({parameters}) {{", *lines, "}"])
    either = [
        f"{head} NEST({parameters}) {{",
        f"  const bool aligned = {aligned_text(aligned)};",
        f"  if (aligned) NEST_vectors<true>({', '.join(names)});",
        f"  else NEST_vectors<false>({', '.join(names)});",
        "}",
    ]
    return "\n".join(["template <bool aligned>", f"{head} NEST_vectors({parameters}) {{", *lines, "}", "", *either])


def _entry_text(
    kernel: Loops,
    symbol: str,
    target: GpuTarget,
    phases: list[list[_Nest]],
    places: Mapping[Buffer | None, int],
    tables: Mapping[int, str],
    at_once: int,
) -> str:
    lines = [
        f'extern "C" __global__ void __launch_bounds__({target.block}, {at_once})\n'
        f"{symbol}(const __grid_constant__ {symbol}_Tensors tensors, unsigned* semaphore) {{"
    ]

    def pointer(buffer: Buffer) -> str:
        if buffer.kind is BufferKind.CONSTANT:
            return f"(void*){symbol}_constant{buffer.number}"
        if buffer.kind is BufferKind.SCRATCH:
            return f"(char*)tensors.p[{places[None]}] + {kernel.scratch_offsets[buffer]}"
        return f"tensors.p[{places[buffer]}]"

    for number, nests in enumerate(phases):
        total = _blocks(nests)
        if number:
            alone = total == 1 == _blocks(phases[number - 1])  # then the same block does both
            lines.append("  __syncthreads();" if alone else "  stitch_grid_barrier(semaphore);")
        ctype = "int" if total < NARROW else "long long"
        lines.append(f"  for ({ctype} work = blockIdx.x; work < {total}; work += gridDim.x) {{")
        start = 0
        for same in _by_function(nests):
            end = start + _blocks(same)
            test = f"if (work < {end}) " if end < total else ""
            lines.append(f"    {'else ' if start else ''}{test}{{")
            if same[0].code.instances:
                lines.extend(_instances_text(same[0], start, pointer, tables[id(same[0].code)]))
            elif len(same) > 1:
                lines.extend(_calls_text(same, start, pointer))
            else:
                arguments = ", ".join(map(pointer, same[0].code.buffers))
                lines.append(f"      {same[0].name}({arguments}, work{f' - {start}' if start else ''});")
            lines.append("    }")
            start = end
        if any(nest.layout.block_bytes for nest in nests):
            lines.append("    __syncthreads();")  # the next work item uses the same shared memory
        lines.append("  }")
    lines.append("}")
    return "\n".join(lines)


def _by_function(nests: Sequence[_Nest]) -> Iterator[list[_Nest]]:
    """The nests of a phase, grouped by function; each family by itself."""
    groups: dict[object, list[_Nest]] = {}
    for nest in nests:
        groups.setdefault(id(nest) if nest.code.instances else nest.name, []).append(nest)
    yield from groups.values()


def _calls_text(same: Sequence[_Nest], start: int, pointer: Callable[[Buffer], str]) -> Iterator[str]:
    """One call for all nests of a function, with their tensors selected before the call. The compiler inlines the function at each
    call, and a step may have hundreds of small sums."""
    names = [f"tensor{number}" for number in range(len(same[0].code.buffers))]
    yield f"      void *{', *'.join(names)};"
    yield "      long long before;"
    for number, nest in enumerate(same):
        end = start + nest.blocks
        test = "" if number == len(same) - 1 else f"if (work < {end}) "
        chosen = " ".join(f"{name} = {pointer(buffer)};" for name, buffer in zip_strict(names, nest.code.buffers))
        yield f"      {'else ' if number else ''}{test}{{ {chosen} before = {start}; }}"
        start = end
    yield f"      {same[0].name}({', '.join(names)}, work - before);"


def _instances_text(nest: _Nest, start: int, pointer: Callable[[Buffer], str], table: str) -> Iterator[str]:
    """A family of components end to end: a work item is a stretch of their rows, which may hold several small components. `table`:
    the name of the array with each component's start, rows and tensors."""
    code = nest.code
    width = len(code.buffers)
    ctype = nest.layout.row_type
    yield f"      const {ctype} task = work{f' - {start}' if start else ''};"
    yield f"      const {ctype} begin = task * {code.rows_per_task};"
    yield f"      const {ctype} end = begin + {code.rows_per_task};"
    yield f"      int one = 0, above = {len(code.instances)};"  # the last that begins at or before `begin`
    yield "      while (above - one > 1) {"
    yield "        const int middle = (one + above) / 2;"
    yield f"        if ({table}[middle].start <= begin) one = middle;"
    yield "        else above = middle;"
    yield "      }"
    yield f"      for (; one < {len(code.instances)} && {table}[one].start < end; ++one) {{"
    yield f"        const {ctype} start = {table}[one].start, rows = {table}[one].rows;"
    yield f"        const {ctype} from = begin > start ? begin - start : 0;"
    yield f"        const {ctype} to = end - start < rows ? end - start : rows;"
    columns = [[instance.buffers[k] for instance in code.instances] for k in range(width)]
    arguments = []
    for k, column in enumerate(columns):
        same = all(buffer == column[0] for buffer in column)
        arguments.append(pointer(column[0]) if same else f"tensors.p[{table}[one].tensors[{k}]]")
    yield f"        if (from < to) {nest.name}({', '.join(arguments)}, from, to);"
    yield "      }"


def _table_text(of: _Nest, table: str, places: Mapping[Buffer | None, int], memory: str) -> str:
    """The start, the number of rows and the tensors of each component of a family, as a C array. All threads of a block read the same
    component at once, which is what constant memory is fast at: a search of seven steps in the device's memory took as long as a
    work item's own accesses. Raises CudaError."""
    nest, ctype = of.code, of.layout.row_type
    rows = []
    for instance in nest.instances:
        numbers = [places.get(buffer, -1) for buffer in instance.buffers]
        rows.append(f"  {{{instance.start}, {instance.rows}, {{{', '.join(map(str, numbers))}}}}},")
    for k in range(len(nest.buffers)):
        column = [instance.buffers[k] for instance in nest.instances]
        if any(buffer not in places for buffer in column) and any(buffer != column[0] for buffer in column):
            raise CudaError("components of one family that work on different constants or intermediates")
    width = len(nest.buffers)
    head_text = f"static {memory} const struct {{ {ctype} start, rows; int tensors[{width}]; }} {table}[] = {{"
    return "\n".join([head_text, *rows, "};"])


def head() -> str:
    """The text at the beginning of every compilation: the CUDA prelude and the functions that kernels call."""
    shared = [(resources.files(c) / name).read_text() for name in ("kernel_prelude.h", "kernel_math.h")]
    return "\n".join([(resources.files(__package__) / "cuda_prelude.h").read_text(), *shared])


def translation_unit(kernel: CudaKernel) -> str:
    """The whole text that NVRTC compiles: `head` and the kernel."""
    return "\n".join([head(), kernel.text])
