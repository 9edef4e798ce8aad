"""Prepares the benchmark's folder on a machine with NVRTC: kernels for one device, the HLO of all cases, the sources that the other
machine needs.

    python -m scripts.gpu.prepare FOLDER [--only micro,op,step] [--arch sm_90]
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final

from stitchfleet.compiler.codegen.cuda.kernel_text import CudaError, head
from stitchfleet.compiler.hlo.importer import read_hlo_file
from stitchfleet.compiler.hlo.text import read_hlo_text
from stitchfleet.compiler.ir.graph import Graph
from stitchfleet.compiler.kernel.cache import CacheEntry, KernelCache
from stitchfleet.compiler.pipeline.cuda import build_for_gpu
from stitchfleet.compiler.step.partition import partition, stitch_ops_of
from stitchfleet.compiler.targets.targets import GPUS, GpuTarget
from stitchfleet.compiler.toolchain import nvrtc

from . import micro
from .cases import Case, read_cases, write_cases
from .ffi import Call
from .hlo_text import NoHloError, hlo_text
from .step_text import baseline, rewritten

ROOT: Final = Path(__file__).parents[2]
FIXTURES: Final = ROOT / "tests/fixtures/hlo"
BARRIER: Final = """
extern "C" __global__ void __launch_bounds__(256) barriers(unsigned* semaphore, int count) {
  for (int turn = 0; turn < count; ++turn) stitch_grid_barrier(semaphore);
}
"""


def _cases(is_small: bool = False) -> Iterator[tuple[Case, Graph | None]]:
    """All cases with their graphs; a whole step has none."""
    for each in micro.CASES:
        graph = (
            stitch_ops_of(read_hlo_file((micro.SMALL if is_small else micro.FOLDER) / f"{each.name}.hlo"))
            .stitch_ops[0]
            .graph
        )
        yield Case(each.name, "micro", each.function), graph
    known: dict[str, tuple[Case, Graph]] = {}
    for path in sorted(FIXTURES.glob("*.hlo")):
        ops = partition(read_hlo_file(path)).stitch_ops
        counts = Counter(op.graph.digest for op in ops)
        for op in ops:
            if op.graph.digest not in known:
                case = Case(
                    f"{path.stem}-{op.graph.digest[:8]}", "op", workload=path.stem, count=counts[op.graph.digest]
                )
                known[op.graph.digest] = case, op.graph
    yield from known.values()
    for path in sorted(FIXTURES.glob("*.hlo")):
        yield Case(path.stem, "step", workload=path.stem), None


def _build(folder: Path, case: Case, target: GpuTarget) -> Case:
    """Builds a case's kernels: for a micro case all candidates that tuning would time, else the one that the model chooses."""
    found: list[str] = []
    graph = case.graph(folder)

    def keep(entry: CacheEntry) -> str:
        launch = entry.metadata.launch
        assert launch is not None
        name = f"{case.name}.{launch.block}x{launch.grid}"
        while name in found:
            name += "b"
        shutil.copy(entry.library, folder / "kernels" / f"{name}.cubin")
        (folder / "kernels" / f"{name}.json").write_text(entry.metadata.to_json())
        found.append(name)
        return name

    cache = KernelCache(folder / "cache")
    entry, _ = build_for_gpu(graph, cache, target)
    keep(entry)
    if case.group == "micro":
        usual, _ = build_for_gpu(graph, cache, target, search=False)
        keep(usual)
        turn = iter(range(100))

        def measured(one: CacheEntry) -> float:
            keep(one)
            return 1e9 + next(turn)

        build_for_gpu(graph, KernelCache(folder / "cache-tuned"), target, measured=measured)
    meta = entry.metadata
    return replace(case, kernels=tuple(found), bytes_moved=meta.bytes_read + meta.bytes_written)


def _write_step(folder: Path, case: Case, made: Sequence[Case]) -> None:
    """Writes a step's HLO twice: as it is, and with the kernels of its stitch ops."""
    text = (FIXTURES / f"{case.name}.hlo").read_text()
    step = partition(read_hlo_text(text))
    known = {one.name.rpartition("-")[2]: one for one in made if one.group == "op" and one.kernels}
    calls = {}
    for op in step.stitch_ops:
        if found := known.get(op.graph.digest[:8]):
            kernel = found.kernels[0]
            calls[op.graph.digest] = Call.of(found.metadata(folder, kernel), f"kernels/{kernel}.cubin")
    case.hlo(folder).write_text(baseline(text))
    case.stitched_hlo(folder).write_text(rewritten(text, step, calls))
    print(f"{case.name}: {len(calls)} kernels in the step", flush=True)


def _try(work: tuple[Path, Case, GpuTarget]) -> tuple[Case, str]:
    try:
        return _build(*work), ""
    except (CudaError, NoHloError, nvrtc.NvrtcError) as error:
        return work[1], str(error).splitlines()[0]


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="micro,op,step", help="groups, separated by commas")
    parser.add_argument("--arch", choices=GPUS, default="sm_90")
    parser.add_argument("--small", action="store_true", help="small tensors, for a rehearsal without a GPU")
    parser.add_argument("--again", action="store_true", help="keep the folder's other groups")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args(words)
    target = GPUS[arguments.arch]
    folder: Path = arguments.folder
    for inner in ("kernels", "hlo"):
        (folder / inner).mkdir(parents=True, exist_ok=True)
    groups = arguments.only.split(",")
    made: list[Case] = []
    if arguments.again:
        made = [case for case in read_cases(folder) if case.group not in ("step", *groups)]
    work: list[tuple[Path, Case, GpuTarget]] = []
    for case, graph in _cases(arguments.small):
        if graph is not None and case.group in groups:
            case.hlo(folder).write_text(hlo_text(graph))
            work.append((folder, case, target))
    with ProcessPoolExecutor(arguments.processes) as pool:
        for number, (case, failure) in enumerate(pool.map(_try, work), 1):
            print(f"{number} of {len(work)}: {case.name}: {failure or f'{len(case.kernels)} kernels'}", flush=True)
            made.append(case)
    for case, _ in _cases():
        if case.group == "step" and "step" in groups:
            _write_step(folder, case, made)
            made.append(case)
    barrier = nvrtc.build(head() + BARRIER, target.arch)
    (folder / "barrier.cubin").write_bytes(barrier.cubin)
    (folder / "made.json").write_text(json.dumps({"nvrtc": nvrtc.version(), "target": repr(target)}))
    write_cases(folder, made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
