"""The self-test of a version that nobody has tested: it passes here, and fails on whatever a version could break."""

from __future__ import annotations

import copy
import json
import pathlib
from typing import Any

import pytest

from stitchfleet.plugin.base.settings import Settings
from stitchfleet.plugin.entry import activation
from stitchfleet.plugin.native.library import find_tensorflow, library_path
from stitchfleet.plugin.versions import known, self_test
from stitchfleet.plugin.versions.self_test import SelfTestResult, judge

VALUES = [0.5, 128.0, 96.0, 0.25, 130.0, 90.0]


def summary() -> dict[str, Any]:
    """What matters of the summary of a job that went well."""
    program = {"clusters": 3, "steps_stitched": 40, "phase": "stitched", "reason": ""}
    return {
        "programs": [{"name": "self_test_step", **program}, {"name": "self_test_session", **program}],
        "clusters": [{"executables": [{"mismatches": 0}]}],
        "calls": {"fallback": 3, "verify": 6, "stitched": 90},
        "reverts": [],
    }


def test_a_job_that_went_well_passes() -> None:
    assert judge(summary(), VALUES, VALUES) == SelfTestResult(True)


def broken(change: Any) -> dict[str, Any]:
    found = copy.deepcopy(summary())
    change(found)
    return found


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda s: s["programs"].pop(0), "the steps of 'self_test_step' were not seen"),
        (lambda s: s["programs"].pop(1), "the steps of 'self_test_session' were not seen"),
        (
            lambda s: s["programs"][0].update(clusters=0, reason="no graph came"),
            "nothing was stitched in 'self_test_step' (no graph came)",
        ),
        (lambda s: s["programs"][1].update(phase="compile"), "'self_test_session' came as far as the phase compile"),
        (lambda s: s["programs"][1].update(steps_stitched=0), "'self_test_session' came as far as the phase stitched"),
        (lambda s: s["clusters"][0]["executables"][0].update(mismatches=2), "2 comparisons of kernels"),
        (lambda s: s["reverts"].append("reverted"), "comparisons of kernels"),
        (lambda s: s["calls"].update(stitched=0), "no kernel ran"),
    ],
)
def test_what_a_version_could_break_fails_it(change: Any, why: str) -> None:
    verdict = judge(broken(change), VALUES, VALUES)
    assert not verdict.passed
    assert why in verdict.why


@pytest.mark.parametrize("position", range(len(VALUES)))
@pytest.mark.parametrize("wrong", [1.01, float("nan")])
def test_another_number_fails_it(position: int, wrong: float) -> None:
    stitched = [value * (wrong if number == position else 1.0) for number, value in enumerate(VALUES)]
    assert not judge(summary(), stitched, VALUES).passed


@pytest.mark.slow
def test_it_passes_on_this_tensorflow(no_kernels: pathlib.Path) -> None:
    library = library_path(no_kernels, find_tensorflow())
    assert self_test.verdict_of(library) is None
    verdict = self_test.try_version(library, no_kernels)
    assert verdict == SelfTestResult(True)
    assert self_test.verdict_of(library) == verdict


def test_a_machine_that_leaves_no_time_for_kernels_says_nothing_for_good(
    no_kernels: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = judge(broken(lambda found: found["programs"][0].update(phase="compile")), VALUES, VALUES)
    assert (late.passed, late.is_certain) == (False, False)
    monkeypatch.setattr(self_test, "_judge", lambda cache: late)
    library = library_path(no_kernels, find_tensorflow())
    assert self_test.try_version(library, no_kernels) == late
    assert self_test.verdict_of(library) is None


def test_a_job_that_does_not_end_well_fails_it(
    no_kernels: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = tmp_path / "job.py"
    job.write_text("import sys\nprint('boom', file=sys.stderr)\nsys.exit(3)\n")
    monkeypatch.setattr(self_test, "JOB", job)
    verdict = self_test.try_version(library_path(no_kernels, find_tensorflow()), no_kernels)
    assert verdict == SelfTestResult(False, "its job ended with code 3: boom")


def test_a_job_that_somebody_ended_says_nothing_for_good(
    no_kernels: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = tmp_path / "job.py"
    job.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n")
    monkeypatch.setattr(self_test, "JOB", job)
    library = library_path(no_kernels, find_tensorflow())
    assert self_test.try_version(library, no_kernels) == SelfTestResult(
        False, "its job was ended by SIGTERM", is_certain=False
    )
    assert self_test.verdict_of(library) is None


# ---- what a job makes of the verdict ---------------------------------------------------------------------------------------


@pytest.fixture
def unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "is_known", lambda version: False)


def reason(cache: pathlib.Path, capfd: pytest.CaptureFixture[str], **settings: Any) -> str:
    native, why = activation.load_native(Settings(cache=cache, **settings))
    assert native is None
    assert capfd.readouterr().err.count(why) == 1
    return why


def test_an_unknown_version_runs_plain_with_one_line(
    unknown: None, no_kernels: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    version = find_tensorflow().version
    begins = f"TensorFlow {version} is none of the versions that stitchfleet was tested with ({known.TESTED}), "
    assert reason(no_kernels, capfd) == begins + "and no self-test was made here"
    library = library_path(no_kernels, find_tensorflow())
    library.with_name("self-test.json").write_text(json.dumps({"passed": False, "why": "no kernel ran"}))
    assert reason(no_kernels, capfd) == begins + "and its self-test failed: no kernel ran"
    library.with_name("self-test.json").write_text("{")
    assert reason(no_kernels, capfd) == begins + "and no self-test was made here"


def test_run_tries_an_unknown_version_once(
    no_kernels: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], unknown: None
) -> None:
    from stitchfleet.plugin.commands.run import try_if_unknown

    tried = []
    monkeypatch.setattr(
        self_test, "_judge", lambda cache: tried.append(cache) or SelfTestResult(False, "no kernel ran")
    )
    build = find_tensorflow()
    for _ in range(2):
        assert try_if_unknown(library_path(no_kernels, build), build, no_kernels) == SelfTestResult(
            False, "no kernel ran"
        )
    assert tried == [no_kernels]
    said = capsys.readouterr().err
    assert said.count("trying it once (about a minute)") == 1
    assert said.count("the self-test failed: no kernel ran") == 1


def test_a_job_whose_plugin_is_off_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from stitchfleet.plugin.versions import self_test_job

    monkeypatch.setattr(activation, "JOB", None)
    assert self_test_job.is_settled("self_test_step")
    done, _ = self_test_job.train(lambda: 0.0, "self_test_step", 60.0, 0)
    assert done == self_test_job.STEPS_MORE
