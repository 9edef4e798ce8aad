"""The stitch schemes (AStitch, Table 1, in a CPU's terms): where each op's result lives, and why. `placement.Placer` decides them,
once all segments have their nests. A result is in memory if its scheme says so; the buffers, the printed plan and the picture
follow from that."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Scheme(enum.Enum):
    """Where a result lives until it is read."""

    LOCAL = "local"  # one-to-one: a register
    REGIONAL = "regional"  # one-to-many within a row: the row's scalars and tiles
    GLOBAL = "global"  # any: memory, and a phase boundary
    OUTPUT = "output"  # memory, because the caller wants it; no other nest reads it

    @property
    def is_in_memory(self) -> bool:
        """Whether the result must be in memory when its nest is done."""
        return self in (Scheme.GLOBAL, Scheme.OUTPUT)


@dataclass(frozen=True)
class OpScheme:
    """A node's scheme, and the reason in words."""

    node: int
    scheme: Scheme
    reason: str
