"""Scratch buffers that live at the same time never overlap, and others do share bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stitchfleet.compiler.ir.graph import DType
from stitchfleet.compiler.loops.loops import Buffer, BufferKind
from stitchfleet.compiler.loops.scratch import ALIGNMENT, plan_memory


def buffer(number: int, elements: int) -> Buffer:
    return Buffer(BufferKind.SCRATCH, number, DType.F32, elements)


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(0, 6), st.integers(0, 3)), max_size=12))
def test_buffers_that_live_together_have_bytes_of_their_own(drawn: list[tuple[int, int, int]]) -> None:
    lives = {buffer(i, size): (first, first + length) for i, (size, first, length) in enumerate(drawn)}
    plan = plan_memory(lives)
    spans = [(plan.offsets[b], plan.offsets[b] + b.size_bytes, lives[b]) for b in lives]
    for i, (start, end, (first, last)) in enumerate(spans):
        assert start % ALIGNMENT == 0
        assert end <= plan.total_bytes
        for other_start, other_end, (other_first, other_last) in spans[i + 1 :]:
            together = first <= other_last and other_first <= last
            assert not together or end <= other_start or other_end <= start


def test_bytes_are_handed_on_across_phases() -> None:
    plan = plan_memory({buffer(0, 1024): (0, 1), buffer(1, 1024): (2, 3), buffer(2, 1024): (1, 2)})
    assert plan.total_bytes == 2 * 4096
