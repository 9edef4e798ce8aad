"""Which of the planner's rules are on: all of them, but for ablations (AStitch, table 4).

mapping     adaptive thread mapping alone: every dominant is computed by loops of its own, results pass through memory. A
            compiler without stitching would launch a kernel for each of these loops
hierarchy   and hierarchical data management: what reads a dominant's result row by row joins its loops; the result stays in
            registers or on the chip, all is one kernel
all         and dominant merging: loops that read the same rows of a tensor are one, which reads them once
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Rules:
    """hierarchy: a segment may join the nest that computes what it reads. merging: or one that reads what it reads."""

    hierarchy: bool = True
    merging: bool = True


ALL: Final = Rules()
BY_NAME: Final = {
    "mapping": Rules(hierarchy=False, merging=False),
    "hierarchy": Rules(merging=False),
    "all": ALL,
}
"""In the order of the paper's table."""
