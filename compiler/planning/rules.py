"""Which of the planner's rules are on: all of them, except in ablations (AStitch, table 4).

mapping     adaptive thread mapping alone: every dominant is computed by loops of its own, and results pass through memory. A
            compiler without stitching would launch a kernel for each of these loops
hierarchy   mapping, and hierarchical data management: an op that reads a dominant's result row by row joins its loops; the result
            stays in registers or on the chip, and everything is one kernel
all         hierarchy, and dominant merging: loops that read the same rows of a tensor become one, which reads them once
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Rules:
    """hierarchy: a segment may join the nest that computes a tensor that it reads. dominant_merging: it may also join a nest that
    reads the same tensor."""

    hierarchy: bool = True
    dominant_merging: bool = True


ALL: Final = Rules()
BY_NAME: Final = {
    "mapping": Rules(hierarchy=False, dominant_merging=False),
    "hierarchy": Rules(dominant_merging=False),
    "all": ALL,
}
"""By name, in the order of the paper's table."""
