"""The process of a job under `stitchfleet run`: started with the plugin switched on, its signals its own, its exit code passed on.

A signal that somebody sends to `stitchfleet run` is meant for the job, and reaches it once:

    At a terminal, in its foreground, the job stays in our process group, so that it may read the terminal. What the terminal sends
    (Ctrl-C, Ctrl-\\, hang-up) it sends to the whole group; the kernel says so (si_code SI_KERNEL), and we do not send it again.
    Elsewhere (a container, a batch system, `timeout`) the job has a process group of its own. Whether one process is signalled or its
    group, it is we who get the signal, and pass it on.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

PASSED_ON = frozenset(
    (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)
)
_SI_KERNEL = 0x80
"""siginfo_t's si_code of a signal that the kernel sends of itself (asm-generic/siginfo.h)."""
_PR_SET_PDEATHSIG = 1
"""prctl(2): the signal that a process gets when its parent dies."""


def run_to_the_end(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Runs a command. Returns its exit code, 128 + n if signal n ended it. Call it on the main thread."""
    own_group = not _is_in_foreground()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON | {signal.SIGCHLD})
    prctl = ctypes.CDLL(None).prctl

    def prepare() -> None:
        if own_group:
            os.setpgid(0, 0)
            prctl(
                _PR_SET_PDEATHSIG, signal.SIGKILL
            )  # SIGKILL of our group, which cannot be passed on, is the job's end too
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    try:
        # without the default a parent's SIG_IGN for ended children, which is inherited, would take the exit code away
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        process = subprocess.Popen(list(command), env=dict(environment), preexec_fn=prepare)
        while (code := process.poll()) is None:
            received = signal.sigwaitinfo(PASSED_ON | {signal.SIGCHLD})
            if received.si_signo == signal.SIGCHLD or (received.si_code == _SI_KERNEL and not own_group):
                continue
            process.send_signal(received.si_signo)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return 128 - code if code < 0 else code


def _is_in_foreground() -> bool:
    """Whether our process group is the one that a terminal sends its signals to."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
