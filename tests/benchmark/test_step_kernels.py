"""scripts/bench --kernels: every stitch op of the workloads' steps is one CUDA kernel, fewer than XLA's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.benchmark.command import main
from scripts.benchmark.step_kernels import ablate, count, generate, memory_kernels, table
from scripts.benchmark.xla_kernels import FIXTURES, RESULTS
from stitchfleet.compiler.codegen.cuda.kernel_text import CudaKernel, head
from stitchfleet.compiler.hlo.importer import read_hlo_file
from stitchfleet.compiler.step.partition import partition
from stitchfleet.compiler.targets.targets import V100
from stitchfleet.compiler.toolchain import nvrtc

STEPS = sorted(path.stem for path in FIXTURES.glob("*.hlo"))
LARGE = {"bert", "dien", "transformer"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in LARGE)) for n in STEPS])
def test_a_workloads_step_takes_fewer_kernels_than_xlas(name: str) -> None:
    known = json.loads(RESULTS.read_text())[name]
    found = count(FIXTURES / f"{name}.hlo", known, V100)
    assert found.failures == ()
    assert 0 < found.kernels < found.alone
    assert found.kernels == found.least  # no plan has fewer
    assert found.fewer is not None
    assert found.fewer > 0.4
    assert found.xla_gpu == known["gpu"]["fusions"] + known["gpu"]["others"] - known["gpu"]["written_out_products"]


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n != "crnn")) for n in STEPS])
def test_nvrtc_compiles_all_kernels_of_a_workloads_step(name: str) -> None:
    kernels = generate(partition(read_hlo_file(FIXTURES / f"{name}.hlo")), V100)
    made = [kernel for kernel in kernels.values() if isinstance(kernel, CudaKernel)]
    assert len(made) == len(kernels) > 0
    built = nvrtc.build("\n".join([head(), *(kernel.text for kernel in made)]), V100.arch)
    assert built.cubin[:4] == b"\x7fELF"
    for kernel in made:
        assert kernel.symbol.encode() in built.ptx


def test_products_that_xla_writes_out_are_not_held_against_it() -> None:
    assert memory_kernels({"fusions": 9, "others": 4, "written_out_products": 3}) == 10
    assert memory_kernels(None) is None


def test_the_command_prints_the_table_and_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kernels.json"
    assert main(["--kernels", "--workloads", "crnn", "--json", str(path)]) == 0
    out = capsys.readouterr().out
    (step,) = json.loads(path.read_text())["steps"]
    assert f"{step['fewer']:.1%}" in out
    assert "fewer than XLA on a V100" in out
    assert table([], V100)[1].split()[:2] == ["ops", "ours"]
    with pytest.raises(SystemExit):
        main(["--kernels", "--workloads", "no_such"])
    assert "expected some of asr" in capsys.readouterr().err


def test_fewer_rules_take_more_kernels_or_move_more(capsys: pytest.CaptureFixture[str]) -> None:
    found = ablate(FIXTURES / "dien-infer.hlo", V100)
    assert [row.rules for row in found] == ["mapping", "hierarchy", "all"]
    assert found[0].kernels > found[1].kernels == found[2].kernels
    assert found[0].moved > found[1].moved > found[2].moved
    assert main(["--kernels", "--ablation", "--workloads", "crnn"]) == 0
    assert "beside all" in capsys.readouterr().out
