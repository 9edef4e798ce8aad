"""A kernel's PTX, built by g++ and launched on arrays of this process; what runtime.h finds wrong comes back as text."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stitchfleet.compiler.check.judge import judge
from stitchfleet.compiler.check.random_inputs import Regime, random_inputs
from stitchfleet.compiler.codegen.cuda.kernel_text import CudaKernel, translation_unit
from stitchfleet.compiler.ir.graph import DType, Graph
from stitchfleet.compiler.loops.loops import BufferKind
from stitchfleet.compiler.toolchain import nvrtc

from ...kept import kept
from ..emulated import placed
from .module import Module, parse
from .translate import Mutant, translate

HEADER = Path(__file__).with_name("runtime.h")
_COMPILE = ("g++", "-std=gnu++17", "-O1", "-w", "-ffp-contract=off", "-fno-strict-aliasing", "-fPIC", "-shared")
_MESSAGE_BYTES = 16384  # more than the messages that the runtime keeps can be
_MOST_BLOCKS = 65535  # that a stamp of the runtime can name

Array = npt.NDArray[np.generic]

INPUT, MEMORY, SEMAPHORE = 0, 1, 2
"""Kinds of allocations, as in runtime.h."""


@dataclass(frozen=True)
class Schedule:
    """In which order threads run. switch_per_mille: how often one is interrupted at an access of memory; starve: whether one in
    twelve runs 32 times more rarely than the others."""

    seed: int
    switch_per_mille: int = 5
    starve: bool = False


class _Allocation(ctypes.Structure):
    _fields_ = [
        ("base", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("granule", ctypes.c_uint32),
        ("kind", ctypes.c_int),
    ]


class _Launch(ctypes.Structure):
    _fields_ = [
        ("params", ctypes.c_void_p),
        ("param_bytes", ctypes.c_uint64),
        ("allocations", ctypes.POINTER(_Allocation)),
        ("allocation_count", ctypes.c_uint32),
        ("grid", ctypes.c_uint32),
        ("block", ctypes.c_uint32),
        ("shared_bytes", ctypes.c_uint32),
        ("resident", ctypes.c_uint32),
        ("seed", ctypes.c_uint64),
        ("switch_per_mille", ctypes.c_uint32),
        ("starve", ctypes.c_uint32),
        ("mutant", ctypes.c_uint32),
        ("most_turns", ctypes.c_uint64),
        ("reached", ctypes.c_void_p),
        ("messages", ctypes.c_char_p),
        ("message_bytes", ctypes.c_uint64),
    ]


@dataclass(frozen=True)
class Buffer:
    """An array of a launch. kind: INPUT may only be read; MEMORY only where the launch has written it; SEMAPHORE is not checked."""

    array: Array
    kind: int


@dataclass(frozen=True)
class Library:
    """The library of a module. Launches of one library must not overlap in time. reached: by a mutant's number, whether any launch
    has executed its place."""

    module: Module
    library: ctypes.CDLL
    entry: str
    reached: npt.NDArray[np.uint8]

    def launch(
        self,
        parameters: bytes,
        buffers: Sequence[Buffer],
        grid: int,
        block: int,
        shared_bytes: int = 0,
        resident: int = 4,
        schedule: Schedule = Schedule(0),
        mutant: int = 0,
        most_turns: int = 1 << 33,
    ) -> list[str]:
        """Runs the kernel in place; what is wrong, one line each. parameters: their bytes, addresses among them. resident: how many
        blocks are live at a time. mutant: the number of one; 0: the kernel itself."""
        if len(parameters) != self.module.parameter_bytes:
            raise ValueError(f"{len(parameters)} bytes of parameters instead of {self.module.parameter_bytes}")
        if not 0 < grid <= _MOST_BLOCKS or not 0 < block <= 1024:
            raise ValueError(f"a grid of {grid} blocks of {block} threads")
        if not all(each.array.flags.c_contiguous for each in buffers):
            raise ValueError("the arrays of a launch must be C-contiguous")
        allocations = [
            _Allocation(each.array.ctypes.data, each.array.nbytes, min(4, each.array.itemsize), each.kind)
            for each in buffers
            if each.array.nbytes
        ]
        given = ctypes.create_string_buffer(parameters, max(1, len(parameters)))
        messages = ctypes.create_string_buffer(_MESSAGE_BYTES)
        launch = _Launch(
            params=ctypes.cast(given, ctypes.c_void_p),
            param_bytes=len(parameters),
            allocations=(_Allocation * len(allocations))(*allocations),
            allocation_count=len(allocations),
            grid=grid,
            block=block,
            shared_bytes=shared_bytes,
            resident=resident,
            seed=schedule.seed,
            switch_per_mille=schedule.switch_per_mille,
            starve=schedule.starve,
            mutant=mutant,
            most_turns=most_turns,
            reached=self.reached.ctypes.data,
            messages=ctypes.cast(messages, ctypes.c_char_p),
            message_bytes=_MESSAGE_BYTES,
        )
        faults = self.library[self.entry](ctypes.byref(launch))
        lines = messages.value.decode(errors="replace").splitlines()
        if faults != len(lines):
            raise AssertionError(f"{faults} faults, but {len(lines)} messages")
        return lines


def build(ptx: str, mutants: Sequence[Mutant] = ()) -> Library:
    """The library of a module with one kernel. Raises PtxError if the translator does not know all of it."""
    module = parse(ptx)
    return _compiled([module], translate(module, mutants), len(mutants))[0]


def build_all(ptx: Sequence[str]) -> list[Library]:
    """The same of many small modules, compiled at once."""
    modules = list(map(parse, ptx))
    return _compiled(modules, "".join(translate(module, number=number) for number, module in enumerate(modules)))


def _compiled(modules: Sequence[Module], translated: str, mutants: int = 0) -> list[Library]:
    text = f'#include "{HEADER.name}"\n{translated}'

    def compile_to(source: Path, library: Path) -> None:
        subprocess.run([*_COMPILE, "-I", str(HEADER.parent), "-x", "c++", str(source), "-o", str(library)], check=True)

    library = ctypes.CDLL(str(kept(text, _identity(), "kernel.ptx.cc", compile_to)))
    return [
        Library(module, library, f"launch{number}", np.zeros(mutants + 1, np.uint8))
        for number, module in enumerate(modules)
    ]


@lru_cache(maxsize=1)
def _identity() -> str:
    """What a library is made of beside its own text."""
    version = subprocess.run(["g++", "--version"], capture_output=True, text=True, check=True).stdout
    return "\n".join((version, *_COMPILE, HEADER.read_text()))


@dataclass(frozen=True)
class Executable:
    """A generated kernel by its PTX."""

    graph: Graph
    kernel: CudaKernel
    library: Library
    mutant: int = 0

    def mutated(self, mutant: int) -> Executable:
        """The same with the mutant of that number in the kernel's place."""
        return replace(self, mutant=mutant)

    def run(
        self, inputs: Sequence[Array], schedule: Schedule, most_blocks: int | None = 4, most_turns: int = 1 << 33
    ) -> tuple[list[Array], list[str]]:
        """The outputs, and what was found wrong. The tensors begin at a multiple of 64 bytes, or, for an odd seed, one element behind
        it. The outputs hold rubbish before. most_blocks: of the grid; None: all if the kernel has no grid barrier."""
        graph, kernel = self.graph, self.kernel
        shift = schedule.seed % 2
        outputs = [placed(_poisoned(graph, node), shift) for node in graph.outputs]
        given = [placed(each, shift) for each in inputs]
        buffers, addresses = [], []
        for each in kernel.tensors:
            if each is None:
                scratch = placed(np.full(max(kernel.scratch_bytes, 1), 0xA5, np.uint8), 0)
                buffers.append(Buffer(scratch.view(np.uint8), MEMORY))
            elif each.kind is BufferKind.INPUT:
                buffers.append(Buffer(given[each.number], INPUT))
            else:
                buffers.append(Buffer(outputs[each.number], MEMORY))
            addresses.append(buffers[-1].array.ctypes.data)
        semaphore = np.zeros(1, np.uint32)
        table = np.array(addresses or [0], np.uint64)
        tensors = np.array([table.ctypes.data], np.uint64) if kernel.by_table else table
        buffers += [Buffer(semaphore, SEMAPHORE), *([Buffer(table, INPUT)] if kernel.by_table else [])]
        limit = most_blocks or (4 if kernel.cooperative else kernel.grid)
        grid = max(1, min(kernel.grid, limit))
        messages = self.library.launch(
            tensors.tobytes() + np.uint64(semaphore.ctypes.data).tobytes(),
            buffers,
            grid,
            kernel.block,
            kernel.shared_bytes,
            grid if kernel.cooperative else min(grid, 4),
            schedule,
            self.mutant,
            most_turns,
        )
        if not messages and kernel.cooperative and semaphore[0] & 0x7FFFFFFF:
            messages.append(f"grid barrier: the semaphore is left at {semaphore[0]:#x}")
        return outputs, messages

    def complaint(
        self, regime: Regime, schedule: Schedule, most_blocks: int | None = 4, most_turns: int = 1 << 33
    ) -> str | None:
        """What is wrong with the kernel on random inputs, or None."""
        rng = np.random.default_rng(schedule.seed)
        inputs = [np.require(x, requirements="C") for x in random_inputs(self.graph, rng, regime)]
        outputs, messages = self.run(inputs, schedule, most_blocks, most_turns)
        if messages:
            return "; ".join(messages[:3])
        verdict = judge(self.graph, inputs, outputs)
        return None if verdict.ok else str(verdict)


def execute(executable: Executable, inputs: Sequence[Array], schedule: Schedule = Schedule(0)) -> list[Array]:
    """The outputs of a kernel for inputs. Raises AssertionError with what was found wrong."""
    outputs, messages = executable.run(inputs, schedule)
    if messages:
        raise AssertionError("; ".join(messages))
    return outputs


def ptx_of(kernel: CudaKernel) -> str:
    """NVRTC's PTX of a generated kernel for its target."""
    return nvrtc.build(translation_unit(kernel), kernel.target.arch).ptx.decode()


def built(graph: Graph, kernel: CudaKernel, ptx: str | None = None, mutants: Sequence[Mutant] = ()) -> Executable:
    """The kernel of a graph by NVRTC's PTX for its target, or by a PTX that is given instead."""
    return Executable(graph, kernel, build(ptx_of(kernel) if ptx is None else ptx, mutants))


def _poisoned(graph: Graph, node: int) -> Array:
    """What an output holds before a launch: an element that the kernel leaves out is not right by chance."""
    array = np.empty(graph.nodes[node].shape, graph.nodes[node].dtype.numpy)
    array.reshape(-1).view(np.uint8)[...] = 1 if graph.nodes[node].dtype is DType.PRED else 0xA5
    return array
