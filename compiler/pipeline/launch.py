"""How a CUDA kernel is launched: a small search over the threads of a block and the blocks of a multiprocessor.

After AStitch (section 4.5: assume, relax, apply). A candidate assumes registers of a thread, which with its shared memory gives the
blocks that are co-resident on a multiprocessor; `__launch_bounds__` then holds the compiler to as many registers as that allows, so
a grid that a barrier needs co-resident is so whatever the source. The model (gpu_cost) ranks the candidates; the best is built; what
it spilled is read back and charged; and so on until the best one is a built one. Where a device is at hand, those that the model
thinks nearly as good are built too and timed, and the fastest is taken.
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
"""Of a thread: what leaves all of a multiprocessor's 2048 threads at work, half of them, a quarter."""
LONG_TEXT: Final = 64_000
"""Characters of a kernel from which on it is built once, as the usual one: NVRTC takes 11 s for 200,000."""
MEASURED: Final = 6
"""Most candidates that are timed."""
MARGIN: Final = 0.02
"""A candidate replaces the usual one only if it is better by this share: the model's differences below mean nothing."""

Build = Callable[[str, str], nvrtc.CudaBinary]


@dataclass(frozen=True)
class Candidate:
    """A kernel for one block size and one cap of registers. binary: where it was built; measured_ns: where it was timed."""

    target: GpuTarget
    plan: Plan
    kernel: CudaKernel
    binary: nvrtc.CudaBinary | None = None
    measured_ns: float | None = None

    @property
    def cost(self) -> KernelCost:
        return self.kernel.cost(self.binary.spill_bytes if self.binary is not None else 0)

    @property
    def occupancy(self) -> float:
        """Threads at once over what the device has room for."""
        room = self.target.multiprocessors * self.target.threads_per_multiprocessor
        return self.kernel.resident * self.kernel.block / room


@dataclass(frozen=True)
class Launch:
    """The candidate that was chosen, which is built, and all that were considered, best first."""

    chosen: Candidate
    considered: tuple[Candidate, ...]

    def explain(self) -> str:
        """A line for each candidate, and the chosen one's cost, phase by phase."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield "launch: threads of a block, registers allowed (used), threads at once of the device's room, microseconds by the model"
        for one in self.considered:
            mark = "*" if one is self.chosen else " "
            built = one.binary
            used = "not built" if built is None else f"{built.registers}, {built.spill_bytes} bytes spilled"
            timed = "" if one.measured_ns is None else f", {one.measured_ns / 1e3:.1f} us measured"
            yield (
                f"  {mark} {one.kernel.block:>4} threads, {one.kernel.register_cap:>3} registers ({used}), "
                f"{one.occupancy:>4.0%}, {one.cost.ns / 1e3:.1f} us{timed}"
            )
        yield str(self.chosen.cost)


def choose_launch(
    graph: Graph,
    target: GpuTarget,
    symbol: str = "",
    rules: Rules = ALL,
    build: Build = nvrtc.build,
    progress: Progress = silent,
    measured: Callable[[Candidate], float | None] | None = None,
    search: bool = True,
) -> Launch:
    """The best launch of `graph`'s kernel on `target`, whose own block and registers are the usual one: by the model, or by
    `measured`, which runs a built candidate and returns its nanoseconds, None where it is out; without `search`, the usual
    one. progress: is given a line of progress.
    Raises CudaError where no candidate can be one of CUDA or all are out, NvrtcError where the compiler refuses."""
    found: list[Candidate] = []
    failure: CudaError | None = None
    for changed in _targets(target) if search else (target,):
        progress(f"{graph.name}: planning for blocks of {changed.block} threads")
        try:
            found.append(Candidate(changed, *plan_for_gpu(graph, changed, symbol, rules)))
        except CudaError as error:
            failure = failure or error
        if found and len(found[0].kernel.text) > LONG_TEXT:
            break
    if not found:
        assert failure is not None
        raise failure

    def built(one: Candidate) -> Candidate:
        progress(f"{graph.name}: building {one.kernel.block} threads, {one.kernel.register_cap} registers")
        binary = build(translation_unit(one.kernel), target.arch)
        check_co_residency(one.kernel, binary)
        found[found.index(one)] = replacement = replace(one, binary=binary)
        return replacement

    while True:
        best = min(found, key=lambda one: one.cost.ns * (1.0 if one.target == target else 1 + MARGIN))
        if best.binary is not None:
            break
        built(best)
    if measured is not None:
        for one in sorted(found, key=lambda one: one.cost.ns)[:MEASURED]:
            ready = one if one.binary is not None else built(one)
            found[found.index(ready)] = replace(ready, measured_ns=measured(ready))
        timed = [one for one in found if one.measured_ns is not None]
        if not timed:
            raise CudaError(f"{graph.name}: no candidate runs on {target.name}")
        best = min(timed, key=lambda one: one.measured_ns or 0.0)
    return Launch(best, tuple(sorted(found, key=lambda one: one.cost.ns)))


def check_co_residency(kernel: CudaKernel, binary: nvrtc.CudaBinary) -> None:
    """Raises CudaError where a grid with a barrier is larger than what the built kernel's registers leave at once."""
    if not kernel.cooperative:
        return
    at_once = kernel.target.blocks_at_once(kernel.shared_bytes, binary.registers)
    if kernel.grid > at_once:
        raise CudaError(
            f"{kernel.symbol}: {kernel.grid} blocks wait for each other, but with {binary.registers} registers a thread "
            f"{kernel.target.name} holds {at_once}"
        )


def _targets(target: GpuTarget) -> Iterator[GpuTarget]:
    """The device with each block size and register cap, its usual one first; no two that come to the same."""
    seen: set[tuple[int, int]] = set()
    for block in dict.fromkeys((target.block, *BLOCKS)):
        for registers in dict.fromkeys((target.assumed_registers, *REGISTERS)):
            changed = replace(target, block=block, assumed_registers=registers)
            at_once = changed.blocks_at_once(0)
            if at_once and block <= changed.threads_per_multiprocessor and (block, at_once) not in seen:
                seen.add((block, at_once))
                yield changed
