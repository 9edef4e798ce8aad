"""The plugin's side of telemetry: writes the job's measurements to the spool; a process of its own, the shipper, sends them."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stitchfleet.telemetry.pod import recording, spool
from stitchfleet.telemetry.statistics import savings

from ..arms.switch import Arm
from ..base.containment import say
from ..base.memory_watch import peak_bytes
from ..base.settings import Settings, clean_environment
from .program import Program, ProgramPhase
from .training import TimedStep, TrainingFunctions

HAND_OVER_SECONDS = 10.0
"""The longest that a job in a pod waits for its last records to be sent. The shipper checks the spool every 2 s."""
SHIPPER_LOOKS_SECONDS = 3.0
"""After this long a shipper that has not been refused has looked again (`shipper.LOOK_SECONDS`)."""


class Records:
    """Records a job's measurements. Nothing here raises after construction; lost records are counted."""

    def __init__(self, settings: Settings, run_id: str, cache: pathlib.Path) -> None:
        self.settings = settings
        self.folder = _own_folder((settings.data or cache / "records") / run_id)
        self.recorder: recording.Recorder | None = None
        self.lost_before_start = 0
        self.functions = TrainingFunctions()
        self._pairs_sent: collections.Counter[Program] = collections.Counter()
        self.forgotten_overhead_ns = 0
        """What stitching cost programs that the job has forgotten."""
        self._pair_numbers = itertools.count()
        self._shipper: subprocess.Popen[bytes] | None = None
        self.identity = recording.JobIdentity.from_environment(run_id, **_known_facts())
        self._ended: list[recording.Recorder] = []
        """Those of earlier worlds (`note_world`), which may still be writing what they hold."""
        self._totals = collections.Counter[str]()
        """What the ended parts of the records have counted (`note_world`)."""
        try:
            self.recorder = recording.Recorder(self.folder, self.identity, keep_days=settings.spool_days)
        except OSError as error:
            say(f"nothing of this job will be recorded: {error}")

    @property
    def lost(self) -> int:
        """Number of records that could not be kept."""
        recorders = [*self._ended, *([self.recorder] if self.recorder is not None else [])]
        return self.lost_before_start + sum(recorder.lost for recorder in recorders)

    def iteration(self, program: Program, step: int, arm: int, duration_ns: int) -> None:
        """Books one step of a program. arm: as in the records (recording.PLAIN, STITCHED, UNCOUNTED). Only the steps of training
        functions are recorded, as the job's iterations, and only by rank 0, since all ranks step together."""
        function = self.functions.number(program)
        if function is not None:
            self._record(function, (step, arm, duration_ns))
            return
        waited = self.functions.wait(program, (step, arm, duration_ns))
        if waited is not None:
            self._begin(program, waited)

    def _begin(self, program: Program, waited: list[TimedStep]) -> None:
        """Records that the program is a training function: its name, and its steps that were kept until this was known."""
        function = self.functions.number(program)
        assert function is not None
        self._name(function, program)
        for step in waited:
            self._record(function, step)
        self.blocks(program)

    def _name(self, function: int, program: Program) -> None:
        """Records what the training function with this number is."""
        if self.recorder is None:
            return
        self.recorder.function(function, program.name)
        if function == 0 and program.model and not self.identity.model_fingerprint:
            self.recorder.model(program.model)

    def _record(self, function: int, step: TimedStep) -> None:
        if self.identity.rank:
            return
        if self.recorder is None:
            self.lost_before_start += 1
        else:
            self.recorder.iteration(*step, function)

    def event(self, kind: str, message: str, **facts: object) -> None:
        """Records an event (EventLog.event)."""
        if self.recorder is None:
            self.lost_before_start += 1
        else:
            self.recorder.event(kind, message, facts)

    def blocks(self, program: Program) -> None:
        """Records the pairs that have become complete since the last call."""
        function = self.functions.number(program)
        if function is None or self.recorder is None:
            return
        fresh = program.pairs_completed - self._pairs_sent[program]
        self._pairs_sent[program] = program.pairs_completed
        if self.identity.rank:  # rank 0 has recorded them, and this rank may be another one later
            return
        for pair in program.pairs[max(0, len(program.pairs) - fresh) :]:
            number = next(self._pair_numbers)
            for block in pair:
                self.recorder.arm_block(number, int(block.arm), block.first_step, block.durations_ns, function)

    def saving(self, program: Program, latest: int | None = None) -> savings.Saving | None:
        """The saving estimated from the program's complete pairs, or from the `latest` pairs of them; None if they are too few
        (savings.MIN_PAIRS)."""
        return savings.estimate(_durations(program, latest))

    def saving_of_job(self) -> savings.Saving | None:
        """The saving over the iterations of all training functions, each weighted as the database does: by its counted stitched
        iterations."""
        return savings.estimate_job(
            [
                savings.FunctionData(
                    savings.block_means(_durations(program, None)),
                    program.durations[ProgramPhase.STITCHED].count,
                    program.durations[ProgramPhase.STITCHED].total_ns,
                )
                for program in self.functions
            ]
        )

    def faster_share(self, program: Program, latest: int) -> float:
        """The share (0 to 1) of the latest complete pairs whose stitched block was the faster one."""
        return savings.faster_share(_durations(program, latest))

    def note_world(self, rank: int, size: int, main: Program | None, programs: Sequence[Program]) -> None:
        """Notes the process's rank in an elastic job, and the number of ranks. If either changes, later records go to the same
        spool as records of another process, since all records of a process belong to one rank and one number of devices."""
        before = self.identity
        if (rank, size) == (before.rank, before.world_size):
            return
        devices = min(recording.MAX_DEVICES, max(1, before.device_count // before.world_size) * size)
        self.identity = dataclasses.replace(before, rank=rank, world_size=size, device_count=devices)
        if self.recorder is None:
            return
        self.recorder.job_end(self._end_facts(main, programs))
        self._ended.append(self.recorder)
        days = self.settings.spool_days
        try:
            self.recorder = recording.Recorder(self.folder, self.identity, keep_days=days, after=self.recorder)
        except OSError as error:
            self.recorder = None
            say(f"nothing more of this job will be recorded: {error}")
            return
        for number, program in enumerate(self.functions):
            self._name(number, program)

    def start_shipper(self, pid: int) -> None:
        """Starts the process that sends records to the ingest server or database named in the settings, if there is one."""
        if not shipping_words(self.settings) or self.recorder is None:
            return
        try:
            self._shipper = self._start("--follow", str(pid))
        except OSError as error:
            self.event("shipper", f"the shipper cannot be started: {error}")

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        """Starts a process that sends what the folder holds. Raises OSError."""
        command = [sys.executable, "-m", "stitchfleet.telemetry.shipping.shipper", str(self.folder)]
        with open(self.folder / "shipper.log", "ab") as log:
            return subprocess.Popen(
                [*command, *shipping_words(self.settings), *words],
                env=clean_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def finish(self, main: Program | None, programs: Sequence[Program], clusters: Iterable[Mapping[str, Any]]) -> None:
        """Writes the last records: facts about the clusters, and the job's end. Waits for at most 2 s for the spool and, in a
        pod, for HAND_OVER_SECONDS for the shipper."""
        if self.recorder is None:
            return
        for program, waited in self.functions.at_the_end():
            self._begin(program, waited)
        for program in self.functions:
            self.blocks(program)
        for facts in clusters:
            self.recorder.cluster(str(facts["name"]), facts)
        self.recorder.job_end(self._end_facts(main, programs))
        self.recorder.close(timeout_s=2.0)
        if self.settings.payload is not None and self._shipper is not None:
            self._wait_for_shipper()

    def overhead_ns(self, programs: Iterable[Program]) -> int:
        """What stitching has cost the steps of the job's programs in nanoseconds, forgotten ones included."""
        return self.forgotten_overhead_ns + sum(program.overhead_ns for program in programs)

    def _end_facts(self, main: Program | None, programs: Sequence[Program]) -> dict[str, object]:
        """The facts of a job_end record. Its counts leave out what earlier parts have counted."""
        functions = list(self.functions)
        totals = collections.Counter(
            overhead_ns=self.overhead_ns(programs),
            iterations_plain=sum(program.steps_by_arm[Arm.PLAIN] for program in functions),
            iterations_stitched=sum(program.steps_by_arm[Arm.STITCHED] for program in functions),
            lost=self.lost,
        )
        counts = {name: max(0, total - self._totals[name]) for name, total in totals.items()}
        self._totals = totals
        return {
            "ended": time.time(),
            **counts,
            "functions": [program.name for program in functions],
            "phase": main.phase.value if main else ProgramPhase.WARM_UP.value,
            "reason": main.reason if main else "no step was seen",
            "peak_bytes": peak_bytes(),
        }

    def _wait_for_shipper(self) -> None:
        """Waits until the last records are sent: a container, and the shipper in it, ends with the job's process.

        A shipper that the server has refused for a while may rest for a minute before it asks again, although the server is back: a
        second one asks at once. Sending a record twice changes nothing.
        """
        now = time.monotonic()
        if self._is_sent(now + SHIPPER_LOOKS_SECONDS):
            return
        with contextlib.suppress(OSError):
            self._shipper = self._start()
        self._is_sent(now + HAND_OVER_SECONDS)

    def _is_sent(self, until: float) -> bool:
        """Waits until everything is sent, the shipper has ended, or the time is `until`. Returns whether everything is sent."""
        while (unsent := _unsent(self.folder)) and time.monotonic() < until:
            if self._shipper is None or self._shipper.poll() is not None:
                break
            time.sleep(0.05)
        return not unsent


def shipping_words(settings: Settings) -> tuple[str, ...]:
    """Command-line arguments of the shipper: the destination, and for how many days to keep trying; empty if the settings name no
    destination."""
    keep = ("--keep-days", f"{settings.spool_days:g}")
    if settings.ingest is not None:
        return ("--ingest", settings.ingest, *keep)
    return ("--database", settings.database, *keep) if settings.database is not None else ()


def _unsent(folder: pathlib.Path) -> bool:
    return bool(spool.segments(folder, spool.OPEN, spool.SEALED, spool.SHIPPING))


def _own_folder(wanted: pathlib.Path) -> pathlib.Path:
    """Makes a folder for this process alone. Children of a job that import TensorFlow too get one beside the wanted one."""
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
