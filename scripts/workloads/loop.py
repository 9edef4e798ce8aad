"""The options of a job and the log of its steps, for every framework."""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

REPORT_EVERY = 20


def make_parser(
    description: str | None, modes: tuple[str, ...] = ("train", "infer"), steps: int = 200
) -> argparse.ArgumentParser:
    """A parser with the options of every workload. The first of `modes` is the default."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=steps, help=f"number of steps (default {steps})")
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the weights, the data's order and the dropout (default 0)"
    )
    parser.add_argument("--mode", choices=modes, default=modes[0], help=f"default {modes[0]}")
    parser.add_argument("--xla", action="store_true", help="compile the step with XLA (jit_compile=True)")
    parser.add_argument("--log", metavar="FILE", help="write each step's loss, start (monotonic) and seconds as JSON")
    return parser


class StepLog:
    """The log of a job's steps. quiet: print nothing."""

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet
        self._losses: list[float] = []
        self._starts: list[float] = []
        self._seconds: list[float] = []
        self._is_interrupted = False

    def __call__(self, step: Callable[[], float]) -> None:
        """Runs one step, which returns its loss, and notes it."""
        start = time.monotonic()
        loss = step()
        self.note(start, time.monotonic() - start, loss)

    def note(self, start: float, seconds: float, loss: float) -> None:
        """Notes a step that began at time.monotonic() `start` and took `seconds`. Raises KeyboardInterrupt after Ctrl-C."""
        self._seconds.append(seconds)
        self._starts.append(start)
        self._losses.append(loss)
        if len(self._losses) % REPORT_EVERY == 1:
            self._report()
        if self._is_interrupted:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def interrupted_between_steps(self) -> Iterator[None]:
        """A context in which Ctrl-C raises KeyboardInterrupt at the end of the step, a second one at once.

        If it is raised while TensorFlow asks an iterator's TensorShapes for their ranks, TensorFlow 2.15 takes them for unknown,
        allocates too small a buffer, and writes the dimensions behind its end (SetOpAttrList in pywrap_tfe_src.cc): "free():
        invalid next size", or a crash later. Some races lost a job to it.
        """

        def interrupt(number: int, frame: Any) -> None:
            self._is_interrupted = True
            signal.signal(signal.SIGINT, signal.default_int_handler)

        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, interrupt)
        try:
            yield
        finally:
            if signal.getsignal(signal.SIGINT) is interrupt:
                signal.signal(signal.SIGINT, signal.default_int_handler)

    @property
    def count(self) -> int:
        """The number of steps so far."""
        return len(self._losses)

    def end(self, path: str | None) -> None:
        """Reports the last step, and writes the log to `path` if given."""
        if self._losses and len(self._losses) % REPORT_EVERY != 1:
            self._report()
        if path:
            with open(path, "w", encoding="utf-8") as log:
                json.dump({"losses": self._losses, "starts": self._starts, "seconds": self._seconds}, log)

    def _report(self) -> None:
        if not self._quiet:
            last, loss, ms = len(self._losses) - 1, self._losses[-1], self._seconds[-1] * 1e3
            print(f"step {last:5d}  loss {loss:.6f}  {ms:8.1f} ms", flush=True)


@contextlib.contextmanager
def step_log(path: str | None, quiet: bool = False) -> Iterator[StepLog]:
    """A context manager. Yields a StepLog, which is written to `path`, if given, at the end, also after Ctrl-C, which ends the job
    normally. quiet: print nothing."""
    log = StepLog(quiet)
    with contextlib.suppress(KeyboardInterrupt), log.interrupted_between_steps():
        yield log
    log.end(path)
