"""Where the locals of a nest's body live when a group of threads does it: in shared memory, in an array of registers of each thread,
or in one register; and which statements touch what threads share."""

from __future__ import annotations

from ...ir.graph import DType
from ...ir.index_maps import Index
from ...loops import loops
from ...loops.loops import Local, Loop, NestCode, Statement, shared_room
from ..c.text import index_text
from ..c.writer import Writer
from .survey import Survey, is_row_loop
from .vectors import only_computes, row_widths

THREAD = "thread"
"""The thread's number in its group, in generated text."""
MOST_TURNS = 16
"""Elements of a row, or of an array, that a thread may keep in registers, ..."""
KEPT_REGISTERS = 48
"""... and how many registers all that it keeps may take."""
REDUCE_BYTES = 32 * 8
"""Shared memory of a reduction over a block: one value of at most 8 bytes of each warp."""


class PlacedWriter(Writer):
    """A writer that knows where each local of `nest` is. `shared_bytes`: what they take of shared memory, for one group."""

    def __init__(self, nest: NestCode, threads: int, groups: int) -> None:
        super().__init__()
        self.nest, self.threads, self.groups = nest, threads, groups
        self.together = nest.per_task and groups > 1 and any(map(is_row_loop, nest.body))
        """Whether the groups of a block do one task together."""
        self.survey = Survey(nest.body)
        self.widths = row_widths(nest.body, threads)
        self.one_by_one = only_computes(nest.body)
        """Whether threads may take a row's elements one by one where vectors cannot be."""
        self.shared_bytes = 0
        self.reduces = 0  # values that threads reduce at once
        self.together_bytes = 0
        self._dealt = False
        self._slot = ""  # of arrays of registers, in the distributed loop that is being written, where it is unrolled
        self._own_place = ""  # in arrays that lie by threads
        self._shared = {name for name, use in self.survey.locals.items() if use.is_shared}
        self._owned = {name for name in self._shared if self.survey.locals[name].is_owned}
        self._both = self.survey.read & self.survey.written
        self._budget = KEPT_REGISTERS
        self._in_registers = {name: slots for name in self.survey.locals if (slots := self._registers_of(name))}
        self._shared -= self._in_registers.keys()
        self._owned -= self._in_registers.keys()
        self.offsets: dict[str, int] = {}
        for name, use in self.survey.locals.items():
            if name not in self._shared:
                continue
            self.offsets[name] = self.shared_bytes
            self.shared_bytes += shared_room(self._room(name), use.dtype)

    def _registers_of(self, name: str) -> int:
        """Elements of a local that each thread keeps in registers; 0 where it is in shared memory, or no array."""
        if name not in self._owned:
            return 0
        use = self.survey.locals[name]
        ((_, extent, bounds),) = use.places
        slots = self._slots(extent)
        if bounds or extent == 1 or not self._take(slots, use.dtype):
            return 0
        return slots

    def _width(self, extent: int) -> int:
        """Neighbours that a thread takes in a turn of a loop over a row of so many elements."""
        return self.widths.get(extent, 1)

    def _turns(self, loop: Loop) -> int:
        """Iterations of a loop over a row, or vectors of them, that fall to one thread."""
        return -(-loop.extent // (self.threads * self._width(loop.extent)))

    def _slots(self, extent: int) -> int:
        """Elements of a row that fall to one thread: what it needs registers for."""
        width = self._width(extent)
        return -(-extent // (self.threads * width)) * width

    def _room(self, name: str) -> int:
        """Elements of shared memory for an array. One whose elements threads own may lie there in any order: thread n has n, n + T,
        n + 2T, ..., so that no two of a warp hit one bank, whichever elements of the row these are."""
        use = self.survey.locals[name]
        if name in self._in_registers:
            return self._in_registers[name] * self.threads
        return self._slots(use.size) * self.threads if self._lies_by_threads(name) else use.size

    def _lies_by_threads(self, name: str) -> bool:
        if name not in self._owned:
            return False
        ((_, extent, bounds),) = self.survey.locals[name].places
        return not bounds and self._width(extent) > 1

    def _take(self, slots: int, dtype: DType) -> bool:
        """Takes registers for so many elements, if there are enough."""
        needed = slots * (2 if dtype.size_bytes == 8 else 1)
        if slots > MOST_TURNS or needed > self._budget:
            return False
        self._budget -= needed
        return True

    def _shares(self, statement: Statement) -> bool:
        """Whether the statement touches what another thread may write or has yet to read."""
        if isinstance(statement, loops.Let):
            value = statement.value
            if isinstance(value, loops.Load):
                return value.buffer in self._both
            return isinstance(value, loops.LoadLocal) and self._is_common(value.local)
        if isinstance(statement, loops.Update):
            return True  # a scatter's next index may be another thread's element
        if isinstance(statement, loops.Store):
            return statement.buffer in self._both
        if isinstance(statement, loops.Assign | loops.Combine | loops.Scan):
            return self._is_common(statement.local)
        if isinstance(statement, Local):
            return self._is_common(statement.name) and statement.kind is not None
        if isinstance(statement, Loop | loops.Blocks | loops.If):
            return any(self._shares(inner) for inner in statement.body)
        return False

    def _is_common(self, name: str) -> bool:
        return name in self._shared and name not in self._owned

    def _is_scalar(self, name: str) -> bool:
        return name not in self._shared and name not in self._in_registers and self.survey.locals[name].size == 1

    def _element(self, name: str, index: Index | None) -> str:
        if self.survey.locals[name].collapsed or self._is_scalar(name):
            return name
        if name in self._in_registers:
            return f"{name}[{self._slot}]"
        if self._lies_by_threads(name):
            return f"{name}[{self._own_place}]"
        assert index is not None
        return f"{name}[{index_text(index)}]"

    def _at_place(self, name: str) -> str:
        if self._is_scalar(name):
            return name
        return f"{name}[turn]" if name in self._in_registers else f"{name}[place]"
