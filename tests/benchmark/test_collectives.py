"""From Horovod's timeline and the log of the steps to the times of collectives."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.benchmark.collectives import Arm, Collectives, Step, arm_of, busy_spans, table, union
from scripts.benchmark.pinned import core_of
from scripts.benchmark.trace import StepStarts, starts_of

EPOCH = 1_700_000_000_000_000


def events(*rows: tuple[str, int, str, int]) -> list[dict[str, Any]]:
    """Rows of (phase, tensor, name, microseconds), as Horovod writes them."""
    head: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": EPOCH}}
    ]
    named = {row[1] for row in rows}
    head += [{"name": "process_name", "ph": "M", "pid": n, "args": {"name": f"tensor{n}"}} for n in sorted(named)]
    return head + [{"ph": phase, "pid": n, "name": name, "ts": ts} for phase, n, name, ts in rows]


def test_a_rank_is_busy_while_a_collective_runs_and_not_while_it_is_negotiated() -> None:
    found = busy_spans(
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
    assert [end - begin for begin, end in found] == pytest.approx([180e-6], abs=1e-6)
    assert found[0][0] == pytest.approx(EPOCH / 1e6 + 220e-6, abs=1e-6)


def test_a_timeline_without_its_beginning_is_refused() -> None:
    with pytest.raises(ValueError, match="when it began"):
        busy_spans([{"ph": "B", "pid": 1, "name": "NEGOTIATE_ALLREDUCE", "ts": 1}])


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20))))
def test_a_union_is_disjoint_and_covers_the_same(pairs: list[tuple[int, int]]) -> None:
    spans = [(float(begin), float(begin + length)) for begin, length in pairs]
    found = union(spans)
    assert all(one[1] < other[0] for one, other in itertools.pairwise(found))
    for moment in range(75):
        inside = any(begin <= moment + 0.5 < end for begin, end in spans)
        assert inside == any(begin <= moment + 0.5 < end for begin, end in found)


def arm(starts: dict[str, float], step: float = 1.0, backward: float = 0.4) -> Arm:
    """Three steps, one a second; starts: by collective, its offset in each."""
    steps = [Step(n, n + step) for n in range(3)]
    found = {name: [n + offset for n in range(3)] for name, offset in starts.items()}
    return arm_of([], steps, StepStarts([0.0, 1.0, 2.0], [n + backward for n in range(3)], found), steps)


def test_starts_are_medians_over_the_steps() -> None:
    found = arm({"a": 0.6, "b": 0.7})
    assert found.starts_ms == pytest.approx({"a": 600, "b": 700})
    assert found.after_backward_ms == pytest.approx({"a": 200, "b": 300})
    assert found.step_ms == pytest.approx(1000)
    with pytest.raises(ValueError, match="no collective"):
        arm({})


def test_time_in_collectives_is_cut_at_the_steps() -> None:
    steps = [Step(0.0, 1.0), Step(2.0, 3.0)]
    starts = StepStarts([0.0, 2.0], [0.1, 2.1], {"a": [0.5, 2.5]})
    assert arm_of([(0.5, 1.5), (2.5, 3.0)], steps, starts, steps).busy_ms == pytest.approx(500)


def test_a_step_begins_with_its_first_operator_and_its_backward_pass_with_a_gradient_s_product() -> None:
    second = 10**12
    found = starts_of(
        {
            ("read", "ReadVariableOp"): [5 * second, 7 * second],
            ("model/MatMul", "_MklMatMul"): [5 * second + 1, 7 * second],
            ("gradient_tape/model/MatMul/MatMul", "_MklMatMul"): [6 * second, 8 * second],
            ("gradient_tape/model/Sum", "Sum"): [5 * second + 5, 7 * second + 5],
            ("reduce", "HorovodAllreduce"): [6 * second + second // 2, 9 * second],
        }
    )
    assert found.begin == [0.0, 2.0]
    assert found.backward == [1.0, 3.0]
    assert found.collectives == {"reduce": [1.5, 4.0]}
    assert starts_of({}) == StepStarts([], [], {})


def test_the_table_names_the_collectives_that_start_later() -> None:
    plain = arm({"a": 0.5, "b": 0.6})
    stitched = arm({"a": 0.4, "b": 0.7}, step=0.8)
    found = Collectives(plain, stitched)
    assert found.late == ["b"]
    assert math.isclose(found.later_ms("a"), -100, abs_tol=1e-6)
    text = "\n".join(table(found))
    assert "1 start later by more than 5% of plain's step" in text
    assert "+100.0 ms  b" in text
    assert "in collectives" in text


def test_ranks_take_turns_on_the_cores() -> None:
    assert [core_of(rank, {4, 2, 7}) for rank in range(4)] == [2, 4, 7, 2]
