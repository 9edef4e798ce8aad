"""How a helper process keeps out of the way of the job beside which it works."""

from __future__ import annotations

import contextlib
import os


def step_back(nice: int) -> None:
    """Gives this process a lower priority, by `nice` (nice(2)), and a process group of its own, as Ctrl-C is for the job.

    No session of its own: Linux shares processors among sessions first and looks at priorities within one (sched(7), autogroup), so
    that in another session the lowest priority would still take half of the job's processors.
    """
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    with contextlib.suppress(OSError):
        os.nice(nice)
