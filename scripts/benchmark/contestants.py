"""What the benchmark compares: programs, and ways of running them. Both are tables; a new one is a row."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from stitchfleet.plugin.base.settings import BOOTSTRAP

from ..zoo import catalog
from ..zoo.environments import Environment

ROOT = pathlib.Path(__file__).resolve().parents[2]
PINNED = pathlib.Path(__file__).with_name("pinned.py")
ENDLESS_STEPS = 1_000_000_000
"""More steps than any race has: a contestant runs until it is ended."""


@dataclass(frozen=True)
class Workload:
    """A training or inference program. It must have these options, and print lines "step N ..." now and then:

    --steps N    number of steps
    --xla        compile the step with XLA
    --log FILE   at the end, also after Ctrl-C, write JSON with `losses`, `seconds` and `starts` (time.monotonic()) of each step

    title: what it is, in words, for a table of results.
    ranks: number of processes that `horovodrun` starts, each on one core, of which rank 0 alone logs and prints; 0: no horovodrun.
    environment: that of a model of the zoo; None: the benchmark's own.
    """

    name: str
    script: pathlib.Path
    arguments: tuple[str, ...] = ()
    title: str = ""
    ranks: int = 0
    environment: Environment | None = None


_FOLDER = ROOT / "scripts" / "workloads"


def _by_name(*workloads: Workload) -> dict[str, Workload]:
    return {workload.name: workload for workload in workloads}


WORKLOADS = _by_name(
    Workload("bert", _FOLDER / "bert.py", title="BERT, training"),
    Workload("bert-padded", _FOLDER / "bert.py", ("--padded",), "the same, padded"),
    Workload("bert-infer", _FOLDER / "bert.py", ("--mode", "infer"), "BERT, inference"),
    Workload("causal", _FOLDER / "causal.py", title="causal language model, training"),
    Workload("causal-infer", _FOLDER / "causal.py", ("--mode", "infer"), "causal language model, inference"),
    Workload("transformer", _FOLDER / "transformer.py", title="Transformer, training"),
    Workload("transformer-infer", _FOLDER / "transformer.py", ("--mode", "infer"), "Transformer, inference"),
    Workload(
        "transformer-decode", _FOLDER / "transformer.py", ("--mode", "decode"), "Transformer, decoding token by token"
    ),
    Workload("lengths", _FOLDER / "language_lengths.py", title="language model, lengths that change"),
    Workload("session", _FOLDER / "session_v1.py", title="v1 `Session`, legacy Adam"),
    Workload("crnn", _FOLDER / "crnn.py", title="CRNN, inference"),
    Workload("asr", _FOLDER / "asr.py", title="ASR, inference"),
    Workload("dien-infer", _FOLDER / "dien.py", ("--mode", "infer"), "DIEN, inference"),
    Workload("dien", _FOLDER / "dien.py", title="DIEN, training"),
    Workload("actor-critic", _FOLDER / "actor_critic.py", title="soft actor-critic, training"),
    Workload("sampler", _FOLDER / "sampler.py", title="Hamiltonian sampler"),
    Workload("resnet", _FOLDER / "resnet.py", title="ResNet-18, training"),
    Workload("resnet-infer", _FOLDER / "resnet.py", ("--mode", "infer"), "ResNet-18, inference"),
)
MIXED = _by_name(
    Workload("bert-mixed", _FOLDER / "bert.py", ("--mixed",), "BERT in mixed_bfloat16, training"),
    Workload(
        "bert-mixed-infer", _FOLDER / "bert.py", ("--mixed", "--mode", "infer"), "BERT in mixed_bfloat16, inference"
    ),
)
"""Jobs in mixed_bfloat16. They are no part of `--workloads all`: without AMX or AVX512-BF16 TensorFlow's products are slow in it."""
DISTRIBUTED = _by_name(
    Workload("horovod-bert", _FOLDER / "bert.py", ("--horovod",), "BERT under Horovod", ranks=2),
    Workload("horovod-dien", _FOLDER / "dien.py", ("--horovod",), "DIEN under Horovod", ranks=2),
)
"""Jobs of several ranks. They are no part of `--workloads all`, since they need Horovod."""
_NAMED = {**WORKLOADS, **MIXED, **DISTRIBUTED}


class UnknownNameError(ValueError):
    """There is no such workload or contestant. The text is a line for the user."""


def find_workload(name: str) -> Workload:
    """A workload by its name in WORKLOADS, MIXED or DISTRIBUTED, or by the path of a script with the same options.

    Raises UnknownNameError.
    """
    if name in _NAMED:
        return _NAMED[name]
    path = pathlib.Path(name)
    if path.suffix == ".py" and path.is_file():
        return Workload(path.stem, path.resolve())
    raise UnknownNameError(f"no workload {name!r}; there are: {', '.join(_NAMED)} (or the path of a script)")


def zoo_workloads(names: str) -> list[Workload]:
    """The zoo's models by comma-separated names, or all. Raises UnknownNameError."""
    wanted = list(catalog.MODELS) if names == "all" else [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in catalog.MODELS:
            raise UnknownNameError(f"no model {name!r} in the zoo; --zoo=list names all")
    found = [(name, catalog.MODELS[name]) for name in wanted]
    return [Workload(name, m.path, m.arguments, environment=m.environment) for name, m in found]


@dataclass(frozen=True)
class Contestant:
    """One way of running a workload.

    stitchfleet: options of `stitchfleet run`; None: the script is started without it. arguments: further arguments of the script.
    environment: variables that are set for it. checkout: the folder of another checkout of this project, whose stitchfleet runs the
    job; None: this one's. instead: what it runs instead of the workload: another framework's form of it.
    """

    name: str
    help: str
    stitchfleet: tuple[str, ...] | None = None
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    checkout: pathlib.Path | None = None
    instead: Workload | None = None

    @property
    def is_stitched(self) -> bool:
        """Whether it has a stitched phase, up to which its warm-up lasts."""
        return self.stitchfleet is not None and "--mode" not in self.stitchfleet


PLAIN = "plain"
_FUSIBLE = "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit --tf_xla_ops_to_cluster=FUSIBLE"
CONTESTANTS = {
    contestant.name: contestant
    for contestant in (
        Contestant(PLAIN, "the script as it is"),
        Contestant("xla", "the script with --xla (jit_compile=True)", arguments=("--xla",)),
        Contestant("stitched", "a whole `stitchfleet run`: guard, sampling and telemetry on", stitchfleet=()),
        Contestant(
            "stitched-remote",
            "stitched, and clusters that no path connects become one as well",
            stitchfleet=(),
            environment={"STITCHFLEET_REMOTE": "1"},
        ),
        Contestant(
            "stitched-products",
            "stitched, and small matrix products outside of loops are in kernels too",
            stitchfleet=(),
            environment={"STITCHFLEET_PRODUCTS": "all"},
        ),
        Contestant(
            "stitched-without-products",
            "stitched, with all matrix products left to TensorFlow",
            stitchfleet=(),
            environment={"STITCHFLEET_PRODUCTS": "0"},
        ),
        Contestant(
            "xla-fusible",
            "XLA held to the operators that stitching takes, by auto-clustering",
            environment={"TF_XLA_FLAGS": _FUSIBLE},
        ),
        Contestant("idle", "`stitchfleet run` with nothing switched on", stitchfleet=("--mode", "idle")),
        Contestant("plain-again", "the script as it is, a second time: what the benchmark itself is worth"),
    )
}
EARLIER = "earlier"
"""The name of the contestant that runs with another checkout's stitchfleet."""
DEFAULT_CONTESTANTS = ("plain", "xla", "xla-fusible", "stitched")


def find_contestants(names: str) -> list[Contestant]:
    """Contestants by comma-separated names. Plain is always first, since all others are compared with it. Raises UnknownNameError."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in CONTESTANTS:
            raise UnknownNameError(f"no contestant {name!r}; there are: {', '.join(CONTESTANTS)}")
    return [CONTESTANTS[name] for name in dict.fromkeys([PLAIN, *wanted])]


def earlier(checkout: pathlib.Path) -> Contestant:
    """The contestant "stitched", run by the stitchfleet of another checkout, which has its own environment and kernel cache there.
    Raises UnknownNameError if its `scripts/environment` was not run."""
    if not interpreter_of(checkout).exists():
        raise UnknownNameError(f"{checkout} has no environment: is it a checkout, and was its scripts/environment run?")
    return dataclasses.replace(CONTESTANTS["stitched"], name=EARLIER, checkout=checkout.absolute())


def interpreter_of(checkout: pathlib.Path) -> pathlib.Path:
    """The interpreter of a checkout's environment."""
    return checkout.absolute() / ".venv" / "bin" / "python"


def kernels_of(checkout: pathlib.Path) -> pathlib.Path:
    """The kernel cache that a checkout's benchmarks use."""
    return checkout / ".cache" / "stitchfleet"


_OF_HOROVOD = {
    "HOROVOD_STALL_CHECK_DISABLE": "1",
    "HOROVOD_GLOO_TIMEOUT_SECONDS": "36000",
    "HOROVOD_TIMELINE": "DYNAMIC",
}
"""Horovod's clocks go on while a contestant is stopped, perhaps within a collective. A timeline can be started (recorder.py)."""


@dataclass(frozen=True)
class Installed:
    """What is installed for a workload. python: its interpreter. horovod: the folder that holds Horovod, for a job of several ranks.
    stitchfleet: the folder that holds stitchfleet, if it is not installed for the interpreter."""

    python: str = sys.executable
    horovod: pathlib.Path | None = None
    stitchfleet: pathlib.Path | None = None


@dataclass(frozen=True)
class Files:
    """The files that one contestant of one race writes."""

    folder: pathlib.Path

    @property
    def log(self) -> pathlib.Path:
        """The step log that the workload writes (see Workload)."""
        return self.folder / "steps.json"

    @property
    def output(self) -> pathlib.Path:
        """What the job prints."""
        return self.folder / "output.txt"

    @property
    def summary(self) -> pathlib.Path:
        """The summary that `stitchfleet run` writes."""
        return self.folder / "summary.json"


def at_ranks(workloads: Sequence[Workload], counts: Sequence[int]) -> list[Workload]:
    """The workloads, with each that has several ranks once for each number of ranks, named NAME/COUNT."""
    found = []
    for workload in workloads:
        if workload.ranks:
            found += [dataclasses.replace(workload, name=f"{workload.name}/{count}", ranks=count) for count in counts]
        else:
            found.append(workload)
    return found


def command_line(
    contestant: Contestant,
    workload: Workload,
    extra: tuple[str, ...],
    files: Files,
    cache: pathlib.Path,
    installed: Installed = Installed(),
) -> list[str]:
    """The command line of a contestant on a workload."""
    python = installed.python
    script = [python, str(workload.script), *workload.arguments, *extra, *contestant.arguments]
    script += ["--steps", str(ENDLESS_STEPS), "--log", str(files.log)]
    if workload.ranks:
        assert installed.horovod is not None
        launcher = [python, str(installed.horovod / "bin" / "horovodrun"), "--gloo", "-np", str(workload.ranks)]
        script = [*launcher, python, str(PINNED), shlex.join(script)]
    if contestant.stitchfleet is None:
        return script
    ours = ["--cache", str(cache), "--summary", str(files.summary)]
    if installed.stitchfleet is None:  # a training image has no SQLAlchemy
        ours += ["--database", f"sqlite:///{files.folder}/stitchfleet.db"]
    return [python, "-m", "stitchfleet.plugin.command", "run", *ours, *contestant.stitchfleet, "--", *script]


def environment(contestant: Contestant, files: Files, installed: Installed = Installed()) -> dict[str, str]:
    """The environment of a contestant: this process's, without stitchfleet's activation."""
    variables = {**os.environ}
    variables.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    for name in ("STITCHFLEET_ENABLED", "STITCHFLEET_RUN_ID"):
        variables.pop(name, None)
    paths = [path for path in variables.get("PYTHONPATH", "").split(os.pathsep) if path and path != str(BOOTSTRAP)]
    if installed.horovod is not None:
        paths.insert(0, str(installed.horovod))
        variables |= _OF_HOROVOD
    if installed.stitchfleet is not None:
        paths.append(str(installed.stitchfleet))
    variables["PYTHONPATH"] = os.pathsep.join(paths)
    if contestant.stitchfleet is not None:
        variables["STITCHFLEET_DATA"] = str(files.folder / "records")
        variables["STITCHFLEET_QUIET"] = "0"  # the warm-up's end is read from its output
    variables.update(contestant.environment)
    return variables
