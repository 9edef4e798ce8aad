"""How CUDA kernels are launched: the search over blocks and registers, what the compiler says, the model that ranks."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stitchfleet.compiler.check.random_inputs import Regime
from stitchfleet.compiler.codegen.cuda.kernel_text import CudaError, plan_for_gpu, translation_unit
from stitchfleet.compiler.ir.graph import DType, GatherDimensions
from stitchfleet.compiler.lowering.gpu_cost import Chain, NestWork, PhaseWork, kernel_cost
from stitchfleet.compiler.pipeline.launch import check_co_residency, choose_launch
from stitchfleet.compiler.targets.targets import GPUS, T4, V100, GpuTarget
from stitchfleet.compiler.toolchain import nvrtc

from ...marks import slow
from .. import library
from ..codegen.test_golden import GOLDEN
from ..emulated import build_all


def answer(registers: int = 32, spill_bytes: int = 0) -> nvrtc.CudaBinary:
    return nvrtc.CudaBinary(b"", b"", registers, spill_bytes)


def test_the_best_by_the_model_is_built_and_said_to_be() -> None:
    told: list[str] = []
    launch = choose_launch(library.layer_norm_gradient(256, 512), V100, progress=told.append)
    assert launch.chosen.binary is not None
    assert launch.chosen.binary.cubin[:4] == b"\x7fELF"
    assert launch.chosen.cost.ns <= min(one.cost.ns for one in launch.considered) * 1.03
    text = launch.explain()
    assert text.count("  * ") == 1
    assert f"registers ({launch.chosen.binary.registers}, 0 bytes spilled)" in text
    assert "phase 0: " in text
    assert "bound by" in text
    assert any("building" in line for line in told)


def test_what_spills_is_charged_and_another_is_taken() -> None:
    graph = library.layer_norm_gradient(1024, 256)
    built: list[str] = []

    def spilling(source: str, arch: str) -> nvrtc.CudaBinary:
        built.append(source)
        return answer(spill_bytes=4096 if len(built) == 1 else 0)

    first = choose_launch(graph, V100, build=lambda source, arch: answer()).chosen
    launch = choose_launch(graph, V100, build=spilling)
    assert len(built) > 1
    assert launch.chosen.target != first.target
    (spilled,) = [one for one in launch.considered if one.binary is not None and one.binary.spill_bytes]
    assert spilled.target == first.target
    assert "4096 bytes spilled" in launch.explain()


@pytest.mark.slow
def test_a_refusal_of_the_compiler_reaches_the_caller() -> None:
    def refuse(source: str, arch: str) -> nvrtc.CudaBinary:
        raise nvrtc.NvrtcError("NVRTC refuses")

    with pytest.raises(nvrtc.NvrtcError, match="refuses"):
        choose_launch(library.softmax(64, 64), V100, build=refuse)
    with pytest.raises(CudaError, match="shared memory"):
        choose_launch(library.layer_norm_gradient(64, 2048), replace(V100, shared_bytes_per_block=8))


@pytest.mark.parametrize("arch", [slow("sm_70"), slow("sm_75"), "sm_90"])
def test_a_grid_that_waits_for_itself_is_co_resident_with_the_registers_that_the_compiler_took(arch: str) -> None:
    """`__launch_bounds__` sees to it; without, a grid sized for 32 registers a thread would never get past its barrier."""
    for name, registers in (("batch_norm", 32), ("clip_by_global_norm", 64), ("layer_norm_gradient", 64)):
        target = replace(GPUS[arch], assumed_registers=registers)
        _, kernel = plan_for_gpu(GOLDEN[name](), target)
        assert kernel.cooperative
        source = translation_unit(kernel)
        built = nvrtc.build(source, arch)
        assert built.registers <= kernel.register_cap
        check_co_residency(kernel, built)
        # A T4's threads have 64 registers each when all are at work; for sm_90 the compiler takes no more than 32 by itself.
        if name == "batch_norm" and arch == "sm_70":
            unbounded = nvrtc.build(re.sub(r"__launch_bounds__\((\d+), \d+\)", r"__launch_bounds__(\1)", source), arch)
            with pytest.raises(CudaError, match="blocks wait for each other"):
                check_co_residency(kernel, unbounded)


def test_a_grid_that_would_not_be_co_resident_is_refused() -> None:
    _, kernel = plan_for_gpu(library.batch_norm(8, 28, 28, 64), V100)
    with pytest.raises(CudaError, match="with 255 registers per thread v100 holds 80"):
        check_co_residency(replace(kernel, blocks=10_000), answer(registers=255))
    check_co_residency(replace(kernel, cooperative=False, blocks=10_000), answer(registers=255))


@pytest.mark.parametrize("block", [128, 512, 1024])
def test_kernels_of_every_block_size_agree_with_the_oracle(block: int) -> None:
    graphs = [
        library.layer_norm_gradient(37, 96),
        library.batch_norm(2, 5, 7, 24),
        library.softmax(9, 700),
        library.cross_entropy(11, 300),
        library.embedding_gradient(40, 48, 30),
    ]
    target = replace(V100, multiprocessors=2, block=block, partial_tasks=4)
    for one in build_all(graphs, target):
        assert one.kernel.block == block
        assert one.complaint(Regime.NORMAL, seed=block, most_blocks=3) is None, one.graph.name


def test_registers_and_blocks_are_two_sides_of_one_thing() -> None:
    for target in GPUS.values():
        for block in (128, 256, 512, 1024):
            sized = replace(target, block=block)
            for registers in (32, 40, 64, 96, 128):
                at_once = sized.blocks_at_once(0, registers) // sized.multiprocessors
                if at_once == 0:
                    continue
                cap = sized.most_registers(at_once)
                assert cap >= registers or cap == 255
                assert sized.blocks_at_once(0, cap) // sized.multiprocessors == at_once


works = st.builds(
    lambda moved, again, compute, blocks: PhaseWork((NestWork(moved, min(moved, again), compute, blocks),)),
    st.integers(0, 1 << 28),
    st.integers(0, 1 << 28),
    st.floats(0, 1e6),
    st.integers(1, 100_000),
)


@given(works, st.sampled_from(sorted(GPUS)), st.sampled_from([128, 256, 1024]), st.integers(1, 8))
def test_the_model_never_finds_more_work_cheaper(work: PhaseWork, arch: str, block: int, at_once: int) -> None:
    target = replace(GPUS[arch], block=block)
    resident = at_once * target.multiprocessors
    cost = kernel_cost((work,), target, resident, 1)
    (nest,) = work.nests
    more = PhaseWork((replace(nest, bytes_moved=2 * nest.bytes_moved, compute_ns=2 * nest.compute_ns),))
    assert kernel_cost((more,), target, resident, 1).ns >= cost.ns
    longer = replace(nest, chain=Chain(nest.chain.rounds + 1, nest.chain.iterations + 1, nest.chain.warps + 1))
    assert kernel_cost((PhaseWork((longer,)),), target, resident, 1).ns >= cost.ns
    assert kernel_cost((work,), target, resident, 2).ns > cost.ns
    assert kernel_cost((work,), target, resident, 1, spill_bytes=64).ns > cost.ns
    faster = replace(target, bytes_per_ns=2 * target.bytes_per_ns, round_ns=target.round_ns / 2)
    assert kernel_cost((work,), faster, resident, 1).ns <= cost.ns
    floor = (work.bytes_moved - work.bytes_again) / target.bytes_per_ns
    assert cost.phases[0].ns >= floor * 0.999


def test_one_long_block_is_what_a_phase_waits_for() -> None:
    even = NestWork(1 << 24, 0, 0.0, 1024)
    lonely = NestWork(1 << 20, 0, 0.0, 1)
    cost = kernel_cost((PhaseWork((even, lonely)),), V100, 320, 0)
    assert cost.phases[0].bound == "one block"
    assert cost.phases[0].ns > 4 * kernel_cost((PhaseWork((even,)),), V100, 320, 0).phases[0].ns
    assert "bound by one block" in str(cost)


def test_a_block_of_the_rows_length_is_preferred_to_a_longer_one() -> None:
    """1,024 threads on rows of 1,024 floats: three quarters have no vector to load, and all wait at each reduction. On an
    H200 such blocks took 443 us where blocks of 128 threads took 67."""
    costs = {}
    for block in (128, 1024):
        _, kernel = plan_for_gpu(library.softmax(32768, 1024), replace(GPUS["sm_90"], block=block))
        costs[block] = kernel.cost().ns
    assert costs[1024] > 2 * costs[128]


def test_few_work_items_are_spread_over_multiprocessors() -> None:
    """50 tasks of a warp each: as two blocks of 1,024 threads they took 92 us on an H200, XLA's kernels 6."""
    nest = NestWork(1 << 20, 0, 100.0, 2, Chain(2, 70))
    few = kernel_cost((PhaseWork((nest,)),), replace(GPUS["sm_90"], block=1024), 132, 0)
    many = kernel_cost((PhaseWork((replace(nest, blocks=13),)),), replace(GPUS["sm_90"], block=128), 2112, 0)
    assert few.ns - few.launch_ns > 2 * (many.ns - many.launch_ns)


@pytest.mark.parametrize("count", [1000, 6464])
def test_a_scatter_is_charged_for_its_searches(count: int) -> None:
    """6,464 indices of 500 places took milliseconds where the model said less than one microsecond."""
    m = library.Maker("scatter")
    base, updates, indices = m.parameter(500, 18), m.parameter(count, 18), m.parameter(count, dtype=DType.S32)
    numbers = GatherDimensions((1,), (0,), (0,), 1)
    graph = m.done(m.op("scatter", base, indices, updates, scatter=numbers, kind="sum"))
    _, kernel = plan_for_gpu(graph, GPUS["sm_90"])
    assert 1_000 < kernel.cost().phases[-1].ns < 50_000


@pytest.mark.parametrize("target", [V100, T4])
def test_partial_results_are_added_up_by_many_blocks(target: GpuTarget) -> None:
    """Of 256 columns by two blocks, one partial result after the other, it took longer than all the rest."""
    _, kernel = plan_for_gpu(library.layer_norm_gradient(1024, 256), target)
    assert [nest.blocks for nest in kernel.work[1].nests] == [32, 32]
    _, wide = plan_for_gpu(library.column_sum(3000, 40_000), target)
    assert max(len(phase.nests) for phase in wide.work) == 1
