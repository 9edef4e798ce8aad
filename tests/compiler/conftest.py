"""What the compiler's tests share: the process that runs their kernels ends with them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .runner import close_runner


@pytest.fixture(scope="session", autouse=True)
def _runner_ends_with_the_tests() -> Iterator[None]:
    yield
    close_runner()
