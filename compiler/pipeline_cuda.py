"""As `pipeline`, for a GPU: graphs in, CUDA kernels in the cache out.

    graph -> choose_launch -> Plan and CUDA C -> NVRTC -> cubin -> cache

A kernel's image has the guard's comparison too (cuda_compare.h), so that its outputs are judged where they are. No self-check runs a
GPU's kernels before a job may load them: the machine that compiles may have no GPU.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Final

from . import nvrtc
from .cache import CacheEntry, KernelCache
from .cuda import CudaError, CudaKernel, translation_unit
from .graph import Graph
from .kernel import GpuLaunch
from .launch import choose_launch
from .loops import BufferKind
from .lowering import lower
from .pipeline import CompileOutcome, Request, describe, generator_version
from .targets import GpuTarget

Build = Callable[[str, str, Collection[str]], nvrtc.CudaBinary]
COMPARISON: Final = ("stitch_largest", "stitch_compare")
"""Its kernels (cuda_compare.h)."""


@lru_cache(maxsize=1)
def comparison() -> str:
    """The text of the guard's comparison, which stands behind a kernel's."""
    return (resources.files(__package__) / "cuda_compare.h").read_text()


def entry_key(graph: Graph, target: GpuTarget) -> str:
    """The cache key of a graph's kernel for a device."""
    parts = (generator_version(), nvrtc.version(), repr(target), graph.digest)
    return hashlib.sha256("|".join(parts).encode()).hexdigest()


def compile_graphs_for_gpu(
    requests: Sequence[Request],
    cache: KernelCache,
    target: GpuTarget,
    build: Build = nvrtc.build,
    told: Callable[[str], None] = lambda line: None,
) -> list[CompileOutcome]:
    """One outcome per request, in order. told: is given a line of progress."""
    return [_compile(request, cache, target, build, told) for request in requests]


def _compile(
    request: Request, cache: KernelCache, target: GpuTarget, build: Build, told: Callable[[str], None]
) -> CompileOutcome:
    try:
        key = entry_key(request.graph, target)
        known = cache.find(key)
        return CompileOutcome(request.name, known or _build(request.graph, key, cache, target, build, told))
    except (CudaError, nvrtc.NvrtcError) as error:
        return CompileOutcome(request.name, failure=str(error).splitlines()[0])
    except Exception as error:  # a graph that the planner cannot handle must not cost the others
        line = " ".join(f"cannot plan {request.name}: {type(error).__name__}: {error}".split())
        return CompileOutcome(request.name, failure=line[:500])


def _build(
    graph: Graph, key: str, cache: KernelCache, target: GpuTarget, build: Build, told: Callable[[str], None]
) -> CacheEntry:
    symbol = f"stitch_{key[:20]}"
    chosen = choose_launch(
        graph, target, symbol, build=lambda text, arch: build(f"{text}\n{comparison()}", arch, COMPARISON), told=told
    ).chosen
    assert chosen.binary is not None
    metadata = replace(
        describe(graph, chosen.plan, lower(chosen.plan), symbol, f"NVRTC {nvrtc.version()}"),
        scratch_bytes=chosen.kernel.scratch_bytes,
        estimated_ns=chosen.cost.ns,
        launch=launch_of(chosen.kernel),
    )
    with tempfile.TemporaryDirectory(prefix="stitchfleet-cuda-") as folder:
        image = Path(folder) / "kernel.cubin"
        image.write_bytes(chosen.binary.cubin)
        return cache.put(key, image, metadata, f"{translation_unit(chosen.kernel)}\n{comparison()}")


def launch_of(kernel: CudaKernel) -> GpuLaunch:
    """What a runtime has to know to launch it."""
    names = {BufferKind.INPUT: "input", BufferKind.OUTPUT: "output"}
    return GpuLaunch(
        kernel.target.arch,
        max(1, kernel.grid),
        kernel.block,
        kernel.shared_bytes,
        kernel.cooperative,
        kernel.by_table,
        tuple(("scratch", 0) if one is None else (names[one.kind], one.number) for one in kernel.tensors),
    )
