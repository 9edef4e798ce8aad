"""The GPU backend: graphs in, CUDA kernels in the cache out.

    graph -> choose_launch -> Plan and CUDA C -> NVRTC -> cubin -> cache

A kernel's image also contains the guard's comparison (cuda_compare.h), so that its outputs are compared on the device. GPU kernels
have no self-check before a job loads them: the machine that compiles may have no GPU.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Final

from ..codegen.cuda.kernel_text import CudaError, CudaKernel, plan_for_gpu, translation_unit
from ..explaining.words import explain
from ..ir.graph import Graph
from ..kernel.cache import CacheEntry, KernelCache
from ..kernel.metadata import GpuLaunch, KernelMetadata
from ..loops.loops import BufferKind
from ..planning.plan import Plan
from ..targets.targets import GpuTarget
from ..toolchain import nvrtc
from .backend import (
    CompileOutcome,
    KernelRequest,
    Progress,
    Stage,
    describe,
    first_stages,
    generator_version,
    one_line,
    silent,
)
from .launch import Launch, LaunchCandidate, choose_launch

Build = Callable[[str, str, Collection[str]], nvrtc.CudaBinary]
COMPARISON: Final = ("stitch_largest", "stitch_compare")
"""The kernels of the comparison (cuda_compare.h)."""


@lru_cache(maxsize=1)
def comparison() -> str:
    """The CUDA C text of the guard's comparison (cuda_compare.h), which follows a kernel's text."""
    return (resources.files(__package__) / "cuda_compare.h").read_text()


def identity(target: GpuTarget) -> str:
    """What a kernel depends on besides the graph: generator, NVRTC, device."""
    return "|".join((generator_version(), nvrtc.version(), repr(target)))


def entry_key(graph: Graph, target: GpuTarget, search: bool = True) -> str:
    """The cache key of a graph's kernel for a device. Without `search` the key differs, and no job asks for it: the kernel with the
    usual launch is for comparisons."""
    parts = (identity(target), graph.digest, *(() if search else ("usual",)))
    return hashlib.sha256("|".join(parts).encode()).hexdigest()


@dataclass(frozen=True)
class CudaBackend:
    """CUDA C for a GPU, compiled by NVRTC on any machine. search: whether a kernel has the best launch by the model (for which a few
    are built, and which jobs ask for) or the usual one."""

    target: GpuTarget
    build: Build = nvrtc.build
    search: bool = True

    def identity(self) -> str:
        """See `Backend.identity`."""
        return identity(self.target)

    def key(self, graph: Graph) -> str:
        """See `Backend.key`."""
        return entry_key(graph, self.target, self.search)

    def stages(self, symbol: str = "stitch_kernel", progress: Progress = silent) -> tuple[Stage, ...]:
        """See `Backend.stages`."""

        def as_kernel(value: object) -> tuple[Plan, CudaKernel]:
            assert isinstance(value, Graph)
            if not self.search:
                return plan_for_gpu(value, self.target, symbol)
            chosen = choose_launch(value, self.target, symbol, build=self._plain, progress=progress).chosen
            return chosen.plan, chosen.kernel

        def in_words(value: object) -> str:
            return explain(_planned(value)[0])

        def as_loops(value: object) -> str:
            return str(_planned(value)[1].loops)

        def as_source(value: object) -> str:
            return translation_unit(_planned(value)[1])

        def as_binary(value: object) -> nvrtc.CudaBinary:
            return self._plain(translation_unit(_planned(value)[1]), self.target.arch)

        def as_ptx(value: object) -> str:
            assert isinstance(value, nvrtc.CudaBinary)
            return value.ptx.decode()

        # The plan is final only after the kernel's tiles fit shared memory, so the text is made together with it.
        return (
            first_stages(self.target)[0],
            Stage("plan", as_kernel, in_words),
            Stage("loops", _planned, as_loops),
            Stage("source", _planned, as_source),
            Stage("ptx", as_binary, as_ptx),
        )

    def _plain(self, text: str, arch: str) -> nvrtc.CudaBinary:
        return self.build(text, arch, ())

    def compile(
        self, requests: Sequence[KernelRequest], cache: KernelCache, progress: Progress = silent
    ) -> list[CompileOutcome]:
        """See `Backend.compile`."""
        outcomes = [self._compiled(request, cache, progress) for request in requests]
        progress("")
        return outcomes

    def _compiled(self, request: KernelRequest, cache: KernelCache, progress: Progress) -> CompileOutcome:
        try:
            known = cache.find(self.key(request.graph))
            if known is not None:
                return CompileOutcome(request.name, known)
            entry, launch = build_for_gpu(request.graph, cache, self.target, self.build, progress, search=self.search)
            return CompileOutcome(request.name, entry, notes=launch.explain())
        except (CudaError, nvrtc.NvrtcError) as error:
            is_certain = not isinstance(error, nvrtc.NvrtcError) or error.is_certain
            return CompileOutcome(request.name, failure=str(error).splitlines()[0], permanent=is_certain)
        except Exception as error:  # a graph that the planner cannot handle must not affect the others
            line = one_line(f"cannot plan {request.name}: {type(error).__name__}: {error}")
            return CompileOutcome(request.name, failure=line, permanent=not isinstance(error, (MemoryError, OSError)))


def _planned(value: object) -> tuple[Plan, CudaKernel]:
    assert isinstance(value, tuple)
    plan, kernel = value
    return plan, kernel


def build_for_gpu(
    graph: Graph,
    cache: KernelCache,
    target: GpuTarget,
    build: Build = nvrtc.build,
    progress: Progress = silent,
    measured: Callable[[CacheEntry], float | None] | None = None,
    search: bool = True,
) -> tuple[CacheEntry, Launch]:
    """Plans and builds `graph`'s kernel, puts it into the cache, and returns the entry and how the launch was chosen. search,
    measured: as for choose_launch, but `measured` gets an entry of a temporary cache; with `measured`, the kernel replaces an entry
    that exists. Raises CudaError or NvrtcError."""
    key = entry_key(graph, target, search)
    symbol = f"stitch_{key[:20]}"
    with tempfile.TemporaryDirectory(prefix="stitchfleet-cuda-") as folder:
        image = Path(folder) / "kernel.cubin"

        def put(into: KernelCache, under: str, candidate: LaunchCandidate) -> CacheEntry:
            assert candidate.binary is not None
            image.write_bytes(candidate.binary.cubin)
            source = f"{translation_unit(candidate.kernel)}\n{comparison()}"
            return into.put(under, image, _metadata(graph, candidate, symbol), source, renew=measured is not None)

        def timed(candidate: LaunchCandidate) -> float | None:
            assert measured is not None
            name = hashlib.sha256(f"{key}|{candidate.target!r}".encode()).hexdigest()
            return measured(put(KernelCache(Path(folder) / "candidates"), name, candidate))

        launch = choose_launch(
            graph,
            target,
            symbol,
            build=lambda text, arch: build(f"{text}\n{comparison()}", arch, COMPARISON),
            progress=progress,
            measured=None if measured is None else timed,
            search=search,
        )
        return put(cache, key, launch.chosen), launch


def _metadata(graph: Graph, chosen: LaunchCandidate, symbol: str) -> KernelMetadata:
    return replace(
        describe(graph, chosen.plan, chosen.kernel.loops, symbol, f"NVRTC {nvrtc.version()}"),
        scratch_bytes=chosen.kernel.scratch_bytes,
        estimated_ns=chosen.measured_ns or chosen.cost.ns,
        launch=launch_of(chosen.kernel),
    )


def launch_of(kernel: CudaKernel) -> GpuLaunch:
    """What a runtime must know to launch the kernel."""
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
