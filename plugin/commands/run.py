"""`stitchfleet run` and `stitchfleet doctor`: a job on this machine with stitching switched on, and what that needs."""

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
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stitchfleet.compiler.toolchain import nvrtc
from stitchfleet.telemetry.pod import environment

from ..base.containment import say
from ..base.gpus import find_gpus
from ..base.settings import BOOTSTRAP, PREFIX, Settings, clean_environment, read_settings, writable_folder
from ..job.records import shipping_words
from ..native.library import (
    NativeBuildError,
    build_library,
    compiler_command,
    find_tensorflow,
    library_path,
)
from ..ranks import exchange
from ..ranks.world import World, agree_on_run_id
from ..reporting import summaries
from ..reporting.summary_text import print_summaries
from .process import run_to_the_end

SHIPPING_SECONDS = 5.0
"""Longest wait for the job's last records to reach the database. What is not there by then its own shipper goes on with, or the next
run, report or shipper of the node takes from the spool."""
RANKS_SECONDS = 10.0
"""Longest wait of rank 0, at its end, for what the other ranks say; they end at the same time, but for their exit handlers."""


class RunCommand:
    """`stitchfleet run [options] -- COMMAND [ARG ...]`."""

    help = (
        "Runs a command with stitching switched on in every Python that it starts. The script is not changed; its output, "
        "exit code and signals are its own.\n\n  stitchfleet run -- python train.py --epochs 3\n\n"
        "The job begins plain; kernels are compiled beside it, checked against TensorFlow's own results on the job's tensors, "
        "and only then used."
    )

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--summary", type=pathlib.Path, metavar="FILE.json", help="write what happened as JSON")
        parser.add_argument(
            "--database", metavar="URL", help="SQLAlchemy URL for the records (default: SQLite in the cache folder)"
        )
        parser.add_argument("--cache", type=pathlib.Path, metavar="DIR", help="folder for kernels and native code")
        parser.add_argument(
            "--mode",
            choices=["auto", "observe", "idle", "alternate", "fallback"],
            help="see `stitchfleet doctor --settings`",
        )
        parser.add_argument("--disable", metavar="NAMES", help="comma-separated names of clusters to leave alone")
        parser.add_argument(
            "--control",
            type=pathlib.Path,
            metavar="FILE",
            help="a file that switches while the job runs: off, on, names",
        )
        parser.add_argument("--quiet", action="store_true", help="print no summary")
        parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="what to run")

    def run(self, arguments: argparse.Namespace) -> int:
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
        if arguments.disable:
            changed["disable_clusters"] = tuple(arguments.disable.split(","))
        settings = dataclasses.replace(settings, **changed)
        cache = writable_folder(settings.cache, say)
        settings = dataclasses.replace(settings, cache=cache)
        if arguments.database is not None:
            settings = dataclasses.replace(settings, ingest=None)
        if settings.database is None and settings.ingest is None and _can_store():
            settings = dataclasses.replace(settings, database=f"sqlite:///{cache}/stitchfleet.db")
        self._prepare(cache)
        with tempfile.TemporaryDirectory(prefix="stitchfleet-run-") as folder:
            summary = arguments.summary or pathlib.Path(folder) / "summary.json"
            summary = summary.absolute()
            if arguments.summary is not None and not summary.parent.is_dir():
                print(f"stitchfleet run: --summary: there is no folder {summary.parent}", file=sys.stderr)
                return 2
            world = World.from_environment(os.environ)
            if world.is_distributed:  # a launcher starts this command once per rank: each needs a file of its own
                summary = pathlib.Path(folder) / "summary.json"
                if not environment.RUN_ID.read():
                    os.environ[environment.RUN_ID.name] = agree_on_run_id(world)
            summaries.remove(summary)
            settings = dataclasses.replace(settings, summary=summary)
            if why := why_python_does_not_start_us(command):
                say(f"the job will run plain: {why}")
            code = run_to_the_end(command, job_environment(settings))
            found = summaries.gather(summary)
            hand_over_records(found, settings)
            if world.is_distributed:
                found = summaries_of_ranks(world, found, arguments.summary, RANKS_SECONDS if code == 0 else 1.0)
            if not arguments.quiet and not settings.quiet and world.rank == 0:
                print_summaries(found)
        return code

    @staticmethod
    def _prepare(cache: pathlib.Path) -> None:
        """Builds what the job needs and is not there; without it the job still runs, plain."""
        try:
            build_library(cache, find_tensorflow(), say)
        except NativeBuildError as error:
            say(f"the job will run plain: {error}")


def summaries_of_ranks(
    world: World, own: list[dict[str, Any]], path: pathlib.Path | None, longest_s: float
) -> list[dict[str, Any]]:
    """The summaries of all ranks where rank 0 is ours, whose document is written to `path`; the others send theirs there,
    for which rank 0 waits at most `longest_s` seconds.

    Without a store (mpirun) each rank writes its own: FILE, and FILE.rank-1 and so on.
    """
    run_id = environment.RUN_ID.read()
    if world.store is None:
        found = own
        path = path if path is None or world.rank == 0 else path.with_name(f"{path.name}.rank-{world.rank}")
    elif world.rank:
        exchange.publish(world, run_id, "summaries", own)
        return own
    else:
        others = exchange.collect(world, run_id, "summaries", longest_s)
        found = summaries.in_order(own + [summary for _, theirs in sorted(others.items()) for summary in theirs])
    if path is not None and found and not summaries.write_document(path, found):
        say(f"the summary could not be written to {path}")
    return found


def _can_store() -> bool:
    import importlib.util

    return importlib.util.find_spec("sqlalchemy") is not None


def why_python_does_not_start_us(command: Sequence[str]) -> str:
    """Why a Python that is the command itself does not read `sitecustomize`, by which the plugin is switched on; "" where it does."""
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
"""Python's options (Using Python: command line) that keep our folder, or the module in it, from being found."""


def job_environment(settings: Settings) -> dict[str, str]:
    """The environment of a job: settings, a run id, and our bootstrap folder first on PYTHONPATH. What says who the job is and how
    its records are sent (STITCHFLEET_LABELS, _INGEST_TOKEN and so on) stays as it was given."""
    given_by_settings = {PREFIX + spec.name.upper() for spec in dataclasses.fields(Settings)}
    variables = {key: value for key, value in os.environ.items() if key not in given_by_settings}
    variables.update(settings.environment())
    variables[PREFIX + "ENABLED"] = "1"
    variables.setdefault(PREFIX + "RUN_ID", uuid.uuid4().hex)
    paths = [path for path in variables.get("PYTHONPATH", "").split(os.pathsep) if path and path != str(BOOTSTRAP)]
    variables["PYTHONPATH"] = os.pathsep.join([str(BOOTSTRAP), *paths])
    return variables


def hand_over_records(processes: Sequence[Mapping[str, Any]], settings: Settings) -> None:
    """Waits until the last records of the job's processes are in the database or with the ingest server: a report made right after
    has them all. Where they cannot be, says why. processes: their summaries.

    The job's own shipper may be at it still; shipping twice changes nothing.
    """
    where = shipping_words(settings)
    end = time.monotonic() + SHIPPING_SECONDS
    for summary in processes if where else ():
        folder = summary["records"]["folder"]
        command = [sys.executable, "-m", "stitchfleet.telemetry.shipping.shipper", folder, *where]
        try:
            done = subprocess.run(
                command,
                env=clean_environment(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                timeout=max(0.1, end - time.monotonic()),
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


class DoctorCommand:
    """`stitchfleet doctor`."""

    help = "Looks whether this machine has what stitching needs, and says what is missing and what to do about it."

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--build", action="store_true", help="build the TensorFlow op now instead of at the first run"
        )
        parser.add_argument(
            "--settings", action="store_true", help="list the settings (environment variables) and their values"
        )
        parser.add_argument("--cache", type=pathlib.Path, metavar="DIR", help="folder for kernels and native code")

    def run(self, arguments: argparse.Namespace) -> int:
        settings = read_settings(os.environ, say)
        if arguments.cache:
            settings = dataclasses.replace(settings, cache=arguments.cache)
        if arguments.settings:
            for spec in dataclasses.fields(settings):
                print(f"{PREFIX + spec.name.upper():<34} {getattr(settings, spec.name)!s:<28} {spec.metadata['help']}")
            return 0
        good = True
        try:
            build = find_tensorflow()
            print(f"TensorFlow   {build.version} in {build.package}")
        except NativeBuildError as error:
            print(f"TensorFlow   {error}")
            return 1
        compiler = compiler_command()
        print(f"compiler     {' '.join(compiler) or 'none found: install g++ or set CXX'}")
        good &= bool(compiler)
        cache = writable_folder(settings.cache, say)
        print(f"cache        {cache}")
        path = library_path(cache, build)
        if arguments.build:
            try:
                build_library(cache, build, say)
            except NativeBuildError as error:
                print(f"op           {error}")
                return 1
        print(f"op           {'built' if path.exists() else 'not built yet (the first `stitchfleet run` builds it)'}")
        from ..entry.activation import other_graph_optimizers

        foreign = other_graph_optimizers(build.package.parent)
        if foreign:
            print(
                f"in the way   {foreign[0]} registers a graph optimizer of its own: TensorFlow takes only one for a device"
            )
            good = False
        print("\n".join(_gpu_lines(settings.cuda_driver)))
        return 0 if good else 1


def _gpu_lines(driver: pathlib.Path | None) -> Iterator[str]:
    """What a job on a GPU needs beyond. A machine without one lacks nothing."""
    try:
        gpus = find_gpus(driver)
    except OSError as error:
        yield f"GPU          none ({error})"
        return
    for number, gpu in enumerate(gpus):
        major, minor = gpu.capability
        known = nvrtc.is_installed() and major * 10 + minor in nvrtc.architectures()
        without = "" if known else f"; no kernels: {_why_no_kernels(major, minor)}"
        yield f"GPU {number:<8} {gpu.name}, {gpu.multiprocessors} multiprocessors of compute capability {major}.{minor}{without}"


def _why_no_kernels(major: int, minor: int) -> str:
    if not nvrtc.is_installed():
        return "NVRTC is not installed (pip install 'stitchfleet[cuda]')"
    return f"NVRTC {nvrtc.version()} does not compile for sm_{major}{minor}"
