"""Tests whether the starter runs in this cluster, in the webhook's own pod, before any pod depends on it.

The folder should be a volume in memory, as a pod's downward-API volume is: if a kubelet or a security module does not let programs
run from there, we notice it, and not users whose pods do not start.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import tempfile

from ..policy import starter

SECONDS = 10.0


def why_not(folder: str | None = None) -> str:
    """Why the starter does not run; "" if it does. folder: default the folder for temporary files, which the chart keeps in
    memory."""
    return next(filter(None, (_why_not(text, folder) for text in (starter.SCRIPT, starter.BINARY))), "")


def _why_not(text: str, folder: str | None) -> str:
    try:
        with tempfile.TemporaryDirectory(dir=folder) as name:
            program = pathlib.Path(name) / "start"
            program.write_text(text, encoding="ascii")
            program.chmod(0o555)
            words = [str(program), "PYTHONPATH=first", ":last", str(program), "try", "nothing"]
            done = subprocess.run(words, env={"PATH": os.defpath}, capture_output=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the starter does not run in this cluster: {error}"
    return "" if done.returncode == 0 else f"the starter does not run in this cluster: it ended with {done.returncode}"
