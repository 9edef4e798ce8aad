"""A pause in a job of the tests: until the processes that the job has started are at rest.

A fixed pause is too short on a slow machine and too long on a fast one. This one knows nothing of what those processes are.
"""

import os
import pathlib
import time

REST_SECONDS = 4.0
"""So long they must have done nothing."""
IDLE_SHARE = 0.02
"""Of one core, what still counts as nothing."""


def _descendants():
    """The processor seconds of all processes below this one, those that have ended included; none of them: 0."""
    parents, seconds = {}, {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(entry.name)] = int(fields[1])
        seconds[int(entry.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    below, growing = {os.getpid()}, True
    while growing:
        more = {child for child, parent in parents.items() if parent in below} - below
        below |= more
        growing = bool(more)
    return sum(seconds.get(child, 0.0) for child in below - {os.getpid()})


def rest(longest):
    """Returns when they are at rest, or after `longest` seconds; 0: at once."""
    end = time.monotonic() + longest
    used, since = _descendants(), time.monotonic()
    while time.monotonic() < end:
        time.sleep(min(0.25, longest))
        now = _descendants()
        if now - used > IDLE_SHARE * REST_SECONDS or now < used:
            used, since = now, time.monotonic()
        elif time.monotonic() - since >= REST_SECONDS:
            return
