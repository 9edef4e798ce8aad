"""Runs kernels for the tests in a small process, which forks for each: a fork of the tests' own process takes a hundred times the
time of most kernels, for all the memory that pytest, hypothesis and perhaps TensorFlow have.

    request  (path of the library, metadata, inputs, seconds), pickled
    answer   the outputs by two threads and by one with the tasks in reverse order, or the exception, pickled
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from stitchfleet.compiler.check.selfcheck import CheckFailedError, run_all_ways
from stitchfleet.compiler.kernel.metadata import KernelMetadata

Arrays = Sequence[np.ndarray[Any, Any]]


class Runner:
    """The process, for as long as the tests of this one run."""

    def __init__(self) -> None:
        root = Path(__file__).resolve().parents[2]
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def run(
        self, library: Path, metadata: KernelMetadata, inputs: Arrays, time_limit_s: float
    ) -> tuple[Arrays, Arrays]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pickle.dump((library, metadata, inputs, time_limit_s), self._process.stdin, protocol=5)
        self._process.stdin.flush()
        found = pickle.load(self._process.stdout)
        if isinstance(found, Exception):
            raise found
        outputs, backwards = found
        return outputs, backwards

    def close(self) -> None:
        self._process.communicate()


@lru_cache(maxsize=1)
def runner() -> Runner:
    return Runner()


def close_runner() -> None:
    if runner.cache_info().currsize:
        runner().close()
        runner.cache_clear()


def serve() -> None:
    while True:
        try:
            library, metadata, inputs, time_limit_s = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        apart = replace(metadata, aliases=())  # no run in the inputs' memory
        try:
            (runs,) = run_all_ways(library, apart, [inputs], 2, time_limit_s)
            found: object = (list(runs.outputs), list(runs.backwards))
        except CheckFailedError as error:
            found = error
        pickle.dump(found, sys.stdout.buffer, protocol=5)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    serve()
