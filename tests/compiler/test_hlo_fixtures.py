"""The steps of the workloads, exported from TensorFlow, are modules that our parser reads."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from scripts.benchmark.export_hlo import EXPORTED
from scripts.benchmark.xla_kernels import FIXTURES, instruction_count
from stitchfleet.compiler.hlo_import import import_module
from stitchfleet.compiler.hlo_module import HloImportError, HloModule
from stitchfleet.compiler.hlo_text import read_hlo_text

ROOT = Path(__file__).resolve().parents[2]
LARGEST_BYTES = 4 * 2**20
"""Of all fixtures together."""
# What each step must be made of: its matrix products or convolutions, and its loops over time.
MADE_OF = {
    "bert": {"dot": 90, "rng-bit-generator": 9, "while": 0},
    "bert-infer": {"dot": 34, "while": 0},
    "transformer": {"dot": 90, "while": 0},
    "transformer-infer": {"dot": 37, "while": 0},
    "dien": {"dot": 20, "while": 4},
    "dien-infer": {"dot": 11, "while": 2},
    "crnn": {"convolution": 7, "dot": 9, "while": 4},
    "asr": {"convolution": 2, "dot": 12, "while": 7},
}


def _read(name: str) -> HloModule:
    return read_hlo_text((FIXTURES / f"{name}.hlo").read_text())


def _opcodes(module: HloModule) -> Counter[str]:
    return Counter(
        item.opcode for computation in module.computations.values() for item in computation.instructions.values()
    )


def test_there_is_a_fixture_of_every_exported_step_and_they_are_small() -> None:
    files = sorted(FIXTURES.glob("*.hlo"))
    assert {path.stem for path in files} == set(EXPORTED) == set(MADE_OF)
    assert sum(path.stat().st_size for path in files) <= LARGEST_BYTES
    assert not any(str(ROOT) in path.read_text() or "source_file" in path.read_text() for path in files)
