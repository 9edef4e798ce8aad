"""One training function (or one set of fetches) of a job and the phase that it is in.

    WARM_UP -> TRACE -> COMPILE -> BASELINE -> VERIFY -> (AGREEMENT) -> STITCHED -> (REVERTED)
                 |         |                      |           |             |
                 +---------+------ PLAIN (nothing to stitch, nothing compiled, does not pay, switched off)

    WARM_UP   plain; nobody counts
    TRACE     one step in the stitched arm, whose ops run their fallbacks and thereby ask for kernels
    COMPILE   plain, while the service works; nobody counts, it disturbs the job
    BASELINE  plain alone, timed; left out where the kernels are there within a step or two
    VERIFY    the stitched arm, both computed on the job's own tensors, TensorFlow's values flow on
    AGREEMENT plain: of a job of several ranks, whose others are waited for (lockstep.py)
    STITCHED  the stitched arm with sampled re-verification, and short plain blocks by the schedule
    REVERTED  plain for good: the guard found too much wrong, or the user said so

A Program decides about the next step only from what it is told; it starts nothing and waits for nothing.
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
from .lockstep import Lockstep


class Phase(enum.Enum):
    WARM_UP = "warm-up"
    TRACE = "trace"
    COMPILE = "compile"
    BASELINE = "baseline"
    VERIFY = "verify"
    AGREEMENT = "agreement"
    STITCHED = "stitched"
    PLAIN = "plain"
    REVERTED = "reverted"

    __hash__ = object.__hash__  # Enum's own is written in Python, and every step looks durations up by phase


MIN_BASELINE_STEPS = 1
"""The shortest baseline. It only tells whether anything is badly off; the saving is estimated from the paired blocks, which begin
with the stitched phase: a longer baseline would only delay it."""


MAX_KEPT = 2048
"""Latest durations that a median is taken of: a job may run for weeks."""
MAX_PAIRS = 4096
"""Latest pairs of blocks that the estimate is made of, for the same reason."""


class Durations:
    """How many, and the latest of them, in nanoseconds."""

    def __init__(self) -> None:
        self.count = 0
        self.latest: collections.deque[int] = collections.deque(maxlen=MAX_KEPT)

    def add(self, duration_ns: int) -> None:
        self.count += 1
        self.latest.append(duration_ns)

    @property
    def median_ns(self) -> float:
        """0 where there are none."""
        return statistics.median(self.latest) if self.latest else 0.0


@dataclass(slots=True)
class Ticket:
    """One step that has begun. `counted`: its duration may be compared (no warm-up, no compiler beside it, no change of arm)."""

    program: Program
    step: int
    arm: Arm
    phase: Phase
    generation: int
    counted: bool
    pair: int | None
    start_ns: int


@dataclass
class Block:
    """The counted steps of one arm of one pair; durations in nanoseconds."""

    pair: int
    arm: Arm
    first_step: int
    durations_ns: list[int] = field(default_factory=list)


class Program:
    """The state of one training function. Its steps may run on several threads, and the job's own thread moves it on too."""

    def __init__(self, name: str, kind: str, settings: Settings, run_id: str = "") -> None:
        self.name, self.kind, self.settings = name, kind, settings
        self.phase = Phase.WARM_UP
        self.reason = ""
        """Why it is PLAIN or REVERTED, in words."""
        self.generation = 0
        self.lock = threading.RLock()
        """Held while a step is begun or booked: several threads may run one program's steps."""
        self.steps = 0
        """Those that have ended well."""
        self._begun = 0
        self.phase_steps = 0
        self.phase_start_ns = time.perf_counter_ns()
        self.first_step_ns: int | None = None
        """When it ended, by the clock of `phase_start_ns`."""
        self.first_duration_ns = 0
        self.may_trace = False
        """Whether it was found to be worth the stitched arm's executor."""
        self.stitched_from_step: int | None = None
        """The number of its first step in the stitched phase."""
        self.stitched_after_seconds: float | None = None
        """From the end of the first step (which is TensorFlow's own tracing) to the first stitched one."""
        self.durations: dict[Phase, Durations] = {phase: Durations() for phase in Phase}
        """Counted durations by phase; those of STITCHED hold the stitched arm's only."""
        self.plain_blocks = Durations()
        self.pairs: list[tuple[Block, Block]] = []
        """(plain, stitched) of each pair that is complete; the latest MAX_PAIRS of them."""
        self.pairs_completed = 0
        self._open_blocks: dict[tuple[int, Arm], Block] = {}
        self.total_ns = 0
        self._disturbed_ns = 0
        self._disturbed_steps = 0
        self.plan: ClusterPlan | None = None
        """Of its own graph; those of the functions that it calls and TensorFlow does not inline are in `nested_plans`."""
        self.nested_plans: dict[str, tuple[ClusterPlan, int]] = {}
        self._own_clusters = 0
        self._own_names: set[str] = set()
        self.excluded: frozenset[str] = frozenset()
        """What its latest graph leaves out: operators that could not be lowered, clusters whose shapes never settle."""
        self.trains = False
        """Whether one of its graphs is that of a training function (training.py)."""
        self.ties_ranks = False
        """Whether one of its graphs holds a collective of all ranks; only looked for in jobs of several."""
        self.graph: object | None = None
        """What tells the session's graph from others; None: of a function."""
        self.lockstep: Lockstep | None = None
        """The steps that it takes together with the other ranks."""
        self.model = ""
        """The fingerprint of its first graph."""
        self.steps_by_arm = collections.Counter[Arm]()
        self.ns_by_arm = collections.Counter[Arm]()
        self.steady = False
        """Nothing is decided about its steps: they are booked, and no more (settled for good, or mode idle after the warm-up)."""
        # All ranks of a run draw the same order of blocks; another run of the same job draws another.
        self.schedule = Schedule(f"{run_id}/{name}", settings.block_steps, settings.pairs, settings.plain_share)
        self._course = Course(self.schedule)
        self._last_pair = -1
        """The number of the latest pair that was complete."""
        self._seen_arms: set[tuple[Arm, int]] = set()

    # ---- what the graph said (called while TensorFlow offers it, on the step's thread)

    def note_plan(self, plan: ClusterPlan, count: int, excluded: frozenset[str]) -> None:
        """The clusters of one graph of this program: its latest one, or the largest of several (other shapes)."""
        newer = excluded != self.excluded
        names = {cluster.name for cluster in plan.clusters}
        self._own_names = names if newer else self._own_names | names
        if self.plan is None or newer or len(plan.clusters) >= len(self.plan.clusters):
            self.plan, self._own_clusters, self.excluded = plan, count, excluded

    def note_nested_plan(self, function: str, plan: ClusterPlan, count: int) -> None:
        """The clusters in the body of a function that it calls (any thread of TensorFlow's)."""
        self.nested_plans[function] = (plan, count)

    @property
    def cluster_count(self) -> int:
        """Clusters in its own graph and in the functions that it calls."""
        return self._own_clusters + sum(count for _, count in list(self.nested_plans.values()))

    @property
    def cluster_names(self) -> set[str]:
        """The names of the clusters in all its graphs (one for each set of shapes that it was called with) and in its functions'."""
        nested = (cluster.name for plan, _ in list(self.nested_plans.values()) for cluster in plan.clusters)
        return self._own_names.union(nested)

    @property
    def plans(self) -> list[ClusterPlan]:
        """Those of its own graph and of the functions that it calls."""
        own = [] if self.plan is None else [self.plan]
        return own + [plan for plan, _ in list(self.nested_plans.values())]

    def refuse(self, reason: str) -> None:
        """The program stays plain."""
        with self.lock:
            if not self.settled:
                self.enter(Phase.PLAIN, reason)

    # ---- phases

    def enter(self, phase: Phase, reason: str = "") -> None:
        with self.lock:
            is_plain = phase in (Phase.PLAIN, Phase.REVERTED)
            if is_plain and self.lockstep is not None and not self.lockstep.lets_go(reason):
                return  # all ranks will, at one step
            self.phase, self.phase_steps = phase, 0
            if phase is Phase.STITCHED:
                self._course, self._last_pair = Course(self.schedule), -1
                self._open_blocks.clear()
            self.steady = self.settled and (Arm.PLAIN, self.generation) in self._seen_arms
            self.phase_start_ns = time.perf_counter_ns()
            if reason:
                self.reason = reason
            if phase is Phase.STITCHED and self.stitched_from_step is None and self.first_step_ns is not None:
                self.stitched_from_step = self.steps
                self.stitched_after_seconds = (self.phase_start_ns - self.first_step_ns) / 1e9

    @property
    def settled(self) -> bool:
        """Nothing more will happen: steps need not be looked at."""
        return self.phase in (Phase.PLAIN, Phase.REVERTED)

    def begin(self, quiet: bool) -> Ticket:
        """The next step's arm. `quiet`: no process of ours is at work beside the job."""
        with self.lock:
            phase, arm, counted, pair = self.phase, Arm.PLAIN, quiet, None
            if phase is Phase.WARM_UP:
                counted = False
            elif phase in (Phase.TRACE, Phase.VERIFY):
                arm, counted = Arm.STITCHED, False
            elif phase is Phase.COMPILE:
                counted = False
            elif phase is Phase.STITCHED:
                slot = self._course.next(quiet, self._has_pair) if self.lockstep is None else self.lockstep.slot
                if slot.pair is not None and slot.offset == 0:
                    self._open_blocks.clear()  # of a pair that was disturbed, or that is taken again
                arm, pair = slot.arm, slot.pair
                counted = quiet and not slot.first
            # an executor's first run builds it
            if (arm, self.generation) not in self._seen_arms:
                self._seen_arms.add((arm, self.generation))
                counted = False
            step = self._begun
            self._begun = step + 1
            return Ticket(self, step, arm, phase, self.generation, counted, pair, time.perf_counter_ns())

    def end(self, ticket: Ticket, end_ns: int, quiet: bool) -> int:
        """Books a step that has ended; returns its duration in nanoseconds."""
        duration = end_ns - ticket.start_ns
        counted = ticket.counted = ticket.counted and quiet
        if self.first_step_ns is None:
            self.first_step_ns, self.first_duration_ns = end_ns, duration
        self.steps += 1
        self.total_ns += duration
        self.steps_by_arm[ticket.arm] += 1
        self.ns_by_arm[ticket.arm] += duration
        if ticket.phase is self.phase:
            self.phase_steps += 1
        self.steady = self.settled or (self.settings.mode == "idle" and self.phase_steps >= self.settings.warm_up_steps)
        if counted:
            plain_block = ticket.phase is Phase.STITCHED and ticket.arm is Arm.PLAIN
            (self.plain_blocks if plain_block else self.durations[ticket.phase]).add(duration)
            if ticket.pair is not None:
                self._book_in_pair(ticket.pair, ticket, duration)
        if ticket.phase in (Phase.TRACE, Phase.COMPILE, Phase.VERIFY):
            self._disturbed_ns += duration
            self._disturbed_steps += 1
        return duration

    def book_steady(self, duration_ns: int, quiet: bool) -> tuple[int, bool]:
        """Books one plain step of a steady program that took `duration_ns`: its number, and whether it may be compared."""
        with self.lock:
            step, phase = self._begun, self.phase
            self._begun = step + 1
            self.steps += 1
            self.phase_steps += 1
            self.total_ns += duration_ns
            self.steps_by_arm[Arm.PLAIN] += 1
            self.ns_by_arm[Arm.PLAIN] += duration_ns
            counted = quiet and phase is not Phase.WARM_UP
            if counted:
                self.durations[phase].add(duration_ns)
            return step, counted

    def _book_in_pair(self, pair: int, ticket: Ticket, duration_ns: int) -> None:
        block = self._open_blocks.setdefault((pair, ticket.arm), Block(pair, ticket.arm, ticket.step))
        block.durations_ns.append(duration_ns)
        full = self.settings.block_steps
        plain, stitched = (self._open_blocks.get((pair, arm)) for arm in (Arm.PLAIN, Arm.STITCHED))
        if plain and stitched and len(plain.durations_ns) == len(stitched.durations_ns) == full:
            self._open_blocks.clear()
            self._last_pair = pair
            self.pairs.append((plain, stitched))
            self.pairs_completed += 1
            del self.pairs[:-MAX_PAIRS]

    def _has_pair(self, number: int) -> bool:
        return number == self._last_pair

    @property
    def overhead_ns(self) -> int:
        """What stitching itself cost: the steps that traced, ran beside the compiler or verified, beyond as many plain ones."""
        plain_ns = self.typical_plain_ns()
        return max(0, self._disturbed_ns - self._disturbed_steps * plain_ns) if plain_ns else 0

    def typical_plain_ns(self) -> int:
        """The median plain step: of the plain blocks where there are some, else of the baseline or the plain phase; or 0."""
        for durations in (
            self.plain_blocks,
            *(self.durations[phase] for phase in (Phase.BASELINE, Phase.AGREEMENT, Phase.PLAIN)),
        ):
            if durations.count:
                return int(durations.median_ns)
        return 0

    def baseline_is_done(self) -> bool:
        counted = self.durations[Phase.BASELINE].count
        if counted >= self.settings.baseline_steps:
            return True
        seconds = (time.perf_counter_ns() - self.phase_start_ns) / 1e9
        return counted >= MIN_BASELINE_STEPS and seconds >= self.settings.baseline_seconds
