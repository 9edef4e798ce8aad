"""Timing of small functions in turns: each contestant has one turn in every round, so that changes of the machine affect all
alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

ROUND_S: Final = 0.012
MOST_CALLS: Final = 300
BATCH_NS: Final = 50_000


def in_turns(
    contestants: Mapping[str, Callable[[], Any]], rounds: int, warm_up: int, turn: Callable[[str], float]
) -> dict[str, list[float]]:
    """Contestant's name -> the results of its `rounds` turns, after `warm_up` calls. turn(name): takes a turn, returns its result."""
    for function in contestants.values():
        for _ in range(warm_up):
            function()
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, found in times.items():
            found.append(turn(name))
    return times


def median_us(
    function: Callable[[], Any],
    seconds: float,
    most: int,
    batch_ns: int = 0,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> float:
    """The median time of a call, in microseconds, over the measurements that fit into `seconds`, at least 3 and at most `most`.

    batch_ns: calls are timed in batches of about this length in nanoseconds, since reading a clock takes some 0.3 us; 0: one by one.
    """
    together = 1
    if batch_ns:
        started = clock()
        function()
        together = max(1, min(most, batch_ns // max(1, clock() - started)))
    found: list[float] = []
    end = time.perf_counter_ns() + int(seconds * 1e9)
    while len(found) < 3 or (len(found) < most and time.perf_counter_ns() < end):
        started = clock()
        for _ in range(together):
            function()
        found.append((clock() - started) / together)
    return statistics.median(found) / 1e3


def kernels_us(
    contestants: Mapping[str, Callable[[], Any]],
    rounds: int,
    clock: Callable[[str], Callable[[], int]],
) -> dict[str, float]:
    """Microseconds of a call by contestant's name: the fastest of `rounds` turns, since other work on the machine only adds time.
    clock(name): what measures this contestant, in nanoseconds."""
    times = in_turns(
        contestants,
        rounds,
        2,
        lambda name: median_us(contestants[name], ROUND_S, MOST_CALLS, BATCH_NS, clock(name)),
    )
    return {name: min(found) for name, found in times.items()}
