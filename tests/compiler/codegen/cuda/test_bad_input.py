"""What no CUDA kernel can be made of is refused, or handled, with one clear line; the rest of the file is compiled."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stitchfleet.compiler.check.random_inputs import Regime
from stitchfleet.compiler.codegen.cuda.kernel_text import MOST_PARAMETERS, CudaError, plan_for_gpu, translation_unit
from stitchfleet.compiler.commands.command import CompileCommand
from stitchfleet.compiler.ir.graph import DType
from stitchfleet.compiler.ops.interpreter import evaluate
from stitchfleet.compiler.targets.targets import V100
from stitchfleet.compiler.toolchain import nvrtc
from stitchfleet.compiler.toolchain.nvrtc import build

from ... import library
from ...emulated import SMALL, build_all

SUM = """HloModule refused

sum {{
  d = f32[] parameter(0)
  e = f32[] parameter(1)
  ROOT f = f32[] add(d, e)
}}

ENTRY main {{
{body}
}}
"""
GOOD = """  x = f32[6,40] parameter(0)
  y = f32[6,40] exponential(x)
  z = f32[6,40] multiply(y, x)
"""
CASES = {
    "an op": (
        "  w = f32[6,40] cholesky(z), lower=true\n  ROOT r = (f32[6,40], f32[6,40]) tuple(w, z)",
        "cholesky",
    ),
    "a dtype": (
        "  c = c64[6,40] convert(z)\n  d = c64[6,40] multiply(c, c)\n  e = f32[6,40] real(d)\n"
        "  ROOT r = (f32[6,40], f32[6,40]) tuple(e, z)",
        "c64",
    ),
    "a dynamic dimension": (
        "  n = s32[] parameter(1)\n  s = f32[<=6,40] set-dimension-size(z, n), dimensions={0}\n"
        "  t = f32[<=6,40] negate(s)\n  ROOT r = (f32[<=6,40], f32[6,40]) tuple(t, z)",
        "dynamic",
    ),
}


def compile_file(path: Path, *words: str) -> int:
    parser = argparse.ArgumentParser()
    command = CompileCommand()
    command.configure(parser)
    return command.run(parser.parse_args([str(path), "--target", "cuda", *words]))


@pytest.mark.parametrize("case", CASES)
def test_what_is_not_known_stays_outside_and_the_rest_becomes_a_kernel(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rest, reason = CASES[case]
    path = tmp_path / "step.hlo"
    path.write_text(SUM.format(body=GOOD + rest))
    assert compile_file(path, "--arch", "sm_70") == 0
    out = capsys.readouterr()
    assert out.err == ""
    assert [line for line in out.out.splitlines() if reason in line], out.out
    assert out.out.count("kernel stitch_") == 1
    assert "registers per thread" in out.out


@pytest.mark.parametrize("arch", ["sm_61", "90", "hopper"])
def test_an_architecture_that_is_not_known_is_a_mistake(
    arch: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        compile_file(tmp_path / "step.hlo", "--arch", arch)
    assert ended.value.code == 2
    assert "choose from sm_70, sm_75, sm_80, sm_90" in capsys.readouterr().err.replace("'", "")


def test_without_nvrtc_a_source_is_made_and_a_binary_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvrtc, "_find", lambda: None)
    nvrtc._load.cache_clear()
    path = tmp_path / "step.hlo"
    path.write_text(SUM.format(body=GOOD + "  ROOT r = f32[6,40] negate(z)"))
    assert compile_file(path, "--stop-after", "source") == 0
    assert "__global__" in capsys.readouterr().out
    assert compile_file(path) == 2
    assert capsys.readouterr().err.startswith("stitchfleet compile: NVRTC is not installed")


def test_more_tensors_than_a_launch_takes_parameters_go_by_a_table_in_memory() -> None:
    m = library.Maker("many")
    inputs = [m.parameter(5 + number % 3) for number in range(MOST_PARAMETERS // 2 + 3)]
    graph = m.done(*(m.op("tanh", m.op("multiply", x, x)) for x in inputs))
    (one,) = build_all([graph], SMALL)
    assert len(one.kernel.tensors) > MOST_PARAMETERS
    assert one.kernel.by_table
    assert "void* const* p;" in one.kernel.text
    assert one.complaint(Regime.NORMAL, seed=1) is None
    assert build(translation_unit(plan_for_gpu(graph, V100)[1]), "sm_70").cubin


@pytest.mark.parametrize("kind", ["sum", "max", "min", "product"])
def test_a_reduction_over_an_empty_dimension_is_its_beginning(kind: str) -> None:
    m = library.Maker("empty")
    x = m.parameter(4, 0, 3)
    y = m.parameter(0)
    graph = m.done(m.reduce(x, 1, kind=kind), m.reduce(y, 0, kind=kind), m.op("negate", x))
    (one,) = build_all([graph], SMALL)
    inputs = [np.zeros((4, 0, 3), np.float32), np.zeros(0, np.float32)]
    outputs, messages = one.run(inputs, seed=1)
    assert messages == []
    for found, wanted in zip(outputs, evaluate(graph, inputs), strict=True):
        assert np.array_equal(found, wanted)


def test_a_tensor_of_more_than_two_to_the_31_elements_has_64_bit_positions() -> None:
    """And one of fewer has not: they cost registers."""
    rows, columns = (1 << 21) + 1, 1 << 10
    m = library.Maker("huge")
    x = m.parameter(rows, columns, dtype=DType.S8)
    graph = m.done(
        m.op("negate", m.op("slice", x, start=(rows - 2, 3), limit=(rows, 9), strides=(1, 1))), m.op("not", x)
    )
    _, kernel = plan_for_gpu(graph, V100)
    assert "long long" in kernel.text
    assert str(rows * columns) in kernel.text
    assert build(translation_unit(kernel), "sm_70").cubin
    m = library.Maker("small")
    x = m.parameter(1 << 10, 1 << 10, dtype=DType.S8)
    reduced = plan_for_gpu(m.done(m.reduce(m.op("convert", x, dtype=DType.F32), 1)), V100)[1]
    assert not [line for line in reduced.text.splitlines() if "[(long long)" in line]


def test_a_device_without_cooperative_launch_is_told_apart() -> None:
    alone = replace(V100, name="vgpu", cooperative=False)
    with pytest.raises(CudaError, match="its blocks have to wait for each other, and vgpu has no cooperative launch"):
        plan_for_gpu(library.batch_norm(8, 28, 28, 64), alone)
    assert not plan_for_gpu(library.softmax(64, 64), alone)[1].cooperative
