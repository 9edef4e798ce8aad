"""Whether an op's short kernel is shared with the pool's threads follows from what has been seen (plugin/native/op/parallelism.h)."""

from __future__ import annotations

import ctypes
import random
import subprocess
from collections.abc import Callable, Iterator

import pytest

from ..conftest import ROOT

SHIM = """
#include "op/parallelism.h"
using stitchfleet::Parallelism;
using stitchfleet::RunningLoop;
extern "C" {
Parallelism* make() { return new Parallelism; }
void unmake(Parallelism* op) { delete op; }
int choose(Parallelism* op) {
  const Parallelism::Choice choice = op->Choose();
  return choice.way + 2 * choice.is_timed;
}
RunningLoop* begin_loop() { return new RunningLoop; }
void end_loop(RunningLoop* loop) { delete loop; }
bool leave_threads(int threads) { return RunningLoop::LeaveThreads(threads); }
void observe(Parallelism* op, int way, long long ns) { op->Observe(static_cast<Parallelism::Way>(way), ns); }
}
"""
SHARED, ALONE = 0, 1
Took = Callable[[int], float]


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("parallelism")
    (folder / "shim.cc").write_text(SHIM)
    made = folder / "shim.so"
    words = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", "-I", str(ROOT / "plugin" / "native"), "-o", str(made)]
    subprocess.run([*words, str(folder / "shim.cc")], check=True)
    library = ctypes.CDLL(str(made))
    library.make.restype = library.begin_loop.restype = ctypes.c_void_p
    library.leave_threads.restype = ctypes.c_bool
    for name in ("unmake", "choose", "end_loop"):
        getattr(library, name).argtypes = [ctypes.c_void_p]
    library.observe.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_longlong]
    return library


class Op:
    """An op whose calls take as long as `took` says, in nanoseconds, by the way they are run."""

    def __init__(self, shim: ctypes.CDLL) -> None:
        self._shim, self._op = shim, shim.make()

    def calls(self, count: int, took: Took) -> list[int]:
        """The ways of so many calls."""
        ways = []
        for _ in range(count):
            is_timed, way = divmod(self._shim.choose(self._op), 2)
            if is_timed:
                self._shim.observe(self._op, way, round(took(way)))
            ways.append(way)
        return ways

    def close(self) -> None:
        self._shim.unmake(self._op)


@pytest.fixture
def op(shim: ctypes.CDLL) -> Iterator[Op]:
    made = Op(shim)
    yield made
    made.close()


def test_both_ways_are_tried_by_turns_first(op: Op) -> None:
    assert op.calls(32, lambda way: 30e3) == [SHARED, ALONE] * 16


@pytest.mark.parametrize(("shared_us", "alone_us", "best"), [(300, 30, ALONE), (18, 30, SHARED), (33, 30, ALONE)])
def test_the_faster_way_is_taken_and_the_other_tried_ever_more_rarely(
    op: Op, shared_us: float, alone_us: float, best: int
) -> None:
    draw = random.Random(1)
    ways = op.calls(100_000, lambda way: 1e3 * (shared_us if way == SHARED else alone_us) * draw.uniform(0.98, 1.02))
    others = [number for number, way in enumerate(ways) if way != best]
    assert len(others) <= 16 * (1 + 5 + 100_000 // 16384 + 1)
    assert len([number for number in others if number < 2000]) <= 16 * 3


def test_rare_stalls_of_shared_calls_count_by_what_they_cost(op: Op) -> None:
    """One call in four stands still for 300 us: on average it is slower than alone, though its median is faster."""
    draw = random.Random(2)
    ways = op.calls(20_000, lambda way: 30e3 if way == ALONE else 300e3 if draw.random() < 1 / 4 else 18e3)
    assert ways.count(ALONE) > 0.9 * 20_000


def test_when_the_machine_changes_so_does_the_way(op: Op) -> None:
    busy: Took = lambda way: 30e3 if way == ALONE else 300e3  # noqa: E731
    idle: Took = lambda way: 30e3 if way == ALONE else 16e3  # noqa: E731
    assert op.calls(5000, busy)[-100:] == [ALONE] * 100
    assert op.calls(40_000, idle)[-100:] == [SHARED] * 100
    assert op.calls(40_000, busy)[-100:] == [ALONE] * 100


@pytest.mark.parametrize("alone_us", [300, 4000])
def test_a_long_kernel_is_shared_after_one_call_alone(op: Op, alone_us: float) -> None:
    ways = op.calls(500, lambda way: 1e3 * (alone_us if way == ALONE else alone_us / 2))
    assert ways[:2] == [SHARED, ALONE]
    assert set(ways[2:]) == {SHARED}


def test_a_moment_in_which_the_machine_stood_still_decides_nothing(op: Op) -> None:
    slow = iter([False] * 7 + [True] + [False] * 100_000)
    ways = op.calls(500, lambda way: 50e6 if way == SHARED and next(slow) else (16e3 if way == SHARED else 30e3))
    assert ways[32:] == [SHARED] * 468


def test_as_many_loops_as_threads_leave_no_help(shim: ctypes.CDLL) -> None:
    """The two directions of a recurrent layer on two cores."""
    first = shim.begin_loop()
    assert shim.leave_threads(2)
    second = shim.begin_loop()
    assert [shim.leave_threads(threads) for threads in (2, 3)] == [False, True]
    shim.end_loop(first)
    assert shim.leave_threads(2)
    shim.end_loop(second)
