"""Which functions of a job are worth a second executor: TensorFlow's optimizers once more, ours, and requests for kernels.

A job's first functions are traced as soon as their warm-up is over. A job that goes on making functions, most of which are called
a few times (a search that builds a network for each trial, an eager program that decorates what it calls once), would pay a trace
for each. So a further one is traced if

    it has run, since its first step, four times as long as its trace will take: what has lasted so long may be expected to last
    as long again, and a stitched step saves about a quarter
    the traces of further functions that have not come to their stitched phase take at most a twentieth of the job's time

What a trace costs is told by those that were made: as a share of the function's first step, which has TensorFlow's own trace in it.
"""

from __future__ import annotations

from .program import Program

PATIENCE = 4.0
SHARE = 0.05
FIRST_GUESS = 0.5
"""Of the first step's time, before any trace was made."""


class TraceBudget:
    """Of one job. Called under the locks of different programs: what it counts may be a little off, and need not be exact."""

    def __init__(self, free: int) -> None:
        self._free = free
        self._granted: dict[Program, float] = {}
        """The programs that may be traced, and what their traces are taken to cost, in nanoseconds; of the free ones nothing."""
        self._first_ns = self._trace_ns = 0
        self._outstanding_ns = 0.0

    def may_trace(self, program: Program, elapsed_ns: float) -> bool:
        """elapsed_ns: the job's time so far."""
        if program in self._granted:
            return True
        cost_ns = 0.0
        if len(self._granted) >= self._free:
            cost_ns = program.first_duration_ns * self._share_of_first
            if program.total_ns - program.first_duration_ns < PATIENCE * cost_ns:
                return False
            if self._outstanding_ns + cost_ns > SHARE * elapsed_ns:
                return False
        self._granted[program] = cost_ns
        self._outstanding_ns += cost_ns
        return True

    def traced(self, program: Program, duration_ns: int) -> None:
        """A traced step has ended."""
        self._first_ns += program.first_duration_ns
        self._trace_ns += duration_ns

    def paid_back(self, program: Program) -> None:
        """The program runs stitched."""
        self._outstanding_ns -= self._granted.get(program, 0.0)
        self._granted[program] = 0.0

    @property
    def _share_of_first(self) -> float:
        return self._trace_ns / self._first_ns if self._first_ns else FIRST_GUESS
