"""scripts/bench --kernels-cpu: what it accepts, and that its figures are of what they say."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from scripts.benchmark import command, kernels_cpu
from scripts.benchmark.kernel_cases import ADAM_TENSORS, BERT_SHAPES, CASES
from scripts.benchmark.kernels_cpu import Figure, main


def test_sizes_are_read_with_their_units(capsys: pytest.CaptureFixture[str]) -> None:
    assert kernels_cpu._sizes("4k,1M,100") == (4096, 1 << 20, 100)
    for wrong in ("", "4Q", "0"):
        with pytest.raises(SystemExit) as error:
            main(["--sizes", wrong])
        assert error.value.code == 2
        assert "expected sizes such as" in capsys.readouterr().err


def test_an_unknown_kernel_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        command.main(["--kernels-cpu", "--only", "softmax,nonsense"])
    assert error.value.code == 2
    assert "no kernel nonsense; there are: layer_norm," in capsys.readouterr().err


def test_ratios() -> None:
    figure = Figure("softmax", "ordinary", 4096, 8192, 2.0, 3.0, 12.0, 6.0, 0.0)
    assert figure.of_floor == 1.5
    assert figure.ahead == 2.0


def test_half_of_masked_data_is_masked() -> None:
    softmax = next(case for case in CASES if case.name == "softmax")
    inputs = softmax.inputs(1 << 16, np.random.default_rng(0))
    masked = softmax.masked(inputs, np.random.default_rng(1))
    assert (masked[0] == np.float32(-1e9)).mean() == pytest.approx(0.5, abs=0.05)
    assert masked[0].dtype == np.float32
    with pytest.raises(SystemExit):
        main(["--data", "nonsense"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_inputs_have_the_size_asked_for(case: kernels_cpu.Case) -> None:
    size = max(1 << 16, case.least_bytes)
    inputs = case.inputs(size, np.random.default_rng(0))
    if case.in_place:
        weights = inputs[1::4]
        assert len(weights) == ADAM_TENSORS == len(BERT_SHAPES)
        assert sum(array.nbytes for array in weights) == pytest.approx(size, rel=0.1)
    else:
        assert size / 2 <= inputs[0].nbytes <= size


def test_one_kernel_is_measured_and_written_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "kernels.json"
    assert main(["--only", "dropout_bias_residual", "--sizes", "64K", "--rounds", "1", "--json", str(out)]) == 0
    (found,) = json.loads(out.read_text())["kernels"]
    assert found["kernel"] == "dropout_bias_residual"
    # x, mask and residual read, the result written; the bias is a row
    assert found["bytes_moved"] == 65536 * 3 + 65536 // 4 + 1024
    assert all(found[key] > 0 for key in ("floor_us", "stitched_us", "tensorflow_us", "xla_us"))
    assert found["largest_difference"] < 1e-5
    assert "dropout_bias_residual" in capsys.readouterr().out


@pytest.mark.slow
def test_every_kernel_is_right_at_a_small_size(tmp_path: Path) -> None:
    out = tmp_path / "kernels.json"
    assert main(["--sizes", "64K", "--rounds", "1", "--json", str(out)]) == 0
    kernels = json.loads(out.read_text())["kernels"]
    expected = [
        (case.name, data)
        for case in CASES
        for data in ("ordinary", "masked")
        if case.least_bytes <= 64 << 10 and (data == "ordinary" or case.mask)
    ]
    assert [(kernel["kernel"], kernel["data"]) for kernel in kernels] == expected
    assert all(math.isfinite(kernel["stitched_us"]) for kernel in kernels)
