"""CUDA kernels in tests: many graphs to one translation unit, run by the emulator and judged by the oracle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from stitchfleet.compiler.check.judge import judge
from stitchfleet.compiler.check.random_inputs import Regime, random_inputs
from stitchfleet.compiler.codegen.cuda.kernel_text import CudaKernel, head, plan_for_gpu
from stitchfleet.compiler.ir.graph import DType, Graph, Node
from stitchfleet.compiler.kernel.host_kernel import aligned
from stitchfleet.compiler.loops.loops import BufferKind
from stitchfleet.compiler.planning.rules import ALL, Rules
from stitchfleet.compiler.targets.targets import H200, V100, GpuTarget

from .cuda_emulator import Emulated, build, trampoline

SMALL = replace(
    V100,
    name="small",
    multiprocessors=2,
    block=64,
    tile_bytes=2048,
    partial_tasks=5,
    unroll_row=4,
    row_per_thread=2,
    flat_per_thread=2,
    lanes=8,
)
"""A device on which small graphs take the paths of large ones: a few blocks of two warps."""
WARP = replace(SMALL, name="warp", block=32, tile_bytes=1024)
BIG = H200
TARGETS = {"small": SMALL, "warp": WARP, "h200": BIG}

Array = npt.NDArray[np.generic]


def placed(array: Array, elements: int) -> Array:
    """A copy that begins that many elements behind a multiple of 64 bytes."""
    copy = aligned((elements + array.size,), array.dtype)[elements:].reshape(array.shape)
    copy[...] = array
    return copy


def _rubbish(node: Node) -> Array:
    """What an output holds before a launch: an element that the kernel leaves out is not right by chance."""
    array = np.empty(node.shape, node.dtype.numpy)
    array.reshape(-1).view(np.uint8)[...] = 1 if node.dtype is DType.PRED else 0xA5
    return array


@dataclass(frozen=True)
class BuiltForGpu:
    graph: Graph
    kernel: CudaKernel
    emulated: Emulated
    entry: str

    def run(
        self, inputs: Sequence[Array], seed: int, most_blocks: int = 6, in_place: Sequence[tuple[int, int]] = ()
    ) -> tuple[list[Array], list[str]]:
        """The outputs, and what the emulator found wrong. The tensors begin at a multiple of 64 bytes, or, for an odd seed, one
        element behind it. in_place: (output, input) pairs that are one memory."""
        graph, kernel = self.graph, self.kernel
        outputs = [placed(_rubbish(graph.nodes[node]), seed % 2) for node in graph.outputs]
        inputs = [placed(each, seed % 2) for each in inputs]
        for output, source in in_place:
            outputs[output] = inputs[source].reshape(outputs[output].shape)
        written_over = {output for output, _ in in_place}
        scratch = np.zeros(max(kernel.scratch_bytes, 1), np.uint8)
        tensors: list[Array] = []
        initialised: list[bool] = []
        for buffer in kernel.tensors:
            if buffer is None:
                tensors.append(scratch)
            else:
                tensors.append((inputs if buffer.kind is BufferKind.INPUT else outputs)[buffer.number])
            is_input = buffer is not None and buffer.kind is BufferKind.INPUT
            initialised.append(is_input or (buffer is not None and buffer.number in written_over))
        grid = max(1, min(kernel.grid, most_blocks))
        messages = self.emulated.launch(
            tensors,
            initialised,
            grid=grid,
            block=kernel.block,
            shared_bytes=kernel.shared_bytes,
            resident_blocks=grid,
            seed=seed,
            entry=self.entry,
        )
        return outputs, messages

    def complaint(self, regime: Regime, seed: int, most_blocks: int = 6) -> str | None:
        """What is wrong with the kernel on random inputs, or None."""
        inputs = [
            np.require(x, requirements="C") for x in random_inputs(self.graph, np.random.default_rng(seed), regime)
        ]
        outputs, messages = self.run(inputs, seed, most_blocks)
        if messages:
            return "; ".join(messages[:3])
        verdict = judge(self.graph, inputs, outputs)
        return None if verdict.ok else str(verdict)


def build_all(graphs: Sequence[Graph], target: GpuTarget, unit: int = 32, rules: Rules = ALL) -> Iterator[BuiltForGpu]:
    """All graphs as CUDA kernels, `unit` of them to a translation unit."""
    for start in range(0, len(graphs), unit):
        some = graphs[start : start + unit]
        kernels = [plan_for_gpu(graph, target, f"kernel{number}", rules)[1] for number, graph in enumerate(some)]
        trampolines = "\n".join(run_by(kernel) for kernel in kernels)
        source = "\n".join([head(), *(kernel.text for kernel in kernels)])
        emulated = build(source, trampolines)
        yield from (
            BuiltForGpu(graph, kernel, emulated, f"run_{kernel.symbol}")
            for graph, kernel in zip(some, kernels, strict=True)
        )


def run_by(kernel: CudaKernel) -> str:
    """Calls the kernel in every thread, its tensors' addresses as the driver would pass them."""
    symbol, count = kernel.symbol, len(kernel.tensors)
    fill = "given.p = tensors;" if kernel.by_table else f"for (int i = 0; i < {count}; ++i) given.p[i] = tensors[i];"
    return trampoline(f"run_{symbol}", f"{symbol}_Tensors given; {fill} {symbol}(given, semaphore)")
