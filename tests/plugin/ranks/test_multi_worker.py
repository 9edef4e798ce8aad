"""The workers of a MultiWorkerMirroredStrategy: who each is, how they find a store, and that they are stitched alike."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stitchfleet.plugin.ranks import multi_worker
from stitchfleet.plugin.ranks.meeting import Announcement
from stitchfleet.plugin.ranks.multi_worker import Board, member
from stitchfleet.plugin.ranks.store import StoreError
from stitchfleet.plugin.ranks.world import World

from ..conftest import SCRIPTS

# ---- places ------------------------------------------------------------------------------------------------------------------


def config(job: str, index: int, **cluster: list[str]) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})}


def test_a_worker_s_place_is_its_index_behind_the_chief() -> None:
    chief, workers = ["a:1"], ["a:2", "b:1", "a:3"]
    found = [member(config("worker", index, chief=chief, worker=workers)) for index in range(3)]
    first = member(config("chief", 0, chief=chief, worker=workers))
    assert first is not None
    assert first.place == (0, 4, 0, 3)
    assert [each.place for each in found if each] == [(1, 4, 1, 3), (2, 4, 0, 1), (3, 4, 2, 3)]
    assert {each.cluster for each in found if each} == {first.cluster}
    other = member(config("worker", 0, worker=workers))
    assert other is not None
    assert other.cluster != first.cluster


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"TF_CONFIG": ""},
        {"TF_CONFIG": "{"},
        {"TF_CONFIG": "[1]"},
        {"TF_CONFIG": '{"cluster": {"worker": ["a:1", "b:1"]}}'},
        config("worker", 0, worker=["a:1"]),
        config("worker", 2, worker=["a:1", "b:1"]),
        config("worker", -1, worker=["a:1", "b:1"]),
        config("worker", 0, worker=["a:1", "b:1"], ps=["c:1"]),
        config("evaluator", 0, worker=["a:1", "b:1"], evaluator=["c:1"]),
    ],
)
def test_other_processes_are_no_members(variables: dict[str, str]) -> None:
    assert member(variables) is None
    assert World.from_environment(variables) == World()


@given(
    st.recursive(
        st.none() | st.integers(-3, 3) | st.sampled_from(["worker", "chief", "a:1"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["cluster", "task", "type", "index", "worker", "chief"]), inner, max_size=4
            )
        ),
    )
)
def test_whatever_tf_config_holds_it_breaks_nothing(found: Any) -> None:
    made = member({"TF_CONFIG": json.dumps(found)})
    assert made is None or 0 <= made.place.rank < made.place.size


def test_horovod_s_place_comes_first() -> None:
    variables = {"HOROVOD_RANK": "1", "HOROVOD_SIZE": "3", **config("worker", 0, worker=["a:1", "b:1"])}
    world = World.from_environment(variables)
    assert (world.rank, world.size, world.cluster) == (1, 3, "")


# ---- the board ---------------------------------------------------------------------------------------------------------------


class Context:
    """TensorFlow's context with a coordination service."""

    def __init__(self) -> None:
        self._initialized = True
        self.coordination_service: object | None = object()
        self.values: dict[str, str] = {}

    def set_config_key_value(self, key: str, value: str) -> None:
        if key in self.values:
            raise RuntimeError(f"config key {key} already exists")
        self.values[key] = value

    def get_config_key_value(self, key: str, timeout_in_ms: int = 0) -> str:
        assert timeout_in_ms > 0, "0 waits for ever"
        if key not in self.values:
            raise RuntimeError("deadline exceeded")
        return self.values[key]


def test_the_board_is_there_once_a_strategy_has_set_it_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, multi_worker._CONTEXT, raising=False)
    assert Board.present() is None
    context = Context()
    monkeypatch.setitem(sys.modules, multi_worker._CONTEXT, types.SimpleNamespace(_context=context))
    context._initialized = False
    assert Board.present() is None
    context._initialized, context.coordination_service = True, None
    assert Board.present() is None
    context.coordination_service = object()
    board = Board.present()
    assert board is not None
    assert board.why_unusable == ""
    assert board.read() is None
    board.post(b"\x00text")
    assert board.read() == b"\x00text"
    with pytest.raises(StoreError, match="already exists"):
        board.post(b"another")
    context.values = dict.fromkeys(context.values, "no hexadecimal digits")
    with pytest.raises(StoreError, match="not ours"):
        board.read()


def test_a_version_that_would_wait_for_ever_is_not_asked() -> None:
    context = types.SimpleNamespace(get_config_key_value=lambda key: time.sleep(600.0))
    assert "wait for ever" in Board(context).why_unusable


@contextlib.contextmanager
def announcements(size: int) -> Iterator[list[Announcement]]:
    context = Context()
    found = [Announcement(World(rank, size), "cluster", Board(context)) for rank in range(size)]
    try:
        yield found
    finally:
        for each in found:
            each.close()


def test_all_workers_find_the_store_that_the_first_one_keeps() -> None:
    with announcements(3) as (leader, second, third):
        assert second.store() is None
        kept = leader.store()
        assert kept is not None
        assert leader.store() is not None, "it posts once"
        kept.put("hello-0", b"hello")
        for each in (second, third):
            found = each.store()
            assert found is not None
            assert found.get("hello-0") == b"hello"
        leader.close()
        with pytest.raises(StoreError):
            kept.get("hello-0")


def test_a_post_that_fails_is_tried_again() -> None:
    class Failing(Context):
        fails = 2

        def set_config_key_value(self, key: str, value: str) -> None:
            self.fails -= 1
            if self.fails == 0:  # it comes there, but the answer is lost
                super().set_config_key_value(key, value)
            if self.fails >= 0:
                raise RuntimeError("connection reset")
            super().set_config_key_value(key, value)

    board = Board(Failing())
    leader, second = (Announcement(World(rank, 2), "cluster", board) for rank in range(2))
    try:
        for _ in range(2):
            with pytest.raises(StoreError, match="connection reset"):
                leader.store()
        assert leader.store() is not None
        assert second.store() is not None
    finally:
        second.close()
        leader.close()


def test_a_board_whose_host_is_gone_holds_up_no_end() -> None:
    gives_up = threading.Event()

    class Silent(Context):
        def get_config_key_value(self, key: str, timeout_in_ms: int = 0) -> str:
            gives_up.wait(60.0)
            raise RuntimeError("unavailable")

    made = Announcement(World(1, 2), "cluster", Board(Silent()))
    threading.Thread(target=made.store, daemon=True).start()
    time.sleep(0.1)
    start = time.monotonic()
    made.close()
    assert time.monotonic() - start < 30.0
    gives_up.set()
    assert made.store() is None, "nothing is read any more"


# ---- jobs --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Worker:
    """A worker that has ended. result: what it printed. summaries: those of its `stitchfleet run`."""

    code: int
    err: str
    result: dict[str, Any]
    summaries: list[dict[str, Any]]


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def run_workers(
    cache: pathlib.Path, folder: pathlib.Path, arguments: Sequence[str], stitched: Sequence[bool], chief: bool = False
) -> list[Worker]:
    """A worker for each entry of `stitched`, which says whether it runs under `stitchfleet run`."""
    places = [f"127.0.0.1:{port}" for port in free_ports(len(stitched))]
    cluster = {"chief": places[:1], "worker": places[1:]} if chief else {"worker": places}
    script = [sys.executable, str(SCRIPTS / "workers.py"), *arguments]
    started = []
    for rank, is_stitched in enumerate(stitched):
        task = {"type": "chief", "index": 0} if chief and not rank else {"type": "worker", "index": rank - chief}
        ours = [
            "--cache",
            str(cache),
            "--summary",
            str(folder / f"{rank}.json"),
            "--database",
            f"sqlite:///{folder}/{rank}.db",
        ]
        command = [sys.executable, "-m", "stitchfleet.plugin.command", "run", *ours, "--", *script]
        variables = {**os.environ, "TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}
        variables |= {"STITCHFLEET_WARM_UP_STEPS": "5", "STITCHFLEET_BLOCK_STEPS": "4"}
        started.append(
            subprocess.Popen(
                command if is_stitched else script,
                env=variables,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    found = []
    try:
        for rank, process in enumerate(started):
            out, err = process.communicate(timeout=900)
            written = [json.loads(path.read_text()) for path in sorted(folder.glob(f"{rank}.json*"))]
            summaries = [each for first in written for each in (first, *first["other_processes"])]
            result = json.loads(out.splitlines()[-1]) if process.returncode == 0 else {}
            found.append(Worker(process.returncode, err, result, summaries))
    finally:
        for process in started:
            process.kill()
            process.wait()
    return found


def training(summary: dict[str, Any]) -> dict[str, Any]:
    return next(program for program in summary["programs"] if program["name"] == summary["main"])


def check_stitched(workers: list[Worker], plain: list[Worker]) -> None:
    """All have switched at one step: their weights are the same to the last bit. The losses are a plain run's."""
    assert [worker.code for worker in (*workers, *plain)] == [0] * (2 * len(workers)), [each.err for each in workers]
    assert len({worker.result["weights"] for worker in workers}) == 1
    assert workers[0].result["losses"] == pytest.approx(plain[0].result["losses"], rel=1e-5)
    summaries = workers[0].summaries
    assert [summary["rank"] for summary in summaries] == list(range(len(workers)))
    assert {summary["world_size"] for summary in summaries} == {len(workers)}
    assert {training(summary)["phase"] for summary in summaries} == {"stitched"}
    assert len({training(summary)["stitched_from_step"] for summary in summaries}) == 1
    for summary in summaries:
        assert summary["calls"]["stitched"] > 0
    assert f"all {len(workers)} ranks run" in workers[0].err
    assert "ranks: 2 of 2 say the same" in workers[0].err
    assert not any("what happened in run" in worker.err for worker in workers[1:]), "the first speaks for all"


@pytest.mark.costly
def test_two_workers_are_stitched_from_one_step_on(cache: pathlib.Path, tmp_path: pathlib.Path) -> None:
    plain = run_workers(cache, tmp_path, ["600"], [False, False])
    check_stitched(run_workers(cache, tmp_path, ["600", "40"], [True, True]), plain)


@pytest.mark.slow
@pytest.mark.parametrize(("way", "chief"), [("fit", False), ("loop", True)])
def test_other_ways_to_train_on_workers(cache: pathlib.Path, tmp_path: pathlib.Path, way: str, chief: bool) -> None:
    plain = run_workers(cache, tmp_path, ["600", "0", way], [False, False], chief)
    check_stitched(run_workers(cache, tmp_path, ["600", "60", way], [True, True], chief), plain)


@pytest.mark.slow
@pytest.mark.parametrize("without", [0, 1])
def test_with_a_worker_that_runs_without_stitchfleet_all_stay_plain(
    cache: pathlib.Path, tmp_path: pathlib.Path, without: int
) -> None:
    workers = run_workers(cache, tmp_path, ["3000", "40"], [rank != without for rank in range(2)])
    assert [worker.code for worker in workers] == [0, 0], [worker.err for worker in workers]
    assert len({worker.result["weights"] for worker in workers}) == 1
    (summary,) = workers[1 - without].summaries
    assert summary["calls"]["stitched"] == 0
    assert training(summary)["phase"] != "stitched"
