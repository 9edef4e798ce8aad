"""The agreement of a job's ranks on the step from which they run stitched, and from which they run plain again.

A pure state machine: one Agreement for each rank and training function. It does no input or output and has no clock. It says what
to write and read, receives the outcome, and is asked before each step. docs/ranks.md has the protocol and the argument for its
correctness; tests/plugin/ranks/model.py model-checks this class.

Assumptions
    Step n is the n-th call of the function. It holds a collective of all ranks, so no rank ends step n before every rank has begun
    it: if some rank begins step n + 1, all have begun step n. (collectives.py checks this; functions without such a collective are
    never stitched in a job of several ranks. Bounded waiting needs this assumption, safety does not.) If only every Nth step holds
    one, this is so for the steps n + 1 = N, 2N, ..., and only such a step is picked.
    The store (store.py) has cells. Each cell has one writer, which writes one value only and repeats the write until it is
    acknowledged: a write that is lost, repeated or late does no harm.

Cells (r: a rank, k: the number of a round)
    vote-r      ready FACTS KERNELS | no REASON         the kernels of rank r are verified, or never will be
    want-r      plain REASON                            rank r has to go back
    k-at        at STEP stitched KERNELS                rank 0: the step of this round, and the arm from it on
                at STEP plain REASON
                no REASON                               rank 0: the job stays plain
    k-seen-r    seen                                    rank r knows the step
                late BEGUN | no REASON                  rank r has begun it already; rank r can no longer run stitched
    k-go        go | stay                               rank 0: whether the round counts

    FACTS are name=value pairs that must be equal on all ranks. KERNELS are the kernels of the rank; the ranks agree on those that
    all of them have (`common`).

A round
    1. If all votes are ready and have equal facts (or if there is a want), rank 0 picks a step some way ahead, after one with a
       collective, and writes k-at.
    2. A rank that reads k-at before it begins that step writes "seen": a promise not to begin the step before it knows k-go.
    3. If all have promised before rank 0 begins the step before the agreed one, rank 0 writes go; else stay. It does not begin
       that step before this write is acknowledged. So a rank that is about to begin the agreed step finds k-go in the store; and if
       a rank began the agreed step without knowing of it, it made no promise, so k-go is stay.
    4. go: each rank begins the agreed step in its new arm. stay: round k + 1.

A rank waits (`may_begin` is False) only for an answer to its own requests, never for another rank. If the store does not answer
within the caller's bound, the rank stops waiting, once a round (`give_up`). It stays in its present arm, and changes to the agreed
arm as soon as it reads k-go. Until then, if k-go was go, its arm differs from the others'. No protocol can exclude that if the store
may stop answering at any moment and nobody may wait for ever. docs/ranks.md says when it can happen and what it means.

A rank that leaves by its own decision (`leave`) is plain from its next step on, whatever the others do.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field

LEADER = 0
MOST_ROUNDS = 6
"""Rounds without effect after which the job stays plain: some rank always learns of the step too late."""
MAX_REASON = 200
"""Characters of a reason. It is bounded because anybody may write to the store."""


def _reason(text: str) -> str:
    return " ".join(text.split())[:MAX_REASON]


def _step(words: list[str]) -> int | None:
    """The number that follows the first word of a cell's value; None if there is no valid one."""
    text = words[1] if len(words) > 1 else ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None


def _difference(own: str, other: str) -> str:
    """Names the first fact in which two ranks differ, with both values."""
    ours, theirs = (dict(fact.partition("=")[::2] for fact in facts.split(",")) for facts in (own, other))
    names = (
        [name for name in ours if theirs.get(name) != ours[name]]
        or list(theirs.keys() - ours.keys())
        or ["what it says"]
    )
    return _reason(f"in {names[0]} ({ours.get(names[0], 'none')}, {theirs.get(names[0], 'none')})")


@dataclass
class Agreement:
    """One rank's part in the agreement on one function.

    Steps count from 0. `begun` steps have begun, so `begun` is the number of the next step.
    """

    rank: int
    size: int
    lead: int = 2
    """Steps from rank 0's present step to the one that it picks; at least 2 are used. The caller may change it at any time."""
    every: int = 1
    """Rank 0: of each run of this many steps, counted from step 0, the last step holds a collective."""
    stitched: bool = False
    """The arm of the latest step."""
    begun: int = 0
    final: str = ""
    """Why the function is plain for good; empty if it is not."""
    left: bool = False
    """Whether this rank is plain for good by its own decision, while the others have yet to go back."""
    led_to: bool = False
    """Rank 0: the arm that the latest effective round led to (True: stitched)."""
    vote: str = ""
    want: str = ""
    says_no: bool = False
    """Rank 0: whether it has decided that the job stays plain."""
    round: int = 0
    at: int | None = None
    """The agreed step of this round; None if it is not known yet."""
    target: bool = False
    """The arm from step `at` on (True: stitched)."""
    target_reason: str = ""
    common: frozenset[str] = frozenset()
    """The kernels that all ranks have and that run in the stitched arm."""
    go: bool | None = None
    """The value of this round's k-go cell: True for go, False for stay, None if it is not known yet."""
    acknowledged: frozenset[str] = frozenset()
    """Keys of the cells whose writes have been acknowledged."""
    votes: dict[int, str] = field(default_factory=dict)
    """Rank 0: the votes that it has read, by rank."""
    wants: dict[int, str] = field(default_factory=dict)
    """Rank 0: the wants that it has read, by rank."""
    seen: frozenset[int] = frozenset()
    """Rank 0: the ranks that have promised to wait for k-go."""
    ahead: int = 0
    """Rank 0: the most steps that a late rank had begun."""
    answer: str = ""
    """This rank's k-seen-r cell of this round; empty if it has none."""
    gave_up: bool = False
    """Whether this rank has waited in this round for as long as it may."""

    @property
    def is_leader(self) -> bool:
        """Whether this rank is rank 0, which leads the rounds."""
        return self.rank == LEADER

    # ---- what the rank has to say

    def ready(self, facts: str, kernels: Iterable[str] = (), every: int = 1) -> None:
        """Says that this rank's kernels are verified.

        facts: comma-separated name=value pairs, which must be equal on all ranks. kernels: identifiers that are equal on two ranks
        if the kernels compute the same to the last bit. Neither may contain blanks; a kernel may not contain a comma. every: see
        the attribute.
        """
        if not self.vote and not self.final:
            self.every = every
            self.vote = f"ready {facts} {','.join(sorted(set(kernels)))}".rstrip()
            self._lead_on()

    def refuse(self, reason: str) -> None:
        """Says that this rank will never run stitched. If it has already said that it is ready, it asks all ranks to go back."""
        if not self.vote:
            self.vote = f"no {_reason(reason)}"
        elif not self.want and not self.final:
            self.want = f"plain {_reason(reason)}"
        self._lead_on()

    @property
    def is_bound(self) -> bool:
        """Whether it has said that it is ready. It then goes back to plain with the others (`refuse`) or alone (`leave`)."""
        return self.vote.startswith("ready") and not self.final

    def leave(self, reason: str) -> None:
        """Makes this rank plain from its next step on, without waiting for any answer. It goes on answering, and leading if it
        is rank 0, until the others are plain."""
        if self.final:
            return
        self.stitched, self.left = False, True
        self.refuse(reason)
        if not self.final:
            self.final = _reason(reason)
        if self.is_leader and self.at is not None and self.target and self.go is None:
            self.go = False
        self._finish_stay()
        self._finish_left()

    # ---- the store

    def writes(self) -> list[tuple[str, str]]:
        """(key, value) of the cells that this rank has to write and whose writes are not acknowledged yet."""
        cells: list[tuple[str, str]] = []
        if self.final and not self.says_no and not self.left:
            return cells
        if self.vote and not self.is_leader:
            cells.append((f"vote-{self.rank}", self.vote))
        if self.want and not self.is_leader:
            cells.append((f"want-{self.rank}", self.want))
        if self.is_leader and self.at is not None:
            arm = f"stitched {','.join(sorted(self.common))}" if self.target else f"plain {self.target_reason}"
            cells.append((f"{self.round}-at", f"at {self.at} {arm}".rstrip()))
        if self.says_no:
            cells.append((f"{self.round}-at", f"no {self.final}"))
        if self.is_leader and self.go is not None:
            cells.append((f"{self.round}-go", "go" if self.go else "stay"))
        if self.answer:
            cells.append((f"{self.round}-seen-{self.rank}", self.answer))
        return [(key, value) for key, value in cells if key not in self.acknowledged]

    def reads(self) -> list[str]:
        """Keys of the cells that this rank has to read."""
        if self.final and not self.left:
            return []
        if not self.is_leader:
            return [f"{self.round}-at"] if self.at is None else [f"{self.round}-go"] if self.go is None else []
        others = range(1, self.size)
        if self.at is not None:
            return [f"{self.round}-seen-{rank}" for rank in others if rank not in self.seen] if self.go is None else []
        if self.led_to:
            return [f"want-{rank}" for rank in others if rank not in self.wants]
        return [f"vote-{rank}" for rank in others if rank not in self.votes]

    def acknowledge(self, key: str) -> None:
        """Notes that a write of the cell has been acknowledged."""
        self.acknowledged |= {key}
        self._finish_stay()
        self._finish_left()

    def receive(self, key: str, text: str) -> None:
        """Takes the value that was read from a cell. Text that is not a valid value of the cell is ignored, as if it were empty."""
        if key not in self.reads():
            return  # an answer that comes late or twice
        words = text.split(" ", 3)
        if key.startswith("vote-") and words[0] in ("ready", "no") and len(words) > 1:
            self.votes[int(key[5:])] = text
        elif key.startswith("want-") and words[0] == "plain":
            self.wants[int(key[5:])] = text
        elif "-seen-" in key:
            self._receive_answer(int(key.rpartition("-")[2]), text, words)
        elif key.endswith("-go") and text in ("go", "stay"):
            self.go = text == "go"
            self._finish_stay()
            self._finish_left()
        elif key.endswith("-at"):
            self._receive_at(text, words)
        self._lead_on()

    def _receive_at(self, text: str, words: list[str]) -> None:
        if words[0] == "no" and not self.stitched:
            self.final, self.left = self.final or _reason(text[3:]), False
        elif words[0] == "at" and len(words) > 2 and (at := _step(words)) is not None:
            self.at, self.target = at, words[2] == "stitched"
            detail = words[3] if len(words) > 3 else ""
            self.target_reason = "" if self.target else _reason(detail)
            if self.target:
                self.common = frozenset(detail.split(",")) - {""}
            if self.begun > at and not self.left:
                self.answer = f"late {self.begun}"
            elif self.want and self.target:
                self.answer = f"no {self.want[6:]}"
            else:
                self.answer = "seen"

    def _receive_answer(self, rank: int, text: str, words: list[str]) -> None:
        if text == "seen":
            self.seen |= {rank}
        elif words[0] == "late" and (begun := _step(words)) is not None:
            self.ahead = max(self.ahead, begun)
            self.go = False
            self._finish_stay()
        elif words[0] == "no" and self.target:
            self.wants[rank] = f"plain {_reason(text[3:])}"
            self.go = False
            self._finish_stay()

    # ---- rank 0's decisions

    def _lead_on(self) -> None:
        if not self.is_leader or (self.final and not self.left):
            return
        if self.at is not None:
            if self.go is None and len(self.seen) == self.size - 1:
                self.go = self.begun < self.at
            return
        wants = {**self.wants, **({LEADER: self.want} if self.want else {})}
        if self.led_to:
            if wants:
                rank = min(wants)
                self._propose(False, _reason(f"rank {rank}: {wants[rank].partition(' ')[2]}"))
            return
        if not self.vote:
            return
        votes = {LEADER: self.vote, **self.votes}
        noes = [f"rank {rank}: {_reason(vote[3:])}" for rank, vote in sorted(votes.items()) if vote.startswith("no ")]
        noes += [f"rank {rank}: {want[6:]}" for rank, want in sorted(wants.items())]
        if noes:
            self._say_no(noes[0])
        elif self.round >= MOST_ROUNDS:
            self._say_no("some rank always learned of the agreed step too late")
        elif len(votes) == self.size:
            self._compare(votes)

    def _compare(self, votes: dict[int, str]) -> None:
        """All ranks are ready: compares their facts and intersects their kernels."""
        words = {rank: (*vote.split(" "), "", "")[1:3] for rank, vote in sorted(votes.items())}
        own = words[LEADER][0]
        for rank, (facts, _) in words.items():
            if facts != own:
                self._say_no(f"rank {rank} differs from rank 0 {_difference(own, facts)}")
                return
        kernels = [frozenset(listed.split(",")) - {""} for _, listed in words.values()]
        self.common = frozenset.intersection(*kernels)
        if not self.common and any(kernels):
            self._say_no("no kernel is the same on all ranks: their processors, compilers or programs differ")
        else:
            self._propose(True, "")

    def _propose(self, target: bool, reason: str) -> None:
        at = max(self.begun, self.ahead) + max(2, self.lead)
        self.at, self.target, self.target_reason = at + -at % self.every, target, reason
        self.seen, self.go = frozenset(), None
        if self.size == 1:
            self.go = True

    def stop_waiting_for_votes(self, reason: str) -> None:
        """Rank 0: the votes have taken too long. The job stays plain for `reason`."""
        if self.is_leader and not self.final and not self.stitched and self.at is None:
            self._say_no(reason)

    def _say_no(self, reason: str) -> None:
        self.final, self.says_no, self.left = _reason(reason), True, False

    def _finish_stay(self) -> None:
        """Ends a round without effect; on rank 0 only after the writes of both its cells are acknowledged."""
        theirs = {f"{self.round}-at", f"{self.round}-go"} if self.is_leader else set()
        if self.go is False and theirs <= self.acknowledged:
            self._next_round()

    def _finish_left(self) -> None:
        """Ends a round for a rank that has left, since none of its own steps ends it."""
        if not self.left or not self.go or (self.is_leader and f"{self.round}-go" not in self.acknowledged):
            return
        self.led_to = self.target
        if self.target:
            self._next_round()
        else:
            self.left = False  # all are plain, or will be at their step

    def _next_round(self) -> None:
        self.round, self.at, self.go, self.gave_up = self.round + 1, None, None, False
        self.target, self.target_reason, self.seen, self.answer = False, "", frozenset(), ""
        self.acknowledged = frozenset(key for key in self.acknowledged if key.startswith(("vote-", "want-")))
        self._lead_on()

    # ---- steps

    def may_begin(self) -> bool:
        """Whether the next step may begin now. If False, the caller has to wait for the answers to `writes` and `reads`."""
        if self.at is None or self.gave_up:
            return True
        if self.left:
            if self.is_leader and self.begun >= self.at - 1 and self.go is None:
                self.go = False
                self._finish_stay()
            return True
        if self.is_leader:
            if self.begun < self.at - 1:
                return True
            if self.go is None:
                self.go = False  # too late for this step: no rank may be left waiting for k-go
            return f"{self.round}-go" in self.acknowledged
        return self.begun < self.at or self.go is not None or self.answer != "seen"

    def give_up(self) -> None:
        """Notes that the caller has waited for as long as it may. Until the round ends, `may_begin` is True."""
        self.gave_up = True

    def begin(self) -> bool:
        """Begins the next step. Returns whether it runs stitched."""
        knows = self.go is not None and (not self.is_leader or f"{self.round}-go" in self.acknowledged)
        if not self.left and self.at is not None and self.begun >= self.at and knows:
            if not self.go:
                self._finish_stay()
            elif self.target:
                self.stitched = self.led_to = True
                self._next_round()
            else:
                self.stitched = self.led_to = False
                self.final = self.target_reason or "the ranks went back to plain"
                self.at = self.go = None
                self.answer, self.acknowledged = "", frozenset()
        self.begun += 1
        return self.stitched

    # ---- for whoever explores it

    def copy(self) -> Agreement:
        """A copy that shares no mutable state with this one, for the model checker."""
        found = copy.copy(self)
        found.votes, found.wants = dict(self.votes), dict(self.wants)
        return found

    def key(self) -> tuple[object, ...]:
        """All of its state as a hashable value, for the model checker."""
        return tuple(
            tuple(sorted(value.items())) if isinstance(value, dict) else value for value in vars(self).values()
        )
