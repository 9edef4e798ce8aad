"""What the benchmark says of its results: the table, and the executions in a profile."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

from scripts.gpu.cases import CACHE_BYTES, Case, load_arrays, save_arrays, sets_of
from scripts.gpu.table import table
from scripts.gpu.worker_xla import distance, executions


def test_the_table_has_each_case_and_what_went_wrong(tmp_path: Path) -> None:
    case = Case("softmax-2x3", "micro", "softmax", ("softmax-2x3.128x1", "softmax-2x3.256x1"), 1000)
    rows = [
        {"fact": "cases", "cases": [asdict(case), asdict(Case("crnn", "step"))]},
        {"name": "softmax-2x3", "kernel": "softmax-2x3.128x1", "regime": "normal", "wrong": ""},
        {
            "name": "softmax-2x3",
            "kernel": "softmax-2x3.256x1",
            "regime": "normal",
            "wrong": "output 0 has 1 wrong elements",
        },
        {"name": "softmax-2x3", "contestant": "stitchfleet", "kernel": "softmax-2x3.128x1", "us": 3.0},
        {"name": "softmax-2x3", "contestant": "stitchfleet", "kernel": "softmax-2x3.256x1", "us": 2.0},
        {"name": "softmax-2x3", "contestant": "xla", "us": None, "busy_us": 5.0},
        {"name": "softmax-2x3", "contestant": "xla tuned", "us": 6.0, "busy_us": 5.5},
        {"name": "softmax-2x3", "contestant": "inductor", "us": 4.0, "us_without_graph": 9.0},
        {"copy_bytes": 1000, "us": 1.5, "us_without_graph": 1.0},
        {"name": "crnn", "contestant": "xla", "wall_us": 30.0, "us": 28.0, "busy_us": 20.0, "kernels": 7.0},
        {"name": "crnn", "contestant": "stitchfleet in xla", "wall_us": 20.0, "us": 18.0, "kernels": 3.0},
        {"name": "crnn", "contestant": "xla", "distance": 1e-6},
        {"worker": "torch", "error": "the process has ended with -11"},
    ]
    file = tmp_path / "results.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = table(file)
    assert "2 judgements, 1 wrong" in text
    assert "torch: the process has ended with -11" in text
    (line,) = [line for line in text.splitlines() if line.startswith("softmax-2x3")]
    assert line.split() == ["softmax-2x3", "3.00", "2.00", "5.00", "6.00", "4.00", "50%", "2.50"]
    (line,) = [line for line in text.splitlines() if line.startswith("crnn")]
    assert line.split() == ["crnn", "xla", "30.0", "20.0", "1.50", "7", "3", "1e-06"]
    assert "| softmax-2x3 | 3.00 | 2.00 |" in table(file, markdown=True)


def test_executions_are_told_apart_by_the_number_of_their_kernels() -> None:
    events = [(1000.0 * run + 100 * kernel, 50.0) for run in range(12) for kernel in range(3)]
    seen = executions(events[::-1], 12)
    assert seen["kernels"] == 3
    assert seen["us"] == 0.25
    assert abs(seen["busy_us"] - 0.15) < 1e-9
    assert executions(events[:-1], 12)["us"] is None  # a kernel was not seen: no span, but the time of the kernels


def test_a_distance_sees_a_nan_and_knows_equal_infinities() -> None:
    first = np.array([1.0, np.inf, 2.0])
    assert distance(first, first) == 0
    assert distance(first, np.array([1.0, np.inf, 2.5])) > 0.1
    assert distance(first, np.array([1.0, np.inf, np.nan])) == np.inf


def test_arrays_come_back_as_they_were(tmp_path: Path) -> None:
    import ml_dtypes

    arrays = [np.array(1.5, np.float32), np.ones((2, 3), ml_dtypes.bfloat16), np.array([True, False])]
    save_arrays(tmp_path / "arrays", arrays)
    for before, after in zip(arrays, load_arrays(tmp_path / "arrays"), strict=True):
        assert before.dtype == after.dtype
        assert before.shape == after.shape
        np.testing.assert_array_equal(before, after)


def test_only_what_does_not_fit_the_cache_is_rotated() -> None:
    assert sets_of(Case("small", "op", bytes_moved=1 << 20), CACHE_BYTES) == 1
    assert sets_of(Case("large", "micro", bytes_moved=CACHE_BYTES), CACHE_BYTES) == 3
    assert sets_of(Case("larger", "micro", bytes_moved=100 * CACHE_BYTES), CACHE_BYTES) == 2
