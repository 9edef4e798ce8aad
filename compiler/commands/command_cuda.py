"""`stitchfleet compile FILE --target cuda --run`: makes a kernel for a GPU of this machine, and runs it there."""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
from pathlib import Path

import numpy as np

from ..check.random_inputs import Regime, random_inputs
from ..hlo.importer import read_hlo_file
from ..kernel.cache import KernelCache
from ..pipeline import cuda_runtime
from ..pipeline.cuda import build_for_gpu
from ..step.partition import stitch_ops_of
from ..toolchain.nvrtc import NvrtcError
from .command_io import MistakeError, kernel_text, show_progress, tell_run


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
            print(kernel_text(entry, launch.explain()))
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
