"""Today's compilers of other frameworks beside stitchfleet (`scripts/bench --peers`): the same models, one machine, one run.

Each model's weights and batches are written by its TensorFlow script once (scripts/peers/export.py), and all frameworks start from
them. First each contestant takes some steps without dropout, and its losses must be plain TensorFlow's: one that computes something
else does not race. Then all are raced as workloads are, interleaved.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ..peers.catalog import EXPORT, NAMES, PEERS, WITHOUT_CHANCE, contestants, versions, workload
from ..peers.table import table
from ..zoo.environments import ZooError
from . import machine
from .contestants import ROOT, Contestant, Files, Workload, environment, kernels_of
from .figures import beside, figures_of, largest_difference
from .processes import watched
from .progress import say
from .race import Limits, Outcome, installed, last_words, run_race

CHECKED_STEPS = 2
MOST_DIFFERENCE = 1e-3
"""Largest relative difference of a loss from plain's in the checked steps, the second of which has the weights that the first one's
gradients made: float32 sums in another order. In later steps of the ResNet TensorFlow's own XLA was seen 4e-3 from plain."""
_LIMIT_S = 1800.0


class PeerError(Exception):
    """A script of a peer has failed. The message is one line."""


def build_parser() -> argparse.ArgumentParser:
    peers = "\n".join(f"  {peer.name:<16}{peer.help}" for peer in PEERS)
    parser = argparse.ArgumentParser(
        prog="scripts/bench --peers",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=(
            "Race models in TensorFlow (plain, XLA, stitched), JAX and PyTorch from the same weights with the same batches.\n"
            "The frameworks are installed first, in environments of their own (8 GB).\n"
            f"\npeers:\n{peers}\n\nmodels: {', '.join(NAMES)}"
        ),
    )
    parser.add_argument("--models", default=",".join(NAMES), metavar="A,B", help="some of the models (default: all)")
    parser.add_argument("--rounds", type=int, default=6, help="slices per contestant (default 6)")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a slice (default 3)")
    parser.add_argument("--cache", type=pathlib.Path, default=kernels_of(ROOT), metavar="DIR", help="kernel cache")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all results to FILE")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR", help="keep the contestants' output and logs in DIR")
    return parser


def main(words: Sequence[str]) -> int:
    """Runs the command. Returns the exit code: 0; 1 if a contestant failed; 2 for a mistake on the command line; 130 after Ctrl-C."""
    parser = build_parser()
    arguments = parser.parse_args(words)
    names = [name.strip() for name in arguments.models.split(",") if name.strip()]
    if unknown := [name for name in names if name not in NAMES] or not names:
        parser.error(f"--models: no model {unknown}; there are: {', '.join(NAMES)}")
    if arguments.rounds < 2 or not 0.0 < arguments.seconds < math.inf:
        parser.error("give --rounds from 2 up and --seconds above 0")
    if arguments.json is not None and not arguments.json.absolute().parent.is_dir():
        parser.error(f"--json: there is no folder {arguments.json.absolute().parent}")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    found: dict[str, list[dict[str, Any]]] = {}
    try:
        with contextlib.ExitStack() as stack:
            folder = arguments.keep or pathlib.Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="stitchfleet-peers-"))
            )
            folder.mkdir(parents=True, exist_ok=True)
            for name in names:
                found[name] = _model(name, folder.absolute() / name, arguments)
                if arguments.json is not None:
                    arguments.json.write_text(json.dumps(document(found, arguments), indent=1) + "\n")
    except KeyboardInterrupt:
        print("scripts/bench --peers: interrupted", file=sys.stderr)
        return 130
    except (OSError, PeerError, ZooError) as error:
        print(f"scripts/bench --peers: {error}", file=sys.stderr)
        return 2
    print("\n".join(table(document(found, arguments))))
    return int(any(each["failure"] for results in found.values() for each in results))


def _model(name: str, folder: pathlib.Path, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    given = workload(name)
    folder.mkdir()
    extra = WITHOUT_CHANCE.get(name, ())
    say(f"{name}: writing its weights and batches")
    start = _start(given, (), folder / "start.npz")
    # Keras draws a seed for each dropout, so that without it the weights are others.
    checked = _start(given, extra, folder / "checked.npz") if extra else start
    right: list[str] = []
    differences: dict[str, float] = {}
    failed: dict[str, str] = {}
    reference: list[float] = []
    for contestant in contestants(name, checked):
        if not contestant.is_stitched:  # the guard checks that one
            say(f"{name}: {CHECKED_STEPS} steps of {contestant.name}")
            try:
                losses = _first_losses(
                    contestant, contestant.instead or given, extra, folder / f"check-{contestant.name}"
                )
            except PeerError as error:
                if not reference:
                    raise
                failed[contestant.name] = str(error)
                continue
            reference = reference or losses
            _, differences[contestant.name] = largest_difference(losses, reference)
            if not differences[contestant.name] <= MOST_DIFFERENCE:
                failed[contestant.name] = f"computes other losses, by up to {differences[contestant.name]:.1e}"
                say(f"  {contestant.name} {failed[contestant.name]}")
                continue
        right.append(contestant.name)
    racing = [each for each in contestants(name, start) if each.name in right]
    mark = f"{os.getpid()}-{time.monotonic_ns()}/"
    limits = Limits(arguments.rounds, arguments.seconds)
    with watched(mark):
        outcomes = run_race(given, racing, limits, mark, folder / "race", arguments.cache.absolute(), (), say)
    ours = next((each for each in outcomes if each.contestant.is_stitched and not each.failure), None)
    results = [_facts(each, outcomes[0], ours, differences) for each in outcomes]
    return results + [_failure(each, reason, differences) for each, reason in failed.items()]


def _start(given: Workload, extra: tuple[str, ...], file: pathlib.Path) -> pathlib.Path:
    """Writes what the peers start from. extra: further options of the script. Raises PeerError."""
    command = [installed(given, say).python, str(EXPORT), given.script.stem, str(file), *given.arguments, *extra]
    _run(command, environment(Contestant("export", ""), Files(file.parent)), file.with_suffix(".txt"))
    return file


def _first_losses(contestant: Contestant, form: Workload, extra: tuple[str, ...], folder: pathlib.Path) -> list[float]:
    """The losses of a contestant's first steps. form: the script that it runs. Raises PeerError."""
    found, files = installed(form, say), Files(folder)
    folder.mkdir()
    words = [*form.arguments, *extra, *contestant.arguments, "--steps", str(CHECKED_STEPS), "--log", str(files.log)]
    _run([found.python, str(form.script), *words], environment(contestant, files, found), files.output)
    losses: list[float] = json.loads(files.log.read_text())["losses"]
    return losses


def _run(command: Sequence[str], variables: Mapping[str, str], output: pathlib.Path) -> None:
    with open(output, "wb") as file:
        try:
            done = subprocess.run(command, env=dict(variables), stdout=file, stderr=file, check=False, timeout=_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise PeerError(f"{pathlib.Path(command[1]).name} had not ended after {_LIMIT_S:.0f} s") from None
    if done.returncode:
        said = last_words(output.read_text(errors="replace"))
        raise PeerError(f"{pathlib.Path(command[1]).name} ended with exit code {done.returncode}: {said}")


def _facts(outcome: Outcome, plain: Outcome, ours: Outcome | None, differences: Mapping[str, float]) -> dict[str, Any]:
    figures = None if outcome.failure or plain.failure else figures_of(outcome, plain)
    over = beside(ours, outcome)[0] if ours is not None and ours is not outcome and figures is not None else None
    return {
        "contestant": outcome.contestant.name,
        "failure": outcome.failure,
        "note": outcome.note,
        "figures": dataclasses.asdict(figures) if figures else None,
        "over_stitched": dataclasses.asdict(over) if over else None,
        "difference_of_first_losses": differences.get(outcome.contestant.name),
        "warm_up_s": outcome.warm_up_s,
        "peak_bytes": outcome.peak_bytes,
    }


def _failure(name: str, reason: str, differences: Mapping[str, float]) -> dict[str, Any]:
    nothing = dict.fromkeys(("figures", "over_stitched", "warm_up_s", "peak_bytes"))
    difference = differences.get(name)
    return {"contestant": name, "failure": reason, "note": "", **nothing, "difference_of_first_losses": difference}


def document(found: Mapping[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """All results as JSON. found: those of each model."""
    return {
        "format": 1,
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine.facts(),
        "versions": {**machine.versions(), **versions()},
        "rounds": arguments.rounds,
        "slice_seconds": arguments.seconds,
        "models": found,
    }
