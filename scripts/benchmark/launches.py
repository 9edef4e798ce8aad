"""How many operators, stitch ops or XLA kernels one iteration launches, and how much they write; matrix products are counted
separately.

Launches of TensorFlow are counted in its profile of the step (`coverage`), with all iterations of loops. Without a profile they are
counted in the graph, where an operator in a loop's body counts once. XLA's are counted in its optimized module, with the trip counts
of loops that are known.
"""

from __future__ import annotations

import math
import pathlib
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import processes
from .contestants import Contestant, Files, Workload, environment
from .coverage import Iteration

_PRODUCTS = "matrix product or convolution"
_NO_LAUNCH = "control flow or plumbing"
"""Reasons of `why_not` in plugin/graph/tf_ops.py; a test checks that they are equal."""


@dataclass(frozen=True)
class Launches:
    """Launches of one iteration. memory: for memory-intensive work. products: matrix products and convolutions.

    written_bytes: results and scratch of the memory-intensive ones, as often as they are written (TensorFlow's: coverage.Iteration);
    None if not counted.
    """

    memory: int
    products: int
    written_bytes: int | None = None


@dataclass(frozen=True)
class Traffic:
    """Bytes that the stitch ops of one step must move: each input and result of a kernel once; scratch is counted separately."""

    moved_bytes: int
    scratch_bytes: int


def stitch_traffic(summary: Mapping[str, Any]) -> Traffic | None:
    """The traffic of the kernels in use, by their number of calls per step of the stitched arm; None if there were no such steps.

    summary: of `stitchfleet run`.
    """
    main = next((program for program in summary["programs"] if program["name"] == summary["main"]), None)
    if main is None or not main["steps_stitched"]:
        return None
    moved = scratch = 0
    for cluster in summary["clusters"]:
        for kernel in cluster["executables"]:
            if kernel["state"] == "stitched" and kernel["bytes_read"] is not None:
                calls = sum(kernel["calls"].values())
                moved += calls * (kernel["bytes_read"] + kernel["bytes_written"])
                scratch += calls * kernel["intermediate_bytes"]
    return Traffic(moved // main["steps_stitched"], scratch // main["steps_stitched"])


def of_iteration(step: Iteration) -> Launches:
    """The launches of a profiled step."""
    return Launches(round(step.launches), round(step.product_launches), step.written_bytes)


def plain_launches(summary: Mapping[str, Any]) -> Launches | None:
    """The launches of the plain graph, counted in the summary of a stitched run; None if it has no graph."""
    outside, products = _outside(summary)
    members = sum(cluster["instances"] * cluster["op_count"] for cluster in summary["clusters"])
    return Launches(outside + members, products) if outside + members else None


def stitched_launches(summary: Mapping[str, Any]) -> Launches | None:
    """The launches of the stitched graph: one per cluster; a cluster that runs its fallback also launches its members."""
    outside, products = _outside(summary)
    stitched = sum(
        cluster["instances"] * (1 if cluster["state"] == "stitched" else 1 + cluster["op_count"])
        for cluster in summary["clusters"]
    )
    return Launches(outside + stitched, products) if outside + stitched else None


def _outside(summary: Mapping[str, Any]) -> tuple[int, int]:
    """(number of operators in no cluster, number of matrix products)."""
    stayed: Mapping[str, Mapping[str, int]] = summary["stayed_out"]
    outside = sum(sum(ops.values()) for reason, ops in stayed.items() if reason not in (_PRODUCTS, _NO_LAUNCH))
    return outside, sum(stayed.get(_PRODUCTS, {}).values())


# ---- XLA ---------------------------------------------------------------------------------------------------------------------

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+)\b.*\{\s*$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.\-]+ = (.*?)\s([a-z][a-z0-9\-]*)\(")
_ARRAY = re.compile(r"\b(pred|bf16|[suf]\d+|c64|c128)\[([\d,]*)\]")
_TURNS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_CALLEES = re.compile(r"\b(?:to_apply|calls|body|condition|true_computation|false_computation)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"\b(?:branch_computations|called_computations)=\{([^}]*)\}")
_TARGET = re.compile(r'custom_call_target="([^"]*)"')
FREE = frozenset(
    "parameter constant tuple get-tuple-element bitcast after-all partition-id replica-id opt-barrier".split()
)
PRODUCT_OPCODES = frozenset("dot convolution".split())
PRODUCT_TARGET = re.compile(r"matmul|conv|gemm|dot", re.IGNORECASE)


@dataclass(frozen=True)
class _Instruction:
    opcode: str
    callees: tuple[str, ...]
    target: str
    result_bytes: int
    turns: int


@dataclass
class _Count:
    memory: int = 0
    products: int = 0
    written_bytes: int = 0

    def add(self, other: _Count, times: int) -> None:
        self.memory += times * other.memory
        self.products += times * other.products
        self.written_bytes += times * other.written_bytes


def count_hlo(text: str) -> Launches:
    """The kernels in the text of an optimized HLO module: one for each instruction of the entry that is not free.

    A fusion counts as one. A `call`, by which XLA's CPU backend marks parallel work, counts as the instructions that it calls. Loops
    and branches count as their bodies, times the trip count if it is known. A fusion or custom call with a matrix product counts as a
    product. Raises ValueError if the text has no entry computation.
    """
    entry, computations = _parse(text)
    found = _count(entry, computations)
    return Launches(found.memory, found.products, found.written_bytes)


def result_bytes(text: str) -> int:
    """The size in bytes of a result with a shape in HLO's text: `f32[8,128]{1,0}`, or a tuple of such shapes."""
    total = 0
    for dtype, dimensions in _ARRAY.findall(text):
        bits = 8 if dtype == "pred" else int(re.sub(r"\D", "", dtype))
        total += math.prod(int(size) for size in dimensions.split(",") if size) * max(bits // 8, 1)
    return total


def _parse(text: str) -> tuple[str, dict[str, list[_Instruction]]]:
    entry, name = "", ""
    computations: dict[str, list[_Instruction]] = {}
    for line in text.splitlines():
        if not line.startswith((" ", "}")) and (header := _COMPUTATION.match(line)):
            name = header[2]
            computations[name] = []
            entry = name if header[1] else entry
        elif name and (found := _INSTRUCTION.match(line)):
            callees = _CALLEES.findall(line)
            for group in _BRANCHES.findall(line):
                callees += [part.strip().lstrip("%") for part in group.split(",") if part.strip()]
            target = _TARGET.search(line)
            turns = _TURNS.search(line)
            computations[name].append(
                _Instruction(
                    found[2],
                    tuple(callees),
                    target[1] if target else "",
                    result_bytes(found[1]),
                    int(turns[1]) if turns else 1,
                )
            )
    if not entry:
        raise ValueError("no ENTRY computation in this text: is it HLO?")
    return entry, computations


def _holds_product(name: str, computations: Mapping[str, list[_Instruction]]) -> bool:
    return any(
        _is_product(instruction) or any(_holds_product(callee, computations) for callee in instruction.callees)
        for instruction in computations.get(name, [])
    )


def _is_product(instruction: _Instruction) -> bool:
    return instruction.opcode in PRODUCT_OPCODES or bool(
        instruction.opcode == "custom-call" and PRODUCT_TARGET.search(instruction.target)
    )


def _count(name: str, computations: Mapping[str, list[_Instruction]]) -> _Count:
    total = _Count()
    for instruction in computations.get(name, []):
        if instruction.opcode in FREE:
            continue
        if instruction.opcode in ("while", "conditional", "call"):
            for callee in instruction.callees:
                total.add(_count(callee, computations), instruction.turns)
        elif _is_product(instruction) or any(_holds_product(callee, computations) for callee in instruction.callees):
            total.products += 1
        else:
            total.memory += 1
            total.written_bytes += instruction.result_bytes
    return total


def xla_launches(
    workload: Workload, xla: Contestant, mark: str, folder: pathlib.Path, extra: tuple[str, ...], limit_s: float = 600.0
) -> Launches:
    """Runs two steps of the workload under XLA, lets XLA write its modules to a folder, and counts the kernels of the largest one.

    This is a separate run, since writing the modules would count as compile time in the race. Raises RuntimeError with one line.
    """
    files = Files(folder / "xla-modules")
    dump = files.folder / "dump"
    dump.mkdir(parents=True)
    variables = environment(xla, files)
    variables["XLA_FLAGS"] = f"{variables.get('XLA_FLAGS', '')} --xla_dump_to={dump} --xla_dump_hlo_as_text".strip()
    script = [sys.executable, str(workload.script), *workload.arguments, *extra, *xla.arguments, "--steps", "2"]
    process = processes.start(script, f"{mark}xla-modules", variables, files.output)
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        processes.kill_all(f"{mark}xla-modules")
        raise RuntimeError(f"two steps under XLA did not end within {limit_s:.0f} s") from None
    modules = sorted(dump.glob("*after_optimizations.txt"))
    if process.returncode != 0 or not modules:
        raise RuntimeError(f"XLA left no module (exit code {process.returncode})")
    return max((count_hlo(path.read_text()) for path in modules), key=lambda found: found.memory + found.products)
