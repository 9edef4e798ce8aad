"""CUDA text of a nest's body: the same loops as on the CPU, executed by a group of threads.

    Loop SIMD, LANES        its iterations are distributed over the group's T threads: thread n takes n, n + T, n + 2T, ...; or
                            neighbours
    Loop FOLD               each thread takes one stretch of neighbouring iterations
    Loop SCAN               neighbouring threads take neighbouring iterations and scan them together; then the next ones
    Find, Visit             each thread of a warp tests other iterations; all learn by ballots at which of them the test holds
    every other statement   all threads of the group execute it, on registers of their own
    a store there           thread 0 executes it
    Collapse, Fold          the threads' accumulators are combined by shuffles, and by shared memory too if the group is a block

The nest's layout (`layout.assign`) says which thread takes which iterations, and where locals are stored.

After a statement that accesses what threads share (an array in shared memory, or memory that the nest both writes and reads), the
group's threads synchronise, unless each thread accesses only elements of its own (`Use.is_owned`). So what one thread wrote is
visible to the others, and nothing is overwritten that another thread has yet to read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...ir.graph import DType
from ...ir.index_maps import Index
from ...loops import loops
from ...loops.loops import Local, Loop, LoopKind, Statement, walk
from ...ops.c_text import REGISTER_TYPE, STORAGE_TYPE, cpp_combine, literal_text, load_text, round_text, store_text
from ...ops.reference import reduce_identity
from ...support.sequences import zip_strict
from ...targets.targets import WARP
from ..c.text import ends, guard_text, index_text, variable_type
from ..c.writer import Writer
from .layout import REDUCE_BYTES, THREAD, How, Layout, ThreadMapping
from .survey import is_distributed, is_row_loop
from .vectors import Vectors

ATOMICS = {"min": "Min", "max": "Max"}
"""CUDA's name of each kind of atomic update that does not depend on the order of updates."""
MOST_TESTS = 8
"""Iterations that a thread tests at once in a Find or Visit, so that as many of its loads are under way together."""
MOST_VISITED_AHEAD = 4
"""The most iterations for which a Visit runs `ahead` at once if some of these iterations may not exist."""
VISIT_REGISTERS = 16
"""The most registers per thread for the values of all iterations for which a Visit runs `ahead` at once."""
CHEAP_STATEMENTS = 8
"""The most statements of an `ahead` that a Visit runs for several iterations at once."""


def _tests_of(search: loops.Find | loops.Visit) -> int:
    """How many iterations each thread of a warp tests at once."""
    return min(MOST_TESTS, -(-search.extent // WARP))


def aligned_text(buffers: Mapping[int, int]) -> str:
    """A C expression: whether each buffer's address is a multiple of the given number of bytes."""
    return " & ".join(f"((unsigned long long)p{buffer} % {size} == 0)" for buffer, size in sorted(buffers.items()))


@dataclass(frozen=True)
class CudaWriter(Writer):
    """Renders the statements of a nest by its layout. mapping: the distribution of the loop that the statements are in, if it is
    distributed. vectors: the accesses of a step that are made at once, if the loop has any."""

    layout: Layout
    mapping: ThreadMapping | None = None
    vectors: Vectors | None = None

    @property
    def threads(self) -> int:
        """Threads per group."""
        return self.layout.threads

    @property
    def row_type(self) -> str:
        """The C type of a row's number."""
        return self.layout.row_type

    # ---- statements -------------------------------------------------------------------------------------------------------

    def body(self, statements: Sequence[Statement], indent: int) -> Iterator[str]:
        """The lines of `statements` in CUDA C, indented by `indent` steps of two spaces; threads of a group wait for each other
        behind statements whose results they share."""
        for statement in statements:
            yield from self.statement(statement, indent)
            whole = not isinstance(statement, (Loop, loops.Visit, loops.Blocks, loops.If)) or (
                isinstance(statement, Loop) and is_distributed(statement)
            )
            if self.mapping is None and whole and self.threads > 1 and self.layout.shares(statement):
                yield f"{'  ' * indent}stitch_group_sync<{self.threads}>();"

    def value(self, dtype: DType, value: loops.Value) -> str:
        """The C expression of a value that a statement computes, of type `dtype`."""
        if self.vectors is not None and isinstance(value, loops.Load):
            for name, load in self.vectors.loads.items():
                if load is value:
                    vector = f"{name}_vector{self.vectors.suffix}"
                    if dtype is DType.BF16:
                        return f"stitch_take_bf16({vector}, element)"
                    return load_text(dtype, f"{vector}.value[element]")
        if isinstance(value, loops.LoadLocal):
            return self._element(value.local, value.index)
        return super().value(dtype, value)

    def _element(self, name: str, index: Index | None) -> str:
        """The C expression of an element of a local."""
        places = self.layout.places
        if places.uses[name].collapsed or places.is_scalar(name):
            return name
        if self.mapping is not None and name in places.registers:
            return f"{name}[{self.mapping.slot}]"
        if self.mapping is not None and places.lies_by_threads(name):
            return f"{name}[{self.mapping.own_place}]"
        assert index is not None
        return f"{name}[{index_text(index)}]"

    def statement(self, statement: Statement, indent: int) -> Iterator[str]:
        """The lines of one statement."""
        pad = "  " * indent
        if isinstance(statement, loops.Let):
            yield from self._let(statement, indent)
        elif self.vectors is not None and statement in self.vectors.stores and isinstance(statement, loops.Store):
            number = self.vectors.stores.index(statement)
            if statement.dtype is DType.BF16:
                yield f"{pad}stitch_put_bf16(stored{number}, element, {statement.value});"
            else:
                yield f"{pad}stored{number}.value[element] = {store_text(statement.dtype, statement.value)};"
        elif isinstance(statement, loops.Update) and statement.atomic:
            place = f"b{statement.buffer}, {index_text(statement.index)}"
            line = f"{pad}STITCH_ATOMIC({ATOMICS[statement.kind]}, {place}, {statement.value});"
            yield from self._by_one(iter([line]), pad)
        elif isinstance(statement, (loops.Store, loops.Update)):
            yield from self._by_one(super().statement(statement, indent), pad)
        elif isinstance(statement, loops.Assign):
            target = self._element(statement.local, statement.index)
            yield from self._local_write(statement.local, f"{pad}{target} = {statement.value};", pad)
        elif isinstance(statement, loops.Combine):
            target = self._element(statement.local, statement.index)
            current = f"({REGISTER_TYPE[statement.dtype]}){target}"
            combined = cpp_combine(statement.kind, statement.dtype, current, statement.value)
            yield from self._local_write(statement.local, f"{pad}{target} = {combined};", pad)
        elif isinstance(statement, loops.Scan):
            target = self._element(statement.local, statement.index)
            yield f"{pad}{target} = {self._combined(statement, target)};"
            yield f"{pad}const {REGISTER_TYPE[statement.dtype]} {statement.name} = {self._rounded(statement, target)};"
        elif isinstance(statement, loops.Fold):
            yield from self._fold(statement, indent)
        elif isinstance(statement, loops.Collapse):
            yield from self._collapse(statement, pad)
        elif isinstance(statement, Local):
            yield from self._local(statement, pad)
        elif isinstance(statement, Loop):
            yield from self._loop(statement, indent)
        elif isinstance(statement, loops.Find):
            yield from self._find(statement, indent)
        elif isinstance(statement, loops.Visit):
            yield from self._visit(statement, indent)
        else:
            yield from super().statement(statement, indent)

    def _let(self, statement: loops.Let, indent: int) -> Iterator[str]:
        """A value. A load that an earlier loop has made is read from registers; one that later loops need is kept there."""
        pad, ctype, name, mapping = "  " * indent, REGISTER_TYPE[statement.dtype], statement.name, self.mapping
        if mapping is not None and name in mapping.kept:
            yield f"{pad}const {ctype} {name} = {mapping.kept[name]}[{mapping.slot}];"
            return
        yield from super().statement(statement, indent)
        if mapping is not None and name in mapping.fills:
            yield f"{pad}{mapping.fills[name]}[{mapping.slot}] = {name};"

    def _by_one(self, lines: Iterator[str], pad: str) -> Iterator[str]:
        """Lets the group's first thread execute `lines` if all threads would execute them alike."""
        alike = self.mapping is None and self.threads > 1
        for line in lines:
            yield f"{pad}if ({THREAD} == 0) {line.lstrip()}" if alike else line

    def _local_write(self, name: str, line: str, pad: str) -> Iterator[str]:
        if name in self.layout.places.offsets:
            yield from self._by_one(iter([line]), pad)
        else:
            yield line

    def _local(self, statement: Local, pad: str) -> Iterator[str]:
        places, name, ctype = self.layout.places, statement.name, REGISTER_TYPE[statement.dtype]
        identity = ""
        if statement.kind is not None:
            identity = literal_text(statement.dtype, reduce_identity(statement.kind, statement.dtype))
        if name in places.offsets:
            room = places.room(name)
            yield f"{pad}STITCH_SHARED({ctype}, {name}, group_shared + {places.offsets[name]}, {room});"
            if identity:
                yield f"{pad}for (int i = {THREAD}; i < {room}; i += {self.threads}) {name}[i] = {identity};"
        elif name not in places.registers and (places.uses[name].collapsed or statement.size == 1):
            yield f"{pad}{ctype} {name}{f' = {identity}' if identity else ''};"
        else:
            size = places.registers.get(name, statement.size)
            yield f"{pad}{ctype} {name}[{size}];"
            if identity:
                yield f"{pad}for (int i = 0; i < {size}; ++i) {name}[i] = {identity};"

    def _collapse(self, statement: loops.Collapse, pad: str) -> Iterator[str]:
        ctype, local = REGISTER_TYPE[statement.dtype], statement.local
        if not self.layout.places.uses[local].by_lanes or self.threads == 1:
            yield f"{pad}const {ctype} {statement.name} = {local};"
            return
        combined = cpp_combine(statement.kind, statement.dtype, "a", "b")
        yield (
            f"{pad}const {ctype} {statement.name} = stitch_group_reduce<{self.threads}>("
            f"{local}, [](const {ctype} a, const {ctype} b) {{ return ({ctype})({combined}); }}, reduce_shared);"
        )

    def _fold(self, statement: loops.Fold, indent: int) -> Iterator[str]:
        """Combines a variadic reduction's accumulators of all threads, in the order of their stretches: within a warp by exchanges
        between ever longer runs of threads, then over a block's warps. Afterwards every thread has the same result."""
        if self.threads == 1:
            return
        pad, warp = "  " * indent, min(self.threads, 32)
        types = [REGISTER_TYPE[dtype] for dtype in statement.dtypes]
        rows = list(zip_strict(types, statement.locals, statement.others))
        yield f"{pad}for (int distance = 1; distance < {warp}; distance *= 2) {{"
        yield f"{pad}  const bool second = ({THREAD} & distance) != 0;"
        for (ctype, local, other), own in zip_strict(rows, statement.own):
            yield f"{pad}  const {ctype} {local}_far = stitch_shuffle_xor<{warp}>({local}, distance);"
            yield f"{pad}  const {ctype} {own} = second ? {local}_far : {local};"
            yield f"{pad}  const {ctype} {other} = second ? {local} : {local}_far;"
        yield from self._fold_step(statement, indent + 1)
        yield f"{pad}}}"
        if self.threads <= 32:
            return
        parts = [f"{local}_parts" for local in statement.locals]
        for k, (ctype, local, _) in enumerate(rows):
            place = f"reduce_shared + {k * REDUCE_BYTES}"
            yield f"{pad}STITCH_SHARED({ctype}, {parts[k]}, {place}, {self.threads // 32});"
            yield f"{pad}if ({THREAD} % 32 == 0) {parts[k]}[{THREAD} / 32] = {local};"
        yield f"{pad}__syncthreads();"
        yield from (f"{pad}{local} = {part}[0];" for local, part in zip_strict(statement.locals, parts))
        yield f"{pad}for (int warp = 1; warp < {self.threads // 32}; ++warp) {{"
        for (ctype, local, other), own, part in zip_strict(rows, statement.own, parts):
            yield f"{pad}  const {ctype} {own} = {local};"
            yield f"{pad}  const {ctype} {other} = {part}[warp];"
        yield from self._fold_step(statement, indent + 1)
        yield f"{pad}}}"
        yield f"{pad}__syncthreads();"

    def _fold_step(self, statement: loops.Fold, indent: int) -> Iterator[str]:
        pad = "  " * indent
        for inner in statement.body:
            yield from self.statement(inner, indent)
        for local, result in zip_strict(statement.locals, statement.results):
            yield f"{pad}{local} = {result};"

    def _type(self, loop: Loop) -> str:
        """The C type of a loop's variable."""
        return "int" if self.layout.row_type == "int" and loop.variable.source is None else variable_type(loop)

    # ---- searches -----------------------------------------------------------------------------------------------------------

    def _find(self, find: loops.Find, indent: int) -> Iterator[str]:
        pad, name, found = "  " * indent, find.variable.name, find.found.name
        tests = _tests_of(find)
        yield f"{pad}int {found} = {find.extent};"
        yield f"{pad}for (int {name}_base = 0; {name}_base < {find.extent}; {name}_base += {tests * WARP}) {{"
        yield from self._hits(find, tests, indent + 1)
        yield f"{pad}  int {name}_turn = 0;"
        yield f"{pad}  unsigned {name}_rest = stitch_ballot({name}_hits & 1);"
        yield f"{pad}  while ({name}_rest == 0) {name}_rest = stitch_ballot({name}_hits >> ++{name}_turn & 1);"
        yield f"{pad}  {found} = {name}_base + {name}_turn * {WARP} + __ffs({name}_rest) - 1;"
        yield f"{pad}  break;"
        yield f"{pad}}}"

    def _visit(self, visit: loops.Visit, indent: int) -> Iterator[str]:
        """Visits several iterations at once: `ahead` for each of them, so that their loads are under way together, and then the
        bodies in order. First as many as possible while there are so many; then a few, of which some may not exist."""
        pad, name, places = "  " * indent, visit.variable.name, self.layout.places
        tests, most, value = _tests_of(visit), 1, visit.value
        if (
            value is not None
            and value.name not in places.offsets
            and sum(1 for _ in walk(visit.ahead)) <= CHEAP_STATEMENTS
        ):
            most = VISIT_REGISTERS // places.registers.get(value.name, 1)
        yield f"{pad}const int {name}_stop = {index_text(visit.stop)};"
        begin, there = index_text(visit.start), f"{name}_base + {name}_turn * {WARP} < {name}_stop"
        yield f"{pad}for (int {name}_base = {begin}; {name}_base < {name}_stop; {name}_base += {tests * WARP}) {{"
        yield from self._hits(visit, tests, indent + 1)
        yield f"{pad}  for (int {name}_turn = 0; {name}_turn < {tests} && {there}; ++{name}_turn) {{"
        yield f"{pad}    unsigned {name}_rest = stitch_ballot({name}_hits >> {name}_turn & 1);"
        if most > MOST_VISITED_AHEAD:
            yield f"{pad}    while (__popc({name}_rest) >= {most}) {{"
            yield from self._visit_some(visit, most, True, indent + 3)
            yield f"{pad}    }}"
        yield f"{pad}    while ({name}_rest != 0) {{"
        yield from self._visit_some(visit, max(1, min(MOST_VISITED_AHEAD, most)), False, indent + 3)
        yield f"{pad}    }}"
        yield f"{pad}  }}"
        yield f"{pad}}}"

    def _visit_some(self, visit: loops.Visit, depth: int, there: bool, indent: int) -> Iterator[str]:
        """Visits the next `depth` iterations. there: whether there are so many; if there are fewer, `ahead` runs for the last one
        again, and its result is not used."""
        pad, name, value, places = "  " * indent, visit.variable.name, visit.value, self.layout.places
        here, rest = f"{name}_base + {name}_turn * {WARP} + __ffs({name}_rest) - 1", f"{name}_rest &= {name}_rest - 1;"
        if depth == 1 or value is None:
            yield from (f"{pad}const int {name} = {here};", f"{pad}{rest}")
            yield from self.body(visit.each, indent)
            return
        ctype = REGISTER_TYPE[value.dtype]
        size = "" if places.is_scalar(value.name) else f"[{places.registers[value.name]}]"
        alias = f"{pad}  {ctype} (&{value.name}){size} = {value.name}_all[{name}_step];"
        loop = (f"{pad}#pragma unroll", f"{pad}for (int {name}_step = 0; {name}_step < {depth}; ++{name}_step) {{")
        yield f"{pad}{ctype} {value.name}_all[{depth}]{size};"
        if there:
            yield from (*loop, f"{pad}  const int {name} = {here};", f"{pad}  {rest}")
        else:
            yield f"{pad}int {name}_count = 0, {name}_next = 0;"
            yield from (*loop, f"{pad}  if ({name}_rest != 0) {{")
            yield from (f"{pad}    {line}" for line in (f"{name}_next = {here};", f"++{name}_count;", rest))
            yield from (f"{pad}  }}", f"{pad}  const int {name} = {name}_next;")
        yield alias
        yield from self.body(visit.ahead, indent + 1)
        yield f"{pad}}}"
        yield from loop
        if not there:
            yield f"{pad}  if ({name}_step >= {name}_count) break;"
        yield alias
        yield from self.body(visit.body, indent + 1)
        yield f"{pad}}}"

    def _hits(self, search: loops.Find | loops.Visit, tests: int, indent: int) -> Iterator[str]:
        """Tests `tests` iterations by each thread, without a branch between their loads; bit k of `hits` is the k-th of them. Goes on
        to the next ones if there is no hit at all."""
        pad, name = "  " * indent, search.variable.name
        stop = f"{name}_stop" if isinstance(search, loops.Visit) else str(search.extent)
        last = f"{stop} - 1" if isinstance(search, loops.Visit) else str(search.extent - 1)
        yield f"{pad}unsigned {name}_hits = 0;"
        yield f"{pad}#pragma unroll"
        yield f"{pad}for (int {name}_turn = 0; {name}_turn < {tests}; ++{name}_turn) {{"
        yield f"{pad}  const int {name}_own = {name}_base + {name}_turn * {WARP} + {THREAD};"
        yield f"{pad}  const bool {name}_there = {name}_own < {stop};"
        yield f"{pad}  const int {name} = {name}_there ? {name}_own : {last};"
        yield from self.body(search.test, indent + 1)
        yield f"{pad}  if ({name}_there & {guard_text(search.guard)}) {name}_hits |= 1u << {name}_turn;"
        yield f"{pad}}}"
        yield f"{pad}if (stitch_ballot({name}_hits != 0) == 0) continue;"

    # ---- loops ------------------------------------------------------------------------------------------------------------

    def _loop(self, loop: Loop, indent: int) -> Iterator[str]:
        mapping = self.layout.mappings.get(id(loop))
        if mapping is None:
            yield from self._alike(loop, indent)
            return
        for name, array in mapping.fills.items():
            (dtype,) = (each.dtype for each in loop.body if isinstance(each, loops.Let) and each.name == name)
            yield f"{'  ' * indent}{REGISTER_TYPE[dtype]} {array}[{mapping.steps * mapping.width}];"
        writers = {
            How.STRIDED: self._strided,
            How.ROW: self._over_row,
            How.VECTORS: self._in_vectors,
            How.STRETCHES: self._by_stretches,
            How.SCAN: self._scan_loop,
        }
        yield from writers[mapping.how](mapping, indent)

    def _alike(self, loop: Loop, indent: int) -> Iterator[str]:
        """A loop that all threads of the group execute alike, or one within a thread's iteration of another loop."""
        pad, name = "  " * indent, loop.variable.name
        first, last = ends(loop)
        start, step = first, f"++{name}"
        if self.layout.together and is_row_loop(loop):
            start, step = f"{first} + group", f"{name} += {self.layout.groups}"
        yield f"{pad}for ({self._type(loop)} {name} = {start}; {name} < {last}; {step}) {{"
        yield from self.body(loop.body, indent + 1)
        yield pad + "}"

    def _strided(self, mapping: ThreadMapping, indent: int) -> Iterator[str]:
        pad, loop, name = "  " * indent, mapping.loop, mapping.loop.variable.name
        first, last = ends(loop)
        start = THREAD if first == "0" else f"{first} + {THREAD}"
        yield f"{pad}for ({self._type(loop)} {name} = {start}; {name} < {last}; {name} += {self.threads}) {{"
        yield from replace(self, mapping=mapping).body(loop.body, indent + 1)
        yield pad + "}"

    def _by_stretches(self, mapping: ThreadMapping, indent: int) -> Iterator[str]:
        """A variadic reduction's loop: each thread takes one stretch of it, in order."""
        pad, place = "  " * indent, mapping.place
        start = f"{THREAD} * {mapping.stretch}"
        last = f"{mapping.loop.extent} && {place} < ({THREAD} + 1) * {mapping.stretch}"
        step = f"{place} += {mapping.width}" if mapping.width > 1 else f"++{place}"
        yield f"{pad}for (int {place} = {start}; {place} < {last}; {step}) {{"
        yield from self._step(mapping, "int", "aligned", indent + 1)
        yield f"{pad}}}"

    def _combined(self, scan: loops.Scan, before: str) -> str:
        ctype = REGISTER_TYPE[scan.accumulator]
        return f"({ctype})({cpp_combine(scan.kind, scan.accumulator, f'({ctype}){before}', f'({ctype}){scan.value}')})"

    def _rounded(self, scan: loops.Scan, value: str) -> str:
        return round_text(scan.dtype, f"({REGISTER_TYPE[scan.dtype]}){value}")

    def _scan_loop(self, mapping: ThreadMapping, indent: int) -> Iterator[str]:
        """A scan of a row: as many elements at once as the group has threads."""
        inside, loop = replace(self, mapping=mapping), mapping.loop
        pad, name = "  " * indent, loop.variable.name
        (place,) = (i for i, statement in enumerate(loop.body) if isinstance(statement, loops.Scan))
        scan = loop.body[place]
        assert isinstance(scan, loops.Scan)
        ctype, wide = REGISTER_TYPE[scan.accumulator], scan.accumulator
        identity = literal_text(wide, reduce_identity(scan.kind, wide))
        combined = (
            f"[](const {ctype} a, const {ctype} b) {{ return ({ctype})({cpp_combine(scan.kind, wide, 'a', 'b')}); }}"
        )
        total = self._element(scan.local, scan.index)
        yield f"{pad}for (int {name}_base = 0; {name}_base < {loop.extent}; {name}_base += {self.threads}) {{"
        yield f"{pad}  const int {name} = {name}_base + {THREAD};"
        yield f"{pad}  {ctype} {scan.name}_value = {identity}, {scan.name}_all;"
        yield f"{pad}  if ({name} < {loop.extent}) {{"
        yield from inside.body(loop.body[:place], indent + 2)
        yield f"{pad}    {scan.name}_value = {scan.value};"
        yield f"{pad}  }}"
        group = f"stitch_group_scan<{self.threads}>({scan.name}_value, {scan.name}_all, {combined}, reduce_shared)"
        own = f"{scan.name}_sum"
        yield f"{pad}  const {ctype} {scan.name}_here = {group};"
        yield f"{pad}  const {ctype} {own} = {self._combined(replace(scan, value=f'{scan.name}_here'), total)};"
        yield f"{pad}  {total} = {self._combined(replace(scan, value=f'{scan.name}_all'), total)};"
        yield f"{pad}  if ({name} < {loop.extent}) {{"
        yield f"{pad}    const {REGISTER_TYPE[scan.dtype]} {scan.name} = {self._rounded(scan, own)};"
        yield from inside.body(loop.body[place + 1 :], indent + 2)
        yield f"{pad}  }}"
        yield f"{pad}}}"

    def _in_vectors(self, mapping: ThreadMapping, indent: int) -> Iterator[str]:
        """A loop over a task's elements: by vectors as far as they go, and the remainder element by element. If a buffer's address
        is not aligned to a vector, a loop that only computes elements runs element by element altogether, which is faster; a sum
        keeps its order."""
        pad, loop, name, base, width = (
            "  " * indent,
            mapping.loop,
            mapping.loop.variable.name,
            mapping.place,
            mapping.width,
        )
        assert mapping.vectors is not None
        ctype, (first, last) = self._type(loop), ends(loop)
        end, aligned = f"{first} + ({last} - {first}) / {width} * {width}" if loop.bounds else last, "aligned"
        if loop.kind is LoopKind.SIMD:
            end, aligned = f"aligned ? {end} : {first}", "true"
        yield f"{pad}const {ctype} whole = {end};"
        start = f"{f'{first} + ' if loop.bounds else ''}{THREAD} * {width}"
        at_once = mapping.ahead
        if loop.kind is LoopKind.SIMD and (loop.bounds or loop.extent > at_once * self.threads * width):
            yield f"{pad}#pragma unroll 1"  # what is loaded together is so already; the code would only be longer
        yield f"{pad}for ({ctype} {base} = {start}; {base} < whole; {base} += {at_once * self.threads * width}) {{"
        yield from self._steps(mapping, ctype, aligned, indent + 1, at_once)
        yield f"{pad}}}"
        yield f"{pad}for ({ctype} {name} = whole + {THREAD}; {name} < {last}; {name} += {self.threads}) {{"
        yield from replace(self, mapping=mapping).body(loop.body, indent + 1)
        yield f"{pad}}}"

    def _step(self, mapping: ThreadMapping, ctype: str, aligned: str, indent: int) -> Iterator[str]:
        """What a thread does in one step: the body, for each element of a vector, the first at `mapping.place`. aligned:
        whether all addresses are aligned to a vector."""
        if mapping.vectors is None:
            yield from replace(self, mapping=mapping).body(mapping.loop.body, indent)
        else:
            yield from self._steps(mapping, ctype, aligned, indent, 1)

    def _steps(self, mapping: ThreadMapping, ctype: str, aligned: str, indent: int, at_once: int) -> Iterator[str]:
        """Some steps of a thread. It loads their vectors before it works on the first: the compiler would not move a load before a
        store, which may be to the same memory (but then to the same element)."""
        pad, loop, width = "  " * indent, mapping.loop, mapping.width
        assert mapping.vectors is not None
        steps = [mapping.vectors.of_step(number) for number in range(at_once)]
        for number, vectors in enumerate(steps):
            if number:
                yield f"{pad}const {ctype} {vectors.base.name} = {mapping.place} + {number * self.threads * width};"
            for let, load in vectors.loads.items():
                ctype_of, place = STORAGE_TYPE[load.dtype], index_text(vectors.first_place(loop, load.index))
                name = f"{let}_vector{vectors.suffix}"
                yield f"{pad}STITCH_LOAD_NEIGHBOURS({ctype_of}, {width}, {name}, b{load.buffer}, {place}, {aligned});"
        for vectors in steps:
            if at_once > 1:
                yield f"{pad}{{"
            yield from self._vector_step(replace(mapping, vectors=vectors), ctype, aligned, indent + (at_once > 1))
            if at_once > 1:
                yield f"{pad}}}"

    def _vector_step(self, mapping: ThreadMapping, ctype: str, aligned: str, indent: int) -> Iterator[str]:
        """What a thread does with the vectors of one step."""
        pad, loop, width, vectors = "  " * indent, mapping.loop, mapping.width, mapping.vectors
        assert vectors is not None
        for number, store in enumerate(vectors.stores):
            yield f"{pad}StitchVector<{STORAGE_TYPE[store.dtype]}, {width}> stored{number};"
        yield f"{pad}#pragma unroll"
        yield f"{pad}for (int element = 0; element < {width}; ++element) {{"
        yield f"{pad}  const {ctype} {loop.variable.name} = {vectors.base.name} + element;"
        yield from replace(self, mapping=mapping, vectors=vectors).body(loop.body, indent + 1)
        yield f"{pad}}}"
        for number, store in enumerate(vectors.stores):
            ctype_of, place = STORAGE_TYPE[store.dtype], index_text(vectors.first_place(loop, store.index))
            yield f"{pad}STITCH_STORE_NEIGHBOURS({ctype_of}, {width}, b{store.buffer}, {place}, stored{number}, {aligned});"

    def _over_row(self, mapping: ThreadMapping, indent: int) -> Iterator[str]:
        """A distributed loop over a row. If it works on arrays of registers, its steps are unrolled, so that the compiler knows
        each index and keeps the array in registers."""
        pad, extent, place, width, threads = (
            "  " * indent,
            mapping.loop.extent,
            mapping.place,
            mapping.width,
            self.threads,
        )
        guarded = mapping.unrolled and mapping.is_guarded
        if mapping.unrolled:
            step = f"{mapping.loop.variable.name}_turn"
            first = THREAD if mapping.steps == 1 else f"{THREAD} + {step} * {threads}"
            if mapping.steps == 1:
                yield f"{pad}{{"
            else:
                yield f"{pad}#pragma unroll"
                yield f"{pad}for (int {step} = 0; {step} < {mapping.steps}; ++{step}) {{"
            if width > 1:
                first = f"{THREAD if mapping.steps == 1 else f'({first})'} * {width}"
            yield f"{pad}  const int {place} = {first};"
            if guarded:
                yield f"{pad}  if ({place} < {extent}) {{"
        else:
            yield f"{pad}for (int {place} = {THREAD} * {width}; {place} < {extent}; {place} += {threads * width}) {{"
        yield from self._step(mapping, "int", "aligned", indent + 1 + guarded)
        if guarded:
            yield f"{pad}  }}"
        yield f"{pad}}}"
