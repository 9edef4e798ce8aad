"""Memory planning: scratch buffers whose lifetimes do not overlap share bytes (AStitch section 4.4).

A buffer lives from the first phase that touches it to the last. The nests of a phase run side by side, so bytes are reused only
across a phase boundary. For straight-line code of phases this finds what the paper's dominance tree finds, by simpler means.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .loops import Buffer, BufferKind, NestCode

ALIGNMENT = 64  # a cache line: two buffers never share one in a phase


@dataclass(frozen=True)
class MemoryPlan:
    """Byte offset of each scratch buffer, and the total number of bytes."""

    offsets: Mapping[Buffer, int]
    total_bytes: int


def lifetimes(phases: Sequence[Iterable[NestCode]]) -> dict[Buffer, tuple[int, int]]:
    """The numbers of the first and the last phase that touch each scratch buffer. phases: the nests of each phase."""
    found: dict[Buffer, tuple[int, int]] = {}
    for number, nests in enumerate(phases):
        for nest in nests:
            for buffer in nest.buffers:
                if buffer.kind is BufferKind.SCRATCH:
                    first, _ = found.get(buffer, (number, number))
                    found[buffer] = (first, number)
    return found


def plan_memory(lives: Mapping[Buffer, tuple[int, int]]) -> MemoryPlan:
    """Offsets by first fit, largest buffers first, each a multiple of ALIGNMENT. Buffers whose lifetimes (first and last phase)
    overlap do not share bytes."""
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first, last
    offsets: dict[Buffer, int] = {}
    total = 0
    order = sorted(lives, key=lambda buffer: (-buffer.size_bytes, lives[buffer], buffer.number, buffer.role))
    for buffer in order:
        first, last = lives[buffer]
        size = -(-max(buffer.size_bytes, 1) // ALIGNMENT) * ALIGNMENT
        offset = 0
        for begin, end, other_first, other_last in sorted(placed):
            if other_last < first or last < other_first:
                continue
            if offset + size <= begin:
                break
            offset = max(offset, end)
        offsets[buffer] = offset
        placed.append((offset, offset + size, first, last))
        total = max(total, offset + size)
    return MemoryPlan(offsets, total)
