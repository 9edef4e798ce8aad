"""Stitch ops' CUDA kernels as a custom call of XLA's, by JAX's foreign function interface (stitch_ffi.cc).

Call       a kernel and how it is launched: the custom call's attributes
register   compiles the handler, which needs g++ and JAX, and tells XLA of it
"""

from __future__ import annotations

import ctypes
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stitchfleet.compiler.kernel.metadata import KernelMetadata

TARGET: Final = "stitchfleet_kernel"
FIRST_OUTPUT: Final = 1_000_000
SCRATCH: Final = -1
SOURCE: Final = Path(__file__).with_name("stitch_ffi.cc")


@dataclass(frozen=True)
class Call:
    """A kernel and how it is launched. image: the cubin's path, absolute or relative to the folder that `register` is given. tensors:
    for each tensor of the kernel, input n as n, output n as FIRST_OUTPUT + n, the scratch memory as SCRATCH. aliases: pairs (output,
    input) that may share memory, any number of disjoint pairs at once."""

    image: str
    symbol: str
    grid: int
    block: int
    shared_bytes: int
    cooperative: bool
    by_table: bool
    scratch_bytes: int
    tensors: tuple[int, ...]
    aliases: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, metadata: KernelMetadata, image: str) -> Call:
        """The call of a CUDA kernel whose cubin is at `image`."""
        launch = metadata.launch
        if launch is None:
            raise ValueError(f"{metadata.symbol} is a kernel for the processor")
        first = {"input": 0, "output": FIRST_OUTPUT, "scratch": SCRATCH}
        return cls(
            image,
            metadata.symbol,
            launch.grid,
            launch.block,
            launch.shared_bytes,
            launch.cooperative,
            launch.by_table,
            metadata.scratch_bytes,
            tuple(first[kind] + number for kind, number in launch.tensors),
            metadata.aliases,
        )

    def attributes(self, site: int) -> str:
        """The attributes as an MLIR dictionary. site: a number that tells this custom call from all others of the process."""
        numbers = {
            "block": self.block,
            "grid": self.grid,
            "scratch_bytes": self.scratch_bytes,
            "shared_bytes": self.shared_bytes,
            "site": site,
        }
        parts = [f"by_table = {str(self.by_table).lower()}", f"cooperative = {str(self.cooperative).lower()}"]
        parts += [f"image = {json.dumps(self.image)}", f"symbol = {json.dumps(self.symbol)}"]
        parts += [f"{name} = {number} : i64" for name, number in numbers.items()]
        tensors = ", ".join(map(str, self.tensors))
        parts.append(f"tensors = array<i64: {tensors}>" if tensors else "tensors = array<i64>")
        return "{" + ", ".join(parts) + "}"


class Handler:
    """The compiled handler, registered with XLA."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        library.stitch_launches.restype = ctypes.c_longlong

    @property
    def launches(self) -> int:
        """How many launches were put into a stream, or captured, so far."""
        return int(self.library.stitch_launches())


def build(folder: Path, platform: str = "CUDA") -> Path:
    """Compiles the handler into `folder` and returns the library. platform: "CUDA", or "cpu" for a rehearsal, in which
    $STITCH_CUDA_DRIVER names the library that stands for NVIDIA's driver."""
    import jax

    library = folder / f"libstitch_ffi_{platform.lower()}.so"
    options = ["-std=c++17", "-O1", "-shared", "-fPIC", "-w", f"-I{jax.ffi.include_dir()}"]
    if platform == "cpu":
        options.append("-DSTITCH_REHEARSAL")
    done = subprocess.run(
        ["g++", *options, str(SOURCE), "-o", str(library), "-ldl"], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"the handler cannot be compiled: {done.stderr[:2000]}")
    return library


def register(folder: Path, platform: str = "CUDA", images: Path | None = None, captured: bool = True) -> Handler:
    """Compiles the handler into `folder` and registers it with XLA, once in a process and before the first compilation. platform: as
    for `build`. images: the folder to which the calls' images are relative; None: the current one. captured: whether XLA may make
    the launches part of its command buffers (CUDA graphs)."""
    import jax

    library = ctypes.CDLL(str(build(folder, platform)))
    if images is not None:
        library.stitch_folder(str(images.resolve()).encode())
    stages = {
        "instantiate": jax.ffi.pycapsule(library.StitchInstantiate),
        "execute": jax.ffi.pycapsule(library.StitchKernel if captured else library.StitchKernelUncaptured),
    }
    jax.ffi.register_ffi_target(TARGET, stages, platform=platform)
    return Handler(library)
