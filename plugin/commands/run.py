"""`stitchfleet run`: runs a job on this machine with stitching switched on."""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stitchfleet.telemetry.pod import environment

from ..base.containment import say
from ..base.settings import BOOTSTRAP, PREFIX, Settings, clean_environment, read_settings, writable_folder
from ..job.records import shipping_words
from ..native.library import (
    NativeBuildError,
    TensorFlowBuild,
    build_library,
    find_tensorflow,
)
from ..ranks import exchange
from ..ranks.meeting import STORE_VARIABLE, KeptStore
from ..ranks.store import ScopedStore, StoreError
from ..ranks.world import World, agree_on_run_id
from ..reporting import summaries
from ..reporting.summary_text import print_summaries
from ..versions import known, self_test
from .process import run_to_the_end

SHIPPING_SECONDS = 5.0
"""Longest wait for the job's last records to reach the database. Later ones are sent by the job's own shipper, or from the spool by
the next run, report or shipper on the node."""
RANKS_SECONDS = 10.0
"""Longest wait of rank 0, at its end, for the other ranks' summaries. Ranks end at the same time, apart from their exit handlers."""


class RunCommand:
    """`stitchfleet run [options] -- COMMAND [ARG ...]`."""

    help = (
        "Run a command with stitching switched on in every Python process that it starts. The script is not changed, and\n"
        "neither are its output, exit code and signals.\n\n  stitchfleet run -- python train.py --epochs 3\n\n"
        "The job begins plain. Kernels are compiled beside it, and used after they agreed with TensorFlow's own results on the\n"
        "job's tensors."
    )

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds the options of the command to `parser`."""
        parser.add_argument(
            "--summary", type=pathlib.Path, metavar="FILE.json", help="write the job's summary to a JSON file"
        )
        parser.add_argument(
            "--database", metavar="URL", help="SQLAlchemy URL for the records (default: SQLite in the cache folder)"
        )
        parser.add_argument("--cache", type=pathlib.Path, metavar="DIR", help="folder for kernels and native code")
        parser.add_argument(
            "--mode",
            choices=["auto", "observe", "idle", "alternate", "fallback"],
            help="see `stitchfleet doctor --settings`",
        )
        parser.add_argument(
            "--disable", metavar="NAMES", help="comma-separated names of clusters that are not stitched"
        )
        parser.add_argument(
            "--control",
            type=pathlib.Path,
            metavar="FILE",
            help="file that is read while the job runs: off, on, or names of clusters to switch off",
        )
        parser.add_argument("--quiet", action="store_true", help="print only failures, and no summary")
        parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="command to run")

    def run(self, arguments: argparse.Namespace) -> int:
        """Runs the job. Returns its exit code (128 + n after signal n), 2 for a user's mistake, or 127 if there is no such
        program."""
        command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
        if not command:
            print("stitchfleet run: no command given; for example: stitchfleet run -- python train.py", file=sys.stderr)
            return 2
        if shutil.which(command[0]) is None:
            print(f"stitchfleet run: {command[0]}: no such program", file=sys.stderr)
            return 127
        settings = read_settings(os.environ, say)
        given = {
            "cache": arguments.cache,
            "mode": arguments.mode,
            "database": arguments.database,
            "control_file": arguments.control,
        }
        changed: dict[str, Any] = {
            "enabled": True,
            **{name: value for name, value in given.items() if value is not None},
        }
        if arguments.quiet:
            changed["quiet"] = True
        if arguments.disable:
            changed["disable_clusters"] = tuple(arguments.disable.split(","))
        settings = dataclasses.replace(settings, **changed)
        cache = writable_folder(settings.cache, say)
        settings = dataclasses.replace(settings, cache=cache)
        if arguments.database is not None:
            settings = dataclasses.replace(settings, ingest=None)
        if settings.database is None and settings.ingest is None and _can_store():
            settings = dataclasses.replace(settings, database=f"sqlite:///{cache}/stitchfleet.db")
        self._prepare(cache, _say_nothing if settings.quiet else say)
        with tempfile.TemporaryDirectory(prefix="stitchfleet-run-") as folder:
            summary = arguments.summary or pathlib.Path(folder) / "summary.json"
            summary = summary.absolute()
            if arguments.summary is not None and not summary.parent.is_dir():
                print(f"stitchfleet run: --summary: there is no folder {summary.parent}", file=sys.stderr)
                return 2
            world = World.from_environment(os.environ)
            kept: KeptStore | None = None
            if world.is_distributed:  # a launcher starts this command once per rank: each needs a file of its own
                summary = pathlib.Path(folder) / "summary.json"
                if not environment.RUN_ID.read():
                    os.environ[environment.RUN_ID.name] = agree_on_run_id(world)
                kept = keep_store(world)
            summaries.remove(summary)
            settings = dataclasses.replace(settings, summary=summary)
            why = why_python_does_not_start_us(command)
            if why:
                say(f"the job will run plain: {why}")
            code = run_to_the_end(command, job_environment(settings))
            found = summaries.gather(summary)
            hand_over_records(found, settings)
            if world.is_distributed:
                world = world_at_the_end(world, found)
                found = summaries_of_ranks(world, found, arguments.summary, RANKS_SECONDS if code == 0 else 1.0)
                if kept is not None:
                    kept.close()
            if not settings.quiet and world.rank == 0 and (found or not why):
                print_summaries(found)
        return code

    @staticmethod
    def _prepare(cache: pathlib.Path, note: Callable[[str], None]) -> None:
        """Builds the native library if it is missing. If that fails, the job runs plain. note: prints a line about what is no
        failure."""
        try:
            build = find_tensorflow()
            try_if_unknown(build_library(cache, build, note), build, cache, note)
        except NativeBuildError as error:
            say(f"the job will run plain: {error}")


def _say_nothing(line: str) -> None:
    pass


def try_if_unknown(
    library: pathlib.Path, build: TensorFlowBuild, cache: pathlib.Path, note: Callable[[str], None] = say
) -> self_test.SelfTestResult | None:
    """Runs the self-test, once per library, if TensorFlow's version is not among the known ones (about a minute). Returns its
    verdict; None if the version is known. note: prints a line about what is no failure."""
    if known.is_known(build.version):
        return None
    verdict = self_test.verdict_of(library)
    if verdict is None:
        note(f"{known.unknown(build.version)}: trying it once (about a minute)")
        verdict = self_test.try_version(library, cache)
        if verdict.passed:
            note("the self-test passed")
        else:
            say(f"the self-test failed: {verdict.why}")
    return verdict


def world_at_the_end(world: World, own: Sequence[Mapping[str, Any]]) -> World:
    """The world as it was when this rank ended: in an elastic job rank and size change. own: this rank's summaries, which hold
    them."""
    if not world.is_elastic or not own:
        return world
    return dataclasses.replace(world, rank=int(own[0]["rank"]), size=int(own[0]["world_size"]))


def summaries_of_ranks(
    world: World, own: list[dict[str, Any]], path: pathlib.Path | None, longest_s: float
) -> list[dict[str, Any]]:
    """Gathers the summaries of all ranks at rank 0, which waits for them for at most `longest_s` seconds and writes the document.

    own: this rank's summaries. path: file of the document, or None. Returns the summaries of all ranks on rank 0, on other ranks
    `own`. If the ranks have no store (mpirun without Horovod), each returns `own` and writes its own document: FILE on rank 0,
    FILE.rank-1 on rank 1, ...
    """
    store = _store_of_ranks(world, own)
    if store is None:
        found = own
        path = path if path is None or world.rank == 0 else path.with_name(f"{path.name}.rank-{world.rank}")
    elif world.rank:
        exchange.publish(store, world.rank, "summaries", own)
        return own
    else:
        others = exchange.collect(store, world.rank, world.size, "summaries", longest_s)
        found = summaries.in_order(own + [summary for _, theirs in sorted(others.items()) for summary in theirs])
    if path is not None and found and not summaries.write_document(path, found):
        say(f"the summary could not be written to {path}")
    return found


def keep_store(world: World) -> KeptStore | None:
    """Starts a store on rank 0 if the launcher provides none, and names it in the environment. The job's process announces it to
    the other ranks if it uses Horovod (meeting.py). The caller closes it when the other ranks' summaries have arrived. Returns
    None if no store is needed here, or if it cannot be started."""
    os.environ.pop(STORE_VARIABLE, None)
    if world.store is not None or world.rank or world.size == 1:
        return None
    try:
        kept = KeptStore(environment.RUN_ID.read())
    except StoreError:
        return None  # the job's process will try it again, and say so
    os.environ[STORE_VARIABLE] = f"{kept.place.port} {kept.place.scope}"
    return kept


def _store_of_ranks(world: World, own: Sequence[Mapping[str, Any]]) -> ScopedStore | None:
    """The store over which the ranks have agreed: the launcher's, or the one that this rank's summaries, `own`, name."""
    if world.store is not None:
        return ScopedStore(*world.store, f"stitchfleet-{environment.RUN_ID.read()}")
    place = next((summary["store_of_ranks"] for summary in own if summary.get("store_of_ranks")), None)
    return ScopedStore(*place) if place is not None else None


def _can_store() -> bool:
    import importlib.util

    return importlib.util.find_spec("sqlalchemy") is not None


def why_python_does_not_start_us(command: Sequence[str]) -> str:
    """Why a command that starts Python will not import `sitecustomize`, which switches the plugin on; "" if it will, or if the
    command is not Python."""
    if not re.fullmatch(r"python[\d.]*", os.path.basename(command[0])):
        return ""
    for word in command[1:]:
        if not word.startswith("-") or word in ("-", "--") or word.startswith(("-c", "-m")):
            return ""
        for letter, what in _NO_SITECUSTOMIZE.items():
            if not word.startswith("--") and letter in word[1:]:
                return f"python -{letter} {what}, by which the plugin is switched on"
    return ""


_NO_SITECUSTOMIZE = {
    "I": "ignores PYTHONPATH",
    "E": "ignores PYTHONPATH",
    "S": "does not import sitecustomize",
}
"""Options of Python with which our sitecustomize is not imported (Python's documentation, "Command line and environment")."""


def job_environment(settings: Settings) -> dict[str, str]:
    """The environment of a job: the settings, a run id, and our bootstrap folder first on PYTHONPATH. Variables that identify the job
    or say how its records are sent (STITCHFLEET_LABELS, _INGEST_TOKEN and so on) are inherited."""
    given_by_settings = {PREFIX + spec.name.upper() for spec in dataclasses.fields(Settings)}
    variables = {key: value for key, value in os.environ.items() if key not in given_by_settings}
    variables.update(settings.environment())
    variables[PREFIX + "ENABLED"] = "1"
    variables.setdefault(PREFIX + "RUN_ID", uuid.uuid4().hex)
    paths = [path for path in variables.get("PYTHONPATH", "").split(os.pathsep) if path and path != str(BOOTSTRAP)]
    variables["PYTHONPATH"] = os.pathsep.join([str(BOOTSTRAP), *paths])
    return variables


def hand_over_records(processes: Sequence[Mapping[str, Any]], settings: Settings) -> None:
    """Sends the last records of the job's processes to the database or the ingest server, so that a report made right after the job
    has them all. Prints a line if that fails or takes longer than SHIPPING_SECONDS. processes: their summaries.

    The job's own shipper may still be sending; sending a record twice changes nothing.
    """
    where = shipping_words(settings)
    end = time.monotonic() + SHIPPING_SECONDS
    for summary in processes if where else ():
        folder = summary["records"]["folder"]
        command = [sys.executable, "-m", "stitchfleet.telemetry.shipping.shipper", folder, *where]
        left = end - time.monotonic()
        try:
            if left <= 0:  # another process of the run took all of it
                raise subprocess.TimeoutExpired(command, left)
            done = subprocess.run(
                command,
                env=clean_environment(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                timeout=left,
                check=False,
            )
        except subprocess.TimeoutExpired:
            say(
                f"what was recorded stays in the spool {folder} for now: handing it over took more than {SHIPPING_SECONDS:g} s"
            )
        except OSError:
            pass  # the records stay in the spool, and `stitchfleet report` takes them from there
        else:
            for line in done.stderr.splitlines():
                if line.startswith("shipper: "):
                    say(line)
