"""The kernels of an optimized module are counted by a rule that one can follow by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.benchmark.contestants import WORKLOADS
from scripts.benchmark.export_hlo import EXPORTED
from scripts.benchmark.launches import count_hlo
from scripts.benchmark.xla_kernels import RESULTS, XlaKernels, count_kernels, instruction_count, main
from stitchfleet.compiler.hlo.text import read_hlo_text

MODULE = """HloModule step

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT
}

loop_fusion {
  x = f32[8] parameter(0)
  e = f32[8] exponential(x)
  ROOT r = f32[8] reshape(e)
}

gemm_fusion {
  x = f32[8,8] parameter(0)
  d = f32[8,8] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT e = f32[8,8] exponential(d)
}

in_parallel {
  x = f32[8] parameter(0)
  f = f32[8] fusion(x), kind=kLoop, calls=loop_fusion
  ROOT c = f32[8] copy(f)
}

body {
  state = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = f32[8] get-tuple-element(state), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  y = f32[8] fusion(x), kind=kLoop, calls=loop_fusion
  ROOT result = (s32[], f32[8]) tuple(next, y)
}

condition {
  state = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  limit = s32[] constant(3)
  ROOT less = pred[] compare(i, limit), direction=LT
}

ENTRY step {
  x = f32[8] parameter(0)
  m = f32[8,8] parameter(1)
  zero = s32[] constant(0)
  start = (s32[], f32[8]) tuple(zero, x)
  loop = (s32[], f32[8]) while(start), condition=condition, body=body
  end = f32[8] get-tuple-element(loop), index=1
  product = f32[8,8] fusion(m), kind=kOutput, calls=gemm_fusion
  library = f32[8,8] custom-call(product, m), custom_call_target="__cublas$gemm"
  drawn = f32[8,8] custom-call(library), custom_call_target="cu_threefry2x32"
  flat = f32[64] bitcast(drawn)
  table = f32[64] constant({...})
  sum = f32[64] add(flat, table)
  sorted = f32[64] sort(sum), dimensions={0}, to_apply=less
  f0 = f32[] constant(0)
  total = f32[] reduce(sorted, f0), dimensions={0}, to_apply=add
  wide = f32[8] call(end), to_apply=in_parallel
  ROOT last = (f32[8], f32[]) tuple(wide, total)
}
"""


def test_the_kernels_of_a_module_by_hand() -> None:
    # fusions: of the loop, of the call. others: add and compare of the loop; copy of the call; the random numbers, add, sort, reduce.
    # products: the fusion that holds one, the library's.
    module = read_hlo_text(MODULE, elided_constants=True)
    assert count_kernels(module) == XlaKernels(fusions=2, others=7, products=2)
    assert instruction_count(module) == 3 + 3 + 3 + 3 + 3 + 7 + 4 + 17


def test_a_product_written_out_is_known_by_its_operator() -> None:
    written = """HloModule m
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
matvec {
  x = f32[4] parameter(0)
  w = f32[4,8] parameter(1)
  wide = f32[4,8] broadcast(x), dimensions={0}
  each = f32[4,8] multiply(wide, w)
  zero = f32[] constant(0)
  ROOT y = f32[8] reduce(each, zero), dimensions={0}, to_apply=add, metadata={op_name="while/lstm/MatMul_1"}
}
ENTRY e {
  x = f32[4] parameter(0)
  w = f32[4,8] parameter(1)
  ROOT y = f32[8] fusion(x, w), kind=kInput, calls=matvec
}
"""
    assert count_kernels(read_hlo_text(written)) == XlaKernels(1, 0, 0, written_out_products=1)
    assert count_kernels(read_hlo_text(written.replace("MatMul_1", "Sum"))) == XlaKernels(1, 0, 0)


def test_both_counts_of_the_benchmark_agree() -> None:
    kernels = count_kernels(read_hlo_text(MODULE, elided_constants=True))
    launches = count_hlo(MODULE)
    assert (kernels.memory, kernels.products) == (launches.memory, launches.products)


def test_numbers_of_one_backend_leave_those_of_the_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "small.hlo").write_text(MODULE)
    words = [str(tmp_path / "small.hlo"), "--json", str(tmp_path / "out.json")]
    assert main(["cpu", *words, "--version", "A 1"]) == 0
    assert main(["gpu", *words, "--version", "B 2", "--device", "some GPU"]) == 0
    counts = {"fusions": 2, "others": 7, "products": 2, "written_out_products": 0}
    assert json.loads((tmp_path / "out.json").read_text()) == {
        "small": {
            "hlo_instructions": None,
            "cpu": {**counts, "version": "A 1"},
            "gpu": {**counts, "version": "B 2", "device": "some GPU"},
            "gpu_a100": None,
        }
    }
    assert "2 fusions" in capsys.readouterr().out


def test_what_is_no_module_costs_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "broken.hlo").write_text("HloModule m\n")
    assert main(["cpu", str(tmp_path / "broken.hlo"), "--version", "1", "--json", str(tmp_path / "out.json")]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "out.json").exists()


def test_there_are_numbers_of_every_exported_step() -> None:
    assert set(EXPORTED) <= set(WORKLOADS)
    results = json.loads(RESULTS.read_text())
    assert set(results) == set(EXPORTED)
    for row in results.values():
        assert row["hlo_instructions"] > row["cpu"]["fusions"] + row["cpu"]["others"] > 0
