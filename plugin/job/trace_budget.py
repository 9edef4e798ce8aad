"""Which functions of a job are worth a trace, which builds a second executor: TensorFlow's optimizers run again, and ours.

A job's first functions are traced as soon as their warm-up is over. A job that goes on making functions, most of which are called
a few times (a search that builds a network for each trial, an eager program that decorates what it calls once), would pay for a
trace of each. So a further function is traced only if both hold:

    since its first step it has run at least four times as long as its trace will take: a function may be expected to run for
    as long again as it has run so far, and a stitched step saves about a quarter
    the traces of further functions that have not reached their stitched phase take at most a twentieth of the job's time

The cost of a trace is estimated from earlier traces, as a share of the function's first step, which includes TensorFlow's own trace.
"""

from __future__ import annotations

from .program import Program

PATIENCE = 4.0
SHARE = 0.05
FIRST_GUESS = 0.5
"""Assumed cost of a trace, as a share of the first step's time, before any trace was made."""


class TraceBudget:
    """The budget of one job. free: number of functions that are traced in any case. It is called under the locks of different
    programs, so its counts may be slightly off, which does no harm."""

    def __init__(self, free: int) -> None:
        self._free = free
        self._granted: dict[Program, float] = {}
        """Program that may be traced -> expected cost of its trace in nanoseconds; 0 for the first, free ones."""
        self._first_ns = self._trace_ns = 0
        self._outstanding_ns = 0.0

    def may_trace(self, program: Program, elapsed_ns: float) -> bool:
        """Whether the program may be traced; if so, its cost is reserved. elapsed_ns: the job's time so far, in nanoseconds."""
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
        """Notes that a traced step has ended. duration_ns: its duration."""
        self._first_ns += program.first_duration_ns
        self._trace_ns += duration_ns

    def paid_back(self, program: Program) -> None:
        """Notes that the program runs stitched, and releases its reserved cost."""
        self._outstanding_ns -= self._granted.get(program, 0.0)
        self._granted[program] = 0.0

    @property
    def _share_of_first(self) -> float:
        return self._trace_ns / self._first_ns if self._first_ns else FIRST_GUESS
