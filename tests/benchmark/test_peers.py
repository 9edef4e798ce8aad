"""scripts/bench --peers: its table, and that one that fails or computes other losses does not race. The frameworks are not installed
here: other scripts stand for them."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.benchmark import peers
from scripts.benchmark.contestants import CONTESTANTS, Contestant, Workload
from scripts.benchmark.figures import Ratio
from scripts.peers import catalog
from scripts.peers.table import table

ROOT = Path(__file__).resolve().parents[2]
STEPPER = ROOT / "tests" / "benchmark" / "stepper.py"


def _peer(name: str, *arguments: str) -> Contestant:
    return Contestant(name, "", instead=Workload("stepper", STEPPER, arguments))


@pytest.fixture
def steppers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Jobs of the stepper in place of the frameworks': one right, one with other losses, one that fails."""
    export = tmp_path / "export.py"
    export.write_text("import sys; open(sys.argv[2], 'w').write(' '.join(sys.argv[1:]))\n")
    others = [_peer("right"), _peer("other", "--losses-times", "1.01"), _peer("failing", "--fail")]
    monkeypatch.setattr(peers, "EXPORT", export)
    monkeypatch.setattr(peers, "WITHOUT_CHANCE", {})
    monkeypatch.setattr(peers, "workload", lambda name: Workload(name, STEPPER, ("--slower", "2")))
    monkeypatch.setattr(peers, "contestants", lambda name, start: [CONTESTANTS["plain"], CONTESTANTS["xla"], *others])


@pytest.mark.usefixtures("steppers")
def test_only_those_with_plain_s_losses_race(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, kept = tmp_path / "peers.json", tmp_path / "kept"
    words = ["--models", "bert", "--rounds", "2", "--seconds", "1", "--json", str(file), "--keep", str(kept)]
    assert peers.main(words) == 1  # some failed
    assert (kept / "bert" / "start.npz").read_text().split()[0] == "stepper"
    found = {each["contestant"]: each for each in json.loads(file.read_text())["models"]["bert"]}
    assert found["plain"]["figures"]["median_ms"] > 0.0
    assert found["right"]["figures"]["ratio_of_medians"]["pairs"] == 2
    assert found["right"]["difference_of_first_losses"] == 0.0
    assert found["other"]["figures"] is None
    assert "computes other losses, by up to 1.0e-02" in found["other"]["failure"]
    assert "exit code 1: this cannot be compiled" in found["failing"]["failure"]
    assert "| BERT, training |" in capsys.readouterr().out


@pytest.mark.usefixtures("steppers")
def test_if_plain_fails_nothing_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(peers, "workload", lambda name: Workload(name, STEPPER, ("--fail",)))
    assert peers.main(["--models", "bert", "--keep", str(tmp_path / "kept")]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[-1] == "scripts/bench --peers: stepper.py ended with exit code 1: this cannot be compiled"


@pytest.mark.parametrize(
    "words",
    [
        ("--models", "vgg"),
        ("--models", ","),
        ("--rounds", "1"),
        ("--seconds", "0"),
        ("--json", "/no/such/folder/x.json"),
    ],
)
def test_mistakes_on_the_command_line_are_told(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        peers.main(words)
    assert ended.value.code == 2
    assert "scripts/bench --peers: error: " in capsys.readouterr().err


def test_each_model_has_a_script_in_each_framework(tmp_path: Path) -> None:
    for name in catalog.NAMES:
        found = catalog.contestants(name, tmp_path / "start.npz")
        assert [each.name for each in found[:3]] == ["plain", "xla", "stitched"]
        for contestant in found[3:]:
            assert contestant.instead is not None
            assert contestant.instead.script.is_file()
            assert contestant.instead.arguments[-2:] == ("--start", str(tmp_path / "start.npz"))
            assert ("infer" in contestant.instead.arguments) == name.endswith("-infer")


def test_the_export_names_each_weight_by_the_attributes_that_lead_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "workloads"))
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "peers"))
    before = set(sys.modules)
    try:
        bert, export = importlib.import_module("bert"), importlib.import_module("export")
        model: Any = bert.Bert(vocabulary=11, hidden=8, layers=2, heads=2, inner=12, length=5, dropout=0.1)
        model(export.np.zeros([2, 5], "int32"))
        found = dict(export.weights_of(model))
    finally:
        for name in ("bert", "export", "steps", "loop", "layers", "text", "distributed"):
            if name not in before:
                sys.modules.pop(name, None)
    assert len(found) == len(model.weights)
    assert found["words/embeddings"].shape == (11, 8)
    assert found["positions"].shape == (5, 8)
    assert found["blocks/1/attention/query/kernel"].shape == (8, 8)
    assert found["blocks/0/grow/bias"].shape == (12,)
    assert found["transform_norm/gamma"].shape == (8,)


def test_the_table_says_each_one_s_time_over_ours_and_why_one_has_none() -> None:
    def row(name: str, median: float | None, over: Ratio | None, failure: str = "") -> dict[str, Any]:
        figures = {"median_ms": median} if median is not None else None
        return {
            "contestant": name,
            "failure": failure,
            "note": "",
            "figures": figures,
            "over_stitched": vars(over) if over else None,
        }

    models = {
        "bert": [
            row("plain", 10.0, Ratio(2.0, 1.9, 2.1, 4)),
            row("stitched", 5.0, None),
            row("jax", None, None, "gone"),
        ],
        "sampler": [row("plain", 0.5, Ratio(0.5, 0.4, 0.6, 4)), row("stitched", 1.0, None), row("jax", 2.0, None)],
    }
    lines = table({"models": models})
    assert lines[0] == "| | TensorFlow | stitched | JAX |"
    assert lines[2] == "| BERT, training | 10.0 ms, 2.00 (1.90 to 2.10) | 5.0 ms | - (gone) |"
    assert lines[3] == "| Hamiltonian sampler | 0.50 ms, 0.50 (0.40 to 0.60) | 1.0 ms | 2.0 ms |"
    assert lines[4].startswith("| geometric mean | **1.00 (")
    assert lines[4].endswith("** |  |  |")
