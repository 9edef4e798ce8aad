"""Which rank a process is, and how ranks find each other over Horovod's rendezvous store."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stitchfleet.plugin.entry.activation import is_launcher
from stitchfleet.plugin.ranks import exchange
from stitchfleet.plugin.ranks.resets import Place
from stitchfleet.plugin.ranks.store import ScopedStore, StoreError
from stitchfleet.plugin.ranks.world import RunIdKeeper, World, agree_on_run_id

from .rendezvous import Rendezvous

GLOO = {
    "HOROVOD_RANK": "3",
    "HOROVOD_SIZE": "8",
    "HOROVOD_LOCAL_RANK": "1",
    "HOROVOD_LOCAL_SIZE": "2",
    "HOROVOD_GLOO_RENDEZVOUS_ADDR": "10.0.0.1",
    "HOROVOD_GLOO_RENDEZVOUS_PORT": "4711",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "0",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    "PMIX_NAMESPACE": "2041315329",
}


@pytest.fixture
def rendezvous() -> Iterator[Rendezvous]:
    with Rendezvous() as server:
        yield server


def test_each_launcher_says_who_a_rank_is() -> None:
    assert World.from_environment(GLOO) == World(3, 8, 1, 2, ("10.0.0.1", 4711))
    assert World.from_environment(OPEN_MPI) == World(0, 4, 0, 4, job="2041315329")
    assert World.from_environment({"PMI_RANK": "1", "PMI_SIZE": "2"}) == World(1, 2)
    assert World.from_environment({**GLOO, "HOROVOD_ELASTIC": "1"}).is_elastic
    assert not World.from_environment({}).is_distributed


@given(st.dictionaries(st.sampled_from([*GLOO, *OPEN_MPI]), st.text(max_size=12)))
def test_variables_of_any_text_make_some_world(environment: dict[str, str]) -> None:
    world = World.from_environment(environment)
    assert 0 <= world.rank < world.size
    assert world.local_size >= 1


def test_horovodrun_itself_trains_nothing() -> None:
    assert is_launcher(["/opt/venv/bin/horovodrun", "-np", "2", "python", "train.py"])
    assert is_launcher(["/opt/venv/lib/python3.11/site-packages/horovod/runner/launch.py"])
    assert not is_launcher(["train.py", "horovodrun"])
    assert not is_launcher([])


def test_the_store_keeps_what_is_put_there(rendezvous: Rendezvous) -> None:
    store = ScopedStore(*rendezvous.address, "scope")
    assert store.get("key") is None
    store.put("key", b"value")
    assert store.get("key") == b"value"
    assert ScopedStore(*rendezvous.address, "another").get("key") is None


def test_a_store_that_does_not_answer_is_an_error_soon(rendezvous: Rendezvous) -> None:
    rendezvous.delay_s = 5.0
    with pytest.raises(StoreError):
        ScopedStore(*rendezvous.address, "scope", timeout_s=0.05).get("key")
    rendezvous.delay_s = 0.0
    rendezvous.status = 503
    with pytest.raises(StoreError, match="503"):
        ScopedStore(*rendezvous.address, "scope").put("key", b"value")
    with pytest.raises(StoreError):
        ScopedStore("127.0.0.1", 1, "scope").get("key")


def test_ranks_that_start_by_themselves_have_one_run(rendezvous: Rendezvous) -> None:
    found: list[str] = []
    worlds = [World(rank, 4, store=rendezvous.address) for rank in (3, 2, 1, 0)]
    threads = [threading.Thread(target=lambda world=world: found.append(agree_on_run_id(world))) for world in worlds]  # type: ignore[misc]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1


def test_a_rank_waits_for_a_run_id_no_longer_than_it_may() -> None:
    alone = World(1, 2, store=("127.0.0.1", 1))
    assert len(agree_on_run_id(alone, 0.05)) == 32
    assert agree_on_run_id(alone, 0.05) != agree_on_run_id(alone, 0.05)


def test_a_rank_that_joins_an_elastic_job_learns_its_run_id(rendezvous: Rendezvous) -> None:
    """Horovod has emptied the store, and starts the rank while the others wait for it."""
    first = World.from_environment({**GLOO, "HOROVOD_ELASTIC": "1", "HOROVOD_RANK": "0", "HOROVOD_SIZE": "1"})
    first = replace(first, store=rendezvous.address)
    assert first.is_distributed
    run_id = agree_on_run_id(first)
    for rank in (1, 0):  # rank 0 too, in whatever order hosts are lost and found
        rendezvous.values.clear()
        keeper = RunIdKeeper(first.at(Place(1 - rank, 2, 0, 1)), run_id)
        while rank == 0 and not rendezvous.values:
            time.sleep(0.001)
        assert agree_on_run_id(replace(first, rank=rank, size=2)) == run_id
        keeper.close()


def test_ranks_of_open_mpi_make_the_run_id_of_their_job() -> None:
    worlds = [World.from_environment({**OPEN_MPI, "OMPI_COMM_WORLD_RANK": str(rank)}) for rank in range(4)]
    assert len({agree_on_run_id(world) for world in worlds}) == 1


def test_rank_0_gets_what_the_others_publish_and_does_without_what_is_torn(rendezvous: Rendezvous) -> None:
    store, other = (ScopedStore(*rendezvous.address, scope) for scope in ("stitchfleet-run", "stitchfleet-another"))
    assert exchange.publish(store, 1, "summaries", [{"steps": 3}])
    assert exchange.publish(other, 3, "summaries", [])
    store.put("summaries-2", b'[{"steps"')
    assert exchange.collect(store, 0, 4, "summaries", 0.1) == {1: [{"steps": 3}]}
