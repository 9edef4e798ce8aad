"""The steps of the workloads, as TensorFlow lowers them: all imports but products, random numbers and control flow."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from scripts.benchmark.export_hlo import EXPORTED
from scripts.benchmark.xla_kernels import FIXTURES
from stitchfleet.compiler.hlo.importer import UnsupportedHloError, import_module
from stitchfleet.compiler.hlo.module import HloModule
from stitchfleet.compiler.hlo.text import read_hlo_text

ROOT = Path(__file__).resolve().parents[3]
LARGEST_BYTES = 4 * 2**20
"""Of all fixtures together."""
# A broadcast of a dynamic dimension, and a sort: Adam sums the gradients of rows that were looked up more than once (Unique).
LEFT_OUT = {"dot", "convolution", "while", "rng", "sort", "broadcast"}
MADE_OF = {
    "bert": {"dot": 102, "rng": 13, "gather": 1, "scatter": 1},
    "bert-infer": {"dot": 34, "gather": 1},
    "transformer": {"dot": 135, "rng": 18, "gather": 2, "scatter": 1},
    "transformer-infer": {"dot": 45, "gather": 2},
    "dien": {"dot": 55, "gather": 13, "scatter": 9, "sort": 12, "while": 7},
    "dien-infer": {"dot": 15, "gather": 5, "while": 2},
    "crnn": {"convolution": 7, "dot": 9, "while": 4},
    "asr": {"convolution": 2, "dot": 18, "gather": 1, "while": 7},
}
"""What a step can be told by: matrix products, convolutions, loops over time, look-ups, dropouts."""


@functools.cache
def _read(name: str) -> HloModule:
    return read_hlo_text((FIXTURES / f"{name}.hlo").read_text())


def _opcodes(module: HloModule) -> Counter[str]:
    return Counter(
        item.opcode for computation in module.computations.values() for item in computation.instructions.values()
    )


def test_every_exported_step_has_a_fixture_and_all_are_small() -> None:
    files = sorted(FIXTURES.glob("*.hlo"))
    assert {path.stem for path in files} == set(EXPORTED) == set(MADE_OF)
    assert sum(path.stat().st_size for path in files) <= LARGEST_BYTES
    assert not any("source_file" in path.read_text() or "%elided_" in path.read_text() for path in files)


@pytest.mark.parametrize("name", EXPORTED)
def test_a_step_is_made_of_what_the_workload_says(name: str) -> None:
    opcodes = _opcodes(_read(name))
    assert {opcode: opcodes[opcode] for opcode in MADE_OF[name]} == MADE_OF[name]
    assert opcodes["custom-call"] == 0


@pytest.mark.parametrize("name", EXPORTED)
def test_only_what_is_left_to_libraries_and_tensorflow_does_not_import(name: str) -> None:
    with pytest.raises(UnsupportedHloError) as refused:
        import_module(_read(name))
    assert {item.opcode for item in refused.value.ops} <= LEFT_OUT


@pytest.mark.slow
def test_a_step_exported_again_is_made_of_the_same(tmp_path: Path) -> None:
    name = "dien-infer"
    command = [sys.executable, "-m", "scripts.benchmark.export_hlo", "--workloads", name, "--folder", str(tmp_path)]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert _opcodes(read_hlo_text((tmp_path / f"{name}.hlo").read_text())) == _opcodes(_read(name))
