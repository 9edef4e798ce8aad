"""Building and judging kernels in tests: many graphs to one translation unit, each run in a child process."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from stitchfleet.compiler.check.judge import judge
from stitchfleet.compiler.check.random_inputs import Regime, random_inputs
from stitchfleet.compiler.check.selfcheck import same_bits
from stitchfleet.compiler.codegen.cpu.kernel_text import render, translation_unit
from stitchfleet.compiler.ir.graph import Graph
from stitchfleet.compiler.kernel.host_kernel import LoadedKernel
from stitchfleet.compiler.kernel.metadata import KernelMetadata
from stitchfleet.compiler.lowering.kernel_loops import lower
from stitchfleet.compiler.pipeline.backend import describe
from stitchfleet.compiler.planning.plan import plan_graph
from stitchfleet.compiler.targets.targets import CPU, CpuTarget, Target
from stitchfleet.compiler.toolchain.host import Toolchain, cpu_features, find_toolchain

from ..kept import build_kept, kept
from .runner import runner

# Everything parallel that can be, tiny tiles and tasks: small graphs then take the paths of large ones.
STRESS = CpuTarget(
    name="stress", serial_below_ns=0, task_ns=1, row_ns=1.0, tile_bytes=1024, lanes=8, unroll_row=4, partial_tasks=5
)


@dataclass(frozen=True)
class Built:
    graph: Graph
    library: Path
    metadata: KernelMetadata

    def load(self) -> LoadedKernel:
        return LoadedKernel(self.library, self.metadata)


class KeptToolchain(Toolchain):
    """A compiler whose libraries are kept (tests/kept.py)."""

    build = build_kept


@lru_cache(maxsize=1)
def toolchain() -> Toolchain:
    return KeptToolchain(find_toolchain().command)


def said_of_vectors(text: str, folder: Path, *flags: str) -> str:
    """What gcc says of the loops in k.cc, the text of a translation unit."""
    (folder / "k.cc").write_text(text)
    command = [*toolchain().command, *toolchain().flags, *flags, "k.cc", "-o", "k.so"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stderr


def build_all(graphs: Sequence[Graph], target: Target = CPU, unit: int = 32) -> Iterator[Built]:
    """All graphs as kernels, `unit` of them to a translation unit."""
    for start in range(0, len(graphs), unit):
        texts, described = [], []
        for number, graph in enumerate(graphs[start : start + unit]):
            symbol = f"kernel{number}"
            plan = plan_graph(graph, target)
            loops = lower(plan)
            texts.append(render(loops, symbol))
            described.append((graph, describe(graph, plan, loops, symbol, "test")))
        text = translation_unit(texts)
        library = kept(text, toolchain().identity, "unit.cc", toolchain().build)
        yield from (Built(graph, library, metadata) for graph, metadata in described)


def complaint(built: Built, regime: Regime, seed: int) -> str | None:
    """What is wrong with a kernel on random inputs, or None: judged by the oracle, and run a second time with its tasks
    one by one in reverse order."""
    inputs = random_inputs(built.graph, np.random.default_rng(seed), regime)
    outputs, backwards = runner().run(built.library, built.metadata, inputs, 60.0)
    if not all(same_bits(one, other) for one, other in zip(outputs, backwards, strict=True)):
        return "depends on the order of tasks"
    verdict = judge(built.graph, inputs, outputs)
    return None if verdict.ok else str(verdict)


def complaints(graphs: Sequence[Graph], target: Target = CPU, regime: Regime = Regime.SPECIAL) -> list[tuple[str, str]]:
    """The graphs whose kernels are wrong on random inputs of the regime, by name, and what is wrong."""
    found = [(one.graph.name, complaint(one, regime, number)) for number, one in enumerate(build_all(graphs, target))]
    return [(name, wrong) for name, wrong in found if wrong is not None]


INSTRUCTION_SETS = pytest.mark.parametrize(
    "flags", [(), ("-march=x86-64-v3",), ("-march=x86-64",)], ids=lambda flags: "".join(flags) or "native"
)


def library_for(flags: tuple[str, ...], text: str, folder: Path) -> ctypes.CDLL:
    """The functions of `text`, with the kernels' prelude, for one of INSTRUCTION_SETS. Skips the test on another processor."""
    features = cpu_features().split()
    if (flags and "vendor_id" not in cpu_features()) or ("v3" in "".join(flags) and "avx2" not in features):
        pytest.skip("another processor's flag")
    (folder / "unit.cc").write_text(translation_unit([text]))
    toolchain().build(folder / "unit.cc", folder / "unit.so", flags)
    return ctypes.CDLL(str(folder / "unit.so"))
