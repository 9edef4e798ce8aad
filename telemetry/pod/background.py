"""How a helper process avoids disturbing the job beside which it runs."""

from __future__ import annotations

import contextlib
import os


def step_back(nice: int) -> None:
    """Gives this process a lower priority, by `nice` (nice(2)), and a process group of its own, because Ctrl-C is meant for the job.
    Failures are ignored.

    It keeps its session: Linux shares processors among sessions first and applies priorities within a session (sched(7),
    autogroup), so in a session of its own even the lowest priority would take half of the job's processors.
    """
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    with contextlib.suppress(OSError):
        os.nice(nice)
