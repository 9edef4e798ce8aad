"""What the switch and the stitcher need of a program (program.py), which stands on them."""

from __future__ import annotations

from typing import Any, Protocol


class Owner(Protocol):
    """Of a step: one training function, or one set of fetches."""

    name: str
    kind: str
    """"function" or "session"."""
    generation: int
    """Of its stitched graph."""
    trains: bool
    """Whether one of its graphs is that of a training function (training.py)."""
    ties_ranks: bool
    """Whether one of its graphs holds a collective of all ranks (ranks/collectives.py); only looked for in jobs of several."""
    model: str
    """The fingerprint of its first graph."""

    def refuse(self, reason: str) -> None:
        """It stays plain."""

    def note_plan(self, plan: Any, clusters: int, excluded: frozenset[str]) -> None:
        """plan: the ClusterPlan of its own graph, of which so many clusters became stitch ops."""

    def note_nested_plan(self, function: str, plan: Any, clusters: int) -> None:
        """The same of a function that it calls."""
