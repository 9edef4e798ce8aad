"""What all tests share."""

from __future__ import annotations

import pytest
from hypothesis import settings

from .kept import remove_session_folder

# How long an example takes says what the machine does beside it; nothing here is a timed test.
settings.register_profile("stitchfleet", deadline=None)
settings.load_profile("stitchfleet")


def pytest_unconfigure(config: pytest.Config) -> None:
    remove_session_folder()
