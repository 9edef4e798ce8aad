"""scripts/bench --floors and --functions: what they accept, what they count, and that their figures are of what they say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from scripts.benchmark import command, floors, functions, patterns
from stitchfleet.compiler.ir.graph import DType, GatherDimensions, GraphBuilder
from stitchfleet.compiler.ops import table as ops
from stitchfleet.compiler.ops.interpreter import evaluate


@pytest.mark.parametrize(
    ("words", "said"), [(["--floors", "--only", "x"], "patterns"), (["--functions", "--only", "x"], "expm1")]
)
def test_an_unknown_name_is_a_mistake_and_the_known_ones_are_listed(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as error:
        command.main(words)
    assert error.value.code == 2
    assert said in capsys.readouterr().err


def test_patterns_compute_what_their_names_say() -> None:
    found = {item.name: item for item in patterns.patterns()}
    assert len(found) == len(patterns.patterns())
    x = np.random.default_rng(0).standard_normal((16, 64, 64)).astype(np.float32)
    (total,) = evaluate(found["sum 16x64x64 over 0,2"].graph, [x])
    np.testing.assert_allclose(total, x.sum((0, 2)), rtol=1e-4)
    (turned,) = evaluate(found["transpose 16x64x64 to 2,0,1"].graph, [x])
    assert np.array_equal(turned, x.transpose(2, 0, 1))
    (spread,) = evaluate(found["broadcast 16x64x64 along 1"].graph, [x[:, 0], x])
    assert np.array_equal(spread, x[:, :1] + x)


@pytest.mark.parametrize("group", ["composites", "rows"])
def test_a_composite_is_what_tensorflow_computes(group: str) -> None:
    found = {item.name: item for item in patterns.GROUPS[group]()}
    rng = np.random.default_rng(0)
    for number, item in enumerate(found.values()):
        if number % 3 or any(item.graph.nodes[index].element_count > 350_000 for index in item.graph.parameters):
            continue
        given = [
            rng.standard_normal(item.graph.nodes[index].shape).astype(np.float32) for index in item.graph.parameters
        ]
        assert item.tensorflow is not None
        results, theirs = evaluate(item.graph, given), item.tensorflow(*given)
        (result, *sums), (other, *their_sums) = results, theirs if len(results) > 1 else [theirs]
        np.testing.assert_allclose(result, other, rtol=1e-3, atol=1e-5, err_msg=item.name)
        for total, their_total in zip(sums, their_sums, strict=True):  # of thousands of numbers of both signs
            np.testing.assert_allclose(total, their_total, 1e-3, 1e-6 * np.abs(result).sum(0).max(), err_msg=item.name)
    assert len(found) == len(patterns.GROUPS[group]())


def test_a_softmax_of_a_transposed_tensor_runs_over_the_dimension_that_it_names() -> None:
    found = {item.name: item for item in patterns.composites()}
    x = np.random.default_rng(0).standard_normal((67, 65, 63)).astype(np.float32)
    (result,) = evaluate(found["softmax 63x65x67 along 0, transposed"].graph, [x])
    weights = np.exp(x.T - x.T.max(0))
    np.testing.assert_allclose(result, weights / weights.sum(0), rtol=1e-5)


def test_the_clusters_that_jobs_have_left_are_a_group(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "hlo").mkdir()
    (tmp_path / "hlo" / "tanh_1.hlo").write_text(
        "HloModule m\nENTRY main {\n  x = f32[64,128] parameter(0)\n  ROOT t = f32[64,128] tanh(x)\n}\n"
    )
    (tmp_path / "hlo" / "bad.pb").write_bytes(b"no proto")
    words = ["--floors", "--only", "kept", "--cache", str(tmp_path), "--rounds", "1", "--threads", "1", "--all"]
    assert command.main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines if "tanh_1" in line] == [["kept:", "tanh_1"]]
    assert not any("bad" in line for line in lines)


def test_a_floor_counts_each_input_once_and_of_a_table_what_is_looked_up() -> None:
    builder = GraphBuilder("lookup")
    table = ops.build(builder, "parameter", shape=(1000, 8), dtype=DType.F32, number=0)
    ids = ops.build(builder, "parameter", shape=(5, 1), dtype=DType.S32, number=1)
    numbers = GatherDimensions((1,), (0,), (0,), 1, (1, 8))
    rows = ops.build(builder, "gather", (table, ids), gather=numbers)
    graph = builder.finish((ops.build(builder, "add", (rows, rows)),))
    assert floors.must_move(graph) == 5 * 8 * 4 + 5 * 4 + 5 * 8 * 4


def test_floors_are_measured_and_written_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "floors.json"
    words = [
        "--floors",
        "--only",
        "crnn",
        "--rounds",
        "1",
        "--threads",
        "1",
        "--no-tensorflow",
        "--all",
        "--json",
        str(out),
    ]
    assert command.main(words) == 0
    kernels = json.loads(out.read_text())["kernels"]
    assert len(kernels) == len(floors.step_kernels("crnn"))
    assert all(kernel["us"] > 0 and kernel["floor_us"] > 0 for kernel in kernels)
    assert any(kernel["functions_us"] > 0 for kernel in kernels)
    assert all(kernel["of_bound"] <= kernel["of_floor"] for kernel in kernels)
    assert any(kernel["masked_us"] for kernel in kernels)
    said = capsys.readouterr()
    assert "of floor" in said.out
    assert "measuring kernel 1 of" in said.err


def test_functions_alone_take_as_long_as_there_are_of_them(tmp_path: Path) -> None:
    builder = GraphBuilder("functions")
    x = ops.build(builder, "parameter", shape=(1000, 8), dtype=DType.F32, number=0)
    graph = builder.finish((ops.build(builder, "add", (x, ops.build(builder, "tanh", (x,)))),))
    times = floors.FunctionTimes(tmp_path, 1)
    times.ns[("tanh", (DType.F32,), DType.F32)] = 0.5
    assert times.of(graph) == 4.0
    wide = builder.finish((ops.build(builder, "divide", (x, x)),))
    assert times.of(wide) > 0


def test_functions_are_measured_and_written_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "functions.json"
    assert command.main(["--functions", "--only", "exp,atan2", "--rounds", "1", "--json", str(out)]) == 0
    found = json.loads(out.read_text())["functions"]
    assert len(found) == 2 * 2 * 5
    assert all(figure["ns"] > 0 for figure in found)
    assert "exp float" in capsys.readouterr().out
    (x,) = functions.numbers("exp", "float", "-1e9")
    assert (x == np.float32(-1e9)).mean() == pytest.approx(0.5, abs=0.05)
