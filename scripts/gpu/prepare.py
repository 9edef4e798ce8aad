"""Prepares the benchmark's folder on a machine with NVRTC: kernels for one device, the HLO of all cases, and the sources and Python
packages that the other machine needs.

    scripts/bench-gpu prepare FOLDER [--only micro,op,step] [--arch sm_90] [--python python3.12]

Then copy FOLDER to the machine with the GPU, and start FOLDER/run there.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final

from scripts.benchmark.xla_kernels import FIXTURES
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
from .cases import Case, write_cases
from .ffi import Call
from .hlo_text import NoHloError, hlo_text
from .step_text import baseline, rewritten

ROOT: Final = Path(__file__).parents[2]
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


class _Kept:
    """The kernels of one case that are kept in the folder; of several that are the same, the first."""

    def __init__(self, folder: Path, case: Case) -> None:
        self.folder, self.case = folder, case
        self.names: dict[tuple[object, ...], str] = {}

    def keep(self, entry: CacheEntry) -> None:
        launch = entry.metadata.launch
        assert launch is not None
        image = entry.library.read_bytes()
        alike = (launch.block, launch.grid, launch.shared_bytes, entry.metadata.scratch_bytes, len(image))
        if alike in self.names:
            return
        name = f"{self.case.name}.{launch.block}x{launch.grid}"
        while name in self.names.values():
            name += "b"
        (self.folder / "kernels" / f"{name}.cubin").write_bytes(image)
        (self.folder / "kernels" / f"{name}.json").write_text(entry.metadata.to_json())
        self.names[alike] = name


def _build(folder: Path, case: Case, target: GpuTarget, keeps_sources: bool) -> Case:
    """Builds a case's kernels: the one that the model chooses, the one with the usual launch, and for a micro case all candidates
    that tuning would time. keeps_sources: for a rehearsal, whose driver executes the source."""
    graph = case.graph(folder)
    kept = _Kept(folder, case)
    with contextlib.ExitStack() as stack:
        place: Path | str = folder / "caches" / case.name
        if not keeps_sources:
            place = stack.enter_context(tempfile.TemporaryDirectory(prefix="stitchfleet-bench-gpu-"))
        cache = KernelCache(Path(place) / "cache")
        entry, _ = build_for_gpu(graph, cache, target)
        kept.keep(entry)
        kept.keep(build_for_gpu(graph, cache, target, search=False)[0])
        if case.group == "micro" and not keeps_sources:
            order = itertools.count(10**9)

            def measured(one: CacheEntry) -> float:
                kept.keep(one)
                return float(next(order))

            build_for_gpu(graph, KernelCache(Path(place) / "tuned"), target, measured=measured)
    moved = entry.metadata.bytes_read + entry.metadata.bytes_written
    return replace(case, kernels=tuple(kept.names.values()), bytes_moved=moved)


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


def _try(work: tuple[Path, Case, GpuTarget, bool]) -> tuple[Case, str]:
    try:
        return _build(*work), ""
    except (CudaError, NoHloError, nvrtc.NvrtcError) as error:
        return work[1], str(error).splitlines()[0]


RUN: Final = """#!/usr/bin/env bash
# Runs the benchmark on this machine's GPU: FOLDER/run --results FILE [--minutes N] (--help says more).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python=${PYTHON:-python3}
if compgen -G "$here/whl/*.whl" >/dev/null; then
  "$python" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target "$site" "$here"/whl/*.whl
fi
cd "$here/src"
PYTHONPATH=$site:$here/src "$python" -m scripts.gpu.run "$here" "$@"
"""
PACKAGES: Final = (
    "mako", "markupsafe", "ml_dtypes", "platformdirs", "protobuf", "pytools", "siphash24", "typing_extensions"
)  # fmt: skip
"""What pycuda and the compiler need."""


def _copy_sources(folder: Path) -> None:
    """Copies what the benchmark imports, and writes `run`."""
    source = folder / "src"
    shutil.rmtree(source, ignore_errors=True)
    leave = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "compiler", source / "stitchfleet/compiler", ignore=leave)
    shutil.copytree(ROOT / "scripts/gpu", source / "scripts/gpu", ignore=leave)
    (source / "stitchfleet/__init__.py").touch()
    (folder / "run").write_text(RUN)
    (folder / "run").chmod(0o755)


def _fetch_packages(folder: Path, python: str) -> None:
    """Makes the packages that JAX and PyTorch do not bring, for another version of Python."""
    wheels = folder / "whl"
    wheels.mkdir(exist_ok=True)
    environment = {**os.environ, "PYCUDA_PYTHON": python, "PYCUDA_WHEELS": str(wheels)}
    subprocess.run([str(ROOT / "scripts/pycuda")], env=environment, check=True)
    fetch = [python, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "-d", str(wheels)]
    subprocess.run([*fetch, *PACKAGES], check=True)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="bench-gpu prepare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="micro,op,step", help="groups, or the beginnings of cases' names")
    parser.add_argument("--arch", choices=GPUS, default="sm_90", help="the device's architecture")
    parser.add_argument("--python", help="the other machine's Python, which must be here too: packages are made for it")
    parser.add_argument("--small", action="store_true", help="small tensors, for a rehearsal without a GPU")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args(words)
    target = GPUS[arguments.arch]
    folder: Path = arguments.folder
    for inner in ("kernels", "hlo"):
        (folder / inner).mkdir(parents=True, exist_ok=True)
    if arguments.python:
        _fetch_packages(folder, arguments.python)
    _copy_sources(folder)
    groups = arguments.only.split(",")
    made: list[Case] = []
    work: list[tuple[Path, Case, GpuTarget, bool]] = []
    cases = list(_cases(arguments.small))
    for case, graph in cases:
        if graph is not None and case.is_among(groups):
            case.hlo(folder).write_text(hlo_text(graph))
            work.append((folder, case, target, arguments.small))
    with ProcessPoolExecutor(arguments.processes) as pool:
        for number, (case, failure) in enumerate(pool.map(_try, work), 1):
            print(f"{number} of {len(work)}: {case.name}: {failure or f'{len(case.kernels)} kernels'}", flush=True)
            made.append(case)
    for case, _ in cases:
        if case.group == "step" and case.is_among(groups):
            _write_step(folder, case, made)
            made.append(case)
    barrier = nvrtc.build(head() + BARRIER, target.arch)
    (folder / "barrier.cubin").write_bytes(barrier.cubin)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    facts = {"commit": commit.stdout.strip(), "nvrtc": nvrtc.version(), "target": repr(target)}
    (folder / "made.json").write_text(json.dumps(facts))
    write_cases(folder, made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
