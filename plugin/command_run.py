"""`stitchfleet run` and `stitchfleet doctor`: a job on this machine with stitching switched on, and what that needs."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from typing import Any

from stitchfleet.compiler import nvrtc

from .client import clean_environment
from .containment import say
from .gpus import find_gpus
from .native_library import NativeBuildError, build_library, compiler_command, find_tensorflow, library_path
from .records import shipping_words
from .settings import PREFIX, Settings, read_settings, writable_folder
from .summary import print_summary

SHIPPING_SECONDS = 30.0
"""Longest wait for the job's last records to reach the database."""
BOOTSTRAP = pathlib.Path(__file__).parent / "bootstrap"


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
            summary.unlink(missing_ok=True)
            settings = dataclasses.replace(settings, summary=summary)
            code = run_job(command, settings)
            hand_over_records(summary, settings)
            if not arguments.quiet and not settings.quiet:
                print_summary(summary)
        return code

    @staticmethod
    def _prepare(cache: pathlib.Path) -> None:
        """Builds what the job needs and is not there; without it the job still runs, plain."""
        try:
            build_library(cache, find_tensorflow(), say)
        except NativeBuildError as error:
            say(f"the job will run plain: {error}")


def _can_store() -> bool:
    import importlib.util

    return importlib.util.find_spec("sqlalchemy") is not None


def job_environment(settings: Settings) -> dict[str, str]:
    """The environment of a job: settings, a run id, and our bootstrap folder first on PYTHONPATH. What says who the job is and how
    its records are sent (STITCHFLEET_LABELS, _INGEST_TOKEN and so on) stays as it was given."""
    given_by_settings = {PREFIX + spec.name.upper() for spec in dataclasses.fields(Settings)}
    environment = {key: value for key, value in os.environ.items() if key not in given_by_settings}
    environment.update(settings.environment())
    environment[PREFIX + "ENABLED"] = "1"
    environment.setdefault(PREFIX + "RUN_ID", uuid.uuid4().hex)
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path and path != str(BOOTSTRAP)]
    environment["PYTHONPATH"] = os.pathsep.join([str(BOOTSTRAP), *paths])
    return environment


def run_job(command: list[str], settings: Settings) -> int:
    """Runs the command; signals that reach us go to it. Returns its exit code, 128 + n when signal n ended it."""
    process = subprocess.Popen(command, env=job_environment(settings))

    def forward(number: int, frame: object) -> None:
        process.send_signal(number)

    previous = {
        number: signal.signal(number, forward)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
    }
    previous[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to the job as well
    try:
        code = process.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return 128 - code if code < 0 else code


def hand_over_records(summary: pathlib.Path, settings: Settings) -> None:
    """Waits until the job's last records are in the database or with the ingest server: a report made right after has them all. Where
    they cannot be, says why.

    The job's own shipper may be at it still; shipping twice changes nothing.
    """
    where = shipping_words(settings)
    if not where:
        return
    try:
        folder = json.loads(summary.read_text())["records"]["folder"]
        command = [sys.executable, "-m", "stitchfleet.telemetry.shipper", folder, *where]
        done = subprocess.run(
            command,
            env=clean_environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            timeout=SHIPPING_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        say(f"what was recorded stays in the spool {folder}: handing it over took more than {SHIPPING_SECONDS:g} s")
    except (OSError, ValueError, KeyError):
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
        print(f"compiler     {compiler or 'none found: install g++ or set CXX'}")
        good &= compiler is not None
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
        from .activation import other_graph_optimizers

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
