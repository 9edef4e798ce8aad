"""How a CUDA kernel is launched: a small search over the threads of a block and the blocks per multiprocessor.

After AStitch (section 4.5: assume, relax, apply). A candidate assumes a number of registers per thread; with the kernel's shared
memory this gives the number of blocks that are co-resident on a multiprocessor. `__launch_bounds__` then limits the compiler to the
registers that this allows, so that a grid with a barrier is co-resident whatever the source. The model (gpu_cost) ranks the
candidates and the best is built; what it spilled is read back and added to its cost; this repeats until the best candidate is a
built one. If a device is available, candidates that the model finds nearly as good are built too and timed, and the fastest is
taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from ..codegen.cuda.kernel_text import CudaError, CudaKernel, plan_for_gpu, translation_unit
from ..ir.graph import Graph
from ..lowering.gpu_cost import KernelCost
from ..planning.plan import Plan
from ..planning.rules import ALL, Rules
from ..targets.targets import GpuTarget
from ..toolchain import nvrtc
from .backend import Progress, silent

BLOCKS: Final = (128, 256, 512, 1024)
REGISTERS: Final = (32, 64, 128)
"""Registers per thread: they leave all of a multiprocessor's 2048 threads at work, half of them, or a quarter."""
LONG_ROW_PER_THREAD: Final = 32
"""Elements per thread of the longest row that a warp takes in one of the candidates."""
LONG_TEXT: Final = 64_000
"""A kernel with a longer text (in characters) is built only once, with the usual launch: NVRTC takes 11 s for 200,000."""
MEASURED: Final = 6
"""Most candidates that are timed."""
LAUNCH_MARGIN: Final = 0.02
"""A candidate is preferred to the usual launch only if it is faster by this share: smaller differences of the model mean nothing."""

Build = Callable[[str, str], nvrtc.CudaBinary]


@dataclass(frozen=True)
class LaunchCandidate:
    """A kernel for one block size and one limit of registers. binary: None before it is built; measured_ns: None before it is
    timed."""

    target: GpuTarget
    plan: Plan
    kernel: CudaKernel
    binary: nvrtc.CudaBinary | None = None
    measured_ns: float | None = None

    @property
    def cost(self) -> KernelCost:
        """The estimated cost; with the spilled bytes, if the candidate is built."""
        if self.binary is None:
            return self.kernel.cost()
        return self.kernel.cost(self.binary.spill_bytes, self.binary.registers)

    @property
    def occupancy(self) -> float:
        """Threads that run at once, as a share of what the device has room for."""
        room = self.target.multiprocessors * self.target.threads_per_multiprocessor
        return self.kernel.resident * self.kernel.block / room


@dataclass(frozen=True)
class Launch:
    """The chosen candidate, which is built, and all candidates that were considered, best first."""

    chosen: LaunchCandidate
    considered: tuple[LaunchCandidate, ...]

    def explain(self) -> str:
        """How the kernel is launched, one line per candidate, and the chosen candidate's cost phase by phase."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        kernel, binary = self.chosen.kernel, self.chosen.binary
        assert binary is not None
        yield (
            f"for {self.chosen.target.name} ({self.chosen.target.arch}): {kernel.grid} blocks of {kernel.block} threads, "
            + ("cooperative, with a grid barrier" if kernel.cooperative else "no grid barrier")
        )
        yield (
            f"{kernel.shared_bytes} bytes of shared memory per block, {kernel.scratch_bytes} bytes of scratch, "
            f"{len(kernel.tensors)} tensors, {binary.registers} registers per thread, {binary.spill_bytes} bytes spilled"
        )
        yield "launch: threads per block, registers allowed (used), occupancy, microseconds by the model"
        for candidate in self.considered:
            mark = "*" if candidate is self.chosen else " "
            built = candidate.binary
            used = "not built" if built is None else f"{built.registers}, {built.spill_bytes} bytes spilled"
            timed = "" if candidate.measured_ns is None else f", {candidate.measured_ns / 1e3:.1f} us measured"
            yield (
                f"  {mark} {candidate.kernel.block:>4} threads, {candidate.kernel.register_cap:>3} registers ({used}), "
                f"{candidate.occupancy:>4.0%}, {candidate.cost.ns / 1e3:.1f} us{timed}"
            )
        yield str(self.chosen.cost)


def choose_launch(
    graph: Graph,
    target: GpuTarget,
    symbol: str = "",
    rules: Rules = ALL,
    build: Build = nvrtc.build,
    progress: Progress = silent,
    measured: Callable[[LaunchCandidate], float | None] | None = None,
    search: bool = True,
) -> Launch:
    """The best launch of `graph`'s kernel on `target`, whose own block size and registers are the usual launch. The best is decided
    by the model or by `measured`, which runs a built candidate and returns its time in ns, or None to drop it. Without `search`,
    only the usual launch is considered. Raises CudaError if no candidate can be a CUDA kernel or all are dropped, NvrtcError if the
    compiler fails."""
    found: list[LaunchCandidate] = []
    failure: CudaError | None = None
    for changed in _targets(target) if search else (target,):
        progress(f"{graph.name}: planning for blocks of {changed.block} threads")
        try:
            found.append(LaunchCandidate(changed, *plan_for_gpu(graph, changed, symbol, rules)))
        except CudaError as error:
            failure = failure or error
        if found and len(found[0].kernel.text) > LONG_TEXT:
            break
    if not found:
        assert failure is not None
        raise failure

    def built(candidate: LaunchCandidate) -> LaunchCandidate:
        progress(f"{graph.name}: building {candidate.kernel.block} threads, {candidate.kernel.register_cap} registers")
        binary = build(translation_unit(candidate.kernel), target.arch)
        check_co_residency(candidate.kernel, binary)
        found[found.index(candidate)] = replacement = replace(candidate, binary=binary)
        return replacement

    while True:
        best = min(
            found, key=lambda candidate: candidate.cost.ns * (1.0 if candidate.target == target else 1 + LAUNCH_MARGIN)
        )
        if best.binary is not None:
            break
        built(best)
    if measured is not None:
        for candidate in sorted(found, key=lambda candidate: candidate.cost.ns)[:MEASURED]:
            ready = candidate if candidate.binary is not None else built(candidate)
            found[found.index(ready)] = replace(ready, measured_ns=measured(ready))
        timed = [candidate for candidate in found if candidate.measured_ns is not None]
        if not timed:
            raise CudaError(f"{graph.name}: no candidate runs on {target.name}")
        best = min(timed, key=lambda candidate: candidate.measured_ns or 0.0)
    return Launch(best, tuple(sorted(found, key=lambda candidate: candidate.cost.ns)))


def check_co_residency(kernel: CudaKernel, binary: nvrtc.CudaBinary) -> None:
    """Raises CudaError if a grid with a barrier is larger than what is co-resident with the built kernel's registers."""
    if not kernel.cooperative:
        return
    at_once = kernel.target.blocks_at_once(kernel.shared_bytes, binary.registers)
    if kernel.grid > at_once:
        raise CudaError(
            f"{kernel.symbol}: {kernel.grid} blocks wait for each other, but with {binary.registers} registers per thread "
            f"{kernel.target.name} holds {at_once}"
        )


def _targets(target: GpuTarget) -> Iterator[GpuTarget]:
    """The device with each block size and register limit, its usual ones first; without combinations that amount to the same. Then
    with warps that take longer rows, of which a block takes several."""
    seen: set[tuple[int, int]] = set()
    for block in dict.fromkeys((target.block, *BLOCKS)):
        for registers in dict.fromkeys((target.assumed_registers, *REGISTERS)):
            changed = replace(target, block=block, assumed_registers=registers)
            at_once = changed.blocks_at_once(0)
            if at_once and block <= changed.threads_per_multiprocessor and (block, at_once) not in seen:
                seen.add((block, at_once))
                yield changed
    yield replace(target, row_per_thread=LONG_ROW_PER_THREAD)
