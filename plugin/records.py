"""The plugin's side of telemetry: what the job measured goes to the spool; the shipper, a process of its own, takes it from there."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from stitchfleet.telemetry import recording, savings

from .containment import say
from .memory_watch import peak_bytes
from .program import Phase, Program
from .settings import Settings
from .switch import Arm

if TYPE_CHECKING:
    from .job import Job

# The main program is known only after some steps; until then steps wait here, a bounded number of them.
MAX_WAITING = 256


class Records:
    """Where a job's measurements go. Nothing here raises after construction; what is lost is counted."""

    def __init__(self, settings: Settings, run_id: str, cache: pathlib.Path) -> None:
        self.settings = settings
        self.folder = _own_folder((settings.data or cache / "records") / run_id)
        self.recorder: recording.Recorder | None = None
        self.lost_before_start = 0
        self.main: Program | None = None
        self._waiting: list[tuple[Program, int, int, int]] = []
        self._pairs_sent = 0
        self._shipper: subprocess.Popen[bytes] | None = None
        self.identity = recording.JobIdentity.from_environment(run_id, **_known_facts())
        try:
            self.recorder = recording.Recorder(self.folder, self.identity, keep_days=settings.spool_days)
        except OSError as error:
            say(f"nothing of this job will be recorded: {error}")

    @property
    def lost(self) -> int:
        return self.lost_before_start + (self.recorder.lost if self.recorder is not None else 0)

    def iteration(self, program: Program, step: int, arm: int, duration_ns: int) -> None:
        """Books one step. Steps of the main program (the training function) are the job's iterations."""
        if self.main is None:
            self._waiting.append((program, step, arm, duration_ns))
            self._choose_main()
            return
        if program is not self.main:
            return
        if self.recorder is None:
            self.lost_before_start += 1
        else:
            self.recorder.iteration(step, arm, duration_ns)

    def _choose_main(self) -> None:
        """The first program that writes variables and has run twice; else, after MAX_WAITING steps, the one with the most time."""
        programs = {id(program): program for program, *_ in self._waiting}.values()
        writers = [program for program in programs if program.writes_variables and program.steps >= 2]
        if writers:
            self.main = writers[0]
        elif len(self._waiting) >= MAX_WAITING:
            self.main = max(programs, key=lambda program: program.total_ns)
        if self.main is None:
            return
        self._tell_model()
        waiting, self._waiting = self._waiting, []
        for program, step, arm, duration in waiting:
            if program is self.main:
                if self.recorder is None:
                    self.lost_before_start += 1
                else:
                    self.recorder.iteration(step, arm, duration)

    def _tell_model(self) -> None:
        if (
            self.recorder is not None
            and self.main is not None
            and self.main.model
            and not self.identity.model_fingerprint
        ):
            self.recorder.model(self.main.model)

    def event(self, kind: str, message: str, **facts: object) -> None:
        if self.recorder is None:
            self.lost_before_start += 1
        else:
            self.recorder.event(kind, message, facts)

    def blocks(self, program: Program) -> None:
        """Sends the pairs that have become complete since the last call."""
        if program is not self.main or self.recorder is None:
            return
        fresh = program.pairs_completed - self._pairs_sent
        self._pairs_sent = program.pairs_completed
        for pair in program.pairs[max(0, len(program.pairs) - fresh) :]:
            for block in pair:
                self.recorder.arm_block(block.pair, int(block.arm), block.first_step, block.durations_ns)

    def saving(self, program: Program, latest: int | None = None) -> savings.Saving | None:
        """The estimate from the program's complete pairs, or from the latest of them only."""
        return savings.estimate(_durations(program, latest))

    def faster_share(self, program: Program, latest: int) -> float:
        """The share of the latest complete pairs whose stitched block was the faster one."""
        return savings.faster_share(_durations(program, latest))

    def start_shipper(self, pid: int) -> None:
        """Starts the process that moves records to the ingest server or the database named in the settings, if one is."""
        where = shipping_words(self.settings)
        if not where or self.recorder is None:
            return
        from .client import clean_environment

        try:
            with open(self.folder / "shipper.log", "ab") as log:
                self._shipper = subprocess.Popen(
                    [
                        *(sys.executable, "-m", "stitchfleet.telemetry.shipper", str(self.folder)),
                        *(*where, "--follow", str(pid)),
                    ],
                    env=clean_environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
        except OSError as error:
            self.event("shipper", f"the shipper cannot be started: {error}")

    def finish(self, job: Job) -> None:
        """The last records: clusters, the job's end. Bounded in time."""
        if self.recorder is None:
            return
        if self.main is None and self._waiting:
            self.main = job.main_program
            self._tell_model()
            for program, step, arm, duration in self._waiting:
                if program is self.main:
                    self.recorder.iteration(step, arm, duration)
            self._waiting = []
        for program in job.programs:
            self.blocks(program)
        from .summary import cluster_facts

        for facts in cluster_facts(job):
            self.recorder.cluster(str(facts["name"]), facts)
        main = self.main
        self.recorder.job_end(
            {
                "ended": time.time(),
                "overhead_ns": main.overhead_ns if main else 0,
                "iterations_plain": main.steps_by_arm[Arm.PLAIN] if main else 0,
                "iterations_stitched": main.steps_by_arm[Arm.STITCHED] if main else 0,
                "phase": main.phase.value if main else Phase.WARM_UP.value,
                "reason": main.reason if main else "no step was seen",
                "peak_bytes": peak_bytes(),
                "lost": self.lost,
            }
        )
        self.recorder.close(timeout_s=2.0)


def shipping_words(settings: Settings) -> tuple[str, ...]:
    """The shipper's arguments that say where to and how long to try; none where the settings name nothing."""
    keep = ("--keep-days", f"{settings.spool_days:g}")
    if settings.ingest is not None:
        return ("--ingest", settings.ingest, *keep)
    return ("--database", settings.database, *keep) if settings.database is not None else ()


def _own_folder(wanted: pathlib.Path) -> pathlib.Path:
    """The folder for this process alone: children of a job that import TensorFlow too get one beside it."""
    for folder in (wanted, wanted.with_name(f"{wanted.name}-{os.getpid()}")):
        try:
            folder.mkdir(parents=True, mode=0o700)
            return folder
        except FileExistsError:
            continue
        except OSError:
            break
    return wanted


def _known_facts() -> dict[str, str]:
    from importlib import metadata

    facts = {"framework": "tensorflow"}
    for name, distributions in (
        ("framework_version", ("tensorflow-cpu", "tensorflow")),
        ("plugin_version", ("stitchfleet",)),
    ):
        for distribution in distributions:
            try:
                facts[name] = metadata.version(distribution)
                break
            except metadata.PackageNotFoundError:
                continue
    return facts


def _durations(program: Program, latest: int | None) -> list[tuple[Sequence[int], Sequence[int]]]:
    pairs = program.pairs if latest is None else program.pairs[-latest:]
    return [(plain.durations_ns, stitched.durations_ns) for plain, stitched in pairs]
