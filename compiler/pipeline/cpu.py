"""The CPU backend: graphs in, checked kernels in the cache out.

    graph -> plan_graph -> Plan -> lower -> Loops -> render -> source -> build -> binary -> self-check -> cache

A request that names its cluster may use `many_shapes`: from the cluster's third shape on, shapes share a binary.

Several kernels share a translation unit, because starting a compiler costs more than compiling a kernel. A bad graph does not
affect the others: a graph that cannot be planned fails alone, and a unit that does not compile is built again kernel by kernel.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..check.checkers import Checkers, checkers
from ..check.random_inputs import Regime
from ..check.selfcheck import (
    CheckFailedError,
    CheckOptions,
    RegimesOutcome,
    bytes_to_check,
    check_part,
    finish_check,
    join_parts,
    parts_of,
)
from ..codegen.cpu.kernel_text import render, translation_unit
from ..codegen.cpu.many_shapes import (
    CHECKED_SHAPES,
    MAX_SEEN,
    NEUTRAL,
    STATIC_SHAPES,
    Families,
    NotParametricError,
    ShapedText,
    ShapeFamily,
    Template,
    family_key,
)
from ..ir.graph import Graph
from ..kernel.cache import CacheEntry, KernelCache
from ..kernel.host_kernel import prepare_runtime
from ..kernel.metadata import ABI_VERSION, CheckReport, KernelMetadata
from ..loops.loops import Loops
from ..lowering.kernel_loops import lower
from ..ops.verify import verify_if_asked
from ..planning.plan import plan_graph
from ..support.free_memory import free_bytes
from ..targets.targets import CPU, Target
from ..toolchain.host import (
    CompilerFailedError,
    CompilerMissingError,
    Toolchain,
    ToolchainError,
    find_toolchain,
    vector_symbols,
)
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

if TYPE_CHECKING:
    from typing import TypeAlias


@dataclass(frozen=True)
class CpuBackend:
    """C++ for this machine's CPU, built by `toolchain` (default: the one found on this machine) and checked with the options
    `check`."""

    toolchain: Toolchain | None = None
    check: CheckOptions | None = None
    target: Target = CPU

    def identity(self) -> str:
        """See `Backend.identity`."""
        return identity(self.toolchain)

    def key(self, graph: Graph) -> str:
        """See `Backend.key`."""
        return entry_key(graph, self.toolchain or find_toolchain())

    def stages(self, symbol: str = "stitch_kernel", progress: Progress = silent) -> tuple[Stage, ...]:
        """See `Backend.stages`."""

        def as_source(value: object) -> str:
            assert isinstance(value, Loops)
            return render(value, symbol)

        return (*first_stages(self.target), Stage("source", as_source, str))

    def compile(
        self, requests: Sequence[KernelRequest], cache: KernelCache, progress: Progress = silent
    ) -> list[CompileOutcome]:
        """See `Backend.compile`."""
        progress(f"building {len(requests)} kernels")
        outcomes = compile_graphs(requests, cache, self.toolchain, self.check, self.target)
        progress("")
        return outcomes


UNIT_KERNELS: Final = 16
"""Kernels per translation unit: g++ takes 0.06 s to start, and 0.05 to 0.3 s for a kernel of 30 ops."""


def identity(toolchain: Toolchain | None = None) -> str:
    """A SHA-256 hash (hex) of what a kernel depends on besides the graph: ABI, generator, compiler, CPU, C library. It is part of
    cache keys. Does not raise: if no compiler is found, the hash says "no compiler" instead."""
    try:
        compiler = (toolchain or find_toolchain()).digest
    except ToolchainError:
        compiler = "no compiler"
    return hashlib.sha256(f"{ABI_VERSION}|{generator_version()}|{compiler}".encode()).hexdigest()


def entry_key(graph: Graph, toolchain: Toolchain) -> str:
    """The cache key of a graph's kernel that `toolchain` builds: a SHA-256 hash (hex)."""
    return hashlib.sha256(f"{identity(toolchain)}|{graph.digest}".encode()).hexdigest()


@dataclass(frozen=True)
class _Unit:
    """A kernel that is to be compiled or, with `library`, a new shape of a binary that exists, which is to be checked.

    source: writes the kernel's text. For a binary for many shapes: family_key, family: what `many_shapes` has stored for it;
    template: what it is made from, if it has yet to be built; alone: the kernel of this shape by itself, in case that fails.
    """

    position: int
    request: KernelRequest
    key: str
    symbol: str
    source: Callable[[], str]
    metadata: KernelMetadata
    library: Path | None = None
    family_key: str = ""
    family: ShapeFamily = field(default_factory=ShapeFamily)
    template: Template | None = None
    alone: _Unit | None = None


def compile_graphs(
    requests: Sequence[KernelRequest],
    cache: KernelCache,
    toolchain: Toolchain | None = None,
    check: CheckOptions | None = None,
    target: Target = CPU,
) -> list[CompileOutcome]:
    """One outcome per request, in order. Kernels that are in the cache are taken from there; the others are built by `toolchain`
    (default: the one found on this machine), checked and added. Does not raise if a graph cannot be compiled: its outcome says why.
    """
    options = CheckOptions() if check is None else check
    outcomes: list[CompileOutcome | None] = [None] * len(requests)
    if toolchain is None:
        try:
            toolchain = find_toolchain()
        except CompilerMissingError as error:
            return [CompileOutcome(request.name, failure=str(error), permanent=False) for request in requests]
    families = Families(cache.directory / "families")
    units: list[_Unit] = []
    for position, request in enumerate(requests):
        try:
            unit = _front(position, request, cache, toolchain, target, families)
        except Exception as error:  # a graph that the planner cannot handle must not affect the others
            line = f"cannot plan {request.name}: {type(error).__name__}: {error}"
            is_certain = not isinstance(error, (MemoryError, OSError))
            outcomes[position] = CompileOutcome(request.name, failure=one_line(line), permanent=is_certain)
            continue
        if isinstance(unit, CacheEntry):
            outcomes[position] = CompileOutcome(request.name, unit)
        elif too_large := _too_large_to_check(request.graph, options):
            outcomes[position] = CompileOutcome(request.name, failure=too_large, permanent=False)
        else:
            units.append(unit)
    with tempfile.TemporaryDirectory(prefix="stitchfleet-build-") as folder, checkers(options.processes) as room:
        # The checks of one translation unit run while the compiler works on the next unit.
        shop = _Shop(Path(folder), cache, toolchain, options, room, families)
        again: list[_Unit] = []
        for build in (units, again):  # if a binary for many shapes failed, one is made for the shape alone
            fresh = [unit for unit in build if unit.library is None]
            pending = [
                finish
                for start in range(0, len(fresh), UNIT_KERNELS)
                for finish in _back(fresh[start : start + UNIT_KERNELS], shop)
            ]
            pending += [
                (unit, _begin_check(unit, unit.library, unit.metadata.vector_symbols, "", shop))
                for unit in build
                if unit.library is not None
            ]
            for unit, finish in pending:
                outcome = finish()
                if outcome.entry is None and unit.family_key:
                    refused = replace(unit.family, refused=outcome.failure or "no reason given", entry="")
                    families.save(unit.family_key, refused)
                if outcome.entry is None and unit.alone is not None:
                    again.append(unit.alone)
                outcomes[unit.position] = outcome
    return [outcome for outcome in outcomes if outcome is not None]


def _too_large_to_check(graph: Graph, options: CheckOptions) -> str:
    """Why a kernel cannot be checked beside a job, or "" if it can. No kernel is handed out unchecked."""
    needed, free = bytes_to_check(graph, options), free_bytes()
    if options.skip or free is None or needed <= options.memory_share * free:
        return ""
    return f"checking its kernel would take {needed / 2**30:.1f} GiB of memory beside the job, which has {free / 2**30:.1f} GiB left"


@dataclass(frozen=True)
class _Shop:
    """What building and checking need, besides the kernels."""

    folder: Path
    cache: KernelCache
    toolchain: Toolchain
    options: CheckOptions
    room: Checkers
    families: Families


def _front(
    position: int,
    request: KernelRequest,
    cache: KernelCache,
    toolchain: Toolchain,
    target: Target,
    families: Families,
) -> CacheEntry | _Unit:
    key = entry_key(request.graph, toolchain)
    known = cache.find(key)
    if known is not None:
        return known
    graph = verify_if_asked(request.graph)
    plan = plan_graph(graph, target)
    kernel = lower(plan)
    symbol = f"stitch_{key[:20]}"

    metadata = describe(graph, plan, kernel, symbol, toolchain.version)
    alone = _Unit(position, request, key, symbol, partial(render, kernel, symbol), metadata)
    if not request.cluster:
        return alone
    shaped = ShapedText.of(render(kernel, NEUTRAL, len(graph.parameters)))
    return _of_many_shapes(alone, shaped, cache, toolchain, families)


def _of_many_shapes(
    alone: _Unit, shaped: ShapedText, cache: KernelCache, toolchain: Toolchain, families: Families
) -> CacheEntry | _Unit:
    """The kernel of another shape of a cluster: served by the binary for many shapes; or such a binary to build; or `alone`."""
    key = family_key((identity(toolchain), alone.request.cluster, shaped.digest))
    family = families.load(key)
    entry = cache.find(family.entry) if family.entry else None
    if entry is not None:
        template = Template(shaped.skeleton, family.seen[: family.covered])
        words = template.parameters(shaped.numbers)
        if words is not None:
            about = replace(
                alone.metadata,
                symbol=entry.metadata.symbol,
                parameters=words,
                vector_symbols=entry.metadata.vector_symbols,
                check=entry.metadata.check,
            )
            if family.checked >= CHECKED_SHAPES:
                return CacheEntry(entry.key, entry.library, about)
            return replace(
                alone, key=entry.key, metadata=about, library=entry.library, family_key=key, family=family, alone=alone
            )
    if family.refused or len(family.seen) >= MAX_SEEN:
        return alone
    family = family.add(shaped.numbers)
    if len(family.seen) <= STATIC_SHAPES:
        families.save(key, family)
        return alone
    try:
        template = Template(shaped.skeleton, family.seen)
        many_key = family_key((key, json.dumps(template.seen)))
        symbol = f"stitch_{many_key[:20]}"
        words = template.parameters(shaped.numbers)
        if words is None:
            raise NotParametricError("its own shape does not fit")
        text = template.text(symbol)
    except NotParametricError as error:
        families.save(key, replace(family, refused=str(error)))
        return alone
    return replace(
        alone,
        key=many_key,
        symbol=symbol,
        source=lambda: text,
        metadata=replace(alone.metadata, symbol=symbol, parameters=words),
        family_key=key,
        family=replace(family, covered=len(template.seen), checked=0),
        template=template,
        alone=alone,
    )


_Finish: TypeAlias = "tuple[_Unit, Callable[[], CompileOutcome]]"


def _back(units: Sequence[_Unit], shop: _Shop) -> list[_Finish]:
    """Builds `units` as one translation unit, or one by one if that fails, and begins to check each kernel. The returned functions
    wait for the outcomes."""
    stem = units[0].symbol
    kernels = [unit.source() for unit in {unit.symbol: unit for unit in units}.values()]
    text = translation_unit(kernels)
    library = shop.folder / f"{stem}_{len(units)}.so"
    try:
        path = shop.folder / f"{stem}_{len(units)}.cc"
        path.write_text(text)
        shop.toolchain.build(path, library)
        symbols = vector_symbols(library)
    except (ToolchainError, OSError) as error:
        if len(units) > 1:
            return [late for unit in units for late in _back([unit], shop)]
        is_certain = isinstance(error, CompilerFailedError) and error.is_certain
        failed = CompileOutcome(units[0].request.name, failure=one_line(str(error)), permanent=is_certain)
        return [(units[0], lambda: failed)]
    return [(unit, _begin_check(unit, library, symbols, text, shop)) for unit in units]


def _begin_check(
    unit: _Unit, library: Path, symbols: tuple[str, ...], text: str, shop: _Shop
) -> Callable[[], CompileOutcome]:
    """Begins a kernel's check. The returned function waits for it and adds the kernel to the cache. `text`: the source to store
    beside the binary, "" if it is stored already."""
    name, graph, reference = unit.request.name, unit.request.graph, unit.request.reference
    metadata = replace(unit.metadata, vector_symbols=symbols)
    options = shop.options

    def run(regimes: Sequence[Regime]) -> RegimesOutcome:
        return check_part(graph, library, metadata, options, regimes)

    parts: list[Callable[[], RegimesOutcome]] = []
    if not options.skip:
        prepare_runtime()  # once here, not in every child
        for regimes in parts_of(graph, options):
            work = partial(run, regimes)
            parts.append(shop.room.start(work).result if options.processes > 1 else work)

    def by_oracle() -> CheckReport:
        return join_parts([part() for part in parts], run)

    def keep(known: KernelMetadata) -> CacheEntry:
        if unit.library is not None:
            shop.families.save(unit.family_key, replace(unit.family, checked=unit.family.checked + 1))
            return CacheEntry(unit.key, unit.library, known)
        entry = shop.cache.put(unit.key, library, known, text)
        if unit.template is not None:
            shop.families.save(unit.family_key, replace(unit.family, entry=entry.key, checked=1))
        return entry

    def finish() -> CompileOutcome:
        known = metadata
        try:
            if not options.skip:
                samples = unit.request.samples
                report = finish_check(graph, library, known, options, reference, by_oracle, samples)
                known = replace(known, check=report)
            return CompileOutcome(name, keep(known))
        except CheckFailedError as error:
            line = f"self-check of {name} failed: {error}"
            return CompileOutcome(name, failure=one_line(line), permanent=error.is_certain)
        except Exception as error:  # the reference is the framework's code, and the disk may be full
            line = f"self-check of {name} could not be made: {type(error).__name__}: {error}"
            return CompileOutcome(name, failure=one_line(line), permanent=False)

    return finish
