"""What a prepared folder holds, and how the workers read it.

cases.json          the cases in their order, most worth knowing first
hlo/NAME.hlo        each case's computation
kernels/NAME.cubin  our kernels, and NAME.json: KernelMetadata
barrier.cubin       a kernel of grid barriers alone
inputs              are drawn on the machine with the GPU, once, and are the same for all contestants
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from stitchfleet.compiler.check.random_inputs import Regime, random_inputs
from stitchfleet.compiler.hlo.importer import read_hlo_file
from stitchfleet.compiler.ir.graph import Array, Graph
from stitchfleet.compiler.kernel.metadata import KernelMetadata
from stitchfleet.compiler.step.partition import stitch_ops_of

GROUPS: Final = ("micro", "op", "step")
CACHE_BYTES: Final = 50 << 20
"""The L2 cache that timed loops must exceed: an H100's; all contestants use the same figure."""


@dataclass(frozen=True)
class Case:
    """One computation. group: "micro", "op" (a stitch op of a workload's step) or "step". function: torch_functions' key, "" if it
    has none. kernels: the candidates' names, the one that the compiler chooses first; "usual" among the first is the launch without
    a search. bytes_moved: read and written by our kernel. count: how often the workload's step has it."""

    name: str
    group: str
    function: str = ""
    kernels: tuple[str, ...] = ()
    bytes_moved: int = 0
    workload: str = ""
    count: int = 1

    def is_among(self, chosen: Sequence[str]) -> bool:
        """Whether one of `chosen` is its group or the beginning of its name."""
        return self.group in chosen or any(self.name.startswith(one) for one in chosen if one not in GROUPS)

    def hlo(self, folder: Path) -> Path:
        """The file of its HLO."""
        return folder / "hlo" / f"{self.name}.hlo"

    def stitched_hlo(self, folder: Path) -> Path:
        """The file of a step's HLO in which our kernels are custom calls."""
        return folder / "hlo" / f"{self.name}.stitched.hlo"

    def graph(self, folder: Path) -> Graph:
        """The computation as one graph."""
        return stitch_ops_of(read_hlo_file(self.hlo(folder))).stitch_ops[0].graph

    def metadata(self, folder: Path, kernel: str) -> KernelMetadata:
        """A kernel's metadata."""
        return KernelMetadata.from_json((folder / "kernels" / f"{kernel}.json").read_text())

    def seed(self) -> int:
        """The seed of the case's inputs, a hash of its name."""
        return zlib.crc32(self.name.encode())

    @property
    def regime(self) -> Regime:
        """The regime of the inputs on which the case is timed: UNIT (between 0 and 1) for the stitch ops of workloads and for
        functions that take a power or a root, else NORMAL."""
        return Regime.UNIT if self.function in ("adam", "power_broadcast_add") or self.group == "op" else Regime.NORMAL

    def draw(self, graph: Graph, regime: Regime | None = None) -> list[Array]:
        """The case's inputs, the same on each machine. graph: its computation. regime: None: the regime on which it is
        timed."""
        regime = regime or self.regime
        return random_inputs(graph, np.random.default_rng(self.seed()), regime)


def write_cases(folder: Path, cases: Sequence[Case]) -> None:
    """Writes cases.json."""
    (folder / "cases.json").write_text(json.dumps([asdict(case) for case in cases], indent=1))


def read_cases(folder: Path) -> list[Case]:
    """The cases of a prepared folder. Raises OSError or ValueError if it is not one."""
    return cases_of(json.loads((folder / "cases.json").read_text()))


def read_case(folder: Path, name: str) -> Case:
    """The case called `name` of a prepared folder. Raises StopIteration if there is none."""
    return next(case for case in read_cases(folder) if case.name == name)


def cases_of(rows: Sequence[dict[str, Any]]) -> list[Case]:
    """The cases in rows of JSON, each made by `dataclasses.asdict`."""
    return [Case(**{**row, "kernels": tuple(row["kernels"])}) for row in rows]


def sets_of(case: Case, cache_bytes: int) -> int:
    """How many sets of inputs a timed loop rotates over: as many as exceed the cache three times, at most 6, if a set is more than a
    quarter of the cache; else one, since a small tensor is in the cache in a job too."""
    if case.bytes_moved < cache_bytes // 4:
        return 1
    return max(2, min(6, -(-3 * cache_bytes // case.bytes_moved)))


def save_arrays(folder: Path, arrays: Sequence[Array]) -> None:
    """Writes 0.npy, 1.npy, ... and types.json; bfloat16, which numpy's format does not know, as uint16."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "types.json").write_text(json.dumps([array.dtype.name for array in arrays]))
    for number, array in enumerate(arrays):
        plain = array.view(np.uint16) if array.dtype.name == "bfloat16" else array
        np.save(folder / f"{number}.npy", np.ascontiguousarray(plain).reshape(plain.shape))


def load_arrays(folder: Path) -> list[Array]:
    """The arrays that `save_arrays` wrote to a folder, in order."""
    return list(_loaded(folder))


def _loaded(folder: Path) -> Iterator[Array]:
    import ml_dtypes

    for number, name in enumerate(json.loads((folder / "types.json").read_text())):
        array: Any = np.load(folder / f"{number}.npy")
        yield array.view(ml_dtypes.bfloat16) if name == "bfloat16" else array
