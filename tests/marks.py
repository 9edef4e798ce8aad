"""What `scripts/test --all` tries beyond the quick suite: parameters of tests, and more random examples."""

from __future__ import annotations

import os
from typing import Any

import pytest

ALL = os.environ.get("STITCHFLEET_TEST_ALL") == "1"
"""Whether `scripts/test --all` runs."""
NIGHTLY = os.environ.get("STITCHFLEET_NIGHTLY") == "1"
"""Whether `scripts/test --nightly` runs: --all with ten times as many random graphs."""


def examples(quick: int, whole: int) -> int:
    """How many random examples: `whole` behind `--all`."""
    return whole if ALL else quick


def slow(*values: object) -> Any:
    """A parameter that only `scripts/test --all` tries: another one stands for its kind in every run."""
    return pytest.param(*values, marks=pytest.mark.slow)
