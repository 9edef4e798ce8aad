"""A pause in a job of the tests: until the processes that the job has started are at rest.

A fixed pause is too short on a slow machine and too long on a fast one. This one knows nothing of what those processes are.
"""

import os
import pathlib
import time

REST_SECONDS = 2.0 * max(1.0, float(os.environ.get("STITCHFLEET_TEST_PACE", "3")))
"""So long they must have done nothing: longer on a slow machine (tests/pace.py)."""
IDLE_SHARE = 0.03
"""Of one core, what still counts as nothing: this loop takes a third of it."""
FAULT_SECONDS, READ_SECONDS = 0.0005, 0.02
"""What a page fault counts as, without and with a read from disk: who waits for pages of a library is at work too."""


def _descendants():
    """The work of this process's other threads and of all processes below it in seconds, that of those which have ended included."""
    parents, seconds = {}, {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(entry.name)] = int(fields[1])
        faults, reads = int(fields[7]) + int(fields[8]), int(fields[9]) + int(fields[10])
        ticks = sum(map(int, fields[11:15]))
        seconds[int(entry.name)] = ticks / os.sysconf("SC_CLK_TCK") + faults * FAULT_SECONDS + reads * READ_SECONDS
    below, growing = {os.getpid()}, True
    while growing:
        more = {child for child, parent in parents.items() if parent in below} - below
        below |= more
        growing = bool(more)
    return time.process_time() - time.thread_time() + sum(seconds.get(child, 0.0) for child in below - {os.getpid()})


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
