"""The job: the controller of one process. It chooses the arm of each step and moves each program through its phases. guard/kernels.py
has the states of its kernels.

It runs on two threads. The trainer's thread calls `begin` and `end` around each step (microseconds, no waiting, except in jobs of
several ranks: lockstep.py). Our own thread sleeps until there is a request, and does all else: it sends requests to the compile
service and answers to the op, and handles verification results, mismatches and the control file.
"""

from __future__ import annotations

import collections
import os
import threading
import time
import uuid
import weakref
from collections.abc import Callable
from typing import Any

from stitchfleet.telemetry.pod import environment, recording

from ..arms.owner import Owner
from ..arms.switch import Arm
from ..base.containment import HEALTH, contained, say
from ..base.memory_watch import MemoryWatch
from ..base.settings import Settings, writable_folder
from ..graph.tf_ops import COMPILED_BY_XLA, is_compiled_by_xla
from ..guard.kernels import Kernels
from ..native.library import NativeLibrary
from ..ranks import resets
from ..ranks.multi_worker import Board
from ..ranks.open_mpi import Mail, OpenMpi
from ..ranks.world import World
from ..service.client import CompileClient
from ..stitching.stitcher import DATASET_LOOP, IN_A_DATASET, NO_KERNEL, SLOWER, UNSETTLED, Stitcher
from .lockstep import UNSEEN, UNTIED, Lockstep, Ranks
from .program import Program, ProgramPhase, Ticket
from .records import Records
from .saving_text import saving_facts, saving_line
from .shape_watch import unsettled
from .trace_budget import TraceBudget

TICK_MS = 200
KEPT_GONE = 32
"""Most programs kept for the summary among those that do not train and whose function or graph was collected. More would make the
summary longer without adding information."""
GENERATIONS = 4
"""Most stitched graphs of one program: the first, and later ones split around operators that could not be lowered."""
VERIFY_PATIENCE = 10
"""Most steps of the verify phase, as a multiple of the comparisons that a kernel needs."""
SWIFT_COMPILE_STEPS = 2
"""If the kernels are ready after at most this many steps of the compile phase (they were in the cache), the baseline is skipped: the
saving is estimated from the pairs of blocks that follow."""
NONE_RAN = "the step that was tried ran none of its stitch ops; they are in branches that it did not take"
"""Why a program has no kernel: its ops ask for theirs when they run."""
LATE = "its kernels were not made in time"
UNTRIED = "not tried yet: a job's later functions are, once they have run for a while (STITCHFLEET_FREE_TRACES)"
"""Why a program is still in its warm-up (trace_budget.py)."""
YOUNG_STEPS = 600
"""Steps of the stitched phase in which those with comparisons are no part of pairs. A job whose shapes never end compares now and
then for as long as it runs: later it is judged with them."""
UNTIED_STEPS = 8
"""Steps of a function without a collective of all ranks after which a line says that it runs plain."""
JUDGED_PAIRS = 24
"""Number of latest pairs of blocks on which the decision whether stitching pays is based."""
MOST_PAIRS = 0.75
"""Stitching does not pay if the interval of its saving lies below zero and it was slower in at least this share of the pairs, or if
the interval does not lie above zero and it was faster in less than this share."""


def _op_determinism() -> bool:
    """Whether the job called tf.config.experimental.enable_op_determinism."""
    from tensorflow.python.framework import config

    return bool(config.is_op_determinism_enabled())


def _is_compiled_by_xla(function: Any) -> bool:
    """Whether a tf.function object or a trace is compiled as a whole by XLA."""
    definition = getattr(function, "function_def", None)
    if definition is None:
        return bool(getattr(function, "_jit_compile", None))
    return is_compiled_by_xla(definition.attr)


def _note_fork(job: Job | None) -> None:
    if job is not None:
        job.is_forked_child = True


class Job:
    """One training process under stitchfleet. Its callers, the hooks (entry/), contain what its methods raise."""

    def __init__(self, settings: Settings, native: NativeLibrary | None, native_reason: str = "") -> None:
        self.settings = settings
        self.world = World.from_environment(os.environ)
        self.run_id = environment.RUN_ID.read() or uuid.uuid4().hex
        self.native = native
        self.stitcher = Stitcher(settings)
        self.programs: list[Program] = []
        self.native_reason = native_reason
        cache = writable_folder(settings.cache, say)
        self.cache = cache
        self.records = Records(settings, self.run_id, cache)
        self.records.start_shipper(os.getpid())
        self.client = CompileClient(
            cache,
            settings.cache_bytes,
            settings.compile_nice,
            self.records.folder / "service.log",
            self._service_says,
            # a service that only waits for the kernels of another one needs no processor time, now or later
            settings.compile_patience if self.world.local_rank == 0 else 0.0,
            self.run_id if self.world.local_size > 1 or self.world.is_elastic else "",
            settings.compile_after_end if self.world.local_rank == 0 else 0.0,
            self._service_notes,
        )
        self.kernels = (
            None if native is None else Kernels(settings, native, self.client, self.stitcher, self.records, self.run_id)
        )
        self.ranks: Ranks | None = None
        """The other ranks of the job; None if there are none, or the ranks cannot agree."""
        self._may_be_of_mpi = self._may_be_of_strategy = False
        """Whether the launcher gives the ranks no store, and what connects them (Horovod, a strategy) is not set up yet."""
        self._find_ranks()
        self.memory = MemoryWatch(settings.memory_limit_bytes)
        self.started = time.time()
        self._functions: weakref.WeakKeyDictionary[Any, Program] = weakref.WeakKeyDictionary()
        self._gone: collections.deque[Program] = collections.deque()
        self.forgotten_programs = 0
        """Number of functions that were collected and are in no summary."""
        self._kept_gone: collections.deque[Program] = collections.deque()
        """Of what was collected and does not train, functions that ran stitched and fetches of graphs: the latest KEPT_GONE."""
        self._names: dict[str, int] = {}
        """Function name -> number of functions with it, as long as one of them is there. Only the base name is kept, since a job may
        go on making functions of one name."""
        self._session_programs: dict[object, Program] = {}
        self._lock = threading.Lock()
        self._unsettled: set[str] = set()
        """Clusters whose shapes never settle."""
        self._unverified_calls = 0
        """`NativeLibrary.unverified_calls` after the latest stitched step."""
        self._closing = False
        self._ticked = 0.0
        self.trace_budget = TraceBudget(settings.free_traces)
        self._traces_ended = 0
        self._traces_served = 0
        """Number of ended traced steps whose requests have all been sent to the compile service."""
        self._control_seen: tuple[float, str] = (0.0, "")
        self._worker: threading.Thread | None = None
        HEALTH.on_failure.append(lambda reason: self.records.event("switched-off", reason))
        if native is not None:
            native.set_rewrite(self.stitcher.offered, self.stitcher.passes)
            native.enable(settings.mode != "fallback")
            self.stitcher.mark_of_offered = native.arm_mark
            self.stitcher.refusal_of_operator = native.refusal_of_operator
            self.stitcher.operand_shapes = native.operand_shapes
            self._start_worker()
        self.at_end: Callable[[Job], None] = lambda job: None
        """Called by `close` at the end, to write the summary."""
        self.is_forked_child = False
        """Whether this is a forked child. It has none of our threads, so its steps are ignored."""
        itself = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _note_fork(itself()))

    def _find_ranks(self) -> None:
        """Sets up the agreement of the ranks over their launcher's store. Without one, it may be done once Horovod is initialized."""
        if not self.world.is_distributed or self.settings.mode != "auto":
            return
        if self.world.store is not None:
            self._set_up_ranks()
        elif self.world.cluster:
            self._may_be_of_strategy = True
        else:
            self._may_be_of_mpi = True

    def _look_for_ranks(self) -> None:
        """Sets up the agreement of ranks that are found only once the job has begun."""
        if self._may_be_of_mpi:
            self._look_for_horovod()
        elif self._may_be_of_strategy:
            self._look_for_strategy()

    def _look_for_strategy(self) -> None:
        """If a tf.distribute strategy has connected the workers that TF_CONFIG names: sets up their agreement over a store that the
        strategy's coordination service leads to, or records why there is none. Without it, they are independent jobs."""
        board = Board.present()
        if board is None:
            return
        self._may_be_of_strategy = False
        if board.why_unusable:
            self._tell_of_ranks(
                f"the workers cannot agree on a step ({board.why_unusable}): each switches at a step of its own"
            )
            return
        self.stitcher.workers = self.world.size
        self._set_up_ranks(board=board)
        self._ask_in_warm_up()

    def _ask_in_warm_up(self) -> None:
        for program in self.programs:
            program.asks_ranks = program.phase is ProgramPhase.WARM_UP

    def _look_for_horovod(self) -> None:
        """If Horovod has been initialized: sets up the agreement of the ranks over a store whose address goes by MPI, or records why
        there is none. Without Horovod, what a launcher has started together may be independent jobs."""
        place = resets.present_place()
        if place is None:
            return
        self._may_be_of_mpi = False
        mail = OpenMpi.loaded()
        why = "Open MPI is not loaded" if mail is None else mail.why_unusable(self.world.at(place))
        if why:
            self._tell_of_ranks(
                f"the launcher gives the ranks no store to agree by, and {why}: each switches at a step of its own"
            )
            return
        self._set_up_ranks(mail)
        self._ask_in_warm_up()

    def _set_up_ranks(self, mail: Mail | None = None, board: Board | None = None) -> None:
        """mail, board: how the ranks find a store if their launcher has none."""
        world = self.world
        identity = self.records.identity
        facts = f"stitchfleet={identity.plugin_version},tensorflow={identity.framework_version}"
        # Workers that were started one by one have run ids of their own: their cluster is what they have in common.
        self.ranks = Ranks(world, world.cluster or self.run_id, self.settings, facts, say, mail, board)
        self.ranks.on_world = self._note_world
        self.stitcher.looks_for_collectives = True
        self.stitcher.on_collective = self._found_collective
        HEALTH.on_failure.append(self.ranks.switch_off)
        if self.kernels is None:
            self.ranks.refuse_all(self.native_reason or "the native library is not there")
        else:
            self.kernels.needs_agreement, self.kernels.on_revert = True, self._note_revert

    def _note_world(self, world: World) -> None:
        """An elastic job has another world: the process may have another rank in it."""
        self.world = world
        self.records.note_world(world.rank, world.size, self.main_program, self.programs)

    def _tell_of_ranks(self, line: str) -> None:
        """Reports a line that concerns all ranks: all record it, rank 0 prints it."""
        self.records.event("ranks", line)
        if self.world.rank == 0:
            say(line)

    def _note_revert(self, cluster: str, message: str) -> None:
        """Handles a reverted kernel of this rank: the ranks go back to plain if they have agreed to run a program that has it."""
        for lockstep in self.ranks or ():
            if any(cluster in program.cluster_names for program in lockstep.programs) and lockstep.is_bound:
                lockstep.refuse(message)

    # ---- programs ---------------------------------------------------------------------------------------------------------

    def program_of(self, function: Any, name: str) -> Program:
        """The Program of a tf.function object, or of a trace that is called directly, made at its first call. name: for people. A
        function that XLA compiles as a whole stays plain. Any thread may call it."""
        found = self._functions.get(function)
        if found is not None:
            return found
        with self._lock:
            found = self._functions.get(function)
            if found is None:
                found = self._add_program(name, "function")
                if _is_compiled_by_xla(function):
                    found.refuse(COMPILED_BY_XLA)
                self._functions[function] = found
                weakref.finalize(function, self._note_gone, found).atexit = False
            return found

    def program_of_fetches(self, key: object, name: str, graph: Any) -> Program:
        """The Program of a set of fetches of one session's graph, made at its first call. key: identifies graph and fetches
        (hashable). name: for people. Any thread may call it."""
        found = self._session_programs.get(key)
        if found is None:
            with self._lock:
                found = self._session_programs.get(key)
                if found is None:
                    found = self._session_programs[key] = self._add_program(name, "session")
                    weakref.finalize(graph, self._note_gone, found).atexit = False
        return found

    def _add_program(self, name: str, kind: str) -> Program:
        self._look_for_ranks()
        program = Program(self._unique(name), kind, self.settings, self.run_id)
        program.given_name, program.asks_ranks = name, self.ranks is not None
        if self.settings.mode == "observe":
            program.refuse("mode observe: measure only")
        elif self.settings.mode == "auto" and _op_determinism():
            program.refuse("op determinism is on: arms that change with the time would make two runs differ")
        if self.native is None:
            program.refuse(self.native_reason or "the native library is not there")
        self.programs.append(program)
        if len(self.programs) == 1:
            self._wake()  # starts the compile service while TensorFlow traces the first step
        return program

    def _unique(self, name: str) -> str:
        """`name`, or `name_2`, `name_3`, ... if it is in use already. Users' functions may have such names themselves."""
        count = self._names[name] = self._names.get(name, 0) + 1
        unique = name if count == 1 else f"{name}_{count}"
        base, _, digits = unique.rpartition("_")
        number = int(digits) if digits.isascii() and digits.isdigit() else 0
        # The name may have been given to a function whose own name has no number.
        is_taken = count == 1 and f"{base}_{number}" == unique and 1 < number <= self._names.get(base, 0)
        return self._unique(name) if is_taken or (count > 1 and unique in self._names) else unique

    def _note_gone(self, program: Program) -> None:
        """Notes that the function or graph of a program has been garbage-collected. May run on any thread, so it must not block."""
        self._gone.append(program)

    def _retire_gone(self) -> None:
        """Forgets the programs whose functions have been collected, so that a job that goes on making functions uses no more memory.
        Training functions are kept, and for the summary the latest KEPT_GONE of the others that ran stitched or are a graph's. What
        forgotten programs cost stays in the job's overhead."""
        gone: set[Program] = set()
        while self._gone:
            program = self._gone.popleft()
            if program.steps_by_arm[Arm.STITCHED] or program.kind == "session":
                self._kept_gone.append(program)
            elif self.records.functions.forget(program):
                gone.add(program)
        while len(self._kept_gone) > KEPT_GONE:
            program = self._kept_gone.popleft()
            if self.records.functions.forget(program):
                gone.add(program)
        if gone:
            with self._lock:
                self.programs = [program for program in self.programs if program not in gone]
                if any(program.kind == "session" for program in gone):
                    self._session_programs = {
                        key: program for key, program in self._session_programs.items() if program not in gone
                    }
                named = {program.given_name for program in self.programs}
                for name in {program.given_name for program in gone} - named:
                    self._names.pop(name, None)
            self.forgotten_programs += len(gone)
            self.records.forgotten_overhead_ns += sum(program.overhead_ns for program in gone)

    @property
    def main_program(self) -> Program | None:
        """The training function that took the most time; any function if the job has no training function; None before the first."""
        candidates = list(self.records.functions) or self.programs
        return max(candidates, key=lambda program: program.total_ns, default=None)

    # ---- steps (the trainer's thread) -------------------------------------------------------------------------------------

    def begin(self, program: Program) -> Ticket | None:
        """Begins a step on the calling thread and returns its ticket; None in a forked child, whose steps are ignored. In a job
        of several ranks it may wait for some seconds (Courier.begin)."""
        if self.is_forked_child:
            return None
        self._begin_with_ranks(program)
        ticket = program.begin(quiet=not self.client.busy)
        if self.native is not None and ticket.arm is Arm.STITCHED:
            stride = self.settings.sample_stride if ticket.phase is ProgramPhase.STITCHED else 0
            # Counted in stitched steps: with the step's number, a kernel's turn could fall into plain blocks.
            turn = program.steps_by_arm[Arm.STITCHED] % stride if stride else 0
            if program.lockstep is not None:
                # Before the agreed step TensorFlow's values are used, so kernels in use by another function are compared here.
                stride = stride or 1
                turn = program.lockstep.turn(stride)
            self.native.begin_step(ticket.step, stride, turn)
        return ticket

    def _begin_with_ranks(self, program: Program) -> None:
        """In a job of several ranks: asks the agreement for the arm of this step and moves the program's phase accordingly."""
        self._look_for_ranks()
        if self.ranks is None or self.kernels is None:
            return
        sees_resets = self.ranks.look_for_resets()
        if self.ranks.take_end():
            self.kernels.disagree()
        if program.lockstep is not None and program.lockstep.is_over:
            self._leave_world(program, program.lockstep)
        lockstep = program.lockstep
        if lockstep is None:
            if not program.steps_per_collective:
                return
            if not sees_resets:
                program.refuse(UNSEEN)
            lockstep = self._join_lockstep(program)
            if lockstep is None:
                return
        was_stitched, had_ended = lockstep.stitched, bool(lockstep.ended)
        lockstep.begin()
        if lockstep.stitched:
            if not was_stitched:
                self.kernels.agree(lockstep.common)
            if program.phase is not ProgramPhase.STITCHED and not program.settled:
                program.enter(ProgramPhase.STITCHED)
            if not was_stitched:
                kernels = len(self.kernels.verified(lockstep.common))
                line = f"{program.name}: all {self.world.size} ranks run {kernels} verified kernels from step {program.steps} on"
                self.records.event("stitched", line, kernels=kernels)
                if self.world.rank == 0:
                    self._say_unless_quiet(line)
        elif lockstep.ended and not had_ended:
            self._tell_of_ranks(f"{program.name} runs plain on all {self.world.size} ranks: {lockstep.ended}")
        if lockstep.ended and not program.settled:
            program.ended_in = program.phase
            program.enter(ProgramPhase.PLAIN, lockstep.ended)

    def _found_collective(self, program: Owner) -> None:
        """TensorFlow traces a function's first call with a collective of all ranks: the call is the first that is counted. (Sets of
        fetches are looked at before their first step.)"""
        if isinstance(program, Program) and program.kind == "function" and program.lockstep is None:
            self._begin_with_ranks(program)

    def _join_lockstep(self, program: Program) -> Lockstep | None:
        """Puts a program in its lockstep, and says what the other ranks may wait for. Returns None while there is no world."""
        assert self.ranks is not None
        lockstep = program.lockstep = self.ranks.lockstep(program)
        if lockstep is None:
            return None
        program.asks_ranks = self.world.is_elastic  # in a later world it has to be announced again
        if program.settled:
            lockstep.refuse(program.reason)
        elif program.phase is ProgramPhase.AGREEMENT:
            self._say_ready(program)
        return lockstep

    def _leave_world(self, program: Program, lockstep: Lockstep) -> None:
        """The world of a program's lockstep has ended: it is plain until it has joined another one and the ranks agree there."""
        with program.lock:
            program.lockstep = None
            if lockstep.own_reason:
                program.refuse(lockstep.own_reason)
            elif program.phase is ProgramPhase.STITCHED:
                program.enter(ProgramPhase.AGREEMENT)
            elif (
                program.settled and program.ended_in is not None
            ):  # the ranks made it plain, perhaps because of a rank that has left since
                was_ready = program.ended_in in (ProgramPhase.AGREEMENT, ProgramPhase.STITCHED)
                program.reason, program.ended_in = "", None
                program.enter(ProgramPhase.AGREEMENT if was_ready else ProgramPhase.WARM_UP)

    def end(self, ticket: Ticket) -> None:
        """Books a step that ended without an error, and moves its program on."""
        now = time.perf_counter_ns()
        program = ticket.program
        with program.lock:
            self._watch_unverified(program, ticket)
            duration = program.end(ticket, now, quiet=not self.client.busy)
            self.records.iteration(
                program, ticket.step, int(ticket.arm) if ticket.counted else recording.UNCOUNTED, duration
            )
            # A step of another thread that began in an earlier phase or with an earlier graph does not count for this one.
            if ticket.phase is program.phase and ticket.generation == program.generation:
                self._advance(program, duration)

    def _watch_unverified(self, program: Program, ticket: Ticket) -> None:
        """Notes whether a step of the young stitched phase ran TensorFlow's operators beside or in place of kernels that were
        compared again (a comparison had failed, and either side was right). Such a step says nothing about those to come, and in
        a job of small steps the opening pairs would be over before our own thread looks: the kernels' states move at once."""
        if self.native is None or program.lockstep is not None or ticket.arm is not Arm.STITCHED:
            return
        calls, is_young = self.native.unverified_calls, program.phase_steps < YOUNG_STEPS
        program.is_unverified = ticket.phase is ProgramPhase.STITCHED and is_young and calls != self._unverified_calls
        self._unverified_calls = calls
        if program.is_unverified:
            self._move_kernels()

    def book_steady(self, program: Program, duration_ns: int) -> None:
        """Books a plain step of a steady program, in nanoseconds. It is the shortest path, taken by most steps of a job that
        stays plain."""
        step, counted = program.book_steady(duration_ns, quiet=not self.client.busy)
        self.records.iteration(program, step, recording.PLAIN if counted else recording.UNCOUNTED, duration_ns)

    def _advance(self, program: Program, duration_ns: int) -> None:
        """Moves a program on after a step of its present phase. duration_ns: the step's duration. At the job's end (steps of a daemon
        thread, or of an exit handler) each stays as it is: what it waits for will not come."""
        if self._closing:
            return
        settings = self.settings
        phase = program.phase
        if phase is ProgramPhase.STITCHED or program.settled:
            if program.lockstep is not None:
                if program.pairs_completed > program.pairs_judged:
                    program.pairs_judged = program.pairs_completed
                    self.records.blocks(program)
                    if self.world.rank == 0:  # all ranks step together: one decides for all
                        self._tell_first_estimate(program)
                        self._give_up_if_it_does_not_pay(program)
            elif phase is ProgramPhase.STITCHED and (unsettled := self._unsettled_of(program)):
                self._leave_out(program, unsettled, UNSETTLED)
            elif program.pairs_completed > program.pairs_judged:
                program.pairs_judged = program.pairs_completed
                self.records.blocks(program)
                if not self._leave_out(program, self._slower_of(program), SLOWER):
                    self._tell_first_estimate(program)
                    self._give_up_if_it_does_not_pay(program)
            return
        if phase is ProgramPhase.WARM_UP:
            if self.ranks is not None and not program.steps_per_collective:
                if program.phase_steps < UNTIED_STEPS:
                    return  # a function that runs only a few times is no training function: nothing is printed about it
                program.asks_ranks = self.world.is_elastic
                program.refuse(UNTIED)
                if program.trains:
                    self._tell_of_ranks(f"{program.name} runs plain: {UNTIED}")
            elif program.phase_steps >= settings.warm_up_steps and settings.mode != "idle":
                elapsed_ns = (time.time() - self.started) * 1e9
                if settings.only_switches or self.trace_budget.may_trace(program, elapsed_ns):
                    program.reason = ""
                    program.enter(ProgramPhase.TRACE)
                else:
                    program.reason = UNTRIED
        elif phase is ProgramPhase.TRACE:
            self._traces_ended += 1
            self.trace_budget.traced(program, duration_ns)
            if settings.only_switches:
                program.enter(ProgramPhase.STITCHED)
            elif program.cluster_count == 0:
                self._nothing_to_stitch(program)
            else:
                program.enter(ProgramPhase.COMPILE)
                self._wake()
        elif phase is ProgramPhase.COMPILE:
            waited = (time.perf_counter_ns() - program.phase_start_ns) / 1e9
            if self._traces_served == self._traces_ended and not self.client.busy:
                self._kernels_arrived(program)
            elif waited > settings.compile_seconds:
                self.records.event(
                    "compile-timeout", f"kernels were not ready after {waited:.0f} s; going on without the rest"
                )
                self._kernels_arrived(program)
        elif phase is ProgramPhase.BASELINE:
            if program.baseline_is_done():
                program.enter(ProgramPhase.VERIFY)
                self._move_kernels()  # at once: our own thread would do it a step later
        elif phase is ProgramPhase.VERIFY:
            assert self.kernels is not None
            self._move_kernels()
            self._wake()
            every = max(1, program.steps_per_collective)
            patience = VERIFY_PATIENCE * settings.verify_steps * every
            done = self.kernels.are_verified(program.cluster_names, every) or program.phase_steps >= patience
            if done and not self._leave_out(program, self._slower_of(program), SLOWER):
                self._enter_stitched(program)

    def _nothing_to_stitch(self, program: Program) -> None:
        reasons = self.stitcher.excluded_clusters.values()
        if SLOWER in reasons:
            program.enter(ProgramPhase.PLAIN, "stitching does not pay here: TensorFlow's own operators are faster")
        elif UNSETTLED in reasons:
            program.enter(ProgramPhase.PLAIN, "the shapes of its tensors never settle")
        elif program.plan is None and not program.nested_plans:
            program.enter(
                ProgramPhase.PLAIN,
                "no graph of it was prepared in this process: it is trivial, or runs on a server's devices",
            )
            return
        elif program.plan is not None and any(DATASET_LOOP in ops for ops in program.plan.left_out.values()):
            program.enter(ProgramPhase.PLAIN, IN_A_DATASET)
        else:
            program.enter(ProgramPhase.PLAIN, "no operators to stitch in its graph")
            return
        self._say_unless_quiet(f"{program.name} runs plain: {program.reason}")
        self.records.event("plain", program.reason)

    def _unsettled_of(self, program: Program) -> set[str]:
        """Clusters of the program's stitched graph whose shapes never settle."""
        if not self._unsettled:
            return set()
        return (self._unsettled & program.cluster_names) - program.excluded

    def _slower_of(self, program: Program) -> set[str]:
        """Clusters of the program's stitched graph that TensorFlow's own operators compute faster."""
        if self.kernels is None:
            return set()
        return self.kernels.slower(program.cluster_names) - program.excluded

    def _leave_out(self, program: Program, names: set[str], reason: str) -> bool:
        """Leaves the clusters `names` out of the stitched arm's later graphs. Returns whether the program now traces such a
        graph."""
        if not names:
            return False
        self.stitcher.excluded_clusters.update(dict.fromkeys(names, reason))
        self.records.event("left-out", f"{reason}: {', '.join(sorted(names))}")
        if program.generation + 1 >= GENERATIONS:
            program.excluded |= names  # they stay in the present graph
            return False
        self._trace_again(program)
        return True

    def _trace_again(self, program: Program) -> None:
        program.generation += 1
        program.enter(ProgramPhase.TRACE)

    def _kernels_arrived(self, program: Program) -> None:
        assert self.kernels is not None
        executables = self.kernels.of(program.cluster_names)
        # Kernels that another program asked for, and may run already, serve this one too.
        states = {e.signature: self.kernels.state_of(e) for e in executables}
        good = {e.cluster for e in executables if states[e.signature] in ("ready", "verify", "stitched")}
        if good:
            failed = {e.cluster for e in executables if e.is_failed} - good
            self.stitcher.excluded_clusters.update(dict.fromkeys(failed, NO_KERNEL))
        unknown = self.stitcher.excluded_ops | (self.stitcher.excluded_clusters.keys() & program.cluster_names)
        unknown -= program.excluded
        if unknown and program.generation + 1 < GENERATIONS:
            # The next graph of the stitched arm leaves out operators that could not be lowered, and splits clusters around them.
            self._trace_again(program)
            self.records.event("split", f"the next graph's clusters are without {', '.join(sorted(unknown))}")
            return
        if good and program.phase_steps <= SWIFT_COMPILE_STEPS:
            program.enter(ProgramPhase.VERIFY)
            self._move_kernels()
            return
        if good:
            program.enter(ProgramPhase.BASELINE)
            return
        failures = sorted({e.failure for e in executables if e.failure})
        if failures:
            program.enter(ProgramPhase.PLAIN, f"no kernel could be made: {failures[0]}")
            say(f"{program.name} runs plain: {program.reason}")
        else:
            program.enter(ProgramPhase.PLAIN, LATE if executables else NONE_RAN)
            self._say_unless_quiet(f"{program.name} runs plain: {program.reason}")
        self.records.event("plain", program.reason)

    def _enter_stitched(self, program: Program) -> None:
        assert self.kernels is not None
        if self.ranks is not None:
            program.enter(ProgramPhase.AGREEMENT)
            if program.lockstep is not None:
                self._say_ready(program)
            return
        executables = self.kernels.of(program.cluster_names)
        states = [self.kernels.state_of(executable) for executable in executables]
        running = states.count("stitched")
        # If shapes change from step to step, maybe no kernel was called often enough yet: each is verified when it is called again.
        if not running and not any(state in ("requested", "ready", "verify") for state in states):
            program.enter(ProgramPhase.REVERTED, "no kernel passed verification")
            say(f"{program.name} runs plain: {program.reason}")
            return
        program.enter(ProgramPhase.STITCHED)
        self.trace_budget.paid_back(program)
        kernels = f"{running} kernels verified" if running else "kernels are verified as their shapes come again"
        self._say_unless_quiet(
            f"{program.name}: {kernels} on the job's own tensors, stitched from step {program.steps} on"
        )
        self.records.event("stitched", f"stitched from step {program.steps} on", kernels=running)

    def _say_ready(self, program: Program) -> None:
        """Tells the other ranks that the kernels of a program in lockstep are verified, or that none are."""
        assert self.kernels is not None
        assert self.ranks is not None
        assert program.lockstep is not None
        kernels_of_this_rank = self.kernels.verified(program.cluster_names)
        if kernels_of_this_rank:
            program.lockstep.ready(self.ranks.facts(program), kernels_of_this_rank, program.steps_per_collective)
        else:
            program.enter(ProgramPhase.REVERTED, "no kernel passed verification")

    def _tell_first_estimate(self, program: Program) -> None:
        """Says what a step saves, when the pairs that open the stitched phase are complete."""
        if program.phase is not ProgramPhase.STITCHED or program.opening_ends is None:
            return
        if program.pairs_completed < program.opening_ends:
            return
        program.opening_ends = None
        estimate = self.records.saving(program, latest=self.settings.pairs)
        if estimate is not None and not self.settings.only_switches:
            self._say_unless_quiet(f"{program.name}: {saving_line(saving_facts(estimate), 'a step')}")

    def _give_up_if_it_does_not_pay(self, program: Program) -> None:
        """Sends a program back to plain unless its saving exceeds the confidence interval: at once if it is slower by more than the
        interval, else after JUDGED_PAIRS pairs. Most of the pairs must agree too, since one block in which the job was stopped for a
        while would dominate the mean."""
        if self.settings.only_switches or program.phase is not ProgramPhase.STITCHED:
            return
        estimate = self.records.saving(program, latest=JUDGED_PAIRS)
        if estimate is None or estimate.pairs < min(self.settings.pairs, JUDGED_PAIRS):
            return
        faster = self.records.faster_share(program, JUDGED_PAIRS)
        if estimate.high < 0 and faster <= 1.0 - MOST_PAIRS:
            finding = f"{-estimate.low:.1%} to {-estimate.high:.1%} slower"
        elif estimate.low <= 0 and estimate.pairs >= JUDGED_PAIRS and faster < MOST_PAIRS:
            finding = f"the saving lies between {estimate.low:+.1%} and {estimate.high:+.1%}"
        else:
            return
        program.enter(ProgramPhase.PLAIN, f"stitching does not pay here: {finding}")
        self._say_unless_quiet(f"{program.name} goes back to plain: {program.reason}")
        self.records.event("does-not-pay", program.reason)

    # ---- our own thread ---------------------------------------------------------------------------------------------------

    def _start_worker(self) -> None:
        self._worker = threading.Thread(target=self._work, name="stitchfleet-worker", daemon=True)
        self._worker.start()

    def _wake(self) -> None:
        if self.native is not None:
            self.native.wake()

    def _work(self) -> None:
        assert self.native is not None
        while not self._closing and HEALTH.good:
            ended = self._traces_ended
            waited_for = ended != self._traces_served  # a program waits until all its requests have been sent
            request = self.native.next_request(0 if waited_for else TICK_MS if self._lively() else 5 * TICK_MS)
            self._tick(request)
            if request is None:
                self._traces_served = ended  # the queue was empty after they had ended

    def _lively(self) -> bool:
        return any(program.phase in (ProgramPhase.COMPILE, ProgramPhase.VERIFY) for program in self.programs)

    @contained(None)
    def _tick(self, request: dict[str, Any] | None) -> None:
        assert self.kernels is not None
        if request is not None:
            self.kernels.forward(request)
            # If shapes change, requests may never end, so the other work does not wait for the last of them.
            if time.monotonic() - self._ticked < TICK_MS / 1e3:
                return
        self._ticked = time.monotonic()
        self._retire_gone()
        if self.settings.mode == "auto" and any(program.phase is ProgramPhase.WARM_UP for program in self.programs):
            self.client.prepare()  # while TensorFlow traces the first step
        self.kernels.look_at_mismatches()
        self._move_kernels()
        self._watch_shapes()
        self._read_control_file()
        self._watch_memory()

    def _move_kernels(self) -> None:
        """Moves the states of all kernels; those that are ready only if a program in the verify or stitched phase has them. Other
        kernels of TensorFlow's take part while a program is stitched."""
        assert self.kernels is not None
        if self.native is not None and self.settings.mode == "auto":
            self.native.let_kernels_compete(any(program.phase is ProgramPhase.STITCHED for program in self.programs))
        wanted: set[str] = set()
        for program in self.programs:
            if program.phase in (ProgramPhase.VERIFY, ProgramPhase.STITCHED):
                wanted |= program.cluster_names
        self.kernels.move_states(wanted)

    # ---- from outside -----------------------------------------------------------------------------------------------------

    def _read_control_file(self) -> None:
        path = self.settings.control_file
        if path is None:
            return
        try:
            changed = path.stat().st_mtime
            if changed == self._control_seen[0]:
                return
            text = path.read_text().strip()
        except OSError:
            return
        is_first = not self._control_seen[0]
        self._control_seen = (changed, text)
        if is_first and text in ("", "on"):  # nothing changes: a pod always has a control file
            return
        self.control(text)

    def control(self, text: str) -> None:
        """Obeys the control file. text: "off" (all kernels stop, and the programs go back to plain for good), "on", or names (or
        prefixes of names) of clusters to switch off, separated by white space."""
        if self.native is None:
            return
        words = text.split()
        off = words == ["off"]
        self.native.enable(not off)
        for name in list(self.stitcher.clusters):
            self.native.enable_cluster(
                name, not any(name.startswith(word) for word in words if word not in ("on", "off"))
            )
        if off:
            for program in self.programs:
                if not program.settled:
                    program.enter(ProgramPhase.PLAIN, "switched off from outside")
        self._say_unless_quiet(f"control file: {text or 'empty'}")
        self.records.event("control", text)

    def _watch_shapes(self) -> None:
        if (
            self.native is None
            or self.kernels is None
            or not any(program.phase is ProgramPhase.STITCHED for program in self.programs)
        ):
            return
        signatures: dict[str, list[int]] = {}
        for executable in list(self.kernels.executables.values()):
            signatures.setdefault(executable.cluster, []).append(executable.signature)
        self._unsettled |= unsettled(self.native, signatures)

    def _watch_memory(self) -> None:
        if self.native is not None:
            self.native.trim_buffers(self.memory.idle_seconds())
        reason = self.memory.danger(stitched=any(p.phase is ProgramPhase.STITCHED for p in self.programs))
        if reason is None or self.native is None:
            return
        for program in self.programs:
            if program.phase in (ProgramPhase.VERIFY, ProgramPhase.STITCHED):
                program.enter(ProgramPhase.REVERTED, reason)
                say(f"{program.name} goes back to plain: {reason}")
        self.records.event("memory", reason)

    def _service_says(self, line: str) -> None:
        self.records.event("service", line)
        say(line)

    def _service_notes(self, line: str) -> None:
        self.records.event("service", line)
        self._say_unless_quiet(line)

    def _say_unless_quiet(self, line: str) -> None:
        """Prints a line that reports no failure."""
        if not self.settings.quiet:
            say(line)

    # ---- the end ----------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Called at the process's exit: ends the service, writes the summary, sends the records. Takes at most some seconds.

        It also runs if the plugin was switched off: the summary says why.
        """
        if self._closing or self.is_forked_child:
            return
        self._closing = True
        try:
            self._close()
        except Exception as error:
            say(f"the job's end could not be recorded: {type(error).__name__}: {error}")

    def _close(self) -> None:
        self._wake()
        if self._worker is not None:
            self._worker.join(timeout=2)
        if self.kernels is not None:
            self.kernels.look_at_mismatches()
        self.client.close()
        if self.ranks is not None:
            self.ranks.close()
        self.at_end(self)
