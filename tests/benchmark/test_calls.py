"""scripts/bench --calls: what it accepts, and that both ways are timed on TensorFlow as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scripts.benchmark import calls, command
from stitchfleet.plugin.versions import places


@pytest.mark.parametrize(
    ("words", "said"), [(["--rounds", "1"], "at least 2"), (["--json", "/nowhere/figures.json"], "no folder /nowhere")]
)
def test_mistakes_are_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["--calls", *words])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_both_ways_are_timed_and_tensorflow_is_left_as_it_was(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(calls, "STACKS", ((2, 4),))
    monkeypatch.setattr(calls, "BLOCK_S", 0.001)
    tracing: Any = places.tracing_module()
    if tracing is None:
        pytest.skip("this TensorFlow looks traces up in another way")
    before = tracing.call_function, tracing.trace_function
    assert command.main(["--calls", "--rounds", "3", "--json", str(tmp_path / "figures.json")]) == 0
    assert (tracing.call_function, tracing.trace_function) == before
    document = json.loads((tmp_path / "figures.json").read_text())
    found = {each["what"]: each for each in document["functions"]}
    assert list(found) == ["one addition", "an iterator", "2 layers of 4"]
    assert found["one addition"]["captures"] == 0
    assert found["2 layers of 4"]["captures"] >= 18  # six variables and two slots of each
    assert all(
        each["tensorflow_us"] > 0 and each["kept_us"] > 0 and each["ratio"]["pairs"] == 3 for each in found.values()
    )
    assert "2 layers of 4" in capsys.readouterr().out


def test_only_one_of_the_ways_asks_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    tracing: Any = places.tracing_module()
    if tracing is None:
        pytest.skip("this TensorFlow looks traces up in another way")
    asked: list[Any] = []
    original = tracing._maybe_define_function

    def counted(*given: Any) -> Any:
        asked.append(tracing.call_function)
        return original(*given)

    monkeypatch.setattr(tracing, "_maybe_define_function", counted)
    monkeypatch.setattr(calls, "STACKS", ())
    monkeypatch.setattr(calls, "BLOCK_S", 0.001)
    plain = tracing.call_function
    calls.measure(tracing, 10, lambda line: None)
    assert sum(way is plain for way in asked) > 10 * sum(way is not plain for way in asked) > 0
