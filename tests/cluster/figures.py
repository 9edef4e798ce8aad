"""Figures that tests on the cluster measure for docs/sizing.md: printed, and kept in the JSON file that $STITCHFLEET_SIZING names."""

from __future__ import annotations

from ..figures import keep

VARIABLE = "STITCHFLEET_SIZING"


def note(what: str, **figures: float | list[float]) -> None:
    """Prints the figures of `what`, and adds them to the file. Each name ends with its unit."""
    print(f"{what}: " + ", ".join(f"{name} {value}" for name, value in figures.items()))
    keep(VARIABLE, what, figures=figures)
