"""One training function (or one set of fetches) of a job and the phase that it is in.

    WARM_UP -> TRACE -> COMPILE -> BASELINE -> VERIFY -> (AGREEMENT) -> STITCHED -> (REVERTED)
                 |         |                      |           |             |
                 +---------+------ PLAIN (nothing to stitch, nothing compiled, does not pay, switched off)

    WARM_UP   plain; steps are not counted
    TRACE     one step in the stitched arm; its ops run their fallbacks, and so request kernels
    COMPILE   plain while the compile service works; steps are not counted, since the service disturbs the job
    BASELINE  plain and undisturbed, timed; skipped if the kernels are ready within a step or two
    VERIFY    the stitched arm; kernels and TensorFlow both compute on the job's own tensors, and TensorFlow's values are used
    AGREEMENT plain; only in jobs of several ranks, until the other ranks are ready (lockstep.py)
    STITCHED  the stitched arm with sampled re-verification, and short plain blocks by the schedule
    REVERTED  plain for good: the guard found too many errors, or the user switched it off

A Program decides on the next step only from the arguments of its methods; it starts nothing and waits for nothing.
"""

from __future__ import annotations

import collections
import enum
import statistics
import threading
import time
from dataclasses import dataclass, field

from ..arms.schedule import Course, Schedule
from ..arms.switch import Arm
from ..base.settings import Settings
from ..clusters.clusters import ClusterPlan
from ..native.library import PASSES
from .lockstep import Lockstep


class ProgramPhase(enum.Enum):
    """The phases of a program; the module's docstring describes each. Values are the names in records and summaries."""

    WARM_UP = "warm-up"
    TRACE = "trace"
    COMPILE = "compile"
    BASELINE = "baseline"
    VERIFY = "verify"
    AGREEMENT = "agreement"
    STITCHED = "stitched"
    PLAIN = "plain"
    REVERTED = "reverted"

    __hash__ = object.__hash__  # Enum's own is written in Python, and every step looks up durations by phase


MIN_BASELINE_STEPS = 1
"""The shortest baseline, in steps. It only shows if something is badly wrong. The saving is estimated from the paired blocks, which
begin with the stitched phase; a longer baseline would only delay them."""


MAX_KEPT = 2048
"""Number of latest durations from which a median is taken. Bounded, since a job may run for weeks."""
MAX_PAIRS = 4096
"""Number of latest pairs of blocks from which the saving is estimated. Bounded for the same reason."""

FEWEST_TO_TELL = 8
"""With fewer steps in a pair, one that takes longer than the others together says nothing: one arm may be slow."""


class Durations:
    """The number and the sum of durations, and the latest MAX_KEPT of them, in nanoseconds."""

    def __init__(self) -> None:
        self.count = self.total_ns = 0
        self.latest: collections.deque[int] = collections.deque(maxlen=MAX_KEPT)

    def add(self, duration_ns: int) -> None:
        """Adds a duration in nanoseconds."""
        self.count += 1
        self.total_ns += duration_ns
        self.latest.append(duration_ns)

    @property
    def median_ns(self) -> float:
        """The median in nanoseconds; 0 if there are no durations."""
        return statistics.median(self.latest) if self.latest else 0.0


@dataclass
class Ticket:
    """One step that has begun. step: its number in the program, from 0. counted: whether its duration may be compared (no
    warm-up, no compiler at work, no change of arm). pair: number of the pair in which it is measured, or None. start_ns:
    time.perf_counter_ns."""

    program: Program
    step: int
    arm: Arm
    phase: ProgramPhase
    generation: int
    counted: bool
    pair: int | None
    start_ns: int
    quiet: bool = True
    """Whether nothing of ours was at work beside the job when it began."""


@dataclass
class Disturbed:
    """Number and time of steps that our own work may have made longer."""

    steps: int = 0
    total_ns: int = 0

    def add(self, duration_ns: int) -> None:
        """Adds a step of this duration in nanoseconds."""
        self.steps += 1
        self.total_ns += duration_ns

    def cost_ns(self, plain_ns: int) -> int:
        """The time in nanoseconds that these steps took beyond as many plain steps of `plain_ns` each; not below 0."""
        return max(0, self.total_ns - self.steps * plain_ns)


@dataclass
class Block:
    """The counted steps of one arm of one pair; durations in nanoseconds."""

    pair: int
    arm: Arm
    first_step: int
    durations_ns: list[int] = field(default_factory=list)


def decided_by_one_step(plain: Block, stitched: Block) -> bool:
    """Whether one step of a pair took longer than all the others together: the process was stopped, its disk or its network stalled.
    The pair then says nothing of the arms: in a job of 4 ms steps, a stop of 17 s in one of 16 plain blocks made a saving of 42% one
    of 97%, with an interval of 78% to 100%. Such a pair is measured again, whichever arm the step belongs to; if they are as many as
    the others, such steps are the job's own, and every second one counts."""
    durations = [*plain.durations_ns, *stitched.durations_ns]
    return len(durations) >= FEWEST_TO_TELL and 2 * max(durations) > sum(durations)


class Program:
    """The state of one training function. Its steps may run on several threads, and the job's own thread moves it on too."""

    def __init__(self, name: str, kind: str, settings: Settings, run_id: str = "") -> None:
        self.name, self.kind, self.settings = name, kind, settings
        self.given_name = name
        """The name without a number that tells it from others of this process."""
        self.phase = ProgramPhase.WARM_UP
        self.reason = ""
        """Why it is PLAIN or REVERTED, or still in its WARM_UP, as text for people."""
        self.generation = 0
        self.passes = PASSES
        self.lock = threading.RLock()
        """Held while a step is begun or booked, since several threads may run one program's steps."""
        self.steps = 0
        """Number of steps that have ended without an error."""
        self._begun = 0
        self.phase_steps = 0
        self.phase_start_ns = time.perf_counter_ns()
        self.first_step_ns: int | None = None
        """When the first step ended, by the clock of `phase_start_ns`."""
        self.first_duration_ns = 0
        self.may_trace = False
        """Whether it is worth an executor of the stitched arm (trace_budget.py)."""
        self.stitched_from_step: int | None = None
        """The number of its first step in the stitched phase."""
        self.stitched_after_seconds: float | None = None
        """Seconds from the end of the first step (which is TensorFlow's own tracing) to the first stitched step."""
        self.durations: dict[ProgramPhase, Durations] = {phase: Durations() for phase in ProgramPhase}
        """Counted durations by phase; STITCHED holds only those of the stitched arm."""
        self.plain_blocks = Durations()
        self.pairs: list[tuple[Block, Block]] = []
        """(plain, stitched) blocks of the latest MAX_PAIRS complete pairs."""
        self.pairs_completed = 0
        self.pairs_interrupted = 0
        """Pairs that were not counted because one step decided them."""
        self.opening_ends: int | None = None
        """Number of complete pairs after those that open the stitched phase; None before that phase, and once it has been noticed."""
        self.is_unverified = False
        """Whether kernels were compared again in its latest stitched step (Job._watch_unverified)."""
        self.pairs_judged = 0
        """Number of complete pairs when it was last decided whether stitching pays."""
        self._open_blocks: dict[tuple[int, Arm], Block] = {}
        self.total_ns = 0
        self._in_preparation, self._beside = Disturbed(), Disturbed()
        """Steps that traced, waited for kernels or verified; other steps beside the compile service, at work for another function
        or another shape. Each kind has a sum of its own: what the second one's stitched steps gain pays for nothing."""
        self.plan: ClusterPlan | None = None
        """The plan of its own graph. `nested_plans` has those of the functions that it calls and TensorFlow does not inline."""
        self.nested_plans: dict[str, tuple[ClusterPlan, int]] = {}
        self._own_clusters = 0
        self._own_names: set[str] = set()
        self.excluded: frozenset[str] = frozenset()
        """What its latest graph leaves out: operators that could not be lowered, and clusters whose shapes never settle."""
        self.trains = False
        """Whether one of its graphs is that of a training function (training.py)."""
        self.steps_per_collective = 0
        """See Owner."""
        self.graph: object | None = None
        """Identifies the session's graph; None for a function."""
        self.lockstep: Lockstep | None = None
        """The lockstep in which it takes its steps with the other ranks; None if there is none."""
        self.asks_ranks = False
        """Whether its steps may have to be counted with those of other ranks even if it stays plain."""
        self.ended_in: ProgramPhase | None = None
        """The phase in which all ranks' decision made it plain; None if it is plain for a reason of its own, or not plain."""
        self.model = ""
        """The fingerprint of its first graph."""
        self.steps_by_arm = collections.Counter[Arm]()
        self.steady = False
        """Whether its steps are only booked, with no decision about them (settled for good, or mode idle after the warm-up)."""
        # All ranks of a run draw the same order of blocks; another run of the same job draws another order.
        self.schedule = Schedule(f"{run_id}/{name}", settings.block_steps, settings.pairs, settings.plain_share)
        self._course = Course(self.schedule)
        self._last_pair = -1
        """Number of the latest complete pair."""
        self._seen_arms: set[tuple[Arm, int]] = set()

    # ---- what the graph said (called while TensorFlow offers it, on the step's thread)

    def note_plan(self, plan: ClusterPlan, count: int, excluded: frozenset[str]) -> None:
        """Notes the clusters of a graph of this program: the latest, or the largest if there are several (for other shapes)."""
        newer = excluded != self.excluded
        names = {cluster.name for cluster in plan.clusters}
        self._own_names = names if newer else self._own_names | names
        if self.plan is None or newer or len(plan.clusters) >= len(self.plan.clusters):
            self.plan, self._own_clusters, self.excluded = plan, count, excluded

    def note_nested_plan(self, function: str, plan: ClusterPlan, count: int) -> None:
        """Notes the clusters in the body of a function that it calls. May run on any of TensorFlow's threads."""
        self.nested_plans[function] = (plan, count)

    @property
    def cluster_count(self) -> int:
        """Number of clusters in its own graph and in the functions that it calls."""
        return self._own_clusters + sum(count for _, count in list(self.nested_plans.values()))

    @property
    def cluster_names(self) -> set[str]:
        """Names of the clusters in all its graphs (one for each set of shapes it was called with) and in the functions it calls."""
        nested = (cluster.name for plan, _ in list(self.nested_plans.values()) for cluster in plan.clusters)
        return self._own_names.union(nested)

    @property
    def plans(self) -> list[ClusterPlan]:
        """The plans of its own graph and of the functions that it calls."""
        own = [] if self.plan is None else [self.plan]
        return own + [plan for plan, _ in list(self.nested_plans.values())]

    def refuse(self, reason: str) -> None:
        """Moves the program to the phase PLAIN for good, unless it is settled. A program in lockstep whose ranks may already have
        agreed on a step stays in its phase until all ranks become plain at one step."""
        with self.lock:
            if not self.settled:
                self.enter(ProgramPhase.PLAIN, reason)

    # ---- phases

    def enter(self, phase: ProgramPhase, reason: str = "") -> None:
        """Moves the program to a phase. reason: kept for people, unless it is empty. In lockstep it cannot become plain alone:
        the other ranks are told, and the phase changes when all of them become plain at one step. Any thread may call it."""
        with self.lock:
            is_plain = phase in (ProgramPhase.PLAIN, ProgramPhase.REVERTED)
            if is_plain and self.lockstep is not None and not self.lockstep.lets_go(reason):
                return  # all ranks become plain at one step
            self.phase, self.phase_steps, self.is_unverified = phase, 0, False
            if phase is ProgramPhase.STITCHED:
                self._course, self._last_pair = Course(self.schedule), -1
                self.opening_ends = self.pairs_completed + self.settings.pairs
                self._open_blocks.clear()
            self.steady = self.settled and not self.asks_ranks and (Arm.PLAIN, self.generation) in self._seen_arms
            self.phase_start_ns = time.perf_counter_ns()
            if reason:
                self.reason = reason
            if phase is ProgramPhase.STITCHED and self.stitched_from_step is None and self.first_step_ns is not None:
                self.stitched_from_step = self.steps
                self.stitched_after_seconds = (self.phase_start_ns - self.first_step_ns) / 1e9

    @property
    def settled(self) -> bool:
        """Whether the program's phase is final, so that its steps need no decisions."""
        return self.phase in (ProgramPhase.PLAIN, ProgramPhase.REVERTED)

    def begin(self, quiet: bool) -> Ticket:
        """Begins the next step and returns its ticket, with its arm. quiet: whether no process of ours is at work beside the job."""
        with self.lock:
            quiet = quiet and not self.is_unverified
            phase, arm, counted, pair = self.phase, Arm.PLAIN, quiet, None
            if phase is ProgramPhase.WARM_UP:
                counted = False
            elif phase in (ProgramPhase.TRACE, ProgramPhase.VERIFY):
                arm, counted = Arm.STITCHED, False
            elif phase is ProgramPhase.COMPILE:
                counted = False
            elif phase is ProgramPhase.STITCHED:
                slot = self._course.next(quiet, self._has_pair) if self.lockstep is None else self.lockstep.slot
                if slot.pair is not None and slot.offset == 0:
                    self._open_blocks.clear()  # they belong to a pair that was disturbed, or that is repeated
                arm, pair = slot.arm, slot.pair
                counted = quiet and not slot.first
            # the first run of an executor builds it
            if (arm, self.generation) not in self._seen_arms:
                self._seen_arms.add((arm, self.generation))
                counted = False
            step = self._begun
            self._begun = step + 1
            return Ticket(self, step, arm, phase, self.generation, counted, pair, time.perf_counter_ns(), quiet)

    def end(self, ticket: Ticket, end_ns: int, quiet: bool) -> int:
        """Books a step that has ended; returns its duration in nanoseconds. end_ns: time.perf_counter_ns. quiet: whether no
        process of ours is at work beside the job now."""
        duration = end_ns - ticket.start_ns
        quiet = quiet and not self.is_unverified
        counted = ticket.counted = ticket.counted and quiet
        if self.first_step_ns is None:
            self.first_step_ns, self.first_duration_ns = end_ns, duration
        self.steps += 1
        self.total_ns += duration
        self.steps_by_arm[ticket.arm] += 1
        if ticket.phase is self.phase:
            self.phase_steps += 1
        is_idle = self.settings.mode == "idle" and self.phase_steps >= self.settings.warm_up_steps
        self.steady = (self.settled or is_idle) and not self.asks_ranks
        if counted:
            plain_block = ticket.phase is ProgramPhase.STITCHED and ticket.arm is Arm.PLAIN
            (self.plain_blocks if plain_block else self.durations[ticket.phase]).add(duration)
            if ticket.pair is not None:
                self._book_in_pair(ticket.pair, ticket, duration)
        if ticket.phase in (ProgramPhase.TRACE, ProgramPhase.COMPILE, ProgramPhase.VERIFY):
            self._in_preparation.add(duration)
        elif ticket.phase is not ProgramPhase.WARM_UP and not (ticket.quiet and quiet):
            self._beside.add(duration)
        return duration

    def book_steady(self, duration_ns: int, quiet: bool) -> tuple[int, bool]:
        """Books one plain step of a steady program. Returns the step's number, and whether its duration may be compared."""
        with self.lock:
            step, phase = self._begun, self.phase
            self._begun = step + 1
            self.steps += 1
            self.phase_steps += 1
            self.total_ns += duration_ns
            self.steps_by_arm[Arm.PLAIN] += 1
            counted = quiet and phase is not ProgramPhase.WARM_UP
            if counted:
                self.durations[phase].add(duration_ns)
            elif phase is not ProgramPhase.WARM_UP:
                self._beside.add(duration_ns)
            return step, counted

    def _book_in_pair(self, pair: int, ticket: Ticket, duration_ns: int) -> None:
        block = self._open_blocks.setdefault((pair, ticket.arm), Block(pair, ticket.arm, ticket.step))
        block.durations_ns.append(duration_ns)
        full = self.settings.block_steps
        plain, stitched = (self._open_blocks.get((pair, arm)) for arm in (Arm.PLAIN, Arm.STITCHED))
        if plain and stitched and len(plain.durations_ns) == len(stitched.durations_ns) == full:
            self._open_blocks.clear()
            if decided_by_one_step(plain, stitched) and self.pairs_interrupted <= self.pairs_completed:
                self.pairs_interrupted += 1
                return
            self._last_pair = pair
            self.pairs.append((plain, stitched))
            self.pairs_completed += 1
            del self.pairs[:-MAX_PAIRS]

    def _has_pair(self, number: int) -> bool:
        return number == self._last_pair

    @property
    def overhead_ns(self) -> int:
        """What stitching itself cost, in nanoseconds: the time of steps that traced, ran beside the compiler or verified, minus the
        time of as many plain steps."""
        plain_ns = self.typical_plain_ns()
        return sum(kind.cost_ns(plain_ns) for kind in (self._in_preparation, self._beside)) if plain_ns else 0

    def typical_plain_ns(self) -> int:
        """The median duration of a plain step in nanoseconds: of the plain blocks, else of the baseline, the agreement or the
        plain phase; 0 if none was counted."""
        for durations in (
            self.plain_blocks,
            *(self.durations[phase] for phase in (ProgramPhase.BASELINE, ProgramPhase.AGREEMENT, ProgramPhase.PLAIN)),
        ):
            if durations.count:
                return int(durations.median_ns)
        return 0

    def baseline_is_done(self) -> bool:
        """Whether the baseline phase has timed enough steps (settings baseline_steps and baseline_seconds)."""
        counted = self.durations[ProgramPhase.BASELINE].count
        if counted >= self.settings.baseline_steps:
            return True
        seconds = (time.perf_counter_ns() - self.phase_start_ns) / 1e9
        return counted >= MIN_BASELINE_STEPS and seconds >= self.settings.baseline_seconds
