"""Which of a job's functions are its training: whose steps are the job's iterations, and whose saving is the job's.

One rule, for the records, the summary and the report alike:

    A function trains (trains.py) whose graph writes a variable and has a gradient, or writes a variable that is no scalar otherwise
    than by adding to it (a target network's average, a sampler's state). Metrics, which an evaluation writes too, are added to. It
    must have run twice: a set-up runs once.
    Where no function of a job trains (inference; a loop whose updates are eager), those count whose steps take a tenth of the time or
    more; that is decided after SEEN steps, or at the job's end.

All other functions stay out: an evaluation may run stitched, and its time is not the training's.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Iterator

from .program import Program

SEEN = 256
"""Steps of a job after which no function that trains is waited for any longer."""
KEPT = 256
"""Most steps of one function that are kept until it is known whether it is the job's training."""
SHARE = 0.1
"""Of the time of all steps, where no function trains."""
Step = tuple[int, int, int]
"""Of a waiting step: its number, its arm as the records have it, its duration in nanoseconds."""


class TrainingFunctions:
    """The job's training functions, numbered in the order in which they are found to be some; and steps that wait to be told."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[Program, int] = {}
        self._waiting: dict[Program, collections.deque[Step]] = {}
        self._some_train = False
        self._seen = 0
        self._total_ns = 0

    def __iter__(self) -> Iterator[Program]:
        return iter(list(self._numbers))

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, program: Program) -> int | None:
        """None: not, or not known to be, one of them."""
        return self._numbers.get(program)

    def wait(self, program: Program, step: Step) -> list[Step] | None:
        """A step of a program without a number. If it is found to be a training function: all of its steps that have waited."""
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

    def at_the_end(self) -> list[tuple[Program, list[Step]]]:
        """Those that are to be counted though nothing was decided while they ran, with their steps."""
        with self._lock:
            waiting = [program for program in self._waiting if program.steps]
            if self._numbers or not waiting:
                return []
            training = [program for program in waiting if program.trains]
            total_ns = sum(program.total_ns for program in waiting)
            chosen = training or [program for program in waiting if program.total_ns >= SHARE * total_ns]
            return [(program, self._join(program)) for program in chosen]

    def forget(self, program: Program) -> bool:
        """The program's function is gone. False where it is one of these; else no step of its waits any longer."""
        with self._lock:
            if program in self._numbers:
                return False
            self._waiting.pop(program, None)
            return True

    def _join(self, program: Program) -> list[Step]:
        self._numbers[program] = len(self._numbers)
        return list(self._waiting.pop(program, ()))
