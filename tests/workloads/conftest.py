"""Workloads run as their users run them, at sizes that a test can afford."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts" / "workloads"


@dataclass(frozen=True)
class Case:
    """A workload made small: the script, its arguments, and whether its loss must fall in some steps.

    rounding: what plain's rounding is measured with (states.py). In a convolutional net it is that of sums over the batch, which a
    small change of the weights leaves as it is: the examples are taken in another order too."""

    script: str
    arguments: str
    learns: bool = False
    rounding: str = "--nudge 0"

    @property
    def words(self) -> list[str]:
        return [str(SCRIPTS / self.script), *self.arguments.split()]


_BERT = "--layers 1 --hidden 32 --heads 2 --inner 64 --vocabulary 500 --length 16"
_TRANSFORMER = "--layers 1 --hidden 32 --heads 2 --inner 64 --vocabulary 500 --length 16 --batch 4"
_DIEN = "--batch 16 --history 12"
_SESSION = "--batch 16 --vocabulary 1000 --embedding 32 --hidden 64"
CASES = {
    "bert": Case("bert.py", _BERT, learns=True),
    "bert-padded": Case("bert.py", f"{_BERT} --padded", learns=True),
    "causal": Case("causal.py", _BERT, learns=True),
    "transformer": Case("transformer.py", f"{_TRANSFORMER} --warm-up 200", learns=True),
    "transformer-infer": Case("transformer.py", f"{_TRANSFORMER} --mode infer"),
    "transformer-decode": Case("transformer.py", f"{_TRANSFORMER} --mode decode"),
    "dien": Case("dien.py", _DIEN, learns=True),
    "dien-infer": Case("dien.py", f"{_DIEN} --mode infer"),
    "crnn": Case("crnn.py", ""),
    "resnet": Case("resnet.py", "--width 4 --batch 8", learns=True, rounding="--nudge 0 --reverse"),
    "resnet-infer": Case("resnet.py", "--width 4 --batch 8 --mode infer"),
    "asr": Case("asr.py", "--letters 8"),
    "lengths": Case(
        "language_lengths.py",
        "--layers 1 --hidden 32 --heads 2 --inner 64 --vocabulary 500 --batch 4 --longest 40",
        learns=True,
    ),
    "actor-critic": Case("actor_critic.py", ""),
    "sampler": Case("sampler.py", ""),
    "session": Case("session_v1.py", _SESSION, learns=True),
    "session-infer": Case("session_v1.py", f"{_SESSION} --mode infer"),
    "session-old-variables": Case("session_v1.py", f"{_SESSION} --old-variables", learns=True),
}
MIXED = Case("bert.py", f"{_BERT} --mixed", learns=True)
"""In mixed_bfloat16: rounding is too coarse for the comparisons of the others."""


@dataclass(frozen=True)
class Run:
    """What a workload logged and printed."""

    losses: list[float]
    starts: list[float]
    seconds: list[float]
    out: str


RunCase = Callable[..., Run]


@pytest.fixture
def run_case(tmp_path: Path) -> RunCase:
    """run_case(case, steps, *more): the script plain, to its end."""
    count = iter(range(100))

    def run(case: Case, steps: int, *more: str) -> Run:
        log = tmp_path / f"log-{next(count)}.json"
        command = [sys.executable, *case.words, "--steps", str(steps), "--log", str(log), *more]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("STITCHFLEET_")}
        environment = {**clean, "TF_CPP_MIN_LOG_LEVEL": "3"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        found: dict[str, Any] = json.loads(log.read_text())
        return Run(found["losses"], found["starts"], found["seconds"], done.stdout)

    return run
