"""How many things one iteration launches, and what they write: TensorFlow's operators, stitch ops, XLA's kernels; matrix products
counted apart.

TensorFlow's come from its profile of the step (`coverage`), turns of loops included. Without one they are counted in the graph's
text, where an operator in a loop's body counts once. XLA's come from its optimized module, with the turns of loops that it knows.
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
"""Reasons as plugin/graph/tf_ops.py words them (`why_not`); a test holds them together."""


@dataclass(frozen=True)
class Launches:
    """memory: launches for memory-intensive work; products: matrix products and convolutions.

    written_bytes: results and scratch of the former, each as often as it is written (TensorFlow's: coverage.Iteration); None where
    nobody counted.
    """

    memory: int
    products: int
    written_bytes: int | None = None


@dataclass(frozen=True)
class Traffic:
    """What the stitch ops of one step must move. Bytes: each input and each result of a kernel once; its scratch apart."""

    moved_bytes: int
    scratch_bytes: int


def stitch_traffic(summary: Mapping[str, Any]) -> Traffic | None:
    """Of the kernels that came into use, by how often each was called in a step of the stitched arm; None when there was none."""
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
    """The same of a profiled step."""
    return Launches(round(step.launches), round(step.product_launches), step.written_bytes)


def plain_launches(summary: Mapping[str, Any]) -> Launches | None:
    """The operators of the placed graph, from the summary of a stitched run of it; None when it saw no graph."""
    outside, products = _outside(summary)
    members = sum(cluster["instances"] * cluster["op_count"] for cluster in summary["clusters"])
    return Launches(outside + members, products) if outside + members else None


def stitched_launches(summary: Mapping[str, Any]) -> Launches | None:
    """The same with each cluster one launch; a cluster that runs its fallback launches its members as well."""
    outside, products = _outside(summary)
    stitched = sum(
        cluster["instances"] * (1 if cluster["state"] == "stitched" else 1 + cluster["op_count"])
        for cluster in summary["clusters"]
    )
    return Launches(outside + stitched, products) if outside + stitched else None


def _outside(summary: Mapping[str, Any]) -> tuple[int, int]:
    """(operators in no cluster, matrix products)."""
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
    """Kernels of an optimized HLO module's text: each instruction of the entry that is not free is one.

    A fusion is one; a `call` (how XLA's CPU backend marks what it runs in parallel) is what it calls; loops and branches count
    their bodies, as often as they turn where the module knows; a fusion, call or custom call that holds a matrix product counts as
    a product.
    Raises ValueError when the text has no entry computation.
    """
    entry, computations = _parse(text)
    found = _count(entry, computations)
    return Launches(found.memory, found.products, found.written_bytes)


def result_bytes(text: str) -> int:
    """The bytes of a result by its shape in HLO's text: `f32[8,128]{1,0}`, or a tuple of such."""
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
    """Runs two steps of the workload under XLA with its modules written to a folder, and counts the largest one's kernels.

    A run of its own, since writing the modules would be counted as compile time. Raises RuntimeError with one line on failure.
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
