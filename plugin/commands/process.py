"""The process of a job under `stitchfleet run`: passes on signals to it, and its exit code to the caller.

A signal sent to `stitchfleet run` is meant for the job, and the job gets it exactly once:

    In the foreground of a terminal the job stays in our process group, so that it may read the terminal. The terminal's signals
    (Ctrl-C, Ctrl-\\, hang-up) go to the whole group. They have si_code SI_KERNEL, and we do not pass them on.
    Otherwise (a container, a batch system, `timeout`) the job has its own process group. A signal to our process, or to our group,
    reaches only us, and we pass it on.
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
"""si_code (siginfo_t) of a signal that the kernel itself has sent (asm-generic/siginfo.h)."""
_PR_SET_PDEATHSIG = 1
"""prctl(2): the signal that a process gets when its parent dies."""


def run_to_the_end(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Runs a command until it ends. Returns its exit code, or 128 + n if signal n ended it. Call it on the main thread.

    Raises OSError if the command cannot be started.
    """
    own_group = not _is_in_foreground()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON | {signal.SIGCHLD})
    prctl = ctypes.CDLL(None).prctl

    def prepare() -> None:
        if own_group:
            os.setpgid(0, 0)
            prctl(
                _PR_SET_PDEATHSIG, signal.SIGKILL
            )  # a SIGKILL of our group cannot be passed on; it must end the job too
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    try:
        # with SIG_IGN, which we may have inherited from our parent, the kernel would discard the job's exit code
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
    """Whether our process group is the foreground group of a terminal."""
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
