"""Which of a job's functions are its training functions: their steps are the job's iterations, and their saving is the job's saving.

The records, the summary and the report use the same rule:

    A function is a training function (graph/trains.py) if its graph writes a variable and has a gradient, or if it writes a
    non-scalar variable other than by adding to it (a target network's average, a sampler's state), by initializing it or by taking
    another rank's value. Metrics, which an evaluation writes too, are added to; the weights of rank 0 are taken by each rank that
    joins. It must have run at least twice, since a set-up function runs once.
    If a job has no such function (inference; a loop whose updates are eager), the functions count whose steps take a tenth of the
    time or more. This is decided after SEEN steps, or at the job's end.

All other functions stay out: an evaluation may run stitched, and its time is not the training's.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Iterator

from .program import Program

SEEN = 256
"""Steps of a job without a training function after which functions count by their share of the time."""
KEPT = 256
"""Most steps of one function that are kept until it is known whether it is a training function."""
SHARE = 0.1
"""Share of the time of all steps from which a function counts, if the job has no training function."""
TimedStep = tuple[int, int, int]
"""A kept step: its number, its arm as an integer (as in the records), its duration in nanoseconds."""


class TrainingFunctions:
    """The job's training functions, numbered in the order in which they are found, and the steps of functions not yet decided."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[Program, int] = {}
        self._waiting: dict[Program, collections.deque[TimedStep]] = {}
        self._some_train = False
        self._seen = 0
        self._total_ns = 0

    def __iter__(self) -> Iterator[Program]:
        return iter(list(self._numbers))

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, program: Program) -> int | None:
        """The program's number; None if it is not, or not yet known to be, a training function."""
        return self._numbers.get(program)

    def wait(self, program: Program, step: TimedStep) -> list[TimedStep] | None:
        """Keeps a step of a program without a number. If the program is a training function by now, gives it a number and returns
        all its kept steps; else returns None."""
        with self._lock:
            if program in self._numbers:  # another thread was faster
                return [step]
            waiting = self._waiting.setdefault(program, collections.deque(maxlen=KEPT))
            waiting.append(step)
            self._seen += 1
            self._total_ns += step[2]
            if program.trains:
                self._some_train = True
                return self._join(program) if program.steps >= 2 else None
            if self._seen < SEEN or self._some_train:
                return None
            return self._join(program) if program.total_ns >= SHARE * self._total_ns else None

    def at_the_end(self) -> list[tuple[Program, list[TimedStep]]]:
        """The programs that count although nothing was decided while they ran, with their kept steps; they get numbers. Call it
        at the job's end."""
        with self._lock:
            waiting = [program for program in self._waiting if program.steps]
            if self._numbers or not waiting:
                return []
            training = [program for program in waiting if program.trains]
            total_ns = sum(program.total_ns for program in waiting)
            chosen = training or [program for program in waiting if program.total_ns >= SHARE * total_ns]
            return [(program, self._join(program)) for program in chosen]

    def forget(self, program: Program) -> bool:
        """Drops the kept steps of a program whose function was collected. Returns False if it is a training function, which stays."""
        with self._lock:
            if program in self._numbers:
                return False
            self._waiting.pop(program, None)
            return True

    def _join(self, program: Program) -> list[TimedStep]:
        self._numbers[program] = len(self._numbers)
        return list(self._waiting.pop(program, ()))
