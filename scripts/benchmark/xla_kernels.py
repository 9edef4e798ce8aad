"""How many kernels XLA makes of a step's memory-intensive work, from its optimized HLO, for comparison with our plan.

    python -m scripts.benchmark.xla_kernels cpu|gpu|gpu_a100 FILE ... --version VERSION [--device DEVICE]

counts the kernels of modules that `export_hlo --optimized` or `xla_gpu_hlo` has written, and adds the numbers to
results/xla_kernels.json, by the files' names and the backend. `gpu` is the V100 of the AStitch paper; from the A100 on, XLA fuses
softmax and normalizations by Triton.

Instructions are counted in the entry and in the computations that it runs (the callees of `call` and of asynchronous starts, the
bodies and conditions of `while`, the branches of `conditional`), each once, without trip counts:

- fusions: a `fusion` is one kernel; the instructions inside do not count;
- others: an instruction outside of fusions that computes or moves elements (copy, transpose, reduce, broadcast, gather, scatter,
  sort, ...) is one kernel; regions (of reduce, scatter, sort, ...) do not count;
- products: `dot`, `convolution`, custom calls to a library of them, and a fusion with one of these inside. They are not
  memory-intensive work. XLA's GPU backend writes a product of a matrix and a vector as a multiplication and a sum inside a fusion.
  Such fusions, found by the name of TensorFlow's operator, count as fusions, and also as `written_out_products`;
- free: names for data, and control flow itself (parameter, constant, tuple, get-tuple-element, bitcast, while, ...).
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from stitchfleet.compiler.hlo.module import HloImportError, HloInstruction, HloModule
from stitchfleet.compiler.hlo.text import read_hlo_text

from .contestants import ROOT
from .launches import FREE, PRODUCT_OPCODES, PRODUCT_TARGET

RESULTS = pathlib.Path(__file__).with_name("results") / "xla_kernels.json"
FIXTURES = ROOT / "tests" / "fixtures" / "hlo"
BACKENDS = ("cpu", "gpu", "gpu_a100")
_RUNS_CALLEES = frozenset("while conditional call async-start".split())
_FREE = FREE | _RUNS_CALLEES | frozenset("async-update async-done copy-done".split())
_OF_PRODUCT = re.compile(r"\b(?:Batch)?MatMul(?:V\d)?(?:_\d+)?$")


@dataclass(frozen=True)
class XlaKernels:
    """The kernels of one module, each instruction counted once. Memory-intensive work is fusions and others."""

    fusions: int
    others: int
    products: int
    written_out_products: int = 0
    """Number of fusions that are products written as a multiplication and a sum."""

    @property
    def memory(self) -> int:
        return self.fusions + self.others


def count_kernels(module: HloModule) -> XlaKernels:
    """The kernels that the module's entry runs, by the rules in this file's docstring."""
    found = {"fusions": 0, "others": 0, "products": 0, "written_out_products": 0}

    def count(name: str) -> None:
        for item in module.computations[name].instructions.values():
            if item.opcode in _RUNS_CALLEES:
                for callee in item.called:
                    count(callee)
            elif item.opcode not in _FREE:
                found[_kind(item, module)] += 1
                found["written_out_products"] += item.opcode == "fusion" and _writes_product_out(item, module)

    count(module.entry)
    return XlaKernels(**found)


def _kind(item: HloInstruction, module: HloModule) -> str:
    if _is_product(item) or (item.opcode == "fusion" and _holds_product(item, module)):
        return "products"
    return "fusions" if item.opcode == "fusion" else "others"


def _is_product(item: HloInstruction) -> bool:
    return item.opcode in PRODUCT_OPCODES or bool(
        item.opcode == "custom-call" and PRODUCT_TARGET.search(item.custom_call_target)
    )


def _holds_product(item: HloInstruction, module: HloModule) -> bool:
    return any(
        _is_product(inner) or _holds_product(inner, module)
        for callee in item.called
        for inner in module.computations[callee].instructions.values()
    )


def _writes_product_out(item: HloInstruction, module: HloModule) -> bool:
    return any(
        inner.opcode == "reduce" and _OF_PRODUCT.search(inner.op_name) is not None
        for callee in item.called
        for inner in module.computations[callee].instructions.values()
    )


def instruction_count(module: HloModule) -> int:
    """The number of instructions in all computations."""
    return sum(len(computation.instructions) for computation in module.computations.values())


def record(results: dict[str, Any], name: str, backend: str, facts: dict[str, Any]) -> None:
    """Adds one module's numbers for a backend to `results`, in place."""
    row = results.setdefault(name, {"hlo_instructions": None, **dict.fromkeys(BACKENDS)})
    row[backend] = facts
    fixture = FIXTURES / f"{name}.hlo"
    if fixture.is_file():
        row["hlo_instructions"] = instruction_count(read_hlo_text(fixture.read_text()))


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backend", choices=BACKENDS)
    parser.add_argument("files", nargs="+", type=pathlib.Path, metavar="FILE", help="optimized HLO, NAME.*")
    parser.add_argument("--version", required=True, help="version of the program that contains XLA")
    parser.add_argument("--device", help="device that it was compiled for")
    parser.add_argument("--json", type=pathlib.Path, default=RESULTS, help=f"default {RESULTS.relative_to(ROOT)}")
    arguments = parser.parse_args(words)
    results: dict[str, Any] = json.loads(arguments.json.read_text()) if arguments.json.exists() else {}
    for path in arguments.files:
        name = path.name.partition(".")[0]
        try:
            kernels = count_kernels(read_hlo_text(path.read_text(), elided_constants=True))
        except (OSError, HloImportError) as error:
            print(f"xla_kernels: {path}: {error}", file=sys.stderr)
            return 1
        device = {"device": arguments.device} if arguments.device else {}
        record(results, name, arguments.backend, {**asdict(kernels), "version": arguments.version, **device})
        print(f"{name:<20}{kernels.fusions:>8} fusions{kernels.others:>8} others{kernels.products:>8} products")
    arguments.json.write_text(json.dumps(dict(sorted(results.items())), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
