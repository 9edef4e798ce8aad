"""The interface of a backend: everything that depends on the kind of device.

    Backend.identity()   what its kernels depend on besides the graph; Backend.key(graph): a kernel's key in the cache
    Backend.stages()     graph -> plan -> loops -> source, ...: an ordered table of pure functions whose results can be printed
    Backend.compile()    graphs in, kernels in the cache out

`cpu.CpuBackend` makes C++ and checks it on this machine; `cuda.CudaBackend` makes CUDA C. Planning and lowering read the figures of
the backend's target, and know no backend.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from ..check.conditioning import Reference
from ..check.judge import guard_tolerance
from ..check.selfcheck import Samples
from ..explaining.words import explain
from ..ir.graph import Graph
from ..kernel.cache import CacheEntry, KernelCache
from ..kernel.metadata import KernelMetadata, TensorType
from ..loops.loops import BufferKind, Loops
from ..lowering.alias import kernel_aliases
from ..lowering.kernel_loops import lower
from ..ops.verify import verify_if_asked
from ..planning.plan import Plan, plan_graph
from ..targets.targets import Target

Progress = Callable[[str], None]
"""A progress callback. It is called with a line that replaces the previous one; "" at the end."""


def silent(line: str) -> None:
    """A progress callback that does nothing."""


@dataclass(frozen=True)
class KernelRequest:
    """A graph to compile. `reference`: the framework's own function of the same inputs, if available. `cluster`: names the cluster of
    which this graph is one shape; requests of the same cluster may share a binary. `samples`: elements of the tensors that the job
    passes, for the check."""

    name: str
    graph: Graph
    reference: Reference | None = None
    cluster: str = ""
    samples: Samples | None = None


@dataclass(frozen=True)
class CompileOutcome:
    """The result of a request: an entry of the cache, or one line that says why there is none (`failure`). `permanent`: a failed
    request would fail again. `notes`: for people, lines that say how a kernel that was not in the cache was made."""

    name: str
    entry: CacheEntry | None = None
    failure: str | None = None
    permanent: bool = True
    notes: str = ""


@dataclass(frozen=True)
class Stage:
    """One row of the stage table. `run` takes the previous stage's result; `text` prints the result of this stage."""

    name: str
    run: Callable[[object], object]
    text: Callable[[object], str]


class Backend(Protocol):
    """Makes kernels for one kind of device."""

    @property
    def target(self) -> Target:
        """The figures of the device that planning uses."""

    def identity(self) -> str:
        """What a kernel depends on besides the graph: generator, compiler, device."""

    def key(self, graph: Graph) -> str:
        """The cache key of a graph's kernel."""

    def stages(self, symbol: str = "stitch_kernel", progress: Progress = silent) -> tuple[Stage, ...]:
        """The stages in order, graph first. Each takes the result of the previous one, and raises ValueError if this backend cannot
        make a kernel of it."""

    def compile(
        self, requests: Sequence[KernelRequest], cache: KernelCache, progress: Progress = silent
    ) -> list[CompileOutcome]:
        """One outcome per request, in order. Kernels that are in the cache are taken from there; the others are built and added. A
        request that fails does not affect the others."""


def stop_after(backend: Backend, graph: Graph, name: str, progress: Progress = silent) -> str:
    """The text of the result of stage `name` for a graph. Raises ValueError, with a line for the user, if the backend has no such
    stage or cannot make a kernel of the graph."""
    stages = backend.stages(progress=progress)
    names = [stage.name for stage in stages]
    if name not in names:
        raise ValueError(f"no stage {name!r}; there are {', '.join(names)}")
    value: object = graph
    for stage in stages[: names.index(name) + 1]:
        value = stage.run(value)
    return stages[names.index(name)].text(value)


def first_stages(target: Target) -> tuple[Stage, ...]:
    """The stages that every backend has: graph, plan and loops."""

    def as_graph(value: object) -> Graph:
        assert isinstance(value, Graph)
        return verify_if_asked(value)

    def as_plan(value: object) -> Plan:
        assert isinstance(value, Graph)
        return plan_graph(value, target)

    def as_loops(value: object) -> Loops:
        assert isinstance(value, Plan)
        return lower(value)

    def in_words(value: object) -> str:
        assert isinstance(value, Plan)
        return explain(value)

    return Stage("graph", as_graph, str), Stage("plan", as_plan, in_words), Stage("loops", as_loops, str)


NO_PART_OF_A_KERNEL = ("commands", "explaining", "hlo", "step")
"""Rooms of the compiler that neither make kernels nor check them: a change there needs no new kernels."""


@lru_cache(maxsize=1)
def generator_version() -> str:
    """`sources_digest` of this compiler: a hash (16 hex digits) of the sources that make and check kernels. It is part of cache
    keys."""
    return sources_digest(Path(__file__).parents[1])


@lru_cache(maxsize=1)
def importer_version() -> str:
    """`sources_digest` of the room that makes graphs of HLO (hlo/). It is part of the keys under which answers to requests of HLO are
    kept: a kernel's own key has the graph."""
    return sources_digest(Path(__file__).parents[1] / "hlo")


def sources_digest(folder: Path) -> str:
    """The first 16 hex digits of a SHA-256 hash of the compiler's sources below `folder` (.py, .h, .c and .def), without the folders
    NO_PART_OF_A_KERNEL."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".h", ".c", ".def")):
        room = path.relative_to(folder)
        if room.parts[0] not in NO_PART_OF_A_KERNEL:
            digest.update(f"{room}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def describe(graph: Graph, plan: Plan, kernel: Loops, symbol: str, compiler: str) -> KernelMetadata:
    """The metadata of `kernel`, which was lowered from `plan` of `graph`, except what only its binary shows. Input and output types
    are those of `graph`, whose parameters and outputs the plan keeps."""
    parameters = [graph.nodes[i] for i in graph.parameters]
    outputs = [graph.nodes[i] for i in graph.outputs]
    read = {buffer for buffer in kernel.buffers if buffer.kind is BufferKind.INPUT}
    scratch = [buffer for buffer in kernel.buffers if buffer.kind is BufferKind.SCRATCH]
    return KernelMetadata(
        symbol=symbol,
        inputs=tuple(TensorType(node.dtype.value, node.shape) for node in parameters),
        outputs=tuple(TensorType(node.dtype.value, node.shape) for node in outputs),
        scratch_bytes=kernel.scratch_bytes,
        aliases=tuple(kernel_aliases(plan)),
        bytes_read=sum(buffer.size_bytes for buffer in read),
        bytes_written=sum(node.size_bytes for node in outputs),
        intermediate_bytes=sum(buffer.size_bytes for buffer in scratch),
        op_count=plan.op_count,
        phases=len(kernel.phases),
        parallel_phases=sum(not phase.serial for phase in kernel.phases),
        estimated_ns=sum(phase.cost_ns for phase in kernel.phases),
        tolerances=tuple((t.relative, t.of_largest) for t in guard_tolerance(graph)),
        graph_digest=graph.digest,
        generator=generator_version(),
        compiler=compiler,
    )


def one_line(text: str) -> str:
    """A failure's text as the one line of an outcome, at most 500 characters."""
    return " ".join(text.split())[:500]
