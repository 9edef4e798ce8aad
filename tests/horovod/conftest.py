"""Jobs of several ranks under `horovodrun` with Gloo on loopback, as a user starts them."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from .. import pace
from ..broken_kernels import broken_kernels
from ..kept import kept_run
from ..plugin.conftest import (
    cache,
    empty_records,
    finish,
    hand_over,
    no_kernels,
    what_plain_runs_are_made_of,
)
from . import installation

__all__ = ["cache", "empty_records", "no_kernels"]

SCRIPTS = pathlib.Path(__file__).parent / "scripts"


@pytest.fixture(scope="session")
def horovod() -> pathlib.Path:
    """The folder with Horovod, built if it is not there."""
    return installation.install(lambda line: print(line, file=sys.__stderr__, flush=True))


def horovod_of_mpi() -> pathlib.Path:
    """The folder with Horovod that is built with Open MPI too, built if it is not there. Skips the test if there is no Open MPI."""
    if shutil.which("mpirun") is None:
        pytest.skip("there is no mpirun (apt-get install libopenmpi-dev openmpi-bin)")
    return installation.install(lambda line: print(line, file=sys.__stderr__, flush=True), with_mpi=True)


@dataclass
class Ranks:
    """A distributed job that has ended: each rank's result, and the one summary."""

    script: str
    code: int
    out: str
    err: str
    results: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    folder: pathlib.Path = pathlib.Path()

    @property
    def of_ranks(self) -> list[dict[str, Any]]:
        """The summaries of all ranks."""
        return [self.summary, *self.summary["other_processes"]]


RunRanks = Callable[..., Ranks]


def discovery(folder: pathlib.Path, hosts: Sequence[str]) -> pathlib.Path:
    """A host discovery script, which prints the file `hosts` of the folder: HOST:SLOTS a line."""
    (folder / "hosts").write_text("\n".join(hosts) + "\n")
    script = folder / "discover"
    script.write_text(f"#!/bin/sh\ncat {folder / 'hosts'}\n")
    script.chmod(0o755)
    return script


@pytest.fixture
def run_ranks(
    horovod: pathlib.Path, cache: pathlib.Path, tmp_path: pathlib.Path, empty_records: pathlib.Path
) -> RunRanks:
    """run_ranks(script, steps, *arguments, how=...): a script of this folder as so many ranks.

    on_rank_1: what differs in the environment of rank 1 (on_rank.py).
    how: "plain"; "around", `stitchfleet run -- horovodrun`; "within", `horovodrun stitchfleet run --`.
    mpi: `mpirun` instead of `horovodrun`.
    hosts: of an elastic job, what its host discovery script prints first.
    """

    def run(
        script: str,
        *arguments: object,
        how: str = "around",
        on_rank_1: dict[str, str] | None = None,
        ranks: int = 2,
        quiet: bool = True,
        with_cache: pathlib.Path | None = None,
        environment: dict[str, str] | None = None,
        timeout: float = 600,
        hosts: Sequence[str] = (),
        mpi: bool = False,
    ) -> Ranks:
        home = horovod_of_mpi() if mpi else horovod
        folder = tmp_path / f"{script}-{how}"
        folder.mkdir()
        summary = folder / "summary.json"
        database = folder / "records.db"
        shutil.copyfile(empty_records, database)
        launcher = [sys.executable, str(home / "bin" / "horovodrun"), "--gloo", "-np", str(ranks)]
        if mpi:
            launcher = ["mpirun", "--allow-run-as-root", "--bind-to", "none", "--oversubscribe", "-np", str(ranks)]
        if hosts:
            launcher += ["--network-interface", "lo", "--min-np", "1", "--max-np", "2"]
            launcher += ["--host-discovery-script", str(discovery(folder, hosts))]
        job = [sys.executable, str(SCRIPTS / f"{script}.py"), str(folder), *map(str, arguments)]
        if on_rank_1:
            given = [f"{name}={value}" for name, value in on_rank_1.items()]
            job = [sys.executable, str(SCRIPTS / "on_rank.py"), "1", *given, "--", *job]
        ours = [sys.executable, "-m", "stitchfleet.plugin.command", "run", *(["--quiet"] if quiet else [])]
        ours += [
            "--cache",
            str(with_cache or cache),
            "--summary",
            str(summary),
            "--database",
            f"sqlite:///{database}",
            "--",
        ]
        command = {
            "plain": [*launcher, *job],
            "around": [*ours, *launcher, *job],
            "within": [*launcher, *ours, *job],
        }[how]
        given = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "20", "STITCHFLEET_TEST_RANKS_TIME": "0.2", **(environment or {})}
        settings = {
            "PYTHONPATH": os.pathsep.join([str(home), str(SCRIPTS), broken_kernels.environment()["PYTHONPATH"]]),
            pace.VARIABLE: str(pace.pace()),
            **({"HOSTS": str(folder / "hosts")} if hosts else {}),
            **given,
        }

        def ended() -> Ranks:
            done = finish(command, summary, settings, timeout)
            hand_over(done, f"sqlite:///{database}")
            files = [folder / f"{rank}.json" for rank in range(ranks)]
            if hosts:  # ranks change
                files = [file for file in folder.glob("*.json") if file.stem.isdigit()]
            results = [json.loads(file.read_text()) for file in files if file.exists()]
            return Ranks(script, done.code, done.out, done.err, results, done.summary, folder)

        if how != "plain" or hosts or on_rank_1:
            return ended()
        # Deterministic, and without anything of ours: kept as `run_plain` keeps those of one process.
        what = [
            *map(str, (script, *arguments, ranks, mpi)),
            home.name,
            *sorted(f"{name}={given[name]}" for name in given),
        ]

        def succeeded() -> dict[str, Any]:
            done = ended()
            assert done.code == 0, done.err
            return {"results": done.results, "out": done.out, "err": done.err}

        found = kept_run(cache.parent / "plain-runs", [*what_plain_runs_are_made_of(SCRIPTS), *what], succeeded)
        return Ranks(script, 0, folder=folder, **found)

    return run
