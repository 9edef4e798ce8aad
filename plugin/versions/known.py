"""The versions of TensorFlow that stitchfleet was tested with.

The native library is compiled for one version of TensorFlow, whose C++ interface changes with each minor version, and the hooks wrap
methods that are not public. So another version is taken only if a self-test passed (self_test.py).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Minor:
    """A minor version of TensorFlow.

    release: its newest patch release, on which the tests run. pythons: the first and the last minor version of Python 3 for which
    PyPI has wheels of that release. keras: the major version of `tf.keras`. older: its other releases on PyPI. passed: whether
    tests/versions passed on it.
    """

    release: str
    pythons: tuple[int, int]
    keras: int
    older: tuple[str, ...] = ()
    passed: bool = False


MINORS: Final = (
    Minor("2.12.1", (8, 11), 2, ("2.12.0",), passed=True),
    Minor("2.13.1", (8, 11), 2, ("2.13.0",), passed=True),
    Minor("2.14.1", (9, 11), 2, ("2.14.0",), passed=True),
    Minor("2.15.1", (9, 11), 2, ("2.15.0", "2.15.0.post1"), passed=True),
    Minor("2.16.2", (9, 12), 3, ("2.16.1",), passed=True),
    Minor("2.17.1", (9, 12), 3, ("2.17.0",), passed=True),
    Minor("2.18.1", (9, 12), 3, ("2.18.0",), passed=True),
    Minor("2.19.1", (9, 12), 3, ("2.19.0",), passed=True),
    Minor("2.20.0", (9, 13), 3, passed=True),
    Minor("2.21.0", (10, 13), 3, passed=True),
)


def in_words(minors: Sequence[Minor]) -> str:
    """The minor versions that passed the tests, for people: "2.12 to 2.15, 2.21"."""
    runs = [list(run) for passed, run in itertools.groupby(minors, lambda minor: minor.passed) if passed]
    ends = [[minor.release.rpartition(".")[0] for minor in (run[0], run[-1])] for run in runs]
    return ", ".join(first if first == last else f"{first} to {last}" for first, last in ends)


TESTED: Final = in_words(MINORS)
"""The versions that the tests passed on."""

PREBUILT: Final = tuple(version for minor in MINORS if minor.passed for version in (*minor.older, minor.release))
"""The releases of these versions, for each of which a payload brings the native library."""


def is_known(version: str) -> bool:
    """Whether a version is a release of a minor version that passed the tests. A release candidate, a nightly and a vendor's build
    ("+nv24.3") are not: their C++ interface may be another."""
    found = re.fullmatch(r"(\d+\.\d+)\.\d+(?:\.post\d+)?", version)
    return found is not None and any(minor.passed and minor.release.startswith(f"{found[1]}.") for minor in MINORS)


def unknown(version: str) -> str:
    """The first clause of a sentence about a version that is not known, without a full stop."""
    return f"TensorFlow {version} is none of the versions that stitchfleet was tested with ({TESTED})"
