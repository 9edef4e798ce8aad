"""`stitchfleet compile` and `stitchfleet explain`, as a person uses them."""

from __future__ import annotations

import argparse
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from stitchfleet.compiler.codegen.cuda.kernel_text import CudaError, CudaKernel, plan_for_gpu
from stitchfleet.compiler.commands.command import STAGES, CompileCommand, ExplainCommand
from stitchfleet.compiler.ir.graph import Graph
from stitchfleet.compiler.pipeline import cpu
from stitchfleet.compiler.planning.plan import Plan
from stitchfleet.compiler.targets.targets import GpuTarget

from ...broken_kernels.broken_kernels import break_kernels
from ..step.test_partition import LAYERS

SOFTMAX = """HloModule softmax

largest {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b)
}

sum {
  d = f32[] parameter(0)
  e = f32[] parameter(1)
  ROOT f = f32[] add(d, e)
}

ENTRY main {
  x = f32[6,40]{1,0} parameter(0)
  low = f32[] constant(-inf)
  m = f32[6] reduce(x, low), dimensions={1}, to_apply=largest
  ms = f32[6,40] broadcast(m), dimensions={0}
  s = f32[6,40] subtract(x, ms)
  t = f32[6,40] exponential(s)
  zero = f32[] constant(0)
  n = f32[6] reduce(t, zero), dimensions={1}, to_apply=sum
  ns = f32[6,40] broadcast(n), dimensions={0}
  ROOT r = f32[6,40] divide(t, ns)
}
"""

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")


@pytest.fixture
def softmax(tmp_path: Path) -> Path:
    path = tmp_path / "softmax.hlo"
    path.write_text(SOFTMAX)
    return path


def _run(command: CompileCommand | ExplainCommand, *words: object) -> int:
    parser = argparse.ArgumentParser()
    command.configure(parser)
    return command.run(parser.parse_args([str(word) for word in words]))


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        ("hlo", "m = f32[6] reduce(x, low), dimensions=(1,), calls=('largest',)"),
        ("graph", "%1 = f32[6] reduce(%0), dimensions={1}, kind=max"),
        ("plan", "intermediates written to memory: 0 bytes"),
        ("loops", "softmax"),
        ("source", "stitch_exp("),
    ],
)
def test_each_stage_prints(softmax: Path, capsys: pytest.CaptureFixture[str], stage: str, expected: str) -> None:
    assert _run(CompileCommand(), softmax, "--stop-after", stage) == 0
    assert expected in capsys.readouterr().out


def test_a_stage_can_be_written_to_a_file(softmax: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(CompileCommand(), softmax, "--stop-after", "source", "--output", tmp_path / "k.cc") == 0
    assert capsys.readouterr().out == ""
    assert 'extern "C"' in (tmp_path / "k.cc").read_text()


@needs_compiler
def test_the_binary_is_built_and_not_checked(softmax: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = tmp_path / "cache"
    words = (softmax, "--stop-after", "binary", "--output", tmp_path / "k.so", "--cache", cache)
    assert _run(CompileCommand(), *words) == 0
    assert (tmp_path / "k.so").read_bytes()[:4] == b"\x7fELF"
    assert "not checked" in capsys.readouterr().out
    assert not list(cache.glob("??/*"))  # nobody may load it


@needs_compiler
def test_a_kernel_is_checked_run_and_timed(softmax: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(CompileCommand(), softmax, "--run") == 0
    out = capsys.readouterr().out
    assert "checked on normal, unit, tiny, huge, negative, special inputs" in out
    assert "run: softmax: 1 outputs right (100% of elements decided)" in out
    assert "output 0 f32[6,40]: 0." in out
    assert "GB/s" in out


@needs_compiler
def test_a_kernel_that_fails_its_check_is_exit_code_1(
    softmax: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_kernels(cpu, "add_one_output", patch=monkeypatch.setattr)
    assert _run(CompileCommand(), softmax) == 1
    error = capsys.readouterr().err
    assert "self-check of softmax failed" in error
    assert error.count("\n") == 1


def test_explain_says_what_was_merged_and_draws_it(
    softmax: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(ExplainCommand(), softmax, "--svg", tmp_path / "plan.svg") == 0
    out = capsys.readouterr().out
    assert "regional" in out
    assert "local" in out
    assert (tmp_path / "plan.svg").read_text().startswith("<svg")


LARGE_LAYERS = re.sub(r"\b32\b", "1200", re.sub(r"\b8\b", "300", LAYERS))
"""Their products are too large for a kernel."""

MISTAKES = [
    ("missing.hlo", None, "missing.hlo: No such file or directory"),
    ("a.hlo", "HloModule m\nENTRY e {\n  x = f32[2] negate(y)\n}", "line 3, column 3: given operand y"),
    ("a.pb", "nonsense", "not a serialized HloModuleProto"),
    ("a.hlo", "", "given 'the end', expected 'HloModule'"),
    (
        "a.hlo",
        "HloModule m\nENTRY e {\n  x = f32[300,300] parameter(0)\n"
        "  ROOT y = f32[300,300] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}",
        "1 unsupported ops: dot y: a matrix product, left to the library",
    ),
]


@pytest.mark.parametrize("command", [CompileCommand, ExplainCommand])
@pytest.mark.parametrize(("name", "text", "expected"), MISTAKES, ids=[case[2] for case in MISTAKES])
def test_a_mistake_is_one_line_and_exit_code_2(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    command: type[CompileCommand | ExplainCommand],
    name: str,
    text: str | None,
    expected: str,
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    assert _run(command(), tmp_path / name) == 2
    captured = capsys.readouterr()
    assert expected in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_running_needs_a_binary(softmax: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(CompileCommand(), softmax, "--run", "--stop-after", "plan") == 2
    assert "--stop-after plan makes none" in capsys.readouterr().err
    assert _run(CompileCommand(), softmax, "--run", "--threads", "0") == 2
    assert "expected at least 1" in capsys.readouterr().err


def test_an_unknown_stage_is_refused(softmax: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        _run(CompileCommand(), softmax, "--stop-after", "optimise")
    assert caught.value.code == 2
    assert all(stage in capsys.readouterr().err for stage in STAGES[:1])


def test_a_bundle_is_told_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stitchfleet.compiler.commands.command.entry_points", lambda group: [])
    facts = {"cluster": "layer_norm_1a2b", "output": 1, "step": 70, "expected": 1.0, "actual": 2.0, "index": 3}
    (tmp_path / "bundle.json").write_text(json.dumps({**facts, "largest_error": 1.0}))
    right = np.array([1, np.nan, 3, 1], np.float32)
    np.savez(tmp_path / "tensors.npz", expected_1=right, actual_1=np.array([1, np.nan, 3, 2], np.float32))
    assert _run(ExplainCommand(), tmp_path) == 0
    out = capsys.readouterr().out
    assert "cluster layer_norm_1a2b, output 1 at step 70" in out
    assert "1 of 4 elements differ in their bits" in out


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "expected a bundle of the guard"),
        ("{", "not JSON"),
        ("[]", "given list, expected an object"),
        ("{}", "tensors.npz"),
    ],
)
def test_a_folder_that_is_no_bundle_is_a_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, expected: str
) -> None:
    if content is not None:
        (tmp_path / "bundle.json").write_text(content)
    assert _run(ExplainCommand(), tmp_path) == 2
    error = capsys.readouterr().err
    assert expected in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("emitted", "expected"),
    [
        ("hlo", "m = f32[6] reduce(x, low), dimensions=(1,), calls=('largest',)"),
        ("graph", "%1 = f32[6] reduce(%0), dimensions={1}, kind=max"),
        ("plan", "intermediates written to memory: 0 bytes"),
        ("loops", "softmax"),
        ("source", 'extern "C" __global__'),
        ("ptx", ".target sm_80"),
    ],
)
def test_a_cuda_kernel_is_made_without_a_gpu(
    softmax: Path, capsys: pytest.CaptureFixture[str], emitted: str, expected: str
) -> None:
    assert _run(CompileCommand(), softmax, "--target", "cuda", "--arch", "sm_80", "--stop-after", emitted) == 0
    assert expected in capsys.readouterr().out


def test_a_cuda_kernels_machine_code_goes_to_a_file(
    softmax: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cubin = tmp_path / "softmax.cubin"
    assert _run(CompileCommand(), softmax, "--target", "cuda", "--stop-after", "binary", "--output", cubin) == 0
    assert cubin.read_bytes()[:4] == b"\x7fELF"
    assert _run(CompileCommand(), softmax, "--target", "cuda") == 0
    told = capsys.readouterr().out
    assert "for h200 (sm_90)" in told
    assert "registers per thread, 0 bytes spilled" in told


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--launch", "usual"), "--launch is for --target cuda; a CPU's kernel is not launched"),
        (("--target", "cuda", "--launch", "tune"), "--launch tune times candidates on a GPU: it goes with --run"),
        (("--device", "1"), "--device is for --target cuda --run"),
        (("--stop-after", "ptx"), "--stop-after ptx: --target cpu has graph, plan, loops, source"),
        (("--arch", "sm_80"), "--arch sm_80: --target cpu has host (default host)"),
        (("--target", "cuda", "--arch", "host"), "--arch host: --target cuda has sm_"),
    ],
)
def test_what_does_not_go_together_is_one_line(
    softmax: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], line: str
) -> None:
    assert _run(CompileCommand(), softmax, *words) == 2
    told = capsys.readouterr().err
    assert line in told
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--target", "cuda", "--stop-after", "source"), 'extern "C" __global__'),
        (("--target", "cuda", "--stop-after", "plan"), "== stitch_1"),
        (("--target", "cuda"), "2 x dot: a matrix product, left to the library"),
        (("--stop-after", "source"), "== stitch_0"),
        ((), "checked on normal"),
    ],
)
def test_a_whole_step_is_compiled_stitch_op_by_stitch_op(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], expected: str
) -> None:
    path = tmp_path / "step.hlo"
    path.write_text(LARGE_LAYERS)
    assert _run(CompileCommand(), path, *words) == 0
    out = capsys.readouterr().out
    assert expected in out
    if expected.startswith("extern"):
        assert out.count(expected) == 2


def test_explain_lists_a_steps_stitch_ops_and_what_stays_outside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "step.hlo"
    path.write_text(LARGE_LAYERS)
    assert _run(ExplainCommand(), path) == 0
    out = capsys.readouterr().out
    assert "6 ops in 2 stitch ops, 2 ops outside" in out
    assert out.count("intermediates written to memory") == 2
    assert _run(ExplainCommand(), path, "--svg", tmp_path / "p.svg") == 2
    assert "--svg draws one stitch op" in capsys.readouterr().err
    assert _run(CompileCommand(), path, "--run") == 2
    assert "is split into 2" in capsys.readouterr().err


def test_a_stitch_op_that_cannot_be_a_cuda_kernel_costs_the_others_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(graph: Graph, target: GpuTarget, symbol: str) -> tuple[Plan, CudaKernel]:
        if graph.name == "stitch_1":
            raise CudaError("too large for it")
        return plan_for_gpu(graph, target, symbol)

    monkeypatch.setattr("stitchfleet.compiler.pipeline.cuda.plan_for_gpu", refuse)
    path = tmp_path / "step.hlo"
    path.write_text(LARGE_LAYERS)
    assert _run(CompileCommand(), path, "--target", "cuda", "--stop-after", "source") == 1
    told = capsys.readouterr()
    assert told.err == "stitchfleet compile: no kernel for stitch_1: too large for it\n"
    assert told.out.count('extern "C" __global__') == 1
