"""The ranks of a world find one scope, whatever an earlier world has left in the store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stitchfleet.plugin.ranks.epoch import Epoch
from stitchfleet.plugin.ranks.world import World

from .rendezvous import Rendezvous


@pytest.fixture
def rendezvous() -> Iterator[Rendezvous]:
    with Rendezvous() as server:
        yield server


def epoch(rendezvous: Rendezvous, rank: int, size: int = 2) -> Epoch:
    return Epoch(World(rank, size, store=rendezvous.address, is_elastic=True), "job", 60.0)


def meet(first: Epoch, *others: Epoch) -> None:
    """All ranks find one scope, and say so to rank 0."""
    common = first.store()
    assert common is not None
    for each in others:
        assert each.store() is None  # it is here now
    first.store()
    for number, each in enumerate(others, 1):
        found = each.store()
        assert found is not None
        found.put(f"hello-{number}", b"hello")
        assert common.get(f"hello-{number}") == b"hello"


def test_an_epoch_of_before_is_not_accepted(rendezvous: Rendezvous) -> None:
    meet(epoch(rendezvous, 0, 3), epoch(rendezvous, 1, 3), epoch(rendezvous, 2, 3))
    later = epoch(rendezvous, 1)
    for _ in range(3):
        assert later.store() is None
    # Nor is it by a rank 0 that reads the nonce of before first.
    first = epoch(rendezvous, 0)
    rendezvous.values["/job/here-1"], now = b"0" * 32, rendezvous.values["/job/here-1"]
    first.store()
    assert later.store() is None
    rendezvous.values["/job/here-1"] = now
    first.store()
    found, common = later.store(), first.store()
    assert found is not None
    assert common is not None
    found.put("hello-1", b"hello")
    assert common.get("hello-1") == b"hello"


def test_once_all_are_there_nobody_asks_the_store(rendezvous: Rendezvous) -> None:
    ranks = [epoch(rendezvous, rank, 3) for rank in range(3)]
    meet(*ranks)
    ranks[0].store()
    rendezvous.status = 500
    for each in ranks:
        assert each.store() is not None


def test_a_text_that_is_no_epoch_is_ignored(rendezvous: Rendezvous) -> None:
    later = epoch(rendezvous, 1)
    assert later.store() is None
    nonce = rendezvous.values["/job/here-1"]
    for text in (b"", b"\xff", b"../x " + nonce, nonce, b"0" * 32 + b" other"):
        rendezvous.values["/job/epoch"] = text
        assert later.store() is None
