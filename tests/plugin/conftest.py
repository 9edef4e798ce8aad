"""What the plugin's tests share: the native library, built once, and jobs run as a user runs them."""

from __future__ import annotations

import importlib.metadata
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

import pytest

from stitchfleet.compiler.toolchain.host import cpu_features
from stitchfleet.plugin.clusters import rewrite
from stitchfleet.plugin.clusters.clusters import Cluster, FoldedLoop, find_clusters
from stitchfleet.plugin.graph import control_flow
from stitchfleet.plugin.graph.placed_graph import OpDefinitions, PlacedGraph
from stitchfleet.plugin.native.library import NativeLibrary, build_library, find_tensorflow, library_path
from stitchfleet.plugin.stitching.preparation import prepare
from stitchfleet.plugin.while_loops.fold import stitch_loops
from stitchfleet.telemetry.database import access

from .. import pace
from ..kept import kept_run
from ..marks import ALL
from .prepared import Prepared

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = pathlib.Path(__file__).parent / "scripts"

SOON = {"STITCHFLEET_COMPILE_NICE": "0", "STITCHFLEET_COMPILE_AFTER_END": "0"}
"""Tests wait for kernels; jobs need not be spared, and no process is left behind."""


def keras_major() -> int:
    """The major version of Keras beside the installed TensorFlow: 2 or 3."""
    return int(importlib.metadata.version("keras").partition(".")[0])


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """One kernel cache for the test session: each kernel is built once, whichever of the test runner's processes asks first.
    STITCHFLEET_TEST_CACHE keeps it over sessions."""
    named = os.environ.get("STITCHFLEET_TEST_CACHE")
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    folder = pathlib.Path(named) / "kernels" if named else shared / "stitchfleet-cache"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    build_library(folder, find_tensorflow(), print)
    return folder


@dataclass
class Finished:
    """A job that has ended: what it printed, its exit code, what `--summary` wrote."""

    code: int
    out: str
    err: str
    summary: dict[str, Any] = field(default_factory=dict)

    @property
    def result(self) -> Any:
        """What the script printed last, as JSON."""
        return json.loads(self.out.strip().splitlines()[-1])


RunJob = Callable[..., Finished]


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A program that starts scripts as Python does, with TensorFlow imported already (prepared.py)."""
    if ALL:
        yield sys.executable
        return
    server = Prepared(tmp_path_factory.mktemp("prepared"))
    yield str(server.python)
    server.close()


@pytest.fixture
def no_kernels(cache: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    """A cache with the native library and without kernels."""
    library = library_path(cache, find_tensorflow())
    copy = tmp_path / "no-kernels"
    shutil.copytree(library.parent, copy / library.parent.relative_to(cache))
    return copy


@pytest.fixture(scope="session")
def empty_records(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A database with tables and no rows, which no job then has to make."""
    file = tmp_path_factory.mktemp("records") / "records.db"
    engine = access.open_engine(f"sqlite:///{file}")
    access.upgrade(engine)
    engine.dispose()
    return file


def hand_over(done: Finished, url: str) -> None:
    """What `stitchfleet run` did not wait for on a busy machine: the records are handed over, and its line about them is removed."""
    for line in re.findall(
        r"^.*stitchfleet: what was recorded stays in the spool .* for now: .*\n", done.err, re.MULTILINE
    ):
        folder = line.split("the spool ")[1].split(" for now: ")[0]
        command = [sys.executable, "-m", "stitchfleet.telemetry.shipping.shipper", folder, "--database", url]
        command += ["--follow", "0"]  # no process: it ends once the spool is drained, also if another shipper is at it
        assert subprocess.run(command, check=False).returncode == 0
        done.err = done.err.replace(line, "")


@pytest.fixture
def run_job(cache: pathlib.Path, tmp_path: pathlib.Path, prepared: str, empty_records: pathlib.Path) -> RunJob:
    """run_job(script, *arguments, mode=..., environment={...}): `stitchfleet run` on tests/plugin/scripts/SCRIPT.

    with_cache: another cache folder. file_size: no file of the job's may grow beyond so many bytes (a full disk). quiet: whether
    only failures are printed, and no summary. start: whether Python is started for the job, and imports TensorFlow; else it is a fork
    of a process that has.
    """

    def run(
        script: str,
        *arguments: str,
        mode: str = "auto",
        environment: dict[str, str] | None = None,
        with_cache: pathlib.Path | None = None,
        file_size: int | None = None,
        start: bool = False,
        quiet: bool = True,
        timeout: float = 1800,
    ) -> Finished:
        sends = "STITCHFLEET_INGEST" in (environment or {})
        if not (tmp_path / "records.db").exists():
            shutil.copyfile(empty_records, tmp_path / "records.db")
        summary = tmp_path / f"summary-{script}-{mode}.json"
        command = [
            *(
                sys.executable,
                "-m",
                "stitchfleet.plugin.command",
                "run",
                *(["--quiet"] if quiet else []),
                "--mode",
                mode,
            ),
            *("--cache", str(with_cache or cache), "--summary", str(summary)),
            *(
                *(() if sends else ("--database", f"sqlite:///{tmp_path}/records.db")),
                "--",
                sys.executable if start else prepared,
                str(SCRIPTS / script),
                *arguments,
            ),
        ]
        done = finish(command, summary, environment, timeout, file_size)
        if not sends:
            hand_over(done, f"sqlite:///{tmp_path}/records.db")
        return done

    return run


@pytest.fixture(scope="session")
def warmed(cache: pathlib.Path, tmp_path_factory: pytest.TempPathFactory, prepared: str) -> None:
    """The kernels of loop.py are in the cache, so that jobs on it need only a short pause to be stitched."""
    folder = tmp_path_factory.mktemp("warm")
    command = [
        *(sys.executable, "-m", "stitchfleet.plugin.command", "run", "--quiet", "--cache", str(cache)),
        *("--summary", str(folder / "s.json"), "--database", f"sqlite:///{folder}/r.db"),
        *("--", prepared, str(SCRIPTS / "loop.py"), "60", "240"),
    ]
    done = finish(command, folder / "s.json", {}, 900)
    assert done.summary["programs"][0]["phase"] in ("stitched", "verify", "baseline"), done.err


@pytest.fixture
def run_plain(cache: pathlib.Path, prepared: str) -> RunJob:
    """The same script without us; once for the same arguments, since it is deterministic. It is kept where kernels are."""

    def run(script: str, *arguments: str, environment: dict[str, str] | None = None, timeout: float = 1800) -> Finished:
        settings = environment or {}
        matters = sorted(f"{name}={settings[name]}" for name in settings if name not in _OF_THE_DRIVER_ALONE)
        made_of = [*what_plain_runs_are_made_of(SCRIPTS), script, *arguments, *matters]

        def start() -> dict[str, Any]:
            done = finish([prepared, str(SCRIPTS / script), *arguments], None, environment, timeout)
            assert done.code == 0, done.err
            return asdict(done)

        return Finished(**kept_run(cache.parent / "plain-runs", made_of, start))

    return run


_OF_THE_DRIVER_ALONE = ("TEST_GPU_LOG", "TEST_GPU_BUILDER")
"""Settings of the tests' GPU that say where its driver writes and how it makes a kernel: a plain run has none of our kernels."""


@lru_cache
def what_plain_runs_are_made_of(scripts: pathlib.Path) -> tuple[str, ...]:
    """The scripts of a folder, TensorFlow, Python and the processor."""
    texts = "".join(path.read_text() for path in sorted(scripts.glob("*.py")))
    return texts, find_tensorflow().version, sys.version, cpu_features()


def switched_off_while_stitched(
    folder: pathlib.Path, cache: pathlib.Path, environment: dict[str, str], script: str, *arguments: str
) -> Finished:
    """A job whose control file says "off" as soon as it is stitched. folder: for its files."""
    control, summary = folder / "control", folder / "summary.json"
    command = [
        *(sys.executable, "-m", "stitchfleet.plugin.command", "run", "--cache", str(cache)),
        *("--control", str(control), "--summary", str(summary), "--database", f"sqlite:///{folder}/r.db"),
        *("--", sys.executable, str(SCRIPTS / script), *arguments),
    ]
    settings = {**os.environ, **SOON, **environment, "TF_CPP_MIN_LOG_LEVEL": "3"}
    with subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
        assert job.stderr is not None
        for line in job.stderr:
            if "stitched from step" in line:
                control.write_text("off\n")
                break
        out, err = job.communicate()
    return Finished(job.returncode, out, err, json.loads(summary.read_text()) if summary.exists() else {})


def finish(
    command: list[str],
    summary: pathlib.Path | None,
    environment: dict[str, str] | None,
    timeout: float,
    file_size: int | None = None,
) -> Finished:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("STITCHFLEET_")}
    settings = {**clean, **SOON, pace.VARIABLE: str(pace.pace()), "TF_CPP_MIN_LOG_LEVEL": "1", **(environment or {})}

    def limit() -> None:
        if file_size is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))

    done = subprocess.run(
        command, env=settings, capture_output=True, text=True, timeout=timeout, check=False, preexec_fn=limit
    )
    # TensorFlow's own optimizers go on working on a graph that we changed, and none of them may stumble over it.
    # (clusters/utils.cc asks for the figures of a GPU, of which a TensorFlow for the processor knows none.)
    assert not re.search("E tensorflow/core/grappler/(?!clusters/utils.cc)", done.stderr), done.stderr
    assert "Merge op has more than one valid input" not in done.stderr, done.stderr
    found = json.loads(summary.read_text()) if summary is not None and summary.exists() else {}
    return Finished(done.returncode, done.stdout, done.stderr, found)


class Plugin:
    """The native library in the tests' own process, with a rewriter that they switch on and off."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.active = False
        self.stitched = 0
        self.hoisted_reads = 0
        self.freed_invariants = 0
        self.hoisted_products = 0
        self.rewritten: Any = None
        """The last graph that was rewritten."""
        self.graph: PlacedGraph | None = None
        self.clusters: list[Cluster] = []
        self.loops: list[FoldedLoop] = []
        self.staying_loops: dict[str, str] = {}
        self.definitions = OpDefinitions()
        library.register()
        library.let_kernels_compete(True)
        library.set_rewrite(self.offered)

    def offered(self, data: bytes, preserve: list[str]) -> bytes | None:
        from tensorflow.core.framework import graph_pb2

        graph: Any = graph_pb2.GraphDef()
        graph.ParseFromString(data)
        if not self.active or any(node.op in rewrite.OUR_OPS for node in graph.node):
            return None
        prepared = prepare(graph, self.library.refusal_of_operator, self.library.operand_shapes, preserve)
        self.hoisted_products += prepared.hoisted_products
        self.freed_invariants += prepared.freed_invariants
        self.hoisted_reads += prepared.hoisted_reads
        placed = PlacedGraph(graph)
        plan = find_clusters(placed, self.definitions, set(preserve), remote=True)
        liveness = control_flow.analyse(placed)
        for cluster in plan.clusters:
            assert len({liveness.key(i) for i in cluster.members}) == 1
        self.stitched += len(plan.clusters)
        self.graph, self.clusters = placed, plan.clusters
        rewritten = rewrite.apply_clusters(placed, plan.clusters, preserve)
        stitched = stitch_loops(rewritten, self.definitions, self.library.refusal_of_operator, preserve)
        rewritten = stitched.graph
        self.loops += stitched.loops
        self.staying_loops.update(stitched.stay)
        self.rewritten = rewritten
        return (
            bytes(rewritten.SerializeToString())
            if plan.clusters or self.hoisted_reads or self.freed_invariants
            else None
        )

    def both(self, step: Callable[[], Any], times: int = 2) -> tuple[list[Any], list[Any]]:
        """What a function of no arguments returns, call by call: TensorFlow's own, and with the plugin active."""
        import tensorflow as tf

        found = []
        for active in (False, True):
            self.active, self.hoisted_reads, self.freed_invariants, self.hoisted_products = active, 0, 0, 0
            self.clusters, self.graph, self.loops, self.staying_loops = [], None, [], {}
            traced = tf.function(step)
            found.append([tf.nest.map_structure(lambda value: value.numpy(), traced()) for _ in range(times)])
        self.active = False
        return found[0], found[1]


@pytest.fixture(scope="session")
def plugin(cache: pathlib.Path) -> Plugin:
    import tensorflow  # noqa: F401  the library finds TensorFlow's own in the process

    return Plugin(NativeLibrary(library_path(cache, find_tensorflow())))
