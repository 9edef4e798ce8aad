"""The job: one process's controller. It tells each step its arm and leads each program through its phases; what becomes of
its kernels is in kernels.py.

Two sides: the trainer's own thread calls `begin` and `end` around each step (microseconds, no waiting); one thread of ours, asleep
but for requests, does all else: requests to the service, answers to the op, verification's outcome, mismatches, the control file.
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

from ..arms.switch import Arm
from ..base.containment import HEALTH, contained, say
from ..base.memory_watch import MemoryWatch
from ..base.settings import Settings, writable_folder
from ..guard.kernels import Kernels
from ..native.library import NativeLibrary
from ..ranks.world import World
from ..service.client import CompileClient
from ..stitching.stitcher import NO_KERNEL, SLOWER, UNSETTLED, Stitcher
from .lockstep import ELASTIC, UNTIED, Ranks
from .program import Phase, Program, Ticket
from .records import Records
from .shape_watch import unsettled
from .trace_budget import TraceBudget

TICK_MS = 200
GENERATIONS = 4
"""Most stitched graphs of one program: the first, and those split around operators that could not be lowered."""
VERIFY_PATIENCE = 10
"""Most steps of the verify phase, as a multiple of those that a kernel needs."""
SWIFT_COMPILE_STEPS = 2
"""Where the kernels are there after so many steps of the compile phase (they were in the cache), no baseline delays them: the
saving is estimated from the pairs of blocks that follow."""
UNTIED_STEPS = 8
"""Of a function whose steps the ranks cannot count together: then it is said that it runs plain."""
JUDGED_PAIRS = 24
"""Latest pairs by which it is decided whether stitching pays."""
MOST_PAIRS = 0.75
"""The share of them that must say what their means say."""


def _op_determinism() -> bool:
    """Whether the job called tf.config.experimental.enable_op_determinism."""
    from tensorflow.python.framework import config

    return bool(config.is_op_determinism_enabled())


def _is_compiled_by_xla(function: Any) -> bool:
    """Of a tf.function object or a trace."""
    definition = getattr(function, "function_def", None)
    if definition is None:
        return bool(getattr(function, "_jit_compile", None))
    return "_XlaMustCompile" in definition.attr and bool(definition.attr["_XlaMustCompile"].b)


def _note_fork(job: Job | None) -> None:
    if job is not None:
        job.is_forked_child = True


class Job:
    """One training process under stitchfleet. Methods that the trainer calls are contained."""

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
            # a service that waits for another one's kernels needs no processor
            settings.compile_patience if self.world.local_rank == 0 else 0.0,
            self.run_id if self.world.local_size > 1 else "",
        )
        self.kernels = (
            None if native is None else Kernels(settings, native, self.client, self.stitcher, self.records, self.run_id)
        )
        self.ranks: Ranks | None = None
        """The other ranks of the job, if they can agree with this one; None: it is alone, or cannot."""
        self._find_ranks()
        self.memory = MemoryWatch(settings.memory_limit_bytes)
        self.started = time.time()
        self._functions: weakref.WeakKeyDictionary[Any, Program] = weakref.WeakKeyDictionary()
        self._gone: collections.deque[Program] = collections.deque()
        self.forgotten_programs = 0
        """Functions that were gone before anything of theirs was stitched."""
        self._names: dict[str, int] = {}
        """What functions are called, and how many have been called so: of a job that goes on making functions of one name that name
        alone is kept."""
        self._session_programs: dict[object, Program] = {}
        self._pairs_seen: dict[str, int] = {}
        self._lock = threading.Lock()
        self._unsettled: set[str] = set()
        """Clusters whose shapes never settle."""
        self._closing = False
        self._ticked = 0.0
        self.trace_budget = TraceBudget(settings.free_traces)
        self._traces_ended = 0
        self._traces_served = 0
        """Of the traced steps that have ended, those whose requests the compile service has been handed."""
        self._control_seen: tuple[float, str] = (0.0, "")
        self._worker: threading.Thread | None = None
        HEALTH.on_failure.append(lambda reason: self.records.event("switched-off", reason))
        if native is not None:
            native.set_rewrite(self.stitcher.offered)
            native.enable(settings.mode != "fallback")
            self.stitcher.mark_of_offered = native.arm_mark
            self.stitcher.refusal_of_operator = native.refusal_of_operator
            self._start_worker()
        self.at_end: Callable[[Job], None] = lambda job: None
        """Writes down what happened, when all else has ended."""
        self.is_forked_child = False
        """A child has none of our threads: its steps are not looked at."""
        itself = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _note_fork(itself()))

    def _find_ranks(self) -> None:
        """Which of a job of several ranks run stitched, they agree on over their launcher's store."""
        world = self.world
        if not world.is_distributed or self.settings.mode != "auto":
            return
        if world.is_elastic:
            self._tell_of_ranks(f"all ranks run plain: {ELASTIC}")
            return
        if world.store is None:
            self._tell_of_ranks("the launcher gives the ranks no store to agree by: each switches at a step of its own")
            return
        identity = self.records.identity
        facts = f"stitchfleet={identity.plugin_version},tensorflow={identity.framework_version}"
        self.ranks = Ranks(world, self.run_id, self.settings, facts, say)
        self.stitcher.looks_for_collectives = True
        HEALTH.on_failure.append(self.ranks.leave_all)
        if self.kernels is None:
            self.ranks.refuse_all(self.native_reason or "the native library is not there")
        else:
            self.kernels.needs_agreement, self.kernels.on_revert = True, self._note_revert

    def _tell_of_ranks(self, line: str) -> None:
        """What concerns all ranks: rank 0 says it, all record it."""
        self.records.event("ranks", line)
        if self.world.rank == 0:
            say(line)

    def _note_revert(self, cluster: str, message: str) -> None:
        """A kernel of this rank is not used any more: if it runs on the others, all go back."""
        for lockstep in self.ranks or ():
            if any(cluster in program.cluster_names for program in lockstep.programs) and lockstep.is_bound:
                lockstep.refuse(message)

    # ---- programs ---------------------------------------------------------------------------------------------------------

    def program_of(self, function: Any, name: str) -> Program:
        """The Program of a tf.function object, or of one trace where that is called itself. One that XLA compiles whole is left
        alone."""
        found = self._functions.get(function)
        if found is not None:
            return found
        with self._lock:
            found = self._functions.get(function)
            if found is None:
                found = self._add_program(name, "function")
                if _is_compiled_by_xla(function):
                    found.refuse("compiled whole by XLA (jit_compile=True)")
                self._functions[function] = found
                weakref.finalize(function, self._note_gone, found).atexit = False
            return found

    def program_of_fetches(self, key: object, name: str) -> Program:
        """The Program of a set of fetches of one session's graph."""
        found = self._session_programs.get(key)
        if found is None:
            with self._lock:
                found = self._session_programs.get(key)
                if found is None:
                    found = self._session_programs[key] = self._add_program(name, "session")
        return found

    def _add_program(self, name: str, kind: str) -> Program:
        program = Program(self._unique(name), kind, self.settings, self.run_id)
        if self.settings.mode == "observe":
            program.refuse("mode observe: measure only")
        elif self.settings.mode == "auto" and _op_determinism():
            program.refuse("op determinism is on: arms that change with the time would make two runs differ")
        if self.native is None:
            program.refuse(self.native_reason or "the native library is not there")
        if self.world.is_distributed and self.world.is_elastic and self.settings.mode == "auto":
            program.refuse(ELASTIC)
        self.programs.append(program)
        if len(self.programs) == 1:
            self._wake()  # which starts the compile service while TensorFlow traces the first step
        return program

    def _unique(self, name: str) -> str:
        """`name`, or with a number behind it where it was given out before; users' functions may have such names themselves."""
        count = self._names[name] = self._names.get(name, 0) + 1
        unique = name if count == 1 else f"{name}_{count}"
        base, _, digits = unique.rpartition("_")
        number = int(digits) if digits.isascii() and digits.isdigit() else 0
        # Given out to a function that is named without the number.
        is_taken = count == 1 and f"{base}_{number}" == unique and 1 < number <= self._names.get(base, 0)
        return self._unique(name) if is_taken or (count > 1 and unique in self._names) else unique

    def _note_gone(self, program: Program) -> None:
        """The function of a program has been collected, on whatever thread: nothing may be waited for here."""
        self._gone.append(program)

    def _retire_gone(self) -> None:
        """Forgets the programs whose functions are gone, but for those that ran stitched or whose steps are the job's: a job that
        goes on making functions keeps nothing of them."""
        gone: set[Program] = set()
        while self._gone:
            program = self._gone.popleft()
            if not program.steps_by_arm[Arm.STITCHED] and self.records.functions.forget(program):
                gone.add(program)
        if gone:
            with self._lock:
                self.programs = [program for program in self.programs if program not in gone]
            self.forgotten_programs += len(gone)

    @property
    def main_program(self) -> Program | None:
        """The training function that took the most time; of a job without one, whatever did."""
        candidates = list(self.records.functions) or self.programs
        return max(candidates, key=lambda program: program.total_ns, default=None)

    # ---- steps (the trainer's thread) -------------------------------------------------------------------------------------

    def begin(self, program: Program) -> Ticket | None:
        """A step begins. None: nothing to do for it."""
        if self.is_forked_child:
            return None
        self._begin_with_ranks(program)
        ticket = program.begin(quiet=not self.client.busy)
        if self.native is not None and ticket.arm is Arm.STITCHED:
            stride = self.settings.sample_stride if ticket.phase is Phase.STITCHED else 0
            # Counted in stitched steps: were it the step's number, a plain block could hide a kernel's turn.
            turn = program.steps_by_arm[Arm.STITCHED] % stride if stride else 0
            if program.lockstep is not None:
                # Kernels that run alone for another function are compared here: TensorFlow's values flow on until the agreed step.
                stride = stride or 1
                turn = program.lockstep.turn(stride)
            self.native.begin_step(ticket.step, stride, turn)
        return ticket

    def _begin_with_ranks(self, program: Program) -> None:
        """Of a job of several ranks: the arm that all have in this step."""
        if self.ranks is None or self.kernels is None:
            return
        lockstep = program.lockstep
        if lockstep is None:
            if not program.ties_ranks or program.settled:
                return
            lockstep = program.lockstep = self.ranks.lockstep(program)
        was_stitched, had_ended = lockstep.stitched, bool(lockstep.ended)
        lockstep.begin()
        if lockstep.stitched:
            if not was_stitched:
                self.kernels.agree(lockstep.common)
            if program.phase is not Phase.STITCHED and not program.settled:
                program.enter(Phase.STITCHED)
            if not was_stitched:
                kernels = len(self.kernels.verified(lockstep.common))
                line = f"{program.name}: all {self.world.size} ranks run {kernels} verified kernels from step {program.steps} on"
                self.records.event("stitched", line, kernels=kernels)
                if self.world.rank == 0 and not self.settings.quiet:
                    say(line)
        elif lockstep.ended and not had_ended:
            self._tell_of_ranks(f"{program.name} runs plain on all {self.world.size} ranks: {lockstep.ended}")
        if lockstep.ended and not program.settled:
            program.enter(Phase.PLAIN, lockstep.ended)

    def end(self, ticket: Ticket) -> None:
        """A step has ended well: book it and move its program on."""
        now = time.perf_counter_ns()
        program = ticket.program
        with program.lock:
            duration = program.end(ticket, now, quiet=not self.client.busy)
            self.records.iteration(
                program, ticket.step, int(ticket.arm) if ticket.counted else recording.UNCOUNTED, duration
            )
            # A step of another thread that began in an earlier phase, or with an earlier graph, says nothing about this one.
            if ticket.phase is program.phase and ticket.generation == program.generation:
                self._advance(program, duration)

    def book_steady(self, program: Program, duration_ns: int) -> None:
        """A plain step of a steady program has ended well. The shortest way: most steps of a job that is left plain."""
        step, counted = program.book_steady(duration_ns, quiet=not self.client.busy)
        self.records.iteration(program, step, recording.PLAIN if counted else recording.UNCOUNTED, duration_ns)

    def _advance(self, program: Program, duration_ns: int) -> None:
        """Moves a program on after a step of its present phase that took so long."""
        settings = self.settings
        phase = program.phase
        if phase is Phase.STITCHED or program.settled:
            if program.lockstep is not None:
                if program.pairs_completed > self._pairs_seen.get(program.name, 0):
                    self._pairs_seen[program.name] = program.pairs_completed
                    self.records.blocks(program)
                    if self.world.rank == 0:  # all ranks step together: one of them judges
                        self._give_up_if_it_does_not_pay(program)
            elif phase is Phase.STITCHED and (unsettled := self._unsettled_of(program)):
                self._leave_out(program, unsettled, UNSETTLED)
            elif program.pairs_completed > self._pairs_seen.get(program.name, 0):
                self._pairs_seen[program.name] = program.pairs_completed
                self.records.blocks(program)
                if not self._leave_out(program, self._slower_of(program), SLOWER):
                    self._give_up_if_it_does_not_pay(program)
            return
        if phase is Phase.WARM_UP:
            if self.ranks is not None and not program.ties_ranks:
                if (
                    program.phase_steps < UNTIED_STEPS
                ):  # what runs a few times only is no training, and nobody wants to hear of it
                    return
                program.refuse(UNTIED)
                if program.trains:
                    self._tell_of_ranks(f"{program.name} runs plain: {UNTIED}")
            elif (
                program.phase_steps >= settings.warm_up_steps
                and settings.mode != "idle"
                and (settings.only_switches or self.trace_budget.may_trace(program, (time.time() - self.started) * 1e9))
            ):
                program.enter(Phase.TRACE)
        elif phase is Phase.TRACE:
            self._traces_ended += 1
            self.trace_budget.traced(program, duration_ns)
            if settings.only_switches:
                program.enter(Phase.STITCHED)
            elif program.cluster_count == 0:
                self._nothing_to_stitch(program)
            else:
                program.enter(Phase.COMPILE)
                self._wake()
        elif phase is Phase.COMPILE:
            waited = (time.perf_counter_ns() - program.phase_start_ns) / 1e9
            if self._traces_served == self._traces_ended and not self.client.busy:
                self._kernels_arrived(program)
            elif waited > settings.compile_seconds:
                self.records.event(
                    "compile-timeout", f"kernels were not ready after {waited:.0f} s; going on without the rest"
                )
                self._kernels_arrived(program)
        elif phase is Phase.BASELINE:
            if program.baseline_is_done():
                program.enter(Phase.VERIFY)
                self._move_kernels()  # here and now: left to our own thread, it would cost a step more
        elif phase is Phase.VERIFY:
            assert self.kernels is not None
            self._move_kernels()
            self._wake()
            patience = VERIFY_PATIENCE * settings.verify_steps
            done = self.kernels.are_verified(program.cluster_names) or program.phase_steps >= patience
            if done and not self._leave_out(program, self._slower_of(program), SLOWER):
                self._enter_stitched(program)

    def _nothing_to_stitch(self, program: Program) -> None:
        reasons = self.stitcher.excluded_clusters.values()
        if SLOWER in reasons:
            program.enter(Phase.PLAIN, "stitching does not pay here: TensorFlow's own operators are faster")
        elif UNSETTLED in reasons:
            program.enter(Phase.PLAIN, "the shapes of its tensors never settle")
        elif program.plan is None and not program.nested_plans:
            program.enter(
                Phase.PLAIN, "no graph of it was prepared in this process: it is trivial, or runs on a server's devices"
            )
            return
        else:
            program.enter(Phase.PLAIN, "no operators to stitch in its graph")
            return
        say(f"{program.name} runs plain: {program.reason}")
        self.records.event("plain", program.reason)

    def _unsettled_of(self, program: Program) -> set[str]:
        """Clusters of its stitched graph whose shapes never settle."""
        if not self._unsettled:
            return set()
        return (self._unsettled & program.cluster_names) - program.excluded

    def _slower_of(self, program: Program) -> set[str]:
        """Clusters of its stitched graph that TensorFlow's own operators compute faster."""
        if self.kernels is None:
            return set()
        return self.kernels.slower(program.cluster_names) - program.excluded

    def _leave_out(self, program: Program, names: set[str], reason: str) -> bool:
        """Whether a next graph of the stitched arm, without the clusters `names`, is to be made."""
        if not names:
            return False
        self.stitcher.excluded_clusters.update(dict.fromkeys(names, reason))
        self.records.event("left-out", f"{reason}: {', '.join(sorted(names))}")
        if program.generation + 1 >= GENERATIONS:
            program.excluded |= names  # they go on as they are
            return False
        self._trace_again(program)
        return True

    def _trace_again(self, program: Program) -> None:
        program.generation += 1
        program.enter(Phase.TRACE)

    def _kernels_arrived(self, program: Program) -> None:
        assert self.kernels is not None
        executables = self.kernels.of(program.cluster_names)
        # Those that another program asked for, and maybe runs already, serve this one too.
        states = {e.signature: self.kernels.state_of(e) for e in executables}
        good = {e.cluster for e in executables if states[e.signature] in ("ready", "verify", "stitched")}
        if good:
            failed = {e.cluster for e in executables if e.is_failed} - good
            self.stitcher.excluded_clusters.update(dict.fromkeys(failed, NO_KERNEL))
        unknown = self.stitcher.excluded_ops | (self.stitcher.excluded_clusters.keys() & program.cluster_names)
        unknown -= program.excluded
        if unknown and program.generation + 1 < GENERATIONS:
            # The next graph of the stitched arm leaves out what could not be lowered, and splits clusters around it.
            self._trace_again(program)
            self.records.event("split", f"the next graph's clusters are without {', '.join(sorted(unknown))}")
            return
        if good and program.phase_steps <= SWIFT_COMPILE_STEPS:
            program.enter(Phase.VERIFY)
            self._move_kernels()
            return
        if good:
            program.enter(Phase.BASELINE)
            return
        failures = sorted({e.failure for e in executables if e.failure})
        program.enter(Phase.PLAIN, f"no kernel could be made: {failures[0]}" if failures else "no kernel was asked for")
        say(f"{program.name} runs plain: {program.reason}")
        self.records.event("plain", program.reason)

    def _enter_stitched(self, program: Program) -> None:
        assert self.kernels is not None
        if program.lockstep is not None:
            kernels_of_this_rank = self.kernels.verified(program.cluster_names)
            if kernels_of_this_rank:
                assert self.ranks is not None
                program.enter(Phase.AGREEMENT)
                program.lockstep.ready(self.ranks.facts(program), kernels_of_this_rank)
            else:
                program.enter(Phase.REVERTED, "no kernel passed verification")
            return
        executables = self.kernels.of(program.cluster_names)
        states = [self.kernels.state_of(executable) for executable in executables]
        running = states.count("stitched")
        # Where shapes change from step to step none may have come often enough yet: they are verified as they come again.
        if not running and not any(state in ("requested", "ready", "verify") for state in states):
            program.enter(Phase.REVERTED, "no kernel passed verification")
            say(f"{program.name} runs plain: {program.reason}")
            return
        program.enter(Phase.STITCHED)
        self.trace_budget.paid_back(program)
        if not self.settings.quiet:
            kernels = f"{running} kernels verified" if running else "kernels are verified as their shapes come again"
            say(f"{program.name}: {kernels} on the job's own tensors, stitched from step {program.steps} on")
        self.records.event("stitched", f"stitched from step {program.steps} on", kernels=running)

    def _give_up_if_it_does_not_pay(self, program: Program) -> None:
        """A job that is not faster by more than its interval goes back to plain: at once where it is slower by as much, else when
        all the pairs are there by which it is judged. Most of the pairs must say so too: a block in which the job was stopped for a
        while would speak for all of them."""
        if self.settings.only_switches or program.phase is not Phase.STITCHED:
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
        program.enter(Phase.PLAIN, f"stitching does not pay here: {finding}")
        say(f"{program.name} goes back to plain: {program.reason}")
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
            waited_for = ended != self._traces_served  # a program waits to hear that all its requests have been taken
            request = self.native.next_request(0 if waited_for else TICK_MS if self._lively() else 5 * TICK_MS)
            self._tick(request)
            if request is None:
                self._traces_served = ended  # the queue was empty after they had ended

    def _lively(self) -> bool:
        return any(program.phase in (Phase.COMPILE, Phase.VERIFY) for program in self.programs)

    @contained(None)
    def _tick(self, request: dict[str, Any] | None) -> None:
        assert self.kernels is not None
        if request is not None:
            self.kernels.forward(request)
            # Where shapes change, requests may come without end: what else there is to do does not wait for the last of them.
            if time.monotonic() - self._ticked < TICK_MS / 1e3:
                return
        self._ticked = time.monotonic()
        self._retire_gone()
        if self.settings.mode == "auto" and any(program.phase is Phase.WARM_UP for program in self.programs):
            self.client.prepare()  # while TensorFlow traces the first step
        self.kernels.look_at_mismatches()
        self._move_kernels()
        self._watch_shapes()
        self._read_control_file()
        self._watch_memory()

    def _move_kernels(self) -> None:
        """Kernels of programs whose baseline is done move on."""
        assert self.kernels is not None
        wanted: set[str] = set()
        for program in self.programs:
            if program.phase in (Phase.VERIFY, Phase.STITCHED):
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
        if is_first and text in ("", "on"):  # as it is anyway: in a pod there always is such a file
            return
        self.control(text)

    def control(self, text: str) -> None:
        """Obeys the control file: "off", "on", or lines with names (or beginnings of names) of clusters to switch off."""
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
                    program.enter(Phase.PLAIN, "switched off from outside")
        say(f"control file: {text or 'empty'}")
        self.records.event("control", text)

    def _watch_shapes(self) -> None:
        if (
            self.native is None
            or self.kernels is None
            or not any(program.phase is Phase.STITCHED for program in self.programs)
        ):
            return
        signatures: dict[str, list[int]] = {}
        for executable in list(self.kernels.executables.values()):
            signatures.setdefault(executable.cluster, []).append(executable.signature)
        self._unsettled |= unsettled(self.native, signatures)

    def _watch_memory(self) -> None:
        reason = self.memory.danger(stitched=any(p.phase is Phase.STITCHED for p in self.programs))
        if reason is None or self.native is None:
            return
        for program in self.programs:
            if program.phase in (Phase.VERIFY, Phase.STITCHED):
                program.enter(Phase.REVERTED, reason)
                say(f"{program.name} goes back to plain: {reason}")
        self.records.event("memory", reason)

    def _service_says(self, line: str) -> None:
        self.records.event("service", line)
        if not self.settings.quiet:
            say(line)

    # ---- the end ----------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """At the process's exit: ends the service, writes the summary, hands over the records. Never longer than seconds.

        Also for a job whose plugin was switched off: its summary says why.
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
