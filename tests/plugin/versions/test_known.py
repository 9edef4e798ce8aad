"""Which versions of TensorFlow are taken without a self-test."""

from __future__ import annotations

import pytest

from stitchfleet.plugin.versions.known import MINORS, Minor, in_words, is_known, unknown


@pytest.mark.parametrize("version", [*(minor.release for minor in MINORS if minor.passed), "2.15.0.post1", "2.15.7"])
def test_a_release_of_a_tested_minor_version_is_known(version: str) -> None:
    assert is_known(version)


@pytest.mark.parametrize(
    "version",
    [
        *(minor.release for minor in MINORS if not minor.passed),
        "2.11.1",
        "2.22.0",
        "3.0.0",
        "2.1.0",
        "2.21.0rc1",
        "2.22.0.dev20261101",
        "2.15.0+nv24.3",
        "2.2",
        "2.210.0",
        "",
        "unknown",
    ],
)
def test_any_other_one_is_not(version: str) -> None:
    assert not is_known(version)


def test_the_table_is_in_order() -> None:
    numbers = [tuple(map(int, minor.release.split("."))) for minor in MINORS]
    assert numbers == sorted(numbers)
    assert all(minor.keras == (2 if number < (2, 16) else 3) for minor, number in zip(MINORS, numbers))


def test_versions_in_a_row_are_named_by_their_ends() -> None:
    def row(*passed: int) -> list[Minor]:
        return [Minor(f"2.{k}.1", (9, 11), 2, passed=k in passed) for k in range(12, 20)]

    assert in_words(row(12, 13, 14, 16, 18, 19)) == "2.12 to 2.14, 2.16, 2.18 to 2.19"
    assert in_words(row()) == ""
    assert unknown("2.99.0").endswith(f"that stitchfleet was tested with ({in_words(MINORS)})")
