"""The self-test of a version of TensorFlow that is not among the known ones.

A child process trains a small job with stitchfleet switched on; another one trains it plain for as many steps. The test passes if
kernels ran alone in both of the job's training functions, no comparison failed, both processes ended well, and the numbers agree.
The verdict is kept beside the native library, whose folder's name has TensorFlow's version and our sources' digest in it.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from ..base.settings import BOOTSTRAP, PREFIX, clean_environment

JOB: Final = pathlib.Path(__file__).with_name("self_test_job.py")
SECONDS: Final = 120
"""Longest time that the job waits for kernels of one training function."""
AGREEMENT: Final = 1e-3
"""Largest relative difference between the two processes' final numbers. It is no check of kernels, which the guard compares with
TensorFlow's results one by one, but of the mechanisms: a graph that lost an update differs by far more."""


@dataclass(frozen=True)
class SelfTestResult:
    """Whether the self-test passed; if not, `why` says why, in one line.

    is_certain: whether a repetition would have the same outcome; False if a busy machine left the kernels no time.
    """

    passed: bool
    why: str = ""
    is_certain: bool = True

    @property
    def words(self) -> str:
        """The outcome as the end of a sentence about a version."""
        return "but its self-test passed" if self.passed else f"and its self-test failed: {self.why}"


def _file(library: pathlib.Path) -> pathlib.Path:
    return library.with_name("self-test.json")


def verdict_of(library: pathlib.Path) -> SelfTestResult | None:
    """The kept verdict for a built native library; None if there was no test."""
    try:
        return SelfTestResult(**json.loads(_file(library).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def try_version(library: pathlib.Path, cache: pathlib.Path) -> SelfTestResult:
    """Runs the self-test of a built native library, and keeps its verdict if that is certain. It takes half a minute. Raises nothing
    of its own."""
    verdict = _judge(cache)
    if not verdict.is_certain:
        return verdict
    fresh = _file(library).with_suffix(f".{os.getpid()}")
    with contextlib.suppress(OSError):
        fresh.write_text(json.dumps(asdict(verdict)), encoding="utf-8")
        fresh.replace(_file(library))
    return verdict


def _judge(cache: pathlib.Path) -> SelfTestResult:
    with tempfile.TemporaryDirectory(prefix="stitchfleet-self-test-") as folder:
        summary = pathlib.Path(folder) / "summary.json"
        try:
            stitched = _run([], _switched_on(summary, cache, folder))
            plain = _run([str(steps) for steps in stitched["steps"]], clean_environment())
            found = json.loads(summary.read_text(encoding="utf-8"))
        except _JobError as error:
            return SelfTestResult(False, str(error), error.is_certain)
        except (OSError, ValueError, KeyError, TypeError) as error:
            return SelfTestResult(False, f"its job left no summary ({type(error).__name__})")
    return judge(found, stitched["values"], plain["values"])


def judge(summary: Mapping[str, Any], stitched: list[float], plain: list[float]) -> SelfTestResult:
    """The verdict on a job. summary: its summary. stitched, plain: the final numbers of both processes, in one order."""
    programs = {program["name"]: program for program in summary["programs"]}
    for name in ("self_test_step", "self_test_session"):
        if name not in programs:
            return SelfTestResult(False, f"the steps of {name!r} were not seen")
        program = programs[name]
        if not program["clusters"]:
            return SelfTestResult(False, f"nothing was stitched in {name!r} ({program['reason'] or program['phase']})")
        if not program["steps_stitched"] or program["phase"] not in ("stitched", "plain"):
            line = f"{name!r} came as far as the phase {program['phase']}"
            return SelfTestResult(False, line, is_certain=program["phase"] not in ("compile", "verify"))
    bad = sum(kernel["mismatches"] for cluster in summary["clusters"] for kernel in cluster["executables"])
    if bad or summary["reverts"]:
        return SelfTestResult(False, f"{bad} comparisons of kernels with TensorFlow's results failed")
    if not summary["calls"]["stitched"]:
        return SelfTestResult(False, "no kernel ran")
    for ours, theirs in zip(stitched, plain):
        if not abs(ours - theirs) <= AGREEMENT * max(1.0, abs(theirs)):
            return SelfTestResult(False, f"a number came to {ours:g} stitched and {theirs:g} plain")
    return SelfTestResult(True)


class _JobError(Exception):
    """A process of the self-test did not end well. The message is one line. is_certain: as in SelfTestResult."""

    def __init__(self, line: str, is_certain: bool = True) -> None:
        super().__init__(line)
        self.is_certain = is_certain


def _switched_on(summary: pathlib.Path, cache: pathlib.Path, folder: str) -> dict[str, str]:
    inherited = clean_environment()
    path = os.pathsep.join(filter(None, [str(BOOTSTRAP), inherited.get("PYTHONPATH", "")]))
    ours = {"ENABLED": "1", "UNTESTED": "1", "QUIET": "1", "COMPILE_NICE": "0"}
    ours.update(SUMMARY=str(summary), CACHE=str(cache), DATA=folder)
    return {**inherited, "PYTHONPATH": path, **{PREFIX + name: value for name, value in ours.items()}}


def _run(steps: list[str], environment: dict[str, str]) -> Any:
    words = [sys.executable, str(JOB), str(SECONDS), *steps]
    try:
        done = subprocess.run(
            words,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=5 * SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _JobError(f"its job took more than {5 * SECONDS} s", is_certain=False) from error
    except OSError as error:
        raise _JobError(f"its job could not be started: {error}") from error
    if done.returncode in (-signal.SIGTERM, -signal.SIGINT, -signal.SIGKILL):
        raise _JobError(f"its job was ended by {signal.Signals(-done.returncode).name}", is_certain=False)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no message"]
        raise _JobError(f"its job ended with code {done.returncode}: {lines[-1].strip()[:200]}")
    return json.loads(done.stdout.strip().splitlines()[-1])
