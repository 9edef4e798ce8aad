"""Runs one rank of a job on one core, as a launcher with `--bind-to core` does. Started by horovodrun, never by hand.

    pinned.py 'COMMAND ARGUMENT ...'

The command is one word, quoted for a shell: horovodrun takes options of the command for abbreviations of its own (`--log`).
Local rank r gets the r-th of the cores that this process may use, modulo their number.
"""

from __future__ import annotations

import os
import shlex
import sys


def core_of(local_rank: int, cores: set[int]) -> int:
    """The core of a rank. cores: those that the job may use, at least one."""
    return sorted(cores)[local_rank % len(cores)]


if __name__ == "__main__":
    os.sched_setaffinity(0, {core_of(int(os.environ["HOROVOD_LOCAL_RANK"]), os.sched_getaffinity(0))})
    words = shlex.split(sys.argv[1])
    os.execvp(words[0], words)
