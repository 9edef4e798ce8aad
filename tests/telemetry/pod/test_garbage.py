"""The collector of cyclic garbage is off for a while, and afterwards as it was."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from stitchfleet.telemetry.pod.garbage import not_collected


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    was_enabled = gc.isenabled()
    yield
    (gc.enable if was_enabled else gc.disable)()


@pytest.mark.parametrize("was_enabled", [True, False])
def test_it_is_off_in_the_context_and_as_before_after_it(was_enabled: bool) -> None:
    (gc.enable if was_enabled else gc.disable)()
    with not_collected():
        assert not gc.isenabled()
        with not_collected():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled() == was_enabled


def test_it_is_on_again_after_an_error() -> None:
    gc.enable()
    with pytest.raises(ZeroDivisionError), not_collected():
        1 / 0  # noqa: B018
    assert gc.isenabled()
