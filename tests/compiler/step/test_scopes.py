"""Scope identification: sets of members only, equal keys, never a cycle, as large as can be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stitchfleet.compiler.step.scopes import Caps, Dag, Scopes, fewest_sets, identify


@st.composite
def dags(draw: st.DrawFn, largest: int = 24) -> tuple[Dag, list[bool], list[int]]:
    size = draw(st.integers(1, largest))
    edges = draw(
        st.lists(
            st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)).filter(lambda e: e[0] != e[1]), max_size=60
        )
    )
    order = draw(st.permutations(range(size)))
    place = {node: i for i, node in enumerate(order)}
    directed = tuple((a, b) if place[a] < place[b] else (b, a) for a, b in edges)
    member = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    key = draw(st.lists(st.integers(0, 1), min_size=size, max_size=size))
    return Dag(size, directed), member, key


def owners(dag: Dag, scopes: Scopes) -> list[int]:
    owner = [-1 - i for i in range(dag.size)]
    for k, cluster in enumerate(scopes.clusters):
        for i in cluster:
            owner[i] = k
    return owner


def is_acyclic(dag: Dag, owner: list[int]) -> bool:
    edges = {(owner[a], owner[b]) for a, b in dag.edges if owner[a] != owner[b]}
    nodes = set(owner)
    while nodes:
        free = [n for n in nodes if not any(b == n for _, b in edges)]
        if not free:
            return False
        nodes -= set(free)
        edges = {(a, b) for a, b in edges if a not in free}
    return True


@settings(max_examples=300, deadline=None)
@given(dags(), st.booleans())
def test_contracting_the_sets_leaves_no_cycle_and_sets_are_members_of_one_key(
    case: tuple[Dag, list[bool], list[int]], remote: bool
) -> None:
    dag, member, key = case
    scopes = identify(dag, member, key, remote=remote)
    assert sorted(i for cluster in scopes.clusters for i in cluster) == [i for i in range(dag.size) if member[i]]
    assert all(len({key[i] for i in cluster}) == 1 for cluster in scopes.clusters)
    assert is_acyclic(dag, owners(dag, scopes))


@settings(max_examples=200, deadline=None)
@given(dags())
def test_an_edge_that_was_refused_for_a_cycle_would_have_made_one(case: tuple[Dag, list[bool], list[int]]) -> None:
    dag, member, key = case
    scopes = identify(dag, member, key)
    owner = owners(dag, scopes)
    for refusal in scopes.refusals:
        if refusal.reason == "cycle":
            joined = [owner[refusal.producer] if o == owner[refusal.consumer] else o for o in owner]
            assert not is_acyclic(dag, joined)
        assert scopes.why(refusal.producer, refusal.consumer) == refusal.reason


@settings(max_examples=100, deadline=None)
@given(dags(), st.integers(1, 5))
def test_caps_hold(case: tuple[Dag, list[bool], list[int]], bound: int) -> None:
    dag, member, key = case
    for remote in (False, True):
        scopes = identify(dag, member, key, Caps(nodes=bound), remote=remote)
        assert all(len(cluster) <= bound for cluster in scopes.clusters)


@settings(max_examples=200, deadline=None)
@given(dags(), st.integers(0, 7), st.integers(0, 3))
def test_parts_stay_apart_and_so_does_what_does_not_pay(
    case: tuple[Dag, list[bool], list[int]], cut: int, seed: int
) -> None:
    """Parts are such that edges lead from the first to the second, as a cut makes them."""
    dag, member, key = case
    depth = [0] * dag.size
    for _ in range(dag.size):
        for producer, consumer in dag.edges:
            depth[consumer] = max(depth[consumer], depth[producer] + 1)
    part = [place >= cut for place in depth]
    asked: list[tuple[list[int], list[int]]] = []

    def pays(one: Sequence[int], other: Sequence[int]) -> bool:
        asked.append((list(one), list(other)))
        return (sum(one) + sum(other) + seed) % 2 == 0

    scopes = identify(dag, member, key, remote=True, part=part, pays=pays)
    owner = owners(dag, scopes)
    assert is_acyclic(dag, owner)
    assert sorted(i for cluster in scopes.clusters for i in cluster) == [i for i in range(dag.size) if member[i]]
    for producer, consumer in dag.edges:
        if member[producer] and member[consumer] and part[producer] != part[consumer]:
            assert owner[producer] != owner[consumer]
    for one, other in asked:
        assert len({owner[i] for i in one}) == len({owner[i] for i in other}) == 1
    refusing = identify(dag, member, key, remote=True, pays=lambda one, other: False)
    assert sorted(refusing.clusters) == sorted(identify(dag, member, key).clusters)


def test_a_path_through_a_non_member_keeps_two_members_apart() -> None:
    dag = Dag(3, ((0, 1), (1, 2), (0, 2)))
    scopes = identify(dag, [True, False, True])
    assert scopes.clusters == [(0,), (2,)]
    assert scopes.why(0, 2) == "cycle"


def test_remote_stitching_joins_what_no_path_connects() -> None:
    dag = Dag(4, ((0, 1), (2, 3)))
    assert identify(dag, [True] * 4).clusters == [(0, 1), (2, 3)]
    assert identify(dag, [True] * 4, remote=True).clusters == [(0, 1, 2, 3)]


@pytest.mark.parametrize(("distance", "joined"), [(0, False), (2, False), (3, True), (None, True)])
def test_remote_stitching_joins_what_begins_at_about_the_same_time(distance: int | None, joined: bool) -> None:
    """Node 3 waits for three others, node 4 for none."""
    dag = Dag(5, ((0, 1), (1, 2), (2, 3)))
    member = [False, False, False, True, True]
    found = identify(dag, member, caps=Caps(remote_distance=distance), remote=True).clusters
    assert sorted(found) == ([(3, 4)] if joined else [(3,), (4,)])


def _ways_to_part(items: Sequence[int]) -> Iterator[list[list[int]]]:
    """All ways to put the items into sets."""
    if not items:
        yield []
        return
    first, *others = items
    for parts in _ways_to_part(others):
        yield [[first], *parts]
        for k, part in enumerate(parts):
            yield [*parts[:k], [first, *part], *parts[k + 1 :]]


@settings(max_examples=100, deadline=None)
@given(dags(largest=7))
def test_no_way_to_part_the_members_has_fewer_sets_than_the_fewest(case: tuple[Dag, list[bool], list[int]]) -> None:
    dag, member, _ = case
    ways = _ways_to_part([i for i in range(dag.size) if member[i]])
    assert fewest_sets(dag, member) == min(len(way) for way in ways if is_acyclic(dag, owners(dag, Scopes(way))))


@settings(max_examples=200, deadline=None)
@given(dags())
def test_remote_stitching_never_comes_below_the_fewest(case: tuple[Dag, list[bool], list[int]]) -> None:
    dag, member, _ = case
    assert fewest_sets(dag, member) <= len(identify(dag, member, remote=True).clusters)


def test_a_cycle_is_an_error() -> None:
    with pytest.raises(ValueError, match="cycle"):
        identify(Dag(2, ((0, 1), (1, 0))), [True, True])


def test_a_graph_of_five_thousand_nodes() -> None:
    layers, width = 250, 20
    edges = []
    for layer in range(1, layers):
        for i in range(width):
            edges += [((layer - 1) * width + j, layer * width + i) for j in (i, (i + 1) % width)]
    member = [(i // width) % 7 != 0 for i in range(layers * width)]
    scopes = identify(Dag(layers * width, tuple(edges)), member, remote=True)
    assert len(scopes.clusters) < layers
