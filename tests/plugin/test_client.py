"""The process that compiles beside a job."""

from __future__ import annotations

import os
import pathlib
import time

from stitchfleet.plugin.client import CompileClient


def test_the_service_has_the_lowest_priority_in_the_jobs_own_session(tmp_path: pathlib.Path) -> None:
    """In a session of its own Linux would give it as large a share of the processors as the job, whatever its priority."""
    client = CompileClient(tmp_path / "cache", 1 << 20, 19, tmp_path / "log", lambda line: None)
    client.prepare()
    try:
        pid = client.pid
        assert pid is not None
        deadline = time.monotonic() + 120  # it begins as our child does, and steps back when Python is up
        while os.getpriority(os.PRIO_PROCESS, pid) != 19 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert os.getpriority(os.PRIO_PROCESS, pid) == 19
        assert os.getpgid(pid) == pid
        assert os.getsid(pid) == os.getsid(0)
    finally:
        client.close()
