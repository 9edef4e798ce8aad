"""Breaks the kernels of a job and of its compile service as the environment says (broken_kernels.py), and shortens how long the
ranks of a job wait for each other: STITCHFLEET_TEST_RANKS_TIME is the factor, for jobs that end within seconds.
STITCHFLEET_TEST_FAIL_IN_WORLD=N lets the plugin fail when the N-th world of an elastic job begins in a process."""

import dataclasses
import importlib.abc
import importlib.util
import os
import sys

import broken_kernels

RANKS_TIME = "STITCHFLEET_TEST_RANKS_TIME"
FAIL_IN_WORLD = "STITCHFLEET_TEST_FAIL_IN_WORLD"


def _break(cpu):  # type: ignore[no-untyped-def]
    kind, unchecked = os.environ.get(broken_kernels.BREAK, ""), broken_kernels.UNCHECKED in os.environ
    if kind or unchecked:
        broken_kernels.break_kernels(cpu, kind, unchecked)


def _shorten(courier):  # type: ignore[no-untyped-def]
    factor = float(os.environ.get(RANKS_TIME, "1"))
    given = dataclasses.asdict(courier.TIMES)
    courier.TIMES = courier.Times(**{name: seconds * (name == "wait_s" or factor) for name, seconds in given.items()})


def _fail(lockstep):  # type: ignore[no-untyped-def]
    if FAIL_IN_WORLD not in os.environ:
        return
    begin, last = lockstep.Ranks._begin, int(os.environ[FAIL_IN_WORLD])

    def fails(ranks, world):  # type: ignore[no-untyped-def]
        if len(ranks.sizes) + 1 == last:
            raise RuntimeError("a failure on purpose")
        begin(ranks, world)

    lockstep.Ranks._begin = fails


CHANGES = {
    "stitchfleet.compiler.pipeline.cpu": _break,
    "stitchfleet.plugin.ranks.courier": _shorten,
    "stitchfleet.plugin.job.lockstep": _fail,
}


class _Changer(importlib.abc.MetaPathFinder):
    def __init__(self, name, change):  # type: ignore[no-untyped-def]
        self._name, self._change = name, change

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def run_and_change(module):  # type: ignore[no-untyped-def]
            run(module)
            self._change(module)

        spec.loader.exec_module = run_and_change
        return spec


for _name, _change in CHANGES.items():
    sys.meta_path.insert(0, _Changer(_name, _change))
