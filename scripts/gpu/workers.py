"""What the workers of the benchmark share: commands as JSON lines on stdin, answers as JSON lines on stdout.

    {"do": "prepare" | "time" | ..., "cases": [...], "until": seconds since the epoch}
    one line per case and contestant; {"done": ...} after each command

Libraries that print to stdout reach stderr instead.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Answer = Callable[..., None]
Command = Mapping[str, Any]


def answers() -> Answer:
    """Returns a function that writes its keywords as one answer, a line of JSON, to the process's stdout. All other output to
    stdout goes to stderr from now on."""
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def answer(**fields: Any) -> None:
        channel.write(json.dumps(fields) + "\n")
        channel.flush()

    return answer


def serve(handlers: Mapping[str, Callable[[Command], None]], answer: Answer) -> None:
    """Executes commands until stdin ends. An exception of a handler is answered in one line."""
    for line in sys.stdin:
        command = json.loads(line)
        try:
            handlers[command["do"]](command)
        except Exception as error:
            answer(error=one_line(error))
        answer(done=command["do"])


def in_time(command: Command) -> bool:
    """Whether the command may begin something new: its time `until` (Unix time in seconds) is not over."""
    return time.time() < float(command["until"])


def each_in_time(command: Command, answer: Answer, contestant: str) -> Iterator[dict[str, Any]]:
    """The command's cases; after `until`, each is answered with an error instead."""
    for case in command["cases"]:
        if in_time(command):
            yield case
        else:
            answer(name=case["name"], contestant=contestant, error="out of time")


def one_line(error: BaseException) -> str:
    """An error as one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:400]
