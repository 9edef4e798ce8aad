"""`stitchfleet compile FILE --target cuda`: makes the CUDA kernels of a file of HLO on any machine; --run: runs them on this
machine's GPU."""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Final

import numpy as np

from ..check.random_inputs import Regime, random_inputs
from ..codegen.cuda.kernel_text import CudaKernel, plan_for_gpu
from ..hlo.importer import read_hlo_file
from ..ir.graph import Graph
from ..kernel.cache import KernelCache
from ..pipeline import cuda_runtime
from ..pipeline.cuda import build_for_gpu
from ..pipeline.launch import Launch, choose_launch
from ..planning.plan import Plan
from ..step.partition import Partition, stitch_ops_of
from ..step.whole_step import compile_for_gpu, translation_unit
from ..targets.targets import GpuTarget
from ..toolchain.nvrtc import NvrtcError, build
from .command_io import MistakeError, show_progress, tell_run

DEFAULT_ARCH: Final = "sm_90"


def compile_for_cuda(step: Partition, target: GpuTarget, is_searched: bool, output: Path | None) -> int:
    """Builds a step's kernels as one binary. Writes its machine code (a cubin) to `output` or, if that is None, prints the kernels'
    launches. Returns the exit code: 1 if a stitch op has no kernel. Raises MistakeError if the only one has none or NVRTC fails."""
    launches: dict[str, Launch] = {}

    def searched(graph: Graph, device: GpuTarget) -> tuple[Plan, CudaKernel]:
        launch = launches[graph.digest] = choose_launch(graph, device, progress=show_progress)
        return launch.chosen.plan, launch.chosen.kernel

    try:
        kernels = compile_for_gpu(step, target, show_progress, searched if is_searched else plan_for_gpu)
        failed = [each for each in kernels if each.failure]
        show_progress("")
        if step.is_one_op and failed:
            raise MistakeError(failed[0].failure)
        for each in failed:
            print(f"stitchfleet compile: no kernel for {each.op.name}: {each.failure}", file=sys.stderr)
        searched_for = next(iter(launches.values())).chosen.binary if step.is_one_op and launches else None
        built = searched_for or build(translation_unit(kernels), target.arch)
    except NvrtcError as error:
        raise MistakeError(str(error).splitlines()[0]) from error
    if output is not None:
        output.write_bytes(built.cubin)
        return 1 if failed else 0
    if not step.is_one_op:
        print(step)
    for each in {each.kernel.symbol: each for each in kernels if each.kernel is not None}.values():
        assert each.kernel is not None
        print(_launch_text(each.kernel, target))
        launch = launches.get(each.op.graph.digest)
        text = str(each.kernel.cost()) if launch is None else launch.explain()
        print("\n".join(f"  {line}" for line in text.splitlines()))
    at_most = "" if step.is_one_op else " at most"
    print(
        f"  {built.registers} registers per thread, {built.spill_bytes} bytes spilled{at_most}; "
        f"{len(built.cubin)} bytes of machine code"
    )
    return 1 if failed else 0


def run_on_gpu(args: argparse.Namespace) -> int:
    """Makes a kernel for a GPU of this machine, runs, judges and times it, by the options `args` of `stitchfleet compile`. Returns
    the exit code: 1 if the kernel is wrong. Raises MistakeError if there is no such GPU or no kernel."""
    step = stitch_ops_of(read_hlo_file(args.file))
    if not step.is_one_op:
        raise MistakeError(f"--run takes one kernel; {args.file} is split into {len(step.stitch_ops)}")
    graph = step.stitch_ops[0].graph
    try:
        with cuda_runtime.Gpu(args.device) as gpu, tempfile.TemporaryDirectory(prefix="stitchfleet-compile-") as folder:
            if args.arch not in (None, gpu.target.arch):
                raise MistakeError(f"--arch {args.arch}: {gpu.target.name} is {gpu.target.arch}")
            cache = KernelCache(args.cache or Path(folder) / "cache")
            if args.launch == "tune":
                entry, launch = cuda_runtime.tune(graph, cache, gpu, args.seed, show_progress)
            else:
                search = args.launch != "usual"
                entry, launch = build_for_gpu(graph, cache, gpu.target, progress=show_progress, search=search)
            show_progress("")
            print(_launch_text(launch.chosen.kernel, gpu.target))
            print("\n".join(f"  {line}" for line in launch.explain().splitlines()))
            inputs = random_inputs(graph, np.random.default_rng(args.seed), Regime.NORMAL)
            with contextlib.closing(gpu.load(entry)) as kernel:
                is_right = tell_run(graph, inputs, kernel.run(inputs))
                times = sorted(kernel.durations_ns())
                moved = entry.metadata.bytes_read + entry.metadata.bytes_written
                floor = gpu.copy_ns(moved)
            print(
                f"  a launch takes {statistics.median(times) / 1e3:.2f} us ({times[0] / 1e3:.2f} to {times[-1] / 1e3:.2f}, "
                f"{len(times)} batches, by events), a copy of as many bytes ({moved / 2**20:.1f} MiB) "
                f"{floor / 1e3:.2f} us"
            )
    except (cuda_runtime.GpuError, NvrtcError) as error:
        raise MistakeError(str(error).splitlines()[0]) from error
    return 0 if is_right else 1


def _launch_text(kernel: CudaKernel, target: GpuTarget) -> str:
    launch = "cooperative, with a grid barrier" if kernel.cooperative else "no grid barrier"
    return "\n".join(
        [
            f"kernel {kernel.symbol} for {target.name} ({target.arch}): {kernel.grid} blocks of {kernel.block} threads, {launch}",
            f"  {kernel.shared_bytes} bytes of shared memory per block, {kernel.scratch_bytes} bytes of scratch, "
            f"{len(kernel.tensors)} tensors",
        ]
    )
