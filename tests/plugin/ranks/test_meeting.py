"""How the ranks of mpirun find a store: messages that may never be received, and a program that keeps the cells."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stitchfleet.plugin.ranks import meeting, store_server
from stitchfleet.plugin.ranks.meeting import Meeting
from stitchfleet.plugin.ranks.open_mpi import ANSWER_TAG, REQUEST_TAG, OpenMpi
from stitchfleet.plugin.ranks.store import ScopedStore, StoreError
from stitchfleet.plugin.ranks.world import World

from .test_courier import SWIFT, Job

SCOPE = "stitchfleet-run-secret"


class Post:
    """The messages between the ranks of a job, and the mail of each."""

    def __init__(self) -> None:
        self.arrived: dict[tuple[int, int], collections.deque[tuple[int, bytes]]] = collections.defaultdict(
            collections.deque
        )

    def mail(self, rank: int) -> Mail:
        return Mail(self, rank)


class Mail:
    def __init__(self, post: Post, rank: int) -> None:
        self._post, self._rank = post, rank
        self.calls = 0

    def why_unusable(self, world: World) -> str:
        return ""

    def send(self, rank: int, tag: int, text: bytes) -> None:
        self.calls += 1
        self._post.arrived[rank, tag].append((self._rank, text))

    def take(self, tag: int) -> tuple[int, bytes] | None:
        self.calls += 1
        waiting = self._post.arrived[self._rank, tag]
        return waiting.popleft() if waiting else None


@contextlib.contextmanager
def meetings(size: int) -> Iterator[list[Meeting]]:
    post = Post()
    found = [Meeting(World(rank, size), "run", post.mail(rank)) for rank in range(size)]
    try:
        yield found
    finally:
        for each in found:
            each.close()


@pytest.fixture
def server() -> Iterator[ScopedStore]:
    with subprocess.Popen(
        [sys.executable, "-I", "-S", store_server.__file__, SCOPE], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield ScopedStore("127.0.0.1", int(process.stdout.readline()), SCOPE)
        process.kill()


def test_all_ranks_find_the_store_of_rank_0() -> None:
    with meetings(3) as (leader, second, third):
        assert second.store() is None
        kept = leader.store()
        assert kept is not None
        kept.put("hello-0", b"hello")
        found = second.store()
        assert found is not None
        assert found.get("hello-0") == b"hello"
        assert third.store() is None
        leader.store()
        assert third.store() is not None


def test_ranks_switch_together_over_it() -> None:
    with meetings(3) as found:
        job = Job(None, 3, finders=found)
        for courier in job.couriers:
            courier.ready("train", "facts", ["kernel"])
        deadline = time.monotonic() + 60
        while not (job.arms[0] and job.arms[0][-1]) and time.monotonic() < deadline:
            job.train(50)
        job.close()
        assert all(len(arms) == 1 for arms in job.steps)
        assert job.steps[-1] == {True}
        assert job.lines == []


def test_a_rank_that_never_asks_keeps_all_plain() -> None:
    """It runs without stitchfleet, so that it takes no message."""
    with meetings(3) as found:
        job = Job(None, 2, replace(SWIFT, hello_s=0.5), finders=found[:2], of=3)
        while found[1].place is None:  # a slow machine takes longer than that to start the store
            time.sleep(0.01)
        for courier in job.couriers:
            courier.ready("train", "facts", ["kernel"])
        deadline = time.monotonic() + 60
        while not job.couriers[0].why_plain("train") and time.monotonic() < deadline:
            job.train(20)
        job.close()
        assert job.couriers[0].why_plain("train").startswith("rank 2 runs without stitchfleet")
        assert not any(any(arms) for arms in job.arms)


def test_without_rank_0_the_others_are_plain_after_a_while() -> None:
    with meetings(2) as found:
        job = Job(None, 2, replace(SWIFT, hello_s=0.1), finders=[_Absent(), found[1]])
        job.couriers[1].ready("train", "facts", ["kernel"])
        deadline = time.monotonic() + 60
        while not job.couriers[1].why_plain("train") and time.monotonic() < deadline:
            job.train(20)
        job.close()
        assert job.couriers[1].why_plain("train").startswith("rank 0 runs without stitchfleet")


class _Absent:
    """A rank that is not injected."""

    def store(self) -> None:
        return None

    def close(self) -> None:
        pass


def test_mpi_is_left_alone_once_the_meeting_is_closed() -> None:
    """Horovod ends MPI then."""
    post = Post()
    mails = [post.mail(rank) for rank in range(2)]
    leader, other = (Meeting(World(rank, 2), "run", mail) for rank, mail in enumerate(mails))
    leader.store()
    other.store()
    leader.close()
    other.close()
    before = [mail.calls for mail in mails]
    leader.store()
    other.store()
    leader.close()
    assert [mail.calls for mail in mails] == before


def test_the_store_ends_with_the_meeting() -> None:
    with meetings(2) as (leader, _):
        kept = leader.store()
        assert kept is not None
    with pytest.raises(StoreError):
        kept.get("hello-0")


def test_a_store_that_cannot_be_started_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ranks are plain then, as without rank 0."""
    tries = []

    def fails(run_id: str) -> None:
        tries.append(run_id)
        raise StoreError("no")

    monkeypatch.setattr(meeting, "KeptStore", fails)
    leader = Meeting(World(0, 2), "run", Post().mail(0))
    with pytest.raises(StoreError):
        leader.store()
    assert leader.store() is None
    leader.close()
    assert tries == ["run"]


def test_a_forked_child_leaves_its_parents_store_alone() -> None:
    kept = meeting.KeptStore("run")
    child = os.fork()
    if not child:
        kept.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert kept.place.store().get("key") is None
    kept.close()


@given(st.one_of(st.binary(max_size=200), st.from_type(dict[str, str]).map(lambda it: json.dumps(it).encode())))
def test_an_answer_of_anybody_is_an_error_of_the_store_or_some_places(answer: bytes) -> None:
    try:
        assert len(meeting.places_of(answer)) <= meeting.MAX_ADDRESSES + 1
    except StoreError:
        pass


def test_an_answer_that_leads_nowhere_is_an_error_of_the_store() -> None:
    post = Post()
    other = Meeting(World(1, 2), "run", post.mail(1))
    assert other.store() is None
    assert post.arrived[0, REQUEST_TAG] == collections.deque([(1, b"where")])
    said = {"host": "other", "addresses": ["127.0.0.1"], "port": 1, "scope": SCOPE}
    post.mail(0).send(1, ANSWER_TAG, json.dumps(said).encode())
    for _ in range(2):
        with pytest.raises(StoreError, match="cannot be reached"):
            other.store()


def test_own_addresses_are_none_of_the_loopback() -> None:
    assert not [address for address in meeting.own_addresses() if address.startswith(("127.", "::1"))]


def test_a_process_without_open_mpi_has_no_mail() -> None:
    assert OpenMpi.loaded() is None


def test_the_store_keeps_what_has_its_secret(server: ScopedStore) -> None:
    assert server.get("key") is None
    server.put("key", b"value")
    assert server.get("key") == b"value"
    other = ScopedStore(server._host, server._port, "stitchfleet-run")
    with pytest.raises(StoreError, match="404"):
        other.put("key", b"value")
    assert other.get("key") is None
    with pytest.raises(StoreError):
        server.put("large", bytes(store_server.MAX_VALUE_BYTES + 1))
    assert server.get("key") == b"value"


def test_cells_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_server, "MAX_BYTES", 1000)
    monkeypatch.setattr(store_server, "MAX_CELLS", 3)
    cells = store_server.Cells("scope")
    assert cells.put("/scope/a", bytes(600)) == 200
    assert cells.put("/scope/b", bytes(600)) == 507
    assert cells.put("/scope/a", bytes(900)) == 200
    assert cells.put("/scope/a", bytes(100)) == 200
    assert [cells.put(f"/scope/{name}", b"1") for name in "bcd"] == [200, 200, 507]
    assert cells.put("/scop/a", b"1") == cells.put("/scope", b"1") == 404


def test_the_store_ends_with_the_process_that_has_started_it() -> None:
    """Also if that is killed."""
    program = f"""
import subprocess, sys, time
process = subprocess.Popen([sys.executable, "-I", "-S", {store_server.__file__!r}, "scope"], stdout=subprocess.PIPE, text=True)
print(process.pid, process.stdout.readline().strip(), flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid, port = map(int, parent.stdout.readline().split())
        assert ScopedStore("127.0.0.1", port, "scope").get("key") is None
        parent.kill()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    pytest.fail("the store outlives the process that has started it")
