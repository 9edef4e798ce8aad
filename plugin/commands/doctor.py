"""`stitchfleet doctor`: what works on this machine, on one screen, and what to do about the rest."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import importlib.util
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from stitchfleet.compiler.toolchain import nvrtc
from stitchfleet.telemetry.shipping.sender import Sender, SendError

from ..base.containment import say
from ..base.gpus import find_gpus
from ..base.settings import PREFIX, Settings, clean_environment, read_settings, writable_folder
from ..entry.activation import has_glibc, other_graph_optimizers
from ..native.library import (
    NativeBuildError,
    TensorFlowBuild,
    build_library,
    compiler_command,
    find_library,
    find_tensorflow,
)
from ..versions import known, self_test
from .run import try_if_unknown

DATABASE_SECONDS = 20
"""Longest wait for the database."""


@dataclass(frozen=True)
class Finding:
    """One line of the output. subject, text: what was examined, and the result. todo: what to do about a problem; "" if there is
    none. stops: whether no job can be stitched because of it."""

    subject: str
    text: str
    todo: str = ""
    stops: bool = False


class DoctorCommand:
    """`stitchfleet doctor`."""

    help = (
        "Check what this machine has of what stitching, recording and reporting need; below each problem stands what to do.\n"
        "The exit status is 1 if no job would be stitched here."
    )

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds the options of the command to `parser`."""
        parser.add_argument(
            "--build", action="store_true", help="build the TensorFlow op now instead of at the first run"
        )
        parser.add_argument(
            "--settings", action="store_true", help="list the settings (environment variables) and their values"
        )
        parser.add_argument("--cache", type=pathlib.Path, metavar="DIR", help="folder for kernels and native code")

    def run(self, arguments: argparse.Namespace) -> int:
        """Prints all findings, or with --settings the settings. Returns the exit status: 1 if no job would be stitched here, else
        0."""
        settings = read_settings(os.environ, say)
        if arguments.cache:
            settings = dataclasses.replace(settings, cache=arguments.cache)
        if arguments.settings:
            for spec in dataclasses.fields(settings):
                print(f"{PREFIX + spec.name.upper():<34} {getattr(settings, spec.name)!s:<28} {spec.metadata['help']}")
            return 0
        stopped = False
        for finding in findings(settings, arguments.build):
            print(f"{finding.subject:<12} {finding.text}")
            if finding.todo:
                print(f"{'':<12} -> {finding.todo}")
            stopped |= finding.stops
        print("\nNo job would be stitched here." if stopped else "\nJobs are stitched here.")
        return int(stopped)


def findings(settings: Settings, build_now: bool) -> Iterator[Finding]:
    """Yields all findings, in the order in which a person would look. build_now: build the native library if it is missing."""
    version = ".".join(map(str, sys.version_info[:3]))
    musl = (
        "" if has_glibc() else "stitchfleet runs on the GNU C library alone, and this one is another (Alpine's is musl)"
    )
    yield Finding("Python", f"{version} in {sys.prefix}", musl, bool(musl))
    try:
        build = find_tensorflow()
    except NativeBuildError as error:
        yield Finding("TensorFlow", str(error), f"install it: pip install tensorflow (tested: {known.TESTED})", True)
    else:
        yield from of_tensorflow(build, settings, build_now)
    yield from of_gpus(settings.cuda_driver)
    yield of_database(settings)
    yield of_ingest(settings)


def of_tensorflow(build: TensorFlowBuild, settings: Settings, build_now: bool) -> Iterator[Finding]:
    """Yields findings on TensorFlow, Keras, the cache, the native library and its compiler, the version, and plugins of others
    that conflict with ours. build_now: build and test the library if it is missing."""
    yield Finding("TensorFlow", f"{build.version} in {build.package}")
    yield Finding("Keras", ", ".join(f"{name} {version}" for name, version in _keras()) or "none")
    cache = writable_folder(settings.cache, say)
    lost = (
        ""
        if cache == settings.cache
        else "set STITCHFLEET_CACHE to a folder that can be written to, or each job builds all anew"
    )
    yield Finding("cache", _size_of(cache), lost)
    path = find_library(cache, settings.payload, build)
    is_prebuilt = path is not None and cache not in path.parents
    compiler = compiler_command()
    missing = "" if compiler or is_prebuilt else "install g++ (Debian: apt-get install g++), or set CXX"
    yield Finding("compiler", " ".join(compiler) or "none found", missing, bool(missing))
    verdict = None
    try:
        if path is None and build_now:
            path = build_library(cache, build, say)
        if path is not None:
            verdict = try_if_unknown(path, build, cache) if build_now else self_test.verdict_of(path)
    except NativeBuildError as error:
        yield Finding("op", str(error), "set CXX to another compiler, or upgrade it", True)
    else:
        where = (
            "in the payload"
            if is_prebuilt
            else "built"
            if path
            else "not built yet: the first `stitchfleet run` builds it"
        )
        yield Finding("op", where)
    yield of_version(build.version, verdict)
    if foreign := other_graph_optimizers(build.package.parent):
        todo = "TensorFlow takes one for a device and ends the process at a second: uninstall the package that it belongs to"
        yield Finding("in the way", f"{foreign[0]} registers a graph optimizer of its own", todo, True)


def of_version(version: str, verdict: self_test.SelfTestResult | None) -> Finding:
    """Whether jobs on this version of TensorFlow are stitched. verdict: the self-test's, or None if it has not run."""
    if known.is_known(version):
        return Finding("version", "tested")
    line = f"not among those that were tested ({known.TESTED})"
    if verdict is None:
        return Finding(
            "version", line, "`stitchfleet doctor --build` tries it, and so does the first `stitchfleet run`"
        )
    todo = "" if verdict.passed else "jobs run plain; STITCHFLEET_UNTESTED=1 stitches them nevertheless"
    return Finding("version", f"{line}, {verdict.words}", todo, not verdict.passed)


def _keras() -> Iterator[tuple[str, str]]:
    for name in ("keras", "tf_keras"):
        try:
            yield name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue


def _size_of(cache: pathlib.Path) -> str:
    kernels = [path for path in cache.rglob("*.so") if "native" not in path.parts]
    return f"{cache}: {len(kernels)} kernels, {sum(path.stat().st_size for path in kernels) / 1e6:.1f} MB"


def of_gpus(driver: pathlib.Path | None) -> Iterator[Finding]:
    """Findings on the GPUs, and on what is missing to stitch on them. A machine without a GPU lacks nothing."""
    try:
        gpus = find_gpus(driver)
    except OSError as error:
        yield Finding("GPU", f"none ({error})")
        return
    for number, gpu in enumerate(gpus):
        major, minor = gpu.capability
        text = f"{gpu.name}, {gpu.multiprocessors} multiprocessors of compute capability {major}.{minor}"
        todo = ""
        if not nvrtc.is_installed():
            todo = "no kernels for it without NVRTC: pip install 'stitchfleet[cuda]'"
        elif major * 10 + minor not in nvrtc.architectures():
            todo = f"no kernels for it: NVRTC {nvrtc.version()} does not compile for sm_{major}{minor}"
        yield Finding(f"GPU {number}", text, todo)


def of_database(settings: Settings) -> Finding:
    """Whether records reach a database from which reports can be made. Waits for it for at most DATABASE_SECONDS."""
    if settings.ingest is not None:
        return Finding("database", "the ingest server's")
    if importlib.util.find_spec("sqlalchemy") is None:
        todo = "pip install 'stitchfleet[report]', for `stitchfleet jobs` and `stitchfleet report`"
        return Finding("database", "none: nothing is recorded beyond each job's summary", todo)
    words = [sys.executable, "-m", "stitchfleet.plugin.command", "db", "check"]
    words += ["--database", settings.database] if settings.database else []
    todo = "see STITCHFLEET_DATABASE; records wait in the cache meanwhile"
    try:
        done = subprocess.run(
            words, env=clean_environment(), capture_output=True, text=True, timeout=DATABASE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("database", f"cannot be reached: {type(error).__name__}", todo)
    line = ((done.stdout + done.stderr).strip().splitlines() or ["no answer"])[-1].removeprefix("stitchfleet db: ")
    if done.returncode == 0:
        return Finding("database", line)
    if not settings.database and "there is no database" in line:
        return Finding("database", "none yet: the first job makes it")
    return Finding("database", line, todo)


def of_ingest(settings: Settings) -> Finding:
    """Whether the fleet's ingest server accepts records from this machine with its token. Posts an empty batch."""
    if settings.ingest is None:
        return Finding("ingest", "not set: records go to the database of this machine")
    try:
        sender = Sender(settings.ingest)
    except ValueError as error:
        return Finding("ingest", str(error), "set STITCHFLEET_INGEST")
    shown = settings.ingest.rpartition("@")[2]  # the part before it may hold a password
    try:
        sender.post([])
    except SendError as error:
        return Finding(
            "ingest", f"{shown}: {error}", "records wait in the cache meanwhile; see docs/troubleshooting.md"
        )
    finally:
        sender.close()
    return Finding("ingest", f"{shown} takes what is sent")
