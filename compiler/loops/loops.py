"""The loop IR: what a kernel does, statement by statement, before it becomes C++ or CUDA text. It fits on one screen:

    Kernel     buffers, phases                        phases run one after the other
    Phase      nests, serial?                         the nests of a phase run side by side, cut into tasks
    NestCode   buffers, rows, body                    rows [first, last) of a task; task, row and lane are Vars
    statement  Let name = value                       value: Load | LoadLocal | Compute | FromIndex | Choose | Convert
             | LetIndex var = clamp(name)             a position loaded from an index tensor
             | Local name[size] = identity            registers or stack of one task or row
             | Store buffer[index] = name             memory
             | Assign local[index] = name
             | Combine local[index] (kind)= name      one step of a reduction; index None: this lane's own accumulator
             | Collapse name = combine(all lanes of local)
             | Scan local[index] (kind)= value; name  one step of a scan: name is the accumulator after it, rounded
             | Product local[offset + n] = sum over k of left * right      a row of a matrix product; left and right are values at k
             | Turn local[place + i*pitch + j] = buffer[index + i + j*stride]        a part of a buffer, transposed
             | TurnBack buffer[index + i*pitch + j] = local[i + j*stride]            the same the other way
             | Fold locals with others: body          folds together the accumulators of the workers of a FOLD loop
             | Loop var in [0, extent): body          kind SERIAL | SIMD | LANES | FOLD | SCAN
             | Find var = first in [0, extent): test  the first iteration at which a test holds; extent if there is none
             | Visit var in [start, stop): body       the iterations at which a test holds, one after the other
             | Blocks of rows: body                   block_first, block_last within first_row, last_row, or within outer Blocks
             | If guard: body

SIMD: iterations are independent. LANES: iterations are strip-mined into `width` lanes; Combine with index None adds to the lane's
own accumulator, so that a float sum can be vectorised and the source still states its order. FOLD: a variadic reduction; workers
may share its iterations, each taking one stretch with accumulators of its own, and the Fold after the loop folds these in order.
SCAN: iterations are strip-mined into `width` lanes, and the steps of the loop's one Scan are done together for all lanes. Find and
Visit: the lanes of a warp test as many iterations at once; only a GPU has them. Names are single-assignment. Positions are
`index_maps.Index`; a buffer's number is its place in the nest's `buffers`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from ..ir.graph import DType, Node
from ..ir.index_maps import Guard, Index, Var

if TYPE_CHECKING:
    from typing import TypeAlias


class BufferKind(enum.Enum):
    """What a buffer holds."""

    INPUT = "input"
    OUTPUT = "output"
    CONSTANT = "constant"
    SCRATCH = "scratch"


@dataclass(frozen=True)
class Buffer:
    """Memory that outlives a phase. `number`: the number of an input or output; for a constant or scratch, the node whose value it
    holds."""

    kind: BufferKind
    number: int
    dtype: DType
    elements: int
    role: str = ""  # "partial" for a reduction's partial results

    @property
    def size_bytes(self) -> int:
        """Bytes of the buffer."""
        return self.elements * self.dtype.size_bytes

    def __str__(self) -> str:
        return f"{self.kind.value}{self.number}{'.' + self.role if self.role else ''}"


@dataclass(frozen=True)
class Load:
    """The element `index` of a buffer of the nest."""

    buffer: int
    dtype: DType
    index: Index
    guard: Guard = ()  # if it does not hold, nothing is loaded and the value is zero


@dataclass(frozen=True)
class LoadLocal:
    """The element `index` of a local array."""

    local: str
    index: Index
    guard: Guard = ()  # if it does not hold, nothing is read and the value is zero


@dataclass(frozen=True)
class Compute:
    """The element-wise op of `node` on `operands`, which are names or literals of the dtypes `dtypes`."""

    node: Node
    dtypes: tuple[DType, ...]
    operands: tuple[str, ...]


@dataclass(frozen=True)
class Merge:
    """Two values, given by name, combined by reduction kind `kind`."""

    kind: str
    left: str
    right: str


@dataclass(frozen=True)
class FromIndex:
    """The value of `index` as a number."""

    index: Index


@dataclass(frozen=True)
class Choose:
    """The value (a name) of the first case whose guard holds, else `otherwise`."""

    cases: tuple[tuple[Guard, str], ...]
    otherwise: str


@dataclass(frozen=True)
class Masked:
    """A value, given by name, where the s32 `keep` is -1; all bits zero where it is 0."""

    value: str
    keep: str


@dataclass(frozen=True)
class Either:
    """One of two values, given by name: all bits of the other are zero."""

    left: str
    right: str


@dataclass(frozen=True)
class Convert:
    """Converts from an accumulator's dtype to the result's: a cast, and for f16 and bf16 the one rounding of a sum."""

    source: DType
    value: str


Value: TypeAlias = "Load | LoadLocal | Compute | Merge | FromIndex | Choose | Masked | Either | Convert"


@dataclass(frozen=True)
class Let:
    """Defines `name` as `value`, of type `dtype`."""

    name: str
    dtype: DType
    value: Value


@dataclass(frozen=True)
class LetIndex:
    """Defines the position `variable` as the value named `value`: clamped to the variable's range if `clamped`, else unchanged."""

    variable: Var
    value: str
    clamped: bool


@dataclass(frozen=True)
class Local:
    """Declares a local array of `size` elements."""

    name: str
    dtype: DType
    size: int
    kind: str | None  # the reduction kind whose identity fills it; None: uninitialised


@dataclass(frozen=True)
class Store:
    """`buffer[index] = value`."""

    buffer: int
    dtype: DType
    index: Index
    value: str


@dataclass(frozen=True)
class Update:
    """`buffer[index] = combine(buffer[index], value)`, for scatters. kind "replace": plain assignment. atomic: tasks may update one
    element side by side; only for a result that does not depend on their order, and only on a GPU."""

    buffer: int
    dtype: DType
    index: Index
    kind: str
    value: str
    atomic: bool = False


@dataclass(frozen=True)
class Assign:
    """`local[index] = value`."""

    local: str
    index: Index
    value: str


@dataclass(frozen=True)
class Combine:
    """`local[index] = combine(local[index], value)`: one step of a reduction. index None: the lane's own accumulator."""

    local: str
    dtype: DType
    index: Index | None
    kind: str
    value: str


@dataclass(frozen=True)
class Collapse:
    """Defines `name` as all lanes of `local`, combined."""

    name: str
    local: str
    dtype: DType
    lanes: int
    kind: str


@dataclass(frozen=True)
class Scan:
    """`local[index] = combine(local[index], value)`; `name` is the result in `dtype`. `accumulator`: the local's dtype. In a SCAN
    loop `index` is ZERO. On a CPU, an accumulator that is wider than a float `dtype` overflows when `dtype` does, and stays
    infinite."""

    name: str
    dtype: DType
    local: str
    accumulator: DType
    index: Index
    kind: str
    value: str


@dataclass(frozen=True)
class Product:
    """`local[offset + column] = sum over term of factor * right`, for all columns: a row of a matrix product. `left`: statements that
    define `factor` at one value of `term`. Neighbouring columns are neighbours in the memory of `right`. The terms of a sum are added
    in order of `term`, to 0, each by a fused multiply-add if the processor has one. `dtype`: the local's, of both factors too.

    With `row`, for all rows from `group_first` to `group_last` at once (lowering/row_blocks.py): `stride` elements of `local` for
    each of them, and `right` the same for all."""

    local: str
    dtype: DType
    offset: Index
    term: Var
    column: Var
    left: tuple[Statement, ...]
    factor: str
    right: Load
    row: Var | None = None
    stride: int = 0


@dataclass(frozen=True)
class Turn:
    """`local[place + i * pitch + j] = buffer[index + i + j * stride]` for i in [0, down) and j in [0, along). down or along None: as
    many as the group has rows, from `group_first` to `group_last`. Only a CPU's loops have it, for elements of four bytes."""

    local: str
    place: Index
    pitch: int
    buffer: int
    dtype: DType
    index: Index
    stride: int
    down: int | None
    along: int | None


@dataclass(frozen=True)
class TurnBack:
    """`buffer[index + i * pitch + j] = local[i + j * stride]` for each row i of the group and j in [0, along). Only a CPU's loops
    have it, for elements of four bytes."""

    buffer: int
    dtype: DType
    index: Index
    pitch: int
    local: str
    stride: int
    along: int


@dataclass(frozen=True)
class Fold:
    """Follows a FOLD loop. If one worker did the whole loop, it does nothing. If several did, `body` computes `results` from two
    workers' accumulators; for each of `locals`, their names are `own` and `others`."""

    locals: tuple[str, ...]
    dtypes: tuple[DType, ...]
    own: tuple[str, ...]
    others: tuple[str, ...]
    body: tuple[Statement, ...]
    results: tuple[str, ...]


class LoopKind(enum.Enum):
    """How a loop's iterations may run; see the module's docstring."""

    SERIAL = "serial"
    FOLD = "fold"
    SIMD = "simd"
    LANES = "lanes"
    SCAN = "scan"


@dataclass(frozen=True)
class Loop:
    """`variable` runs over [0, extent) or, with `bounds`, between two names that are known at run time."""

    variable: Var
    extent: int
    kind: LoopKind
    body: tuple[Statement, ...]
    width: int = 0
    bounds: tuple[str, str] | None = None


@dataclass(frozen=True)
class Blocks:
    """Runs `body` for each block of `size` rows between two names that are known at run time, by default the task's first and last
    row. In `body`, `{name}_first` and `{name}_last` are the block's bounds. within: if given, a block ends where the next multiple of
    this number of rows begins."""

    size: int
    body: tuple[Statement, ...]
    name: str = "block"
    bounds: tuple[str, str] = ("first_row", "last_row")
    within: int | None = None


@dataclass(frozen=True)
class If:
    """Runs `body` if `guard` holds."""

    guard: Guard
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Find:
    """Defines the position `found` as the first value of `variable` in [0, extent) for which `guard` holds after the statements
    `test`; `extent` if there is none."""

    found: Var
    variable: Var
    extent: int
    test: tuple[Statement, ...]
    guard: Guard


@dataclass(frozen=True)
class Visit:
    """Runs `body`, one after the other, for the values of `variable` in [start, stop) for which `guard` holds after the statements
    `test`; `stop` is greater than `start`, and at most `extent`. `ahead` runs before `body`, and fills the local `value` for it,
    if there is one; it depends on no earlier value's body, so that it may already run for some of the next values."""

    variable: Var
    start: Index
    stop: Index
    extent: int
    test: tuple[Statement, ...]
    guard: Guard
    value: Local | None
    ahead: tuple[Statement, ...]
    body: tuple[Statement, ...]

    @property
    def each(self) -> tuple[Statement, ...]:
        """All that runs for one value of `variable`, in order."""
        return (*(() if self.value is None else (self.value,)), *self.ahead, *self.body)


Search: TypeAlias = "Find | Visit"
Reduction: TypeAlias = "Combine | Collapse | Scan | Product | Fold"
Statement: TypeAlias = (
    "Let | LetIndex | Local | Store | Update | Assign | Turn | TurnBack | Reduction | Loop | Search | Blocks | If"
)


def walk(body: Iterable[Statement]) -> Iterator[Statement]:
    """All statements, each before the statements in its body. A Fold's body is left out, since it works on two workers at once."""
    for statement in body:
        yield statement
        if isinstance(statement, (Loop, Blocks, If)):
            yield from walk(statement.body)
        elif isinstance(statement, Product):
            yield from walk(statement.left)
        elif isinstance(statement, Find):
            yield from walk(statement.test)
        elif isinstance(statement, Visit):
            yield from walk((*statement.test, *statement.each))


@dataclass(frozen=True)
class Instance:
    """A component of a family: `buffers` replace the nest's, and its `rows` rows begin at row `start` if all components are laid
    end to end."""

    buffers: tuple[Buffer, ...]
    rows: int
    start: int


@dataclass(frozen=True)
class NestCode:
    """One nest. `body` runs for a task, with `first_row`, `last_row` and `task` set. The buffer numbers of statements index
    `buffers`. `number`: the plan's number of the nest; -1 for the combination of partial results. With `instances`, rows are the
    instances' rows laid end to end, each instance beginning at a multiple of LANE_ALIGNMENT; a task may hold many small instances.
    """

    number: int
    buffers: tuple[Buffer, ...]
    body: tuple[Statement, ...]
    rows: int
    rows_per_task: int
    cost_ns: float
    per_task: bool  # tasks must stay separate: each writes partial results of its own
    may_alias: frozenset[int] = frozenset()  # buffers that the caller may have placed in the same memory
    instances: tuple[Instance, ...] = ()

    @property
    def all_buffers(self) -> tuple[Buffer, ...]:
        """The buffers of all instances."""
        if not self.instances:
            return self.buffers
        return tuple(dict.fromkeys(buffer for instance in self.instances for buffer in instance.buffers))

    @cached_property
    def written_buffers(self) -> frozenset[int]:
        """The numbers of the buffers that the body writes."""
        return frozenset(each.buffer for each in walk(self.body) if isinstance(each, (Store, Update, TurnBack)))

    @property
    def tasks(self) -> int:
        """Number of tasks."""
        return -(-self.rows // self.rows_per_task)


@dataclass(frozen=True)
class Phase:
    """Nests that run side by side. serial: they run on the caller's thread. cost_ns: on one core of a CPU, or on the whole GPU."""

    nests: tuple[NestCode, ...]
    serial: bool
    cost_ns: float


@dataclass(frozen=True)
class Loops:
    """A whole kernel. `constants`: the contents of each constant, by its node. `scratch_offsets`: offset of each scratch buffer in
    bytes; `scratch_bytes`: the size of all scratch memory."""

    name: str
    buffers: tuple[Buffer, ...]
    phases: tuple[Phase, ...]
    constants: dict[int, bytes] = field(hash=False)
    scratch_offsets: dict[Buffer, int] = field(hash=False)
    scratch_bytes: int

    def __str__(self) -> str:
        return "\n".join(_text(self))


def _text(kernel: Loops) -> Iterator[str]:
    yield f"kernel {kernel.name}: scratch {kernel.scratch_bytes} bytes"
    for number, phase in enumerate(kernel.phases):
        yield f"phase {number}{' serial' if phase.serial else ''} ({phase.cost_ns:.0f} ns):"
        for nest in phase.nests:
            buffers = ", ".join(f"b{i}={buffer}" for i, buffer in enumerate(nest.buffers))
            family = f" of {len(nest.instances)} instances" if nest.instances else ""
            yield f"  nest {nest.number}: {nest.rows} rows{family}, {nest.rows_per_task} a task; {buffers}"
            yield from _statements(nest.body, 4)


def _if(guard: Guard) -> str:
    return f" if {' and '.join(map(str, guard))}" if guard else ""


def value_text(value: Value) -> str:
    """A value as one line of text, as `str(Loops)` prints it."""
    if isinstance(value, Load):
        return f"b{value.buffer}[{value.index}]{_if(value.guard)}"
    if isinstance(value, LoadLocal):
        return f"{value.local}[{value.index}]{_if(value.guard)}"
    if isinstance(value, Compute):
        return f"{value.node.op}({', '.join(value.operands)})"
    if isinstance(value, Merge):
        return f"{value.kind}({value.left}, {value.right})"
    if isinstance(value, Masked):
        return f"masked({value.value}, {value.keep})"
    if isinstance(value, Either):
        return f"either({value.left}, {value.right})"
    if isinstance(value, FromIndex):
        return f"({value.index})"
    if isinstance(value, Choose):
        cases = "".join(f"{name}{_if(guard)} else " for guard, name in value.cases)
        return cases + value.otherwise
    return f"convert({value.value})"


def _statements(body: tuple[Statement, ...], indent: int) -> Iterator[str]:
    pad = " " * indent
    for statement in body:
        if isinstance(statement, Let):
            yield f"{pad}{statement.name}: {statement.dtype.value} = {value_text(statement.value)}"
        elif isinstance(statement, LetIndex):
            yield f"{pad}{statement.variable.name} = clamp({statement.value}, 0, {statement.variable.extent - 1})"
        elif isinstance(statement, Local):
            yield f"{pad}local {statement.name}[{statement.size}]: {statement.dtype.value} = {statement.kind}"
        elif isinstance(statement, Store):
            yield f"{pad}b{statement.buffer}[{statement.index}] = {statement.value}"
        elif isinstance(statement, Update):
            atomic = " atomic" if statement.atomic else ""
            yield f"{pad}b{statement.buffer}[{statement.index}] {statement.kind}= {statement.value}{atomic}"
        elif isinstance(statement, Assign):
            yield f"{pad}{statement.local}[{statement.index}] = {statement.value}"
        elif isinstance(statement, Combine):
            where = "lane" if statement.index is None else str(statement.index)
            yield f"{pad}{statement.local}[{where}] {statement.kind}= {statement.value}"
        elif isinstance(statement, Scan):
            yield f"{pad}{statement.name} = {statement.local}[{statement.index}] {statement.kind}= {statement.value}"
        elif isinstance(statement, Collapse):
            yield f"{pad}{statement.name} = {statement.kind} of {statement.local}[0:{statement.lanes}]"
        elif isinstance(statement, Product):
            term, column, target = statement.term, statement.column, statement.offset + Index.of_var(statement.column)
            rows = (
                f" of {statement.row.name} in [group_first, group_last), {statement.stride} apart,"
                if statement.row
                else ""
            )
            yield f"{pad}product{rows} over {term.name} in [0, {term.extent}), {column.name} in [0, {column.extent}):"
            yield from _statements(statement.left, indent + 2)
            yield f"{pad}  {statement.local}[{target}] += {statement.factor} * {value_text(statement.right)}"
        elif isinstance(statement, Turn):
            down, along = (
                "group_last - group_first" if size is None else size for size in (statement.down, statement.along)
            )
            yield f"{pad}turn i in [0, {down}), j in [0, {along}):"
            to, source = (
                f"{index} + " if index.terms or index.constant else "" for index in (statement.place, statement.index)
            )
            yield f"{pad}  {statement.local}[{to}{statement.pitch}*i + j] = b{statement.buffer}[{source}i + {statement.stride}*j]"
        elif isinstance(statement, TurnBack):
            yield f"{pad}turn back i in [0, group_last - group_first), j in [0, {statement.along}):"
            to = f"b{statement.buffer}[{statement.index} + {statement.pitch}*i + j]"
            yield f"{pad}  {to} = {statement.local}[i + {statement.stride}*j]"
        elif isinstance(statement, Fold):
            yield f"{pad}fold {', '.join(statement.locals)} of all workers by:"
            yield from _statements(statement.body, indent + 2)
        elif isinstance(statement, Find):
            yield f"{pad}{statement.found.name} = first {statement.variable.name} in [0, {statement.extent}){_if(statement.guard)}:"
            yield from _statements(statement.test, indent + 2)
        elif isinstance(statement, Visit):
            yield f"{pad}visit {statement.variable.name} in [{statement.start}, {statement.stop}){_if(statement.guard)}:"
            yield from _statements(statement.test, indent + 2)
            yield f"{pad}then:"
            yield from _statements(statement.each, indent + 2)
        elif isinstance(statement, If):
            yield f"{pad}{_if(statement.guard).strip()}:"
            yield from _statements(statement.body, indent + 2)
        elif isinstance(statement, Blocks):
            within = f" within {statement.within}" if statement.within else ""
            yield f"{pad}for {statement.name}s of {statement.size} rows{within} in [{', '.join(statement.bounds)}):"
            yield from _statements(statement.body, indent + 2)
        else:
            bounds = f"[{', '.join(statement.bounds)})" if statement.bounds else f"[0, {statement.extent})"
            width = f" x{statement.width}" if statement.width else ""
            yield f"{pad}for {statement.variable.name} in {bounds} {statement.kind.value}{width}:"
            yield from _statements(statement.body, indent + 2)


SHARED_ALIGNMENT = 16


def shared_room(elements: int, dtype: DType) -> int:
    """Bytes of shared memory for `elements` elements, each of 8 bytes if the dtype has 8, else of 4, rounded up to a multiple of
    SHARED_ALIGNMENT."""
    return -(-elements * (8 if dtype.size_bytes == 8 else 4) // SHARED_ALIGNMENT) * SHARED_ALIGNMENT
