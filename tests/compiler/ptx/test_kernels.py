"""The golden kernels by NVRTC's PTX: right by the float64 oracle, and nothing is reported, in random and in starving orders."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from stitchfleet.compiler.check.random_inputs import Regime, random_inputs
from stitchfleet.compiler.codegen.cuda.kernel_text import plan_for_gpu
from stitchfleet.compiler.ir.graph import DType, GatherDimensions, Graph
from stitchfleet.compiler.targets.targets import GPUS
from stitchfleet.compiler.toolchain import nvrtc

from ...marks import slow
from .. import library
from ..codegen.test_golden import GOLDEN
from ..emulated import SMALL
from ..library import LIBRARY
from .executable import Schedule, built, execute, ptx_of
from .instructions import TABLE
from .module import Instruction, parse

pytestmark = pytest.mark.skipif(not nvrtc.is_installed(), reason="NVRTC makes the PTX")

QUICK = [("cumulative_sum", "sm_90"), ("embedding_gradient", "sm_90")]
"""Between them: shared memory, block and grid barriers, shuffles, votes, vectors."""
ALL = [*QUICK, *(slow(*each) for each in itertools.product(GOLDEN, ("sm_70", "sm_90")) if each not in QUICK)]


@pytest.mark.parametrize(("name", "arch"), ALL)
def test_agrees_with_the_oracle_in_every_order(name: str, arch: str) -> None:
    graph = GOLDEN[name]()
    one = built(graph, plan_for_gpu(graph, GPUS[arch], "stitch_kernel")[1])
    # The whole grid at aligned addresses, then few blocks at others: each block does more work.
    assert one.complaint(Regime.NORMAL, Schedule(2, switch_per_mille=3), most_blocks=None) is None
    assert one.complaint(Regime.NORMAL, Schedule(3, switch_per_mille=3, starve=True), most_blocks=3) is None


def _halves(dtype: DType) -> Graph:
    m = library.Maker(f"sum_{dtype.value}")
    x, y = (m.parameter(24, 96, dtype=dtype) for _ in range(2))
    return m.done(m.op("multiply", m.op("add", x, y), y))


def _marked_scatters() -> Graph:
    """So many updates that a table of the first and last one of each place is made, by atomics."""
    m = library.Maker("two_scatters")
    indices = m.parameter(2050, dtype=DType.S32)
    numbers = GatherDimensions((1,), (0,), (0,), 1)
    base, updates = m.parameter(70, 3), m.parameter(2050, 3)
    return m.done(m.op("scatter", base, indices, updates, scatter=numbers, kind="sum"))


OTHERS: dict[str, Callable[[], Graph]] = {
    "f16": lambda: _halves(DType.F16),
    "bf16": lambda: _halves(DType.BF16),
    "marked_scatters": _marked_scatters,
    "argmax": lambda: library.argmax(7, 300, 1),
}
"""Instructions that no golden kernel has: conversions of halves by the device, atomics for minimum and maximum."""


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_70", "sm_90"])
@pytest.mark.parametrize("name", OTHERS)
def test_what_no_golden_kernel_has_agrees_with_the_oracle(name: str, arch: str) -> None:
    graph = OTHERS[name]()
    one = built(graph, plan_for_gpu(graph, GPUS[arch], "stitch_kernel")[1])
    for schedule in (Schedule(2, 30), Schedule(3, 3, starve=True)):
        for regime in (Regime.NORMAL, Regime.SPECIAL):
            assert one.complaint(regime, schedule) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", LIBRARY)
def test_the_librarys_kernels_agree_with_the_oracle(name: str) -> None:
    """On a device so small that they take the paths of large ones."""
    graph = LIBRARY[name]()
    one = built(graph, plan_for_gpu(graph, SMALL)[1])
    for schedule in (Schedule(2, 30), Schedule(3, 3, starve=True)):
        for regime in (Regime.NORMAL, Regime.SPECIAL):
            assert one.complaint(regime, schedule) is None


def test_the_order_of_threads_changes_no_bit() -> None:
    """Of a sum that threads share: it is combined in one order, whichever thread comes first."""
    graph = GOLDEN["cumulative_sum"]()
    one = built(graph, plan_for_gpu(graph, GPUS["sm_90"], "stitch_kernel")[1])
    inputs = [np.require(x, requirements="C") for x in random_inputs(graph, np.random.default_rng(5), Regime.NORMAL)]
    (first,), (second,) = (execute(one, inputs, Schedule(seed, 30)) for seed in (4, 7))
    assert first.tobytes() == second.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_70", "sm_90"])
def test_the_table_has_every_instruction_of_the_librarys_kernels(arch: str) -> None:
    unknown = {}
    for name, make in LIBRARY.items():
        for one in parse(ptx_of(plan_for_gpu(make(), GPUS[arch], "kernel")[1])).statements:
            if isinstance(one, Instruction) and one.opcode not in TABLE:
                unknown[one.opcode] = (name, one.text)
    assert unknown == {}
