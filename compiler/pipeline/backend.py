"""What a backend is: all that depends on the kind of device, behind one interface.

    Backend.identity()   everything but the graph that its kernels depend on; Backend.key(graph): of one kernel in the cache
    Backend.stages()     graph -> plan -> loops -> source, ...: an ordered table of pure functions, each result of which prints
    Backend.compile()    graphs in, kernels in the cache out

`cpu.CpuBackend` makes C++ and checks it here; `cuda.CudaBackend` makes CUDA C. Planning and lowering ask the backend's target for its
figures, and know no backend.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from ..check.judge import guard_tolerance
from ..check.selfcheck import Reference, Samples
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
"""A progress callback: is given a line, which the next one replaces; "" at the end."""


def silent(line: str) -> None:
    """Progress that nobody looks at."""


@dataclass(frozen=True)
class Request:
    """A graph to compile. `reference`: the framework's own function of the same inputs, if it is at hand. `cluster`: what
    this graph is one shape of; requests of the same cluster may share a binary. `samples`: of what the job gives it."""

    name: str
    graph: Graph
    reference: Reference | None = None
    cluster: str = ""
    samples: Samples | None = None


@dataclass(frozen=True)
class CompileOutcome:
    """What became of a request: an entry of the cache, or one line that says why not. `permanent`: trying again is of
    no use."""

    name: str
    entry: CacheEntry | None = None
    failure: str | None = None
    permanent: bool = True


@dataclass(frozen=True)
class Stage:
    """One row of the stage table. `text` prints the stage's result."""

    name: str
    run: Callable[[object], object]
    text: Callable[[object], str]


class Backend(Protocol):
    """Kernels for one kind of device."""

    @property
    def target(self) -> Target:
        """What planning knows of the device."""

    def identity(self) -> str:
        """Everything but the graph that a kernel depends on: generator, compiler, device."""

    def key(self, graph: Graph) -> str:
        """The cache key of a graph's kernel."""

    def stages(self, symbol: str = "stitch_kernel", progress: Progress = silent) -> tuple[Stage, ...]:
        """The stages in order, graph first; each takes the result of the one before, and raises ValueError where this backend makes
        no kernel of it."""

    def compile(
        self, requests: Sequence[Request], cache: KernelCache, progress: Progress = silent
    ) -> list[CompileOutcome]:
        """One outcome per request, in order. Kernels that the cache has are taken from there, the others are built and added. A
        request that fails costs the others nothing."""


def stop_after(backend: Backend, graph: Graph, name: str, progress: Progress = silent) -> str:
    """The text of what stage `name` makes of a graph. Raises ValueError, with a line for the user, where the backend has no such
    stage or makes no kernel of the graph."""
    stages = backend.stages(progress=progress)
    names = [stage.name for stage in stages]
    if name not in names:
        raise ValueError(f"no stage {name!r}; there are {', '.join(names)}")
    value: object = graph
    for stage in stages[: names.index(name) + 1]:
        value = stage.run(value)
    return stages[names.index(name)].text(value)


def first_stages(target: Target) -> tuple[Stage, ...]:
    """graph, plan and loops: those that each backend has."""

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
"""Rooms of the compiler that neither make a kernel of a graph nor check it: a change there needs no new kernel."""


@lru_cache(maxsize=1)
def generator_version() -> str:
    """A hash of the sources that make and check kernels: a kernel of another generator is another kernel."""
    return sources_digest(Path(__file__).parents[1])


def sources_digest(folder: Path) -> str:
    """A hash of the compiler's sources in a folder, without NO_PART_OF_A_KERNEL."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".h", ".c", ".def")):
        room = path.relative_to(folder)
        if room.parts[0] not in NO_PART_OF_A_KERNEL:
            digest.update(f"{room}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def describe(graph: Graph, plan: Plan, kernel: Loops, symbol: str, compiler: str) -> KernelMetadata:
    """A kernel's metadata, but for what only its binary tells. Input and output types are those of `graph`, whose
    parameters and outputs the plan keeps."""
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
    """A failure as the one line that an outcome has."""
    return " ".join(text.split())[:500]
