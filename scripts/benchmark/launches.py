"""How many things one iteration launches: TensorFlow's operators, stitch ops, XLA's kernels; matrix products counted apart.

Counts are of the graph's text, so an operator in a loop's body counts once, however often the loop turns.
"""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import processes
from .contestants import Contestant, Files, Workload, environment

_PRODUCTS = "matrix product or convolution"
_NO_LAUNCH = "control flow or plumbing"
"""Reasons as plugin/tf_ops.py words them (`why_not`); a test holds them together."""


@dataclass(frozen=True)
class Launches:
    """memory: launches for memory-intensive work; products: matrix products and convolutions."""

    memory: int
    products: int


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
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.\-]+ = .*?\s([a-z][a-z0-9\-]*)\(")
_CALLEES = re.compile(r"\b(?:to_apply|calls|body|condition|true_computation|false_computation)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"\b(?:branch_computations|called_computations)=\{([^}]*)\}")
_TARGET = re.compile(r'custom_call_target="([^"]*)"')
_FREE = frozenset(
    "parameter constant tuple get-tuple-element bitcast after-all partition-id replica-id opt-barrier".split()
)
_IS_PRODUCT = frozenset("dot convolution".split())
_PRODUCT_TARGET = re.compile(r"matmul|conv|gemm|dot", re.IGNORECASE)


@dataclass(frozen=True)
class _Instruction:
    opcode: str
    callees: tuple[str, ...]
    target: str


def count_hlo(text: str) -> Launches:
    """Kernels of an optimized HLO module's text: each instruction of the entry that is not free is one.

    A fusion is one; a `call` (how XLA's CPU backend marks what it runs in parallel) is what it calls; loops and branches count
    their bodies; a fusion, call or custom call that holds a matrix product counts as a product.
    Raises ValueError when the text has no entry computation.
    """
    entry, computations = _parse(text)
    memory, products = _count(entry, computations)
    return Launches(memory, products)


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
            computations[name].append(_Instruction(found[1], tuple(callees), target[1] if target else ""))
    if not entry:
        raise ValueError("no ENTRY computation in this text: is it HLO?")
    return entry, computations


def _holds_product(name: str, computations: Mapping[str, list[_Instruction]]) -> bool:
    return any(
        _is_product(instruction) or any(_holds_product(callee, computations) for callee in instruction.callees)
        for instruction in computations.get(name, [])
    )


def _is_product(instruction: _Instruction) -> bool:
    return instruction.opcode in _IS_PRODUCT or bool(
        instruction.opcode == "custom-call" and _PRODUCT_TARGET.search(instruction.target)
    )


def _count(name: str, computations: Mapping[str, list[_Instruction]]) -> tuple[int, int]:
    memory = products = 0
    for instruction in computations.get(name, []):
        if instruction.opcode in _FREE:
            continue
        if instruction.opcode in ("while", "conditional", "call"):
            for callee in instruction.callees:
                more = _count(callee, computations)
                memory, products = memory + more[0], products + more[1]
        elif _is_product(instruction) or any(_holds_product(callee, computations) for callee in instruction.callees):
            products += 1
        else:
            memory += 1
    return memory, products


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
