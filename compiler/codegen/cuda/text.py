"""CUDA text of a nest's body: the same loops as for the CPU, done by a group of threads.

    Loop SIMD, LANES        its iterations are distributed to the group's threads: thread n takes n, n + T, n + 2T, ...; or neighbours
    Loop FOLD               each thread takes one stretch of them
    Loop SCAN               neighbouring threads take neighbouring iterations, which they scan together; then the next ones
    every other statement   all threads of the group do it alike, on registers of their own
    a write there           thread 0 does it
    Collapse, Fold          the threads' accumulators combined by shuffles, and by shared memory where the group is a block

A local array that distributed iterations touch is in shared memory; one that only the statements around them touch is each thread's
own. A row that fits is kept in registers: where every loop deals out an array's elements alike, each thread holds its own; and an
element of a tensor that several loops over the row read is loaded once.

After a statement that touches what threads share (such an array, or memory that the nest both writes and reads), the group's threads
wait for each other, unless each thread only ever touches elements of its own (`Use.is_owned`): so what one wrote is there for the
others, and nothing is overwritten that another has yet to read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...ir.graph import DType
from ...loops import loops
from ...loops.loops import Local, Loop, LoopKind, NestCode, Statement
from ...ops.c_text import cpp_combine
from ...ops.reference import reduce_identity
from ...ops.table import REGISTER_TYPE, STORAGE_TYPE, literal_text, load_text, round_text, store_text
from ..c.text import index_text, is_wide_variable
from .places import MOST_TURNS, REDUCE_BYTES, THREAD
from .reduction import TogetherWriter
from .survey import Element, is_distributed, is_interleaved, is_row_loop, place_of
from .vectors import Vectors, fold_width, row_vectors, vectors_of


@dataclass
class _Kept:
    """An array of registers that holds what one loop has loaded for the loops after it."""

    name: str
    is_filled: bool = False


def aligned_text(buffers: Mapping[int, int]) -> str:
    """Whether the buffers' addresses are multiples of so many bytes."""
    return " & ".join(f"((unsigned long long)p{buffer} % {size} == 0)" for buffer, size in sorted(buffers.items()))


class CudaWriter(TogetherWriter):
    """Renders one nest's body for groups of `threads` threads. `shared_bytes`: what its locals take, for one group, after `body`."""

    def __init__(self, nest: NestCode, threads: int, groups: int) -> None:
        super().__init__(nest, threads, groups)
        self.aligned: dict[int, int] = {}
        """What buffers' addresses have to be multiples of for the nest's function to be the one with vectors."""
        self._vectors: Vectors | None = None  # of the loop that is being written
        self._loop_of: Loop | None = None
        self._kept: dict[Element, _Kept] = {}
        self._kept_count = 0

    # ---- a row in registers -----------------------------------------------------------------------------------------------

    def _find_repeated(self, statements: Sequence[Statement]) -> dict[Element, _Kept]:
        """The elements that several of these statements, distributed loops, load alike."""
        readers: dict[Element, set[int]] = {}
        dtypes: dict[Element, DType] = {}
        for number, loop in enumerate(statements):
            if isinstance(loop, Loop) and is_interleaved(loop):
                for statement in loop.body:
                    element = self._element_loaded(statement, loop)
                    if element is not None and isinstance(statement, loops.Let):
                        readers.setdefault(element, set()).add(number)
                        dtypes[element] = statement.dtype
        found = {}
        for element, where in readers.items():
            if len(where) > 1 and self._take(self._slots(element[2]), dtypes[element]):
                self._kept_count += 1
                found[element] = _Kept(f"kept{self._kept_count}")
        return found

    def _element_loaded(self, statement: Statement, loop: Loop) -> Element | None:
        """What a loop's statement loads, if that is the same whenever it is loaded in the nest."""
        if not isinstance(statement, loops.Let) or not isinstance(statement.value, loops.Load):
            return None
        load = statement.value
        made_here = {each.variable for each in loop.body if isinstance(each, loops.LetIndex)}
        if load.guard or load.buffer in self.survey.written or load.index.variables & made_here:
            return None
        return (load.buffer, place_of(load.index, loop), loop.extent) if loop.variable in load.index.variables else None

    def _is_unrolled(self, loop: Loop) -> bool:
        """Whether a distributed loop's turns are to be known one by one, since it works on arrays of registers, say."""

        def touches(each: Statement) -> bool:
            if isinstance(each, loops.Let):
                return isinstance(each.value, loops.LoadLocal) and each.value.local in self._in_registers
            if isinstance(each, loops.Assign | loops.Combine | loops.Scan):
                return each.local in self._in_registers
            return isinstance(each, Loop | loops.Blocks | loops.If) and any(map(touches, each.body))

        kept = any(self._element_loaded(each, loop) in self._kept for each in loop.body)
        return kept or any(map(touches, loop.body)) or self._is_copied_at_once(loop)

    def _is_copied_at_once(self, loop: Loop) -> bool:
        """Whether all it does is to bring elements to shared memory, each thread a few: so that it asks for all before it waits for
        one."""
        brought = [each for each in loop.body if isinstance(each, loops.Assign)]
        plain = all(
            isinstance(each, loops.Assign | loops.LetIndex)
            or (isinstance(each, loops.Let) and isinstance(each.value, loops.Load | loops.FromIndex))
            for each in loop.body
        )
        return plain and bool(brought) and loop.extent % self.threads == 0 and self._turns(loop) <= MOST_TURNS

    def body(self, statements: Sequence[Statement], indent: int) -> Iterator[str]:
        outer = self._kept
        if not self._dealt:
            self._kept = {**outer, **self._find_repeated(statements)}
        for statement in statements:
            yield from self._declare_kept(statement, indent)
            yield from self.statement(statement, indent)
            whole = not isinstance(statement, Loop | loops.Blocks | loops.If) or (
                isinstance(statement, Loop) and is_distributed(statement)
            )
            if not self._dealt and whole and self.threads > 1 and self._shares(statement):
                yield f"{'  ' * indent}stitch_group_sync<{self.threads}>();"
        self._kept = outer

    def _declare_kept(self, statement: Statement, indent: int) -> Iterator[str]:
        """The arrays of registers that a loop is the first to fill."""
        if self._dealt or not isinstance(statement, Loop) or not is_distributed(statement):
            return
        for each in statement.body:
            element = self._element_loaded(each, statement)
            if element in self._kept and not self._kept[element].is_filled and isinstance(each, loops.Let):
                slots = self._slots(statement.extent)
                yield f"{'  ' * indent}{REGISTER_TYPE[each.dtype]} {self._kept[element].name}[{slots}];"

    def _kept_load(self, statement: loops.Let, pad: str) -> Iterator[str] | None:
        """A load that an earlier loop has made, or that later ones will want; None for any other statement."""
        if self._loop_of is None or not self._slot:
            return None
        element = self._element_loaded(statement, self._loop_of)
        if element is None or element not in self._kept:
            return None
        kept, ctype = self._kept[element], REGISTER_TYPE[statement.dtype]
        if kept.is_filled:
            return iter([f"{pad}const {ctype} {statement.name} = {kept.name}[{self._slot}];"])
        value = self.value(statement.dtype, statement.value)
        lines = [
            f"{pad}const {ctype} {statement.name} = {value};",
            f"{pad}{kept.name}[{self._slot}] = {statement.name};",
        ]
        return iter(lines)

    # ---- statements -------------------------------------------------------------------------------------------------------

    def value(self, dtype: DType, value: loops.Value) -> str:
        if self._vectors is not None and isinstance(value, loops.Load):
            for name, load in self._vectors.loads.items():
                if load is value:
                    return load_text(dtype, f"{name}_vector.value[element]")
        if isinstance(value, loops.LoadLocal) and (
            self._is_scalar(value.local) or value.local in self._in_registers or self._lies_by_threads(value.local)
        ):
            return self._element(value.local, value.index)
        return super().value(dtype, value)

    def statement(self, statement: Statement, indent: int) -> Iterator[str]:
        pad = "  " * indent
        kept = self._kept_load(statement, pad) if isinstance(statement, loops.Let) else None
        if kept is not None:
            yield from kept
        elif self._vectors is not None and statement in self._vectors.stores and isinstance(statement, loops.Store):
            number = self._vectors.stores.index(statement)
            yield f"{pad}stored{number}.value[element] = {store_text(statement.dtype, statement.value)};"
        elif isinstance(statement, loops.Store | loops.Update):
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
        else:
            yield from super().statement(statement, indent)

    def _combined(self, scan: loops.Scan, before: str) -> str:
        ctype = REGISTER_TYPE[scan.accumulator]
        return f"({ctype})({cpp_combine(scan.kind, scan.accumulator, f'({ctype}){before}', f'({ctype}){scan.value}')})"

    def _rounded(self, scan: loops.Scan, value: str) -> str:
        return round_text(scan.dtype, f"({REGISTER_TYPE[scan.dtype]}){value}")

    def _scan_loop(self, loop: Loop, indent: int) -> Iterator[str]:
        """A scan of a row: as many elements at once as the group has threads."""
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
        self.reduces = max(self.reduces, 1)
        yield f"{pad}for (int {name}_base = 0; {name}_base < {loop.extent}; {name}_base += {self.threads}) {{"
        yield f"{pad}  const int {name} = {name}_base + {THREAD};"
        yield f"{pad}  {ctype} {scan.name}_value = {identity}, {scan.name}_all;"
        yield f"{pad}  if ({name} < {loop.extent}) {{"
        self._dealt = True
        yield from self.body(loop.body[:place], indent + 2)
        yield f"{pad}    {scan.name}_value = {scan.value};"
        yield f"{pad}  }}"
        group = f"stitch_group_scan<{self.threads}>({scan.name}_value, {scan.name}_all, {combined}, reduce_shared)"
        own = f"{scan.name}_sum"
        yield f"{pad}  const {ctype} {scan.name}_here = {group};"
        yield f"{pad}  const {ctype} {own} = {self._combined(replace(scan, value=f'{scan.name}_here'), total)};"
        yield f"{pad}  {total} = {self._combined(replace(scan, value=f'{scan.name}_all'), total)};"
        yield f"{pad}  if ({name} < {loop.extent}) {{"
        yield f"{pad}    const {REGISTER_TYPE[scan.dtype]} {scan.name} = {self._rounded(scan, own)};"
        yield from self.body(loop.body[place + 1 :], indent + 2)
        self._dealt = False
        yield f"{pad}  }}"
        yield f"{pad}}}"

    def _by_one(self, lines: Iterator[str], pad: str) -> Iterator[str]:
        """What all threads come to is done by the group's first."""
        for line in lines:
            yield line if self._dealt or self.threads == 1 else f"{pad}if ({THREAD} == 0) {line.lstrip()}"

    def _local_write(self, name: str, line: str, pad: str) -> Iterator[str]:
        if name in self._shared:
            yield from self._by_one(iter([line]), pad)
        else:
            yield line

    def _local(self, statement: Local, pad: str) -> Iterator[str]:
        name, ctype, use = statement.name, REGISTER_TYPE[statement.dtype], self.survey.locals[statement.name]
        identity = ""
        if statement.kind is not None:
            identity = literal_text(statement.dtype, reduce_identity(statement.kind, statement.dtype))
        if name in self._shared:
            yield f"{pad}STITCH_SHARED({ctype}, {name}, group_shared + {self.offsets[name]}, {self._room(name)});"
            if identity:
                yield f"{pad}for (int i = {THREAD}; i < {self._room(name)}; i += {self.threads}) {name}[i] = {identity};"
        elif name in self._in_registers:
            turns = self._in_registers[name]
            yield f"{pad}{ctype} {name}[{turns}];"
            if identity:
                yield f"{pad}for (int i = 0; i < {turns}; ++i) {name}[i] = {identity};"
        elif use.collapsed or statement.size == 1:
            yield f"{pad}{ctype} {name}{f' = {identity}' if identity else ''};"
        else:
            yield f"{pad}{ctype} {name}[{statement.size}];"
            if identity:
                yield f"{pad}for (int i = 0; i < {statement.size}; ++i) {name}[i] = {identity};"

    def _collapse(self, statement: loops.Collapse, pad: str) -> Iterator[str]:
        ctype, local = REGISTER_TYPE[statement.dtype], statement.local
        if not self.survey.locals[local].by_lanes or self.threads == 1:
            yield f"{pad}const {ctype} {statement.name} = {local};"
            return
        self.reduces = max(self.reduces, 1)
        combined = cpp_combine(statement.kind, statement.dtype, "a", "b")
        yield (
            f"{pad}const {ctype} {statement.name} = stitch_group_reduce<{self.threads}>("
            f"{local}, [](const {ctype} a, const {ctype} b) {{ return ({ctype})({combined}); }}, reduce_shared);"
        )

    def _fold(self, statement: loops.Fold, indent: int) -> Iterator[str]:
        """A variadic reduction's accumulators, of all threads, in the order of their stretches: within a warp by exchanges between
        ever longer runs of threads, then over a block's warps. Every thread has the same after."""
        if self.threads == 1:
            return
        pad, warp = "  " * indent, min(self.threads, 32)
        types = [REGISTER_TYPE[dtype] for dtype in statement.dtypes]
        rows = list(zip(types, statement.locals, statement.others, strict=True))
        yield f"{pad}for (int distance = 1; distance < {warp}; distance *= 2) {{"
        yield f"{pad}  const bool second = ({THREAD} & distance) != 0;"
        for (ctype, local, other), own in zip(rows, statement.own, strict=True):
            yield f"{pad}  const {ctype} {local}_far = stitch_shuffle_xor<{warp}>({local}, distance);"
            yield f"{pad}  const {ctype} {own} = second ? {local}_far : {local};"
            yield f"{pad}  const {ctype} {other} = second ? {local} : {local}_far;"
        yield from self._fold_step(statement, indent + 1)
        yield f"{pad}}}"
        if self.threads <= 32:
            return
        self.reduces = max(self.reduces, len(rows))
        parts = [f"{local}_parts" for local in statement.locals]
        for k, (ctype, local, _) in enumerate(rows):
            place = f"reduce_shared + {k * REDUCE_BYTES}"
            yield f"{pad}STITCH_SHARED({ctype}, {parts[k]}, {place}, {self.threads // 32});"
            yield f"{pad}if ({THREAD} % 32 == 0) {parts[k]}[{THREAD} / 32] = {local};"
        yield f"{pad}__syncthreads();"
        yield from (f"{pad}{local} = {part}[0];" for local, part in zip(statement.locals, parts, strict=True))
        yield f"{pad}for (int warp = 1; warp < {self.threads // 32}; ++warp) {{"
        for (ctype, local, other), own, part in zip(rows, statement.own, parts, strict=True):
            yield f"{pad}  const {ctype} {own} = {local};"
            yield f"{pad}  const {ctype} {other} = {part}[warp];"
        yield from self._fold_step(statement, indent + 1)
        yield f"{pad}}}"
        yield f"{pad}__syncthreads();"

    def _fold_step(self, statement: loops.Fold, indent: int) -> Iterator[str]:
        pad = "  " * indent
        for inner in statement.body:
            yield from super().statement(inner, indent)
        for local, result in zip(statement.locals, statement.results, strict=True):
            yield f"{pad}{local} = {result};"

    def _loop(self, loop: Loop, indent: int) -> Iterator[str]:
        pad, name = "  " * indent, loop.variable.name
        ctype = "long long" if is_wide_variable(loop.variable) else "int"
        first, last = loop.bounds if loop.bounds else ("0", str(loop.extent))
        deal = is_distributed(loop) and not self._dealt
        if deal and loop.kind is LoopKind.SCAN:
            yield from self._scan_loop(loop, indent)
            return
        vectors = None
        if deal and is_interleaved(loop) and (self._is_unrolled(loop) or self._width(loop.extent) > 1):
            if not self.one_by_one:
                yield from self._over_row(loop, indent)
                return
            vectors = row_vectors(loop, self._width(loop.extent))
        elif deal:
            vectors = vectors_of(loop, self.nest, self.threads)
        if vectors is not None:
            yield from self._in_vectors(loop, vectors, ctype, indent)
            return
        start, step = (THREAD if first == "0" else f"{first} + {THREAD}", f"{name} += {self.threads}")
        if not deal:
            start, step = first, f"++{name}"
        if deal and loop.kind is LoopKind.FOLD and self.threads > 1:
            yield from self._by_stretches(loop, indent)
            return
        if self.together and is_row_loop(loop):
            start, step = f"{first} + group", f"{name} += {self.groups}"
        yield f"{pad}for ({ctype} {name} = {start}; {name} < {last}; {step}) {{"
        self._dealt = self._dealt or deal
        yield from self.body(loop.body, indent + 1)
        self._dealt = self._dealt and not deal
        yield pad + "}"

    def _by_stretches(self, loop: Loop, indent: int) -> Iterator[str]:
        """A variadic reduction's loop, each thread taking one stretch of it, in order."""
        pad, name, width = "  " * indent, loop.variable.name, fold_width(loop, self.threads)
        vectors = row_vectors(loop, width)
        place = vectors.base.name if width > 1 else name
        stretch = -(-loop.extent // (self.threads * width)) * width
        start, last = f"{THREAD} * {stretch}", f"{loop.extent} && {place} < ({THREAD} + 1) * {stretch}"
        step = f"{place} += {width}" if width > 1 else f"++{place}"
        yield f"{pad}for (int {place} = {start}; {place} < {last}; {step}) {{"
        self._dealt = True
        if width > 1:
            self._must_be_aligned(vectors)
            yield from self._neighbours(loop, vectors, "int", "aligned", indent + 1)
        else:
            yield from self.body(loop.body, indent + 1)
        self._dealt = False
        yield f"{pad}}}"

    def _in_vectors(self, loop: Loop, vectors: Vectors, ctype: str, indent: int) -> Iterator[str]:
        """A loop over a task's elements by vectors, as far as they go, and the rest by elements. Where a buffer's address is not a
        vector's, one that only computes elements goes by elements altogether, which is faster; a sum keeps its order."""
        pad, name, base, width = "  " * indent, loop.variable.name, vectors.base.name, vectors.width
        first, last = loop.bounds or ("0", str(loop.extent))
        end, aligned = f"{first} + ({last} - {first}) / {width} * {width}" if loop.bounds else last, "aligned"
        if loop.kind is LoopKind.SIMD:
            end, aligned = f"{aligned_text(vectors.buffers)} ? {end} : {first}", "true"
        else:
            self._must_be_aligned(vectors)
        self._dealt = True
        yield f"{pad}const {ctype} whole = {end};"
        start = f"{f'{first} + ' if loop.bounds else ''}{THREAD} * {width}"
        step = f"{base} += {self.threads * width}"
        yield f"{pad}for ({ctype} {base} = {start}; {base} < whole; {step}) {{"
        yield from self._neighbours(loop, vectors, ctype, aligned, indent + 1)
        yield f"{pad}}}"
        yield f"{pad}for ({ctype} {name} = whole + {THREAD}; {name} < {last}; {name} += {self.threads}) {{"
        yield from self.body(loop.body, indent + 1)
        yield f"{pad}}}"
        self._dealt = False

    def _must_be_aligned(self, vectors: Vectors) -> None:
        for buffer, size in vectors.buffers.items():
            self.aligned[buffer] = max(size, self.aligned.get(buffer, 1))

    def _neighbours(self, loop: Loop, vectors: Vectors, ctype: str, aligned: str, indent: int) -> Iterator[str]:
        """The body for a vector's elements, from the one on that the vectors' variable names. aligned: whether all addresses are a
        vector's."""
        pad, name, width = "  " * indent, loop.variable.name, vectors.width
        for let, load in vectors.loads.items():
            ctype_of, place = STORAGE_TYPE[load.dtype], index_text(vectors.first_place(loop, load.index))
            yield f"{pad}STITCH_LOAD_NEIGHBOURS({ctype_of}, {width}, {let}_vector, b{load.buffer}, {place}, {aligned});"
        for number, store in enumerate(vectors.stores):
            yield f"{pad}StitchVector<{STORAGE_TYPE[store.dtype]}, {width}> stored{number};"
        yield f"{pad}#pragma unroll"
        yield f"{pad}for (int element = 0; element < {width}; ++element) {{"
        yield f"{pad}  const {ctype} {name} = {vectors.base.name} + element;"
        self._vectors = vectors
        yield from self.body(loop.body, indent + 1)
        self._vectors = None
        yield f"{pad}}}"
        for number, store in enumerate(vectors.stores):
            ctype_of, place = STORAGE_TYPE[store.dtype], index_text(vectors.first_place(loop, store.index))
            yield f"{pad}STITCH_STORE_NEIGHBOURS({ctype_of}, {width}, b{store.buffer}, {place}, stored{number}, {aligned});"

    def _over_row(self, loop: Loop, indent: int) -> Iterator[str]:
        """A distributed loop over a row. Where it works on arrays of registers, its turns are such that the compiler can tell them
        apart: indexed by a turn they are registers."""
        pad, name, width = "  " * indent, loop.variable.name, self._width(loop.extent)
        vectors = self._not_kept(row_vectors(loop, width), loop) if width > 1 else None
        place = name if vectors is None else vectors.base.name
        unrolled, turns, guarded = self._is_unrolled(loop), self._turns(loop), False
        if unrolled:
            turn = f"{name}_turn"
            first = f"{THREAD} + {turn} * {self.threads}"
            self._slot = turn if width == 1 else f"{turn} * {width} + element"
            guarded = loop.extent != turns * self.threads * width
            if turns == 1:
                first, self._slot = THREAD, "0" if width == 1 else "element"
                yield f"{pad}{{"
            else:
                yield f"{pad}#pragma unroll"
                yield f"{pad}for (int {turn} = 0; {turn} < {turns}; ++{turn}) {{"
            if width > 1:
                first = f"{THREAD if turns == 1 else f'({first})'} * {width}"
            yield f"{pad}  const int {place} = {first};"
            if guarded:
                yield f"{pad}  if ({place} < {loop.extent}) {{"
        else:
            start = f"{THREAD} * {width}"
            yield f"{pad}for (int {place} = {start}; {place} < {loop.extent}; {place} += {self.threads * width}) {{"
        self._dealt, self._loop_of = True, loop
        self._own_place = f"{place} - {THREAD} * {width - 1} + element * {self.threads}"
        if vectors is None:
            yield from self.body(loop.body, indent + 1 + guarded)
        else:
            self._must_be_aligned(vectors)
            yield from self._neighbours(loop, vectors, "int", "aligned", indent + 1 + guarded)
        self._dealt, self._slot, self._loop_of = False, "", None
        for each in loop.body:
            element = self._element_loaded(each, loop)
            if unrolled and element in self._kept:
                self._kept[element].is_filled = True
        if guarded:
            yield f"{pad}  }}"
        yield f"{pad}}}"

    def _not_kept(self, vectors: Vectors, loop: Loop) -> Vectors:
        """Those of the vectors that are not in registers already."""
        filled = {element for element, kept in self._kept.items() if kept.is_filled}
        there = {
            each.name
            for each in loop.body
            if isinstance(each, loops.Let) and self._element_loaded(each, loop) in filled
        }
        return replace(vectors, loads={name: load for name, load in vectors.loads.items() if name not in there})
