"""Each way of training on each version: stitched, guarded, reverted, recorded, with plain TensorFlow's numbers."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from stitchfleet.plugin.native.library import TensorFlowBuild, library_path

from ..broken_kernels import broken_kernels
from ..figures import keep
from ..pace import pace
from .matrix import ENVIRONMENTS, Environment, interpreter, kept_builds, made

pytestmark = pytest.mark.slow
FIGURES = "STITCHFLEET_VERSIONS"
"""Names the file in which the figures of docs/versions.md are kept."""
JOBS = pathlib.Path(__file__).parent / "jobs"
WAYS = {"function": "train_step", "fit": None, "session": None}
"""Script in `jobs/` -> the name of its training function in a summary; None: it differs by version."""
SECONDS = 120.0
"""Longest wait for a job to be stitched, and for a kernel to be reverted, at a pace of 1."""
AGREEMENT = 2e-3
"""Largest relative difference of a loss after some hundred steps. Sums in another order differ by 1e-7 in a step; a training run
multiplies that."""


class Job:
    """A job under `stitchfleet run`, watched while it runs, and ended with the block of its `with`."""

    def __init__(self, words: list[str], environment: dict[str, str], folder: pathlib.Path) -> None:
        self._folder = folder
        self.said: list[str] = []
        self._process = subprocess.Popen(
            words,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)

    def _read(self) -> None:
        assert self._process.stderr is not None
        self.said += self._process.stderr

    def wait_for(self, words: str) -> None:
        """Waits until the job has said a line with `words`."""
        end = time.monotonic() + SECONDS * max(1.0, pace())
        while not any(words in line for line in self.said):
            assert self._process.poll() is None, "".join(self.said)
            assert not any(" goes back to plain" in line for line in self.said), "".join(self.said)
            assert time.monotonic() < end, f"not said: {words}\n" + "".join(self.said)
            time.sleep(0.1)

    def tell(self, word: str) -> None:
        """Makes the file by which the job is told something (jobs/training.py)."""
        (self._folder / word).touch()

    def result(self) -> Any:
        """Waits for the end. Returns what the job printed last."""
        assert self._process.stdout is not None
        out = self._process.stdout.read()
        assert self._process.wait() == 0, "".join(self.said)
        self._reader.join()
        return json.loads(out.strip().splitlines()[-1])


def job_environment(unpacked: pathlib.Path, **more: str) -> dict[str, str]:
    """A clean environment: no variable of ours but `more`, and no module of this test's own environment."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("STITCHFLEET_", "PYTHON"))}
    path = os.pathsep.join(filter(None, [more.pop("PYTHONPATH", ""), str(unpacked)]))
    return {**clean, "TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONPATH": path, **more}


@pytest.fixture(scope="module", params=ENVIRONMENTS, ids=str)
def environment(request: pytest.FixtureRequest) -> Environment:
    found: Environment = request.param
    if interpreter(found.python) is None:
        pytest.skip(f"there is no python3.{found.python} here (pyenv install 3.{found.python})")
    return found


@pytest.fixture(scope="module")
def python(environment: Environment) -> Iterator[str]:
    with made(environment) as found:
        yield str(found)


@pytest.fixture
def cache(environment: Environment, python: str, unpacked: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    """A cache with the native library, built once per TensorFlow, and without kernels."""
    kept = kept_builds()
    words = [python, "-m", "stitchfleet.plugin.command", "doctor", "--build", "--cache", str(kept)]
    done = subprocess.run(words, env=job_environment(unpacked), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^version .*(?:tested|, but its self-test passed)$", done.stdout, re.MULTILINE), done.stdout
    library = library_path(kept, TensorFlowBuild(environment.minor.release, pathlib.Path("/")))
    assert library.exists(), done.stdout
    shutil.copytree(library.parent, tmp_path / "cache" / library.parent.relative_to(kept))
    return tmp_path / "cache"


@pytest.mark.parametrize("way", WAYS)
def test_a_job_is_stitched_guarded_and_recorded(
    environment: Environment, way: str, python: str, unpacked: pathlib.Path, cache: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    script = str(JOBS / f"{way}.py")
    legacy = {"TF_USE_LEGACY_KERAS": "1"} if environment.legacy else {}
    broken = broken_kernels.environment("rare", unchecked=True)
    soon = {"STITCHFLEET_COMPILE_NICE": "0", "STITCHFLEET_SAMPLE_STRIDE": "10"}
    soon |= {
        "STITCHFLEET_PAIRS": "24",
        "STITCHFLEET_BLOCK_STEPS": "50",
    }  # whether it pays is decided after this test's end
    words = [
        python,
        "-m",
        "stitchfleet.plugin.command",
        "run",
        "--cache",
        str(cache),
        "--summary",
        str(tmp_path / "summary.json"),
    ]
    began = time.monotonic()
    environment_of_job = job_environment(unpacked, **legacy, **broken, **soon)
    with Job([*words, "--", python, script, str(tmp_path)], environment_of_job, tmp_path) as job:
        job.wait_for(", stitched from step ")
        stitched_after = time.monotonic() - began
        time.sleep(2.0)  # stitched steps, in pairs of blocks
        job.tell("rare")
        job.wait_for(" reverted at step ")
        job.tell("stop")
        found = job.result()

    plain = subprocess.run(
        [python, script, str(tmp_path), str(found["steps"])],
        env=job_environment(unpacked, **legacy),
        capture_output=True,
        text=True,
        check=True,
    )
    expected = json.loads(plain.stdout.strip().splitlines()[-1])
    assert expected["steps"] == found["steps"]
    assert found["loss"] == pytest.approx(expected["loss"], rel=AGREEMENT)

    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["versions"]["tensorflow"] == environment.minor.release
    assert summary["versions"]["python"].startswith(f"3.{environment.python}.")
    assert summary["health"] == "good"
    program = next(each for each in summary["programs"] if each["name"] == summary["main"])
    assert program["steps_stitched"] > 10
    assert summary["calls"]["verify"] > 0
    assert summary["calls"]["stitched"] > 0
    assert summary["reverts"]
    failures = [
        kernel["failure"] for cluster in summary["clusters"] for kernel in cluster["executables"] if kernel["failure"]
    ]
    assert all("reverted" in failure or "wrong" in failure or "differs" in failure for failure in failures), failures
    recorded = recorded_job(summary, tmp_path)
    assert recorded["framework"] == f"tensorflow {environment.minor.release}"
    figures = {
        "keras": found["keras"],
        "clusters": len(summary["clusters"]),
        "stitched_after_s": round(stitched_after, 1),
        "steps": found["steps"],
        "loss": found["loss"],
        "plain_loss": expected["loss"],
    }
    keep(FIGURES, str(environment), way, figures=figures)


def recorded_job(summary: Any, folder: pathlib.Path) -> Any:
    """The job as `stitchfleet jobs` lists it in this test's own environment, after its records were handed over to a database."""
    url = f"sqlite:///{folder}/records.db"
    command = [
        sys.executable,
        "-m",
        "stitchfleet.telemetry.shipping.shipper",
        summary["records"]["folder"],
        "--database",
        url,
    ]
    assert subprocess.run([*command, "--follow", "0"], check=False).returncode == 0
    words = [sys.executable, "-m", "stitchfleet.plugin.command", "jobs", "--database", url, "--json"]
    jobs = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert len(jobs) == 1
    return jobs[0]
