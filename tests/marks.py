"""Marks of single parameters of tests."""

from __future__ import annotations

from typing import Any

import pytest


def slow(*values: object) -> Any:
    """A parameter that only `scripts/test --all` tries: another one stands for its kind in every run."""
    return pytest.param(*values, marks=pytest.mark.slow)
