"""Steps that all ranks of a job take together, and in one arm.

    Ranks        one per process: the Locksteps of its training functions, the courier between the ranks, and this rank's facts
    Lockstep     one per tf.function, or per graph of a session (all its sets of fetches), each or every Nth of whose steps holds a
                 collective of all ranks (ranks/collectives.py): all ranks take each of its steps together

Locksteps are numbered in the order of the first call that holds such a collective, which is the same on all ranks. That call is
the first that is counted, also if the collective is found only while TensorFlow traces it.

Ranks may leave an elastic job and join it. Horovod is then shut down and initialized anew on all of them: another *world* begins,
with a courier, locksteps and numbers of its own. Between worlds, and until the agreement in the new one, all ranks run plain.

Before each step the agreement (ranks/agreement.py) is asked for the arm. Before the agreed step every rank uses TensorFlow's own
values: verified kernels wait (guard/kernels.py). From then on a step's slot in the schedule and the kernels that it samples depend on
its number alone. If a rank wants to go back (a revert, no saving, memory, the control file), it sends the reason to the other ranks
and runs stitched until all go back at one step.

The sets of fetches of one graph differ from rank to rank, because rank 0 alone logs and saves. They share a number and an arm. A set
that comes for the first time in a stitched step runs in the stitched arm from its first step on.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Protocol

from ..arms.schedule import Schedule, Slot
from ..base.containment import contained
from ..base.settings import Settings
from ..ranks import joins, meeting, resets
from ..ranks.courier import Courier
from ..ranks.meeting import Announcement, KeptByRank0, Meeting
from ..ranks.multi_worker import Board
from ..ranks.open_mpi import Mail
from ..ranks.resets import Place
from ..ranks.world import RunIdKeeper, World

JOINED = "hvd.join was called: the ranks take different numbers of steps"
UNSEEN = "this version of Horovod does not show when ranks leave or join"
UNTIED = "its steps hold no collective of all ranks, by which these could count them"


class Member(Protocol):
    """The part of a Program (program.py) that a lockstep uses."""

    given_name: str
    kind: str
    graph: object | None

    @property
    def cluster_names(self) -> Collection[str]:
        """Names of the clusters in its stitched graph."""


class Lockstep:
    """Programs whose steps all ranks take together.

    stitched: whether the latest step ran stitched. ended: why its programs are plain for good; empty if they are not. own_reason: why
    this rank cannot run stitched, or no longer can; empty if it can.
    """

    def __init__(self, key: str, courier: Courier, schedule: Schedule) -> None:
        self.key, self._courier, self._schedule = key, courier, schedule
        self.programs: list[Member] = []
        self.stitched = False
        self.ended = ""
        self.own_reason = ""
        self.position = -1
        """Number of steps from the agreed step to the latest one."""
        self.common: frozenset[str] = frozenset()
        """The clusters whose kernels all ranks have."""

    def begin(self) -> None:
        """Begins a step and asks the courier for its arm: sets `stitched`; in a stitched step `position`, at the first one also
        `common`; in a plain step `ended`, if the ranks will not run stitched again. May wait for some seconds (Courier.begin)."""
        if self.ended:
            return
        was, self.stitched = self.stitched, self._courier.begin(self.key)
        if self.stitched:
            if not was:
                self.common = frozenset(item.partition(":")[0] for item in self._courier.common(self.key))
            self.position += 1
        else:
            self.ended = self._courier.why_plain(self.key)

    @property
    def slot(self) -> Slot:
        """The latest step's slot in the schedule."""
        return self._schedule.slot(self.position)

    def turn(self, stride: int) -> int:
        """The latest step's position modulo `stride` (0 before the agreed step). The kernels whose signature has this turn modulo
        `stride` are compared again in this step (NativeLibrary.begin_step)."""
        return max(0, self.position) % stride

    @property
    def is_bound(self) -> bool:
        """Whether this rank has said that it is ready (Agreement.is_bound)."""
        return self._courier.is_bound(self.key)

    def ready(self, facts: str, kernels: Iterable[str], every: int) -> None:
        """Says that this rank's kernels are verified. facts, kernels, every: as Agreement.ready takes them."""
        self._courier.ready(self.key, facts, kernels, every)

    def refuse(self, reason: str) -> None:
        """Says that this rank cannot run stitched, or no longer can (Agreement.refuse)."""
        self.own_reason = self.own_reason or reason
        self._courier.refuse(self.key, reason)

    @property
    def is_over(self) -> bool:
        """Whether its world has ended, so that no agreement is possible any more."""
        return self._courier.is_closed

    def lets_go(self, reason: str) -> bool:
        """Whether one of its programs may become plain now. If not, the program has to wait: the other ranks are told `reason`,
        and all become plain at one step."""
        if not self.ended:
            self.refuse(reason)
        return bool(self.ended) or not self._courier.is_bound(self.key)


class Ranks:
    """The ranks of a job, seen from this process. The world must have a store, or `mail` or `board` lead to one. run_id: equal on all
    ranks.

    world: the present one, or the latest. sizes: of all worlds so far. on_world: called when another world than the first begins.
    """

    def __init__(
        self,
        world: World,
        run_id: str,
        settings: Settings,
        facts: str,
        tell: Callable[[str], None],
        mail: Mail | None = None,
        board: Board | None = None,
    ) -> None:
        self.world, self._run_id, self._settings, self._tell = world, run_id, settings, tell
        self._mail, self._board = mail, board
        self._courier: Courier | None = None
        """Of the present world; None in an elastic job while there is none."""
        self._meeting: KeptByRank0 | None = None
        """Where this rank finds the store, if the launcher has none."""
        self.sizes: list[int] = []
        self.on_world: Callable[[World], None] = lambda world: None
        self._locksteps: dict[object, Lockstep] = {}
        self._lock = threading.RLock()
        steering = (run_id, settings.block_steps, settings.pairs, settings.plain_share, settings.sample_stride)
        self._facts = f"{facts},schedule={hashlib.sha256(repr(steering).encode()).hexdigest()[:8]}"
        self._sees_joins = self._sees_resets = False
        self._refused = ""
        self._has_ended = False
        """Whether a world has ended since `take_end` was called."""
        self._keeper: RunIdKeeper | None = None
        self._waits_for_horovod = world.is_elastic or mail is not None
        """Whether a world begins when Horovod is initialized, and ends when it is shut down."""
        if not self._waits_for_horovod:
            self._begin(world)

    def _begin(self, world: World) -> None:
        with self._lock:
            self.world = world
            self.sizes.append(world.size)
            self._locksteps = {}
            if self._mail is not None:
                self._meeting = Meeting(world, self._run_id, self._mail)
            elif self._board is not None:
                self._meeting = Announcement(world, self._run_id, self._board)
            else:
                self._meeting = None
            self._courier = Courier(world, self._run_id, self._tell, finder=self._meeting)
            if self._refused:
                self._courier.refuse_all(self._refused)

    # ---- worlds that begin and end with Horovod (resets.Listener). They run after a failure too: other ranks have to learn of it.

    def look_for_resets(self) -> bool:
        """Starts to watch for changes of the world. Returns whether they are noticed from now on, or there can be none. Call it
        before each step until it returns True, since Horovod has to be imported first."""
        if self._waits_for_horovod and not self._sees_resets:
            self._sees_resets = resets.watch(self)
        return self._sees_resets or not self._waits_for_horovod

    @contained(None, after_failure=True)
    def world_ends(self) -> None:
        """The world's ranks no longer meet: what was agreed in it is over, and its threads end."""
        self._end()

    @contained(None, after_failure=True)
    def world_is_sought(self) -> None:
        """A new world is about to form. In an elastic job the ranks agree in it on the run's id again."""
        self._end()
        if self.world.is_elastic:
            self._keeper = RunIdKeeper(self.world, self._run_id)

    @contained(None, after_failure=True)
    def world_begins(self, place: Place | None) -> None:
        """The world has formed, with this process at `place` (None: Horovod does not tell). The ranks meet in it from now on."""
        if self._keeper is not None:
            self._keeper.close()
        self._end()
        if place is not None and not (self._mail is not None and self._mail.why_unusable(self.world.at(place))):
            self._begin(self.world.at(place))
            self.on_world(self.world)

    def _end(self) -> None:
        with self._lock:
            courier, self._courier = self._courier, None
        if courier is not None:
            self._has_ended = True
            courier.close()

    @property
    def place_of_store(self) -> meeting.StoreAddress | None:
        """Where the store is that rank 0 keeps; None if the launcher keeps it, or it has not been found."""
        return self._meeting.place if self._meeting is not None else None

    def take_end(self) -> bool:
        """Whether a world has ended since the last call of this method."""
        had_ended, self._has_ended = self._has_ended, False
        return had_ended

    # ---- functions

    def lockstep(self, program: Member) -> Lockstep | None:
        """The Lockstep of a program whose steps hold a collective of all ranks; None while there is no world. The program joins
        it: call it once per program and world."""
        with self._lock:
            if self._courier is None:
                return None
            group = program.graph if program.graph is not None else program
            found = self._locksteps.get(group)
            if found is None:
                key = str(len(self._locksteps))
                settings = self._settings
                schedule = Schedule(f"{self._run_id}/{key}", settings.block_steps, settings.pairs, settings.plain_share)
                found = self._locksteps[group] = Lockstep(key, self._courier, schedule)
            found.programs.append(program)
            self._sees_joins = self._sees_joins or joins.watch(self._joined)
            return found

    def __iter__(self) -> Iterator[Lockstep]:
        return iter(list(self._locksteps.values()))

    def facts(self, program: Member) -> str:
        """The facts that must be equal on all ranks, as Agreement.ready takes them."""
        name = program.given_name if program.kind == "function" else "of-a-session"
        return f"{self._facts},function={''.join(c if c.isalnum() or c in '_-.' else '_' for c in name)}"

    def refuse_all(self, reason: str) -> None:
        """Says that this rank will never run anything stitched, in this world and all later ones."""
        with self._lock:
            self._refused = reason
            if self._courier is not None:
                self._courier.refuse_all(reason)

    def switch_off(self, reason: str) -> None:
        """Makes this rank plain because the plugin is switched off in this process, and tells the other ranks, in later worlds
        too."""
        self.refuse_all(reason)
        self.leave_all(reason)

    def leave_all(self, reason: str) -> None:
        """Makes this rank plain from its next step of every function on."""
        with self._lock:
            courier, locksteps = self._courier, list(self._locksteps.values())
        for lockstep in locksteps:
            lockstep.own_reason = lockstep.own_reason or reason
        if courier is not None:
            courier.leave_all(reason)

    def _joined(self) -> None:
        self.leave_all(JOINED)

    def close(self) -> None:
        """Ends the courier's thread. Returns within about two seconds."""
        self._end()
