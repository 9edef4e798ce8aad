"""What all tests share."""

from __future__ import annotations

from hypothesis import settings

# How long an example takes says what the machine does beside it; nothing here is a timed test.
settings.register_profile("stitchfleet", deadline=None)
settings.load_profile("stitchfleet")
