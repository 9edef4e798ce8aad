"""The part of a program (job/program.py) that the switch and the stitcher use. A protocol, since the program imports them."""

from __future__ import annotations

from typing import Any, Protocol


class Owner(Protocol):
    """The program that a step belongs to: one training function, or one set of fetches."""

    name: str
    kind: str
    """"function" or "session"."""
    generation: int
    """The generation of its stitched graph."""
    passes: int
    """A session's: in how many passes TensorFlow optimizes its graph (passes.py)."""
    trains: bool
    """Whether one of its graphs is that of a training function (training.py)."""
    steps_per_collective: int
    """N if every Nth step holds a collective of all ranks, 0 if that is not known (ranks/collectives.py); determined only in jobs of
    several ranks."""
    model: str
    """The fingerprint of its first graph."""

    def refuse(self, reason: str) -> None:
        """Makes the program plain for good, and keeps the reason."""

    def note_plan(self, plan: Any, clusters: int, excluded: frozenset[str]) -> None:
        """Notes the clusters of its own graph. plan: a ClusterPlan. clusters: how many of its clusters became stitch ops.
        excluded: the names of the operators and clusters that were left out."""

    def note_nested_plan(self, function: str, plan: Any, clusters: int) -> None:
        """Notes the clusters in the body of `function`, a function that the program calls and that TensorFlow does not inline.
        plan, clusters: as in `note_plan`."""
