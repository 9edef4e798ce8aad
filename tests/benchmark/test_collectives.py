"""From Horovod's timeline and the log of the steps to the times of collectives."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.benchmark.collectives import Arm, Collectives, Step, Timeline, arm_of, read_timeline, table, union
from scripts.benchmark.pinned import core_of

EPOCH = 1_700_000_000_000_000


def events(*rows: tuple[str, int, str, int]) -> list[dict[str, Any]]:
    """Rows of (phase, tensor, name, microseconds), as Horovod writes them."""
    head: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": EPOCH}}
    ]
    named = {row[1] for row in rows}
    head += [{"name": "process_name", "ph": "M", "pid": n, "args": {"name": f"tensor{n}"}} for n in sorted(named)]
    return head + [{"ph": phase, "pid": n, "name": name, "ts": ts} for phase, n, name, ts in rows]


def test_a_tensor_starts_when_it_is_ready_and_counts_as_busy_when_it_is_reduced() -> None:
    found = read_timeline(
        events(
            ("B", 1, "NEGOTIATE_ALLREDUCE", 100),
            ("B", 2, "NEGOTIATE_ALLREDUCE", 150),
            ("E", 1, "", 200),
            ("E", 2, "", 210),
            ("B", 1, "ALLREDUCE", 220),
            ("B", 1, "GLOO_ALLREDUCE", 230),
            ("B", 2, "ALLREDUCE", 240),
            ("E", 1, "", 300),
            ("E", 1, "", 310),
            ("E", 2, "", 400),
            ("B", 1, "NEGOTIATE_ALLREDUCE", 1100),
        )
    )
    base = EPOCH / 1e6
    assert found.starts["tensor1"] == pytest.approx([base + 100e-6, base + 1100e-6], abs=1e-9)
    assert found.starts["tensor2"] == pytest.approx([base + 150e-6], abs=1e-9)
    assert [end - begin for begin, end in found.busy] == pytest.approx([180e-6], abs=1e-6)


def test_a_timeline_without_its_beginning_is_refused() -> None:
    with pytest.raises(ValueError, match="when it began"):
        read_timeline([{"ph": "B", "pid": 1, "name": "NEGOTIATE_ALLREDUCE", "ts": 1}])


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20))))
def test_a_union_is_disjoint_and_covers_the_same(pairs: list[tuple[int, int]]) -> None:
    spans = [(float(begin), float(begin + length)) for begin, length in pairs]
    found = union(spans)
    assert all(one[1] < other[0] for one, other in itertools.pairwise(found))
    for moment in range(75):
        inside = any(begin <= moment + 0.5 < end for begin, end in spans)
        assert inside == any(begin <= moment + 0.5 < end for begin, end in found)


def arm(starts: dict[str, list[float]], step: float = 1.0, backward: float = 0.4) -> Arm:
    """Three steps, one a second; starts: by tensor, its offset in each."""
    steps = [Step(n, n + step, n + backward) for n in range(3)]
    timeline = Timeline({name: [n + offset for n, offset in enumerate(found)] for name, found in starts.items()}, [])
    return arm_of((timeline, steps), (timeline, steps))


def test_offsets_are_medians_over_the_steps_of_tensors_that_are_in_each() -> None:
    found = arm({"a": [0.5, 0.6, 0.9], "b": [0.7, 0.7, 0.7], "cut off": [0.5, 0.6]})
    assert found.starts_ms == pytest.approx({"a": 600, "b": 700})
    assert found.after_backward_ms == pytest.approx({"a": 200, "b": 300})
    assert found.step_ms == pytest.approx(1000)
    with pytest.raises(ValueError, match="no collective"):
        arm({})


def test_time_in_collectives_is_cut_at_the_steps() -> None:
    steps = [Step(0.0, 1.0, 0.1), Step(2.0, 3.0, 2.1)]
    timeline = Timeline({"a": [0.5, 2.5]}, [(0.5, 1.5), (2.5, 3.0)])
    assert arm_of((timeline, steps), (timeline, steps)).busy_ms == pytest.approx(500)


def test_the_table_names_the_collectives_that_start_later() -> None:
    plain = arm({"a": [0.5] * 3, "b": [0.6] * 3})
    stitched = arm({"a": [0.4] * 3, "b": [0.7] * 3}, step=0.8)
    found = Collectives(plain, stitched)
    assert found.late == ["b"]
    assert math.isclose(found.later_ms("a"), -100, abs_tol=1e-6)
    text = "\n".join(table(found))
    assert "1 start later by more than 5% of plain's step" in text
    assert "+100.0 ms  b" in text
    assert "in collectives" in text


def test_ranks_take_turns_on_the_cores() -> None:
    assert [core_of(rank, {4, 2, 7}) for rank in range(4)] == [2, 4, 7, 2]
