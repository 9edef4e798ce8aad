"""Random words in loops that are strips of lanes: drawn for many strips at once, for rows of all lengths."""

from __future__ import annotations

import pytest

from stitchfleet.compiler.check.random_inputs import Regime
from stitchfleet.compiler.codegen.cpu.forms import DRAWN_AT_ONCE
from stitchfleet.compiler.codegen.cpu.kernel_text import render
from stitchfleet.compiler.ir.graph import DType, Graph
from stitchfleet.compiler.lowering.kernel_loops import lower
from stitchfleet.compiler.planning.plan import plan_graph
from stitchfleet.compiler.targets.targets import CPU, CpuTarget

from ....marks import slow
from ...library import Maker, random_bits
from ...native import STRESS, complaints

LENGTHS = (33, 40, 63, 100, 256, 511, 512, 520, 530, 543, 700, 1024, 1100, 1537)
"""Around multiples of what is drawn at once, with half strips and elements behind them."""


def dropped(length: int) -> Graph:
    """A row without what its own random words drop, its sum, and whether an element was kept."""
    m, shape = Maker(f"dropped_{length}"), (40, length)
    words = random_bits(m, m.parameter(3, dtype=DType.U64), shape)
    keep = m.op("compare", words, m.constant(1 << 30, shape, DType.U32), direction="GT", total_order=False)
    x = m.op("select", keep, m.parameter(*shape), m.constant(0.0, shape))
    return m.done(x, m.reduce(x, 1), keep)


def counted(length: int) -> Graph:
    """The sum of all random words' lowest bits, in 64 bits."""
    m, shape = Maker(f"counted_{length}"), (length, 37)
    words = random_bits(m, m.parameter(3, dtype=DType.U64), shape)
    odd = m.op("and", words, m.constant(1, shape, DType.U32))
    return m.done(m.reduce(m.convert(odd, DType.S64), 0, 1))


GRAPHS = [*(dropped(length) for length in LENGTHS), *(counted(length) for length in (3, 64, 700, 5000))]


@pytest.mark.parametrize("target", [CPU, slow(STRESS)], ids=lambda target: target.name)
def test_all_words_are_those_of_their_places(target: CpuTarget) -> None:
    assert complaints(GRAPHS, target, Regime.UNIT) == []


def test_words_are_drawn_for_many_strips_at_once() -> None:
    text = render(lower(plan_graph(dropped(256))), "kernel")
    assert text.count("stitch_philox_words(") == 1
    assert f"% {DRAWN_AT_ONCE}" in text
