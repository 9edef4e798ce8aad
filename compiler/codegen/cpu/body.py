"""C++ text of a nest's body, for one core's vector unit: each loop in the form that `forms` has chosen for it."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

from ...ir.graph import DType
from ...ir.index_maps import Index, Var
from ...loops import loops
from ...loops.loops import Loop, LoopKind, Statement
from ...ops.c_text import REGISTER_TYPE, STORAGE_TYPE, cpp_combine, literal_text, round_text
from ...ops.reference import reduce_identity
from ..c.text import ends, index_text, variable_type
from ..c.writer import Writer
from . import forms, narrow
from .forms import DRAWN_AT_ONCE, DRAWN_ROOM, LANE, ROWS_ADDED_AT_ONCE, SQUARE, Ahead, Draw, Facts, Squares, Strips
from .masks import without_conditions

CAPACITY: Final = "STITCH_CAPACITY"
"""Marks the size of a local in a text for many shapes: `CAPACITY(128)`."""
ZERO_NAME: Final = "zero"
ZERO_LINE: Final = f'int {ZERO_NAME} = 0; __asm__("" : "+r"({ZERO_NAME}));'
"""A zero whose value the compiler does not know. If g++ 12 knows the mask of a masked load, it makes a blend with memory
(vpblendd), which reads the masked lanes too, outside of the tensor. This zero is added to the bounds of guarded accesses, so that
no mask is known."""
PLUS_ZERO: Final = f" + {ZERO_NAME}"
NAN: Final = "_nan"
"""Suffix of the name of the flags beside a maximum's lanes (`forms.extremes_of`)."""
LAST: Final = "_last"
"""Suffix of the name of an array of values that the last iterations have computed together (`forms.last_together`)."""
REST: Final = "_rest"
"""Suffix of the name of the accumulator that a loop's remainder has of its own (`forms.rests_of`)."""
ROWS_OF_GROUP: Final = "(int)(group_last - group_first)"
CACHE_LINE: Final = 64
SCANNED_AT_ONCE: Final = 1024
"""A scan by lanes checks after this many elements whether it came near an overflow."""
SCAN_STEP: Final = {
    "sum": "StitchSum",
    "product": "StitchProduct",
    "max": "StitchMax",
    "min": "StitchMin",
    "and": "StitchAnd",
    "or": "StitchOr",
}
_PLACE: Final = Index.of_var(Var("place", SQUARE * SQUARE))


def _is_max(kind: str) -> str:
    return "true" if kind == "max" else "false"


@dataclass(frozen=True)
class CpuWriter(Writer):
    """Renders the statements of a nest. rests: the result of `forms.rests_of` for the statements that it is writing. extremes: the
    results of `forms.extremes_of` for these and those around them. ahead: what the current pass over a row prefetches."""

    bound_plus: ClassVar[str] = PLUS_ZERO
    facts: Facts
    rests: Mapping[str, int] = field(default_factory=dict)
    extremes: frozenset[str] = frozenset()
    ahead: Ahead | None = None

    def body(self, statements: Sequence[Statement], indent: int) -> Iterator[str]:
        """The lines of `statements` in C++, indented by `indent` steps of two spaces."""
        rests = {} if self.facts.for_many_shapes else forms.rests_of(statements)
        here = replace(self, rests=rests, extremes=self.extremes | forms.extremes_of(statements))
        for statement in statements:
            yield from here.statement(statement, indent)

    def statement(self, statement: Statement, indent: int) -> Iterator[str]:
        """The lines of one statement."""
        pad = "  " * indent
        if isinstance(statement, loops.Local):
            yield from self._local(statement, pad)
        elif isinstance(statement, loops.Assign):
            yield f"{pad}{statement.local}[{index_text(statement.index)}] = {statement.value};"
        elif isinstance(statement, loops.Combine):
            place = "lane" if statement.index is None else index_text(statement.index)
            target = f"{statement.local}[{place}]"
            if statement.kind == "replace":
                yield f"{pad}{target} = {statement.value};"
                return
            if statement.local in self.extremes:
                yield f"{pad}stitch_extreme<{_is_max(statement.kind)}>({target}, {statement.local}{NAN}[{place}], {statement.value});"
                return
            yield f"{pad}{target} = {cpp_combine(statement.kind, statement.dtype, target, statement.value)};"
        elif isinstance(statement, loops.Collapse):
            yield from self._collapse(statement, pad)
        elif isinstance(statement, loops.Scan):
            yield from self._scan(statement, pad)
        elif isinstance(statement, loops.Product):
            yield from self._product(statement, pad)
        elif isinstance(statement, loops.Turn):
            down, along = (ROWS_OF_GROUP if size is None else size for size in (statement.down, statement.along))
            to = f"{statement.local} + ({index_text(statement.place)}), {statement.pitch}"
            source = f"b{statement.buffer} + ({index_text(statement.index)}), {statement.stride}ll"
            yield f"{pad}stitch_turn({to}, {source}, {down}, {along});"
        elif isinstance(statement, loops.TurnBack):
            to = f"b{statement.buffer} + ({index_text(statement.index)}), {statement.pitch}ll"
            source = f"{statement.local}, {statement.stride}"
            yield f"{pad}stitch_turn({to}, {source}, {ROWS_OF_GROUP}, {statement.along});"
        elif isinstance(statement, loops.Fold):
            return  # one worker runs the whole loop
        elif isinstance(statement, Loop):
            yield from self._loop(statement, indent)
        else:
            yield from super().statement(statement, indent)

    def _local(self, statement: loops.Local, pad: str) -> Iterator[str]:
        ctype = REGISTER_TYPE[statement.dtype]
        aligned = "__attribute__((aligned(64))) " if statement.size > 1 else ""
        size = f"{CAPACITY}({statement.size})" if self.facts.for_many_shapes else str(statement.size)
        yield f"{pad}{aligned}{ctype} {statement.name}[{size}];"
        if statement.kind is not None:
            identity = literal_text(statement.dtype, reduce_identity(statement.kind, statement.dtype))
            yield f"{pad}for (int i = 0; i < {statement.size}; ++i) {statement.name}[i] = {identity};"
        if statement.name in self.extremes:
            yield f"{pad}{aligned}int {statement.name}{NAN}[{size}] = {{}};"

    def _collapse(self, statement: loops.Collapse, pad: str) -> Iterator[str]:
        ctype = REGISTER_TYPE[statement.dtype]
        combine = f"[](auto a, auto b) {{ return {cpp_combine(statement.kind, statement.dtype, 'a', 'b')}; }}"
        # The text of an integer's maximum or minimum can be applied to vectors.
        vectors = ", true" if statement.kind in ("max", "min") and ctype in ("int", "unsigned") else ""
        folded = f"stitch_fold<{statement.lanes}{vectors}>({statement.local}, {combine})"
        if statement.kind in ("max", "min") and ctype == "float":
            flags = f", {statement.local}{NAN}" if statement.local in self.extremes else ""
            folded = f"stitch_fold_extreme<{statement.lanes}, {_is_max(statement.kind)}>({statement.local}{flags})"
        rest = self.rests.get(statement.local)
        if rest:
            whole, of_rest = f"{statement.name}_whole", f"{statement.name}{REST}"
            yield f"{pad}const {ctype} {whole} = {folded};"
            yield f"{pad}const {ctype} {of_rest} = stitch_fold_rest<{rest}{vectors}>({statement.local}{REST}, {combine});"
            folded = cpp_combine(statement.kind, statement.dtype, whole, of_rest)
        yield f"{pad}const {ctype} {statement.name} = {folded};"

    def _scan(self, statement: loops.Scan, pad: str) -> Iterator[str]:
        target = f"{statement.local}[{index_text(statement.index)}]"
        name, dtype, wide = statement.name, statement.dtype, statement.accumulator
        yield f"{pad}{target} = {cpp_combine(statement.kind, wide, target, statement.value)};"
        yield f"{pad}const {REGISTER_TYPE[dtype]} {name} = {round_text(dtype, f'({REGISTER_TYPE[dtype]}){target}')};"
        if wide is DType.F64 and dtype is not wide:
            yield f"{pad}{target} = __builtin_fabsf({name}) < __builtin_inff() ? {target} : (double){name};"

    def _product(self, statement: loops.Product, pad: str) -> Iterator[str]:
        term, columns, ctype = statement.term.name, statement.column.extent, REGISTER_TYPE[statement.dtype]
        target = f"{statement.local} + {index_text(statement.offset)}"
        open_ = "_open" if self.facts.for_many_shapes else ""
        extents = f"{columns}, " if open_ else ""
        rows, row, first = "", "int", ""
        if statement.row is not None:
            rows, row = f"(int)(group_last - group_first), {statement.stride}, ", "long long row, int"
            first = f"const {self.row_type} {statement.row.name} = group_first"
        function = f"stitch_product{'_rows' if rows else ''}{open_}{'' if open_ else f'<{columns}>'}"
        place = index_text(statement.right.index - Index.of_var(statement.column))
        inline = "__attribute__((always_inline))"
        yield f"{pad}{function}("
        yield f"{pad}    {extents}{statement.term.extent}, {rows}{target},"
        yield f"{pad}    [&]({row} {term}) {inline} -> {ctype} {{"
        if first:
            yield f"{pad}      {first} + row;"
        yield from self.body(statement.left, len(pad) // 2 + 3)
        yield f"{pad}      return {statement.factor};"
        yield f"{pad}    }},"
        before = f"{first}; " if first and statement.row in statement.right.index.variables else ""
        yield f"{pad}    [&](int {term}) {inline} {{ {before}return b{statement.right.buffer} + ({place}); }});"

    # ---- loops ------------------------------------------------------------------------------------------------------------

    def _loop(self, loop: Loop, indent: int) -> Iterator[str]:
        form = forms.form_of(loop, self.facts, self.rests)
        before, changed = ((), loop) if isinstance(form, forms.Parts) else without_conditions(loop, self.facts.sizes)
        if not before:
            yield from self._in_form(loop, form, indent)
            return
        inside = self
        if self.ahead is not None and self.ahead.loop is loop:
            inside = replace(self, ahead=replace(self.ahead, loop=changed))
        yield "  " * indent + "{"
        yield from inside.body(before, indent + 1)
        yield from inside._in_form(changed, form, indent + 1)
        yield "  " * indent + "}"

    def _in_form(self, loop: Loop, form: forms.Form, indent: int) -> Iterator[str]:
        if isinstance(form, forms.Scanned):
            yield from self._scan_loop(loop, indent)
        elif isinstance(form, forms.Parts):
            for part in form.loops:
                is_open = part.kind is LoopKind.LANES  # it declares where its strips end
                yield from (["  " * indent + "{"] if is_open else [])
                yield from self._loop(part, indent + is_open)
                yield from (["  " * indent + "}"] if is_open else [])
        elif isinstance(form, forms.OpenStrips):
            yield from self._open_strips(loop, indent)
        elif isinstance(form, forms.Strips):
            yield from self._strips(loop, form, indent)
        elif isinstance(form, forms.Whole):
            pad = "  " * indent
            yield pad + "{"
            rest = yield from self._together(loop, form.together, form.rest, indent + 1)
            yield from self._first(loop, form.whole, indent + 1)
            yield from self._lanes(rest, str(form.rest), str(form.whole), indent + 1)
            yield pad + "}"
        elif isinstance(form, forms.Drawn):
            yield from self._drawing_loop(loop, indent)
        elif isinstance(form, forms.Squares):
            yield from self._squares(loop, form, indent)
        elif isinstance(form, forms.Narrowed):
            yield from self._first(loop, loop.extent, indent)
        else:
            inside = replace(self, ahead=form.ahead or self.ahead)
            if form.rows_together:
                yield from inside._rows_together(loop, indent)
                loop = replace(loop, bounds=(f"{loop.variable.name}_base", "last_row"))
            yield from inside._plain(loop, indent)

    def _plain(self, loop: Loop, indent: int) -> Iterator[str]:
        pad, name = "  " * indent, loop.variable.name
        first, last = ends(loop)
        if loop.kind is LoopKind.SIMD:
            yield pad + "#pragma omp simd"
        yield f"{pad}for ({variable_type(loop)} {name} = {first}; {name} < {last}; ++{name}) {{"
        yield from self.body(loop.body, indent + 1)
        yield pad + "}"

    def _first(self, loop: Loop, count: int, indent: int) -> Iterator[str]:
        """The first `count` iterations of a vector loop."""
        pad, base = "  " * indent, f"{loop.variable.name}_base"
        plain, rest = narrow.whole_of(replace(loop, extent=count)), count % narrow.AT_ONCE
        if plain:
            yield from self._plain(replace(loop, bounds=("0", str(plain))), indent)
        if plain + narrow.AT_ONCE <= count:
            yield f"{pad}for (int {base} = {plain}; {base} < {count - rest}; {base} += {narrow.AT_ONCE}) {{"
            yield from self._lanes(loop, str(narrow.AT_ONCE), base, indent + 1)
            yield pad + "}"
        if plain < count and rest:
            yield pad + "{"
            yield from self._lanes(loop, str(rest), str(count - rest), indent + 1)
            yield pad + "}"

    def _open_strips(self, loop: Loop, indent: int) -> Iterator[str]:
        pad, base, width = "  " * indent, f"{loop.variable.name}_base", loop.width
        first, last = ends(loop)
        yield f"{pad}long long {base} = {first};"
        yield from self._rooms(loop, pad)
        yield f"{pad}for (; {base} + {width} <= {last}; {base} += {width}) {{"
        yield from self._lanes(loop, str(width), base, indent + 1, (str(first), str(last)))
        yield pad + "}"
        yield pad + "{"
        yield f"{pad}  const int rest = (int)({last} - {base});"
        yield from self._lanes(loop, "rest", base, indent + 1, (str(first), str(last)))
        yield pad + "}"

    def _strips(self, loop: Loop, strips: Strips, indent: int) -> Iterator[str]:
        pad, base, width = "  " * indent, f"{loop.variable.name}_base", loop.width
        within = "0", str(loop.extent)
        yield from self._rooms(loop, pad)
        last = loop
        if strips.together:
            last = yield from self._together(loop, strips.together, strips.rest, indent)
        if strips.whole or self.facts.for_many_shapes:
            yield f"{pad}for (int {base} = 0; {base} < {strips.whole}; {base} += {width}) {{"
            yield from self._prefetches(loop, pad)
            yield from self._lanes(loop, str(width), base, indent + 1, within)
            yield pad + "}"
        if strips.half:
            yield pad + "{"
            yield from self._lanes(loop, str(strips.half), str(strips.whole), indent + 1, within)
            yield pad + "}"
        if strips.rest or self.facts.for_many_shapes:
            body: list[Statement] = []
            for each in last.body:
                if isinstance(each, loops.Combine) and each.local in strips.apart:
                    ctype = REGISTER_TYPE[each.dtype]
                    yield f"{pad}__attribute__((aligned(64))) {ctype} {each.local}{REST}[{strips.rest}];"
                    each = replace(each, local=each.local + REST, kind="replace")
                body.append(each)
            yield pad + "{"
            first = str(strips.whole + strips.half)
            yield from self._lanes(replace(loop, body=tuple(body)), str(strips.rest), first, indent + 1, within)
            yield pad + "}"

    def _together(self, loop: Loop, count: int, rest: int, indent: int) -> Generator[str, None, Loop]:
        """Computes the loop's last `count` iterations. Returns the loop whose iterations do with these values what the last `rest` of
        `loop` do with theirs, if `lane` is their number."""
        pad, lane = "  " * indent, Index.of_var(LANE)
        used = {each.value for each in loop.body if isinstance(each, (loops.Store, loops.Assign, loops.Combine))}
        values = {each.name: each for each in loop.body if isinstance(each, loops.Let) and each.name in used}
        for name, let in values.items():
            yield f"{pad}__attribute__((aligned(64))) {REGISTER_TYPE[let.dtype]} {name}{LAST}[{count}];"
        kept = tuple(loops.Assign(name + LAST, lane, name) for name in values)
        computed = tuple(each for each in loop.body if isinstance(each, (loops.Let, loops.LetIndex)))
        body = replace(loop, body=(*computed, *kept))
        yield from self._lanes(body, str(count), str(loop.extent - count), indent)
        done: list[Statement] = []
        for statement in loop.body:
            if isinstance(statement, (loops.Store, loops.Assign, loops.Combine)):
                value = statement.value
                here = f"{value}{LAST}[{count - rest} + lane]" if value in values else value
                done.append(replace(statement, value=here))
        return replace(loop, body=tuple(done))

    def _rows_together(self, loop: Loop, indent: int) -> Iterator[str]:
        """The rows of the task that make whole groups, several at once; `{variable}_base` is where they end."""
        pad, name, inner = "  " * indent, loop.variable.name, loop.body[0]
        assert isinstance(inner, Loop)
        column = inner.variable.name
        yield f"{pad}long long {name}_base = first_row;"
        yield f"{pad}for (; {name}_base + {ROWS_ADDED_AT_ONCE} <= last_row; {name}_base += {ROWS_ADDED_AT_ONCE}) {{"
        yield f"{pad}  #pragma omp simd"
        yield f"{pad}  for ({variable_type(inner)} {column} = 0; {column} < {inner.extent}; ++{column}) {{"
        for number in range(ROWS_ADDED_AT_ONCE):
            yield f"{pad}    {{"
            yield f"{pad}      const long long {name} = {name}_base + {number};"
            yield from self.body(inner.body, indent + 3)
            yield f"{pad}    }}"
        yield f"{pad}  }}"
        yield f"{pad}}}"

    def _scan_loop(self, loop: Loop, indent: int) -> Iterator[str]:
        """A SCAN loop, block by block: first by lanes, then the remaining elements one by one, in order. A block whose sums might
        overflow is done in order altogether."""
        pad, name, width = "  " * indent, loop.variable.name, loop.width
        (place,) = (i for i, statement in enumerate(loop.body) if isinstance(statement, loops.Scan))
        scan = loop.body[place]
        assert isinstance(scan, loops.Scan)
        yield f"{pad}for (int {name}_block = 0; {name}_block < {loop.extent}; {name}_block += {SCANNED_AT_ONCE}) {{"
        end = f"{name}_block + {SCANNED_AT_ONCE}"
        yield f"{pad}  const int {name}_end = {end} < {loop.extent} ? {end} : {loop.extent};"
        yield f"{pad}  int {name}_base = {name}_block;"
        # The type of what is scanned, and of its total. Integers are scanned as unsigned integers, which wrap.
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
            keep = loops.Assign(lanes, Index.of_var(LANE), scan.value)
            before = replace(loop, body=(*loop.body[:place], keep))
            yield from self._lanes(before, str(width), f"{name}_base", indent + 2)
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

    def _squares(self, loop: Loop, squares: Squares, indent: int) -> Iterator[str]:
        """A loop around lanes in squares: whole squares are read in memory's order and transposed, others are read element by
        element."""
        pad, name = "  " * indent, loop.variable.name
        lanes = loop.body[-1]
        assert isinstance(lanes, Loop)
        first, rows, conditions = "block_first", str(SQUARE), [f"block_last - block_first == {SQUARE}"]
        if loop.bounds is None:
            first, conditions = f"{name}_first", []
            yield f"{pad}for ({variable_type(loop)} {first} = 0; {first} < {loop.extent}; {first} += {SQUARE}) {{"
        elif lanes.extent != SQUARE:
            rows, conditions = "(int)(block_last - block_first)", []
        conditions += [f"{first} % {wrap} + {rows} <= {wrap}" for wrap in squares.wraps]
        if conditions:
            yield f"{pad}  if ({' && '.join(conditions)}) {{"
            yield from self._whole_square(loop, squares, first, rows, indent + 2)
            yield f"{pad}  }} else {{"
            last = "block_last" if loop.bounds else f"{first} + {SQUARE}"
            yield from self._plain(replace(loop, bounds=(first, last)), indent + 2)
            yield f"{pad}  }}"
        else:
            yield from self._whole_square(loop, squares, first, rows, indent + 1)
        if loop.bounds is None:
            yield f"{pad}}}"

    def _whole_square(self, loop: Loop, squares: Squares, first: str, rows: str, indent: int) -> Iterator[str]:
        pad, name, ctype, lanes = "  " * indent, loop.variable.name, variable_type(loop), loop.body[-1]
        assert isinstance(lanes, Loop)
        pitch = lanes.extent
        for load_name, one in squares.turned.items():
            yield f"{pad}__attribute__((aligned(64))) {STORAGE_TYPE[one.load.dtype]} {load_name}_turned[{SQUARE * pitch}];"
            yield f"{pad}{{"
            yield f"{pad}  const {ctype} {name} = {first};"
            yield f"{pad}  const int {lanes.variable.name} = 0;"
            source = f"&b{one.load.buffer}[{index_text(one.load.index)}]"
            if pitch == SQUARE:
                yield f"{pad}  stitch_turn_square({source}, {one.stride}ll, {load_name}_turned);"
            else:
                yield f"{pad}  stitch_turn({load_name}_turned, {pitch}, {source}, {one.stride}ll, {rows}, {pitch});"
            yield f"{pad}}}"
        body = tuple(
            replace(statement, value=loops.LoadLocal(f"{statement.name}_turned", _PLACE))
            if isinstance(statement, loops.Let) and statement.name in squares.turned
            else statement
            for statement in lanes.body
        )
        yield f"{pad}for ({ctype} {name} = {first}; {name} < {first} + {rows}; ++{name}) {{"
        yield from self.body(loop.body[:-1], indent + 1)
        yield f"{pad}  #pragma omp simd"
        yield f"{pad}  for (int {lanes.variable.name} = 0; {lanes.variable.name} < {pitch}; ++{lanes.variable.name}) {{"
        yield f"{pad}    const long long place = ({name} - {first}) * {pitch} + {lanes.variable.name};"
        yield from self.body(body, indent + 2)
        yield f"{pad}  }}"
        yield f"{pad}}}"

    def _prefetches(self, loop: Loop, pad: str) -> Iterator[str]:
        if self.ahead is None or loop is not self.ahead.loop:
            return
        base = Index.of_var(replace(loop.variable, name=f"{loop.variable.name}_base"))
        for buffer, rest, dtype in self.ahead.loads:
            for line in range(0, loop.width * dtype.size_bytes, CACHE_LINE):
                element = index_text(base + rest + line // dtype.size_bytes)
                yield f"{pad}  __builtin_prefetch(&b{buffer}[{element}], 0, 2);"

    def _lanes(
        self, loop: Loop, count: str, base: str, indent: int, within: tuple[str, str] | None = None
    ) -> Iterator[str]:
        """Iterations `base` to `base + count` as lanes. within: the first and last iteration of the loop, if this is a strip of it:
        random words are then drawn for DRAWN_AT_ONCE iterations, since fewer waste a part of Philox's vectors, and each strip reads
        its own."""
        pad = "  " * indent
        draws, ctype = forms.draws_of(loop), variable_type(loop)
        place, condition, some = Index.of_var(LANE), "", count
        if within is None:
            yield from self._rooms(loop, pad)
        elif draws:
            first, last = within
            yield f"{pad}const int drawn = (int)(({base} - {first}) % {DRAWN_AT_ONCE});"
            place += Index.of_var(Var("drawn", DRAWN_AT_ONCE))
            left = f"(int)({last} - {base})"
            condition, some = "if (drawn == 0) ", f"{left} < {DRAWN_AT_ONCE} ? {left} : {DRAWN_AT_ONCE}"
        for name, draw in draws.items():
            yield from self._draw(name, draw, loop, some, base, pad, condition)
        is_known = not self.facts.for_many_shapes or count == str(loop.width)
        small = narrow.narrow_of(loop, count, bool(draws)) if is_known else None
        yield from (pad + line for line in (small.before(loop, count, base) if small else ()))
        yield pad + "#pragma omp simd"
        yield f"{pad}for (int lane = 0; lane < {count}; ++lane) {{"
        yield f"{pad}  const {ctype} {loop.variable.name} = {base} + lane;"
        for statement in loop.body:
            if isinstance(statement, loops.Let) and statement.name in draws:
                word = loops.LoadLocal(f"{statement.name}_words", place)
                statement = replace(statement, value=word)
            yield from self.statement(small.inside(statement, Index.of_var(LANE)) if small else statement, indent + 1)
        yield pad + "}"
        yield from (pad + line for line in (small.after(loop, count, base) if small else ()))

    def _drawing_loop(self, loop: Loop, indent: int) -> Iterator[str]:
        """A SIMD loop in blocks; before each block its random words are drawn."""
        pad, base, size = "  " * indent, f"{loop.variable.name}_base", DRAWN_AT_ONCE
        first, last = ends(loop)
        yield f"{pad}for ({variable_type(loop)} {base} = {first}; {base} < {last}; {base} += {size}) {{"
        yield f"{pad}  const int block = (int)({last} - {base} < {size} ? {last} - {base} : {size});"
        yield from self._lanes(loop, "block", base, indent + 1)
        yield pad + "}"

    def _rooms(self, loop: Loop, pad: str) -> Iterator[str]:
        """Where the loop's random words are drawn to."""
        for name in forms.draws_of(loop):
            yield f"{pad}unsigned {name}_room[{DRAWN_ROOM}];"
            yield f"{pad}const unsigned* {name}_words = {name}_room;"

    def _draw(
        self, name: str, draw: Draw, loop: Loop, count: str, base: str, pad: str, condition: str
    ) -> Iterator[str]:
        place = f"(StitchWide)({index_text(draw.index)})"
        yield f"{pad}{condition}{{"
        yield f"{pad}  const {variable_type(loop)} {loop.variable.name} = {base};"
        yield f"{pad}  {name}_words = stitch_philox_words({name}_room, {count}, {', '.join(draw.state)}, {place});"
        yield f"{pad}}}"
