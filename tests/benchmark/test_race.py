"""What the race says of a job that ended."""

from __future__ import annotations

import pytest

from scripts.benchmark.race import last_words

GRAPH = """step 3 loss 1.0
Traceback (most recent call last):
  File "job.py", line 6, in <module>
tensorflow.python.framework.errors_impl.InvalidArgumentError: Graph execution error:

Detected at node ResizeNearestNeighborGrad defined at (most recent call last):
  File "job.py", line 6, in <module>

Detected unsupported operations: No registered 'ResizeNearestNeighborGrad' OpKernel
The op is created at:
File "job.py", line 5, in f
\ttf2xla conversion failed
"""


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("", "it printed nothing"),
        ("step 1 loss 2\n", "it printed nothing"),
        ("killed\n\nstep 2 loss 1\n", "killed"),
        ("ValueError: no\nbye\n", "ValueError: no"),
        ("ValueError: no\nKeyError: 'x'\n", "KeyError: 'x'"),
        (
            GRAPH,
            "tensorflow.python.framework.errors_impl.InvalidArgumentError: Graph execution error: "
            "Detected unsupported operations: No registered 'ResizeNearestNeighborGrad' OpKernel",
        ),
        ("a.InternalError: Graph execution error:\n", "a.InternalError: Graph execution error:"),
    ],
)
def test_the_last_words_of_a_job_are_its_error_with_the_reason(output: str, words: str) -> None:
    assert last_words(output) == words
