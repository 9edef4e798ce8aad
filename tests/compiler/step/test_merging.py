"""Merges by the GPU's cost model: they pay, and it says why, but where large tiles take blocks from what moves many bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stitchfleet.compiler.hlo.text import read_hlo_text
from stitchfleet.compiler.ir.graph import Graph
from stitchfleet.compiler.lowering.gpu_cost import NestWork, PhaseWork
from stitchfleet.compiler.step.merging import MergeModel, OpWork, beside_all
from stitchfleet.compiler.step.partition import StitchOp, partition
from stitchfleet.compiler.targets.targets import GPUS, T4, V100, GpuTarget

from .. import library


def work_of(graph: Graph, target: GpuTarget) -> OpWork:
    work = MergeModel(target).work_of(graph)
    assert work is not None
    return work


@pytest.mark.parametrize("arch", sorted(GPUS))
def test_small_ops_side_by_side_save_a_launch(arch: str) -> None:
    target = GPUS[arch]
    works = [work_of(library.softmax(64, 128), target), work_of(library.gelu(64, 64), target)]
    verdict = MergeModel(target).judge(beside_all(works), works)
    assert verdict.pays
    assert verdict.apart_ns - verdict.together_ns > 0.9 * target.launch_ns
    assert "3.0 us of launches saved" in str(verdict)


def test_phases_side_by_side_wait_at_the_same_barriers() -> None:
    gradient = work_of(library.layer_norm_gradient(1024, 256), V100)
    norm = work_of(library.batch_norm(8, 14, 14, 32), V100)
    assert len(gradient.phases) > 1
    both = gradient.beside(norm)
    assert len(both.phases) == max(len(gradient.phases), len(norm.phases))
    assert both.shared_bytes == max(gradient.shared_bytes, norm.shared_bytes)
    moved = [sum(phase.bytes_moved for phase in each.phases) for each in (both, gradient, norm)]
    assert moved[0] == moved[1] + moved[2]
    cost = both.cost(V100)
    assert cost.barriers_ns < gradient.cost(V100).barriers_ns + norm.cost(V100).barriers_ns
    assert "barriers -" in str(MergeModel(V100).judge(both, [gradient, norm]))


def test_blocks_with_large_tiles_are_kept_apart_from_what_moves_many_bytes() -> None:
    rows, large = library.softmax(64, 8192), library.gelu(64 << 20)
    for target, pays in ((T4, False), (V100, True)):
        works = [work_of(rows, target), work_of(large, target)]
        verdict = MergeModel(target).judge(beside_all(works), works)
        assert verdict.pays == pays, str(verdict)
        assert ("bytes of shared memory per block leave 40 of 160 blocks at once" in verdict.why) == (not pays)


def test_the_reuse_of_a_cache_that_both_fill_is_counted() -> None:
    reused = OpWork(
        (PhaseWork((NestWork(4 << 20, 0, 0.0, 320),)), PhaseWork((NestWork(4 << 20, 4 << 20, 0.0, 320),))), 0
    )
    model = MergeModel(V100)
    small = replace(V100, l2_bytes=4 << 20)
    assert model.judge(reused.beside(reused), [reused, reused]).pays
    together = reused.beside(reused).cost(small)
    assert sum(phase.ns for phase in together.phases) > 2 * sum(phase.ns for phase in reused.cost(small).phases)


SUM = "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }"
MAX = "greater { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] maximum(a, b) }"
SOFTMAX = """
  top = f32[64] reduce(x, low), dimensions={1}, to_apply=greater
  tops = f32[64,8192] broadcast(top), dimensions={0}
  left = f32[64,8192] subtract(x, tops)
  power = f32[64,8192] exponential(left)
  total = f32[64] reduce(power, zero), dimensions={1}, to_apply=add
  totals = f32[64,8192] broadcast(total), dimensions={0}
  share = f32[64,8192] divide(power, totals)
"""


def module(body: str, root: str) -> str:
    return f"""HloModule step
{SUM}
{MAX}
ENTRY e {{
  x = f32[64,8192] parameter(0)
  w = f32[64,1048576] parameter(1)
  m = f32[64,64] parameter(2)
  zero = f32[] constant(0)
  low = f32[] constant(-inf)
  {body}
  product = f32[64,64] dot(m, m), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT t = {root}
}}
"""


SIDE_BY_SIDE = module(
    SOFTMAX + "  gone = f32[64,1048576] tanh(w)",
    "(f32[64,8192], f32[64,1048576], f32[64,64]) tuple(share, gone, product)",
)
ONE_AFTER_THE_OTHER = module(
    SOFTMAX
    + """
  all = f32[] reduce(share, low), dimensions={0,1}, to_apply=greater
  alls = f32[64,1048576] broadcast(all), dimensions={}
  gone = f32[64,1048576] multiply(w, alls)
""",
    "(f32[64,8192], f32[64,1048576], f32[64,64]) tuple(share, gone, product)",
)


def ops(text: str, target: GpuTarget | None) -> tuple[list[StitchOp], str]:
    step = partition(read_hlo_text(text), target=target)
    return list(step.stitch_ops), str(step)


@pytest.mark.parametrize("text", [SIDE_BY_SIDE, ONE_AFTER_THE_OTHER], ids=["side by side", "one after the other"])
def test_a_step_is_merged_as_its_device_had_better_and_says_why(text: str) -> None:
    assert len(ops(text, None)[0]) == 1
    found, told = ops(text, V100)
    assert len(found) == 1
    assert ("merged: " in told) == (text is SIDE_BY_SIDE)
    found, told = ops(text, T4)
    assert len(found) == 2
    assert ("apart: " if text is SIDE_BY_SIDE else "cut: ") in told
    assert "shared memory per block leave 40 of 160 blocks at once" in told
    names = [set(op.instructions) for op in found]
    assert "gone" in names[1] or "gone" in names[0]
    assert not any({"share", "gone"} <= each for each in names)
    assert sum(len(each) for each in names) == len(ops(text, None)[0][0].instructions)
