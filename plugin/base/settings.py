"""The plugin's settings, read once from the environment: one table with types, help texts and defaults.

The variable of a setting is STITCHFLEET_ and its name in capitals. A value that cannot be parsed is reported in one line, and the
default is used: a typing error in a setting must not end the job.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from stitchfleet.telemetry.pod.folders import default_cache
from stitchfleet.telemetry.pod.spool import KEEP_DAYS

PREFIX = "STITCHFLEET_"
BOOTSTRAP = pathlib.Path(__file__).parents[1] / "bootstrap"
"""The first folder on a job's PYTHONPATH. It is removed from that of our helper processes."""


@dataclass(frozen=True)
class Settings:
    """The settings of one job. Numbers of steps are per training function."""

    enabled: bool = field(default=False, metadata={"help": "1: switch the plugin on in this process and its children"})
    mode: str = field(
        default="auto",
        metadata={
            "help": "auto: all phases; observe: measure only, never stitch; idle: loaded, with nothing switched on; "
            "alternate: blocks of both arms without stitch ops (a self-test of the switch); fallback: the same with "
            "stitch ops that run TensorFlow's operators, never a kernel (a self-test of the rewritten graph)"
        },
    )
    cache: pathlib.Path = field(default_factory=default_cache, metadata={"help": "folder of kernels and native code"})
    payload: pathlib.Path | None = field(
        default=None,
        metadata={"help": "folder with prebuilt native code, as in a pod's payload; used if the cache has none"},
    )
    cache_bytes: int = field(default=2 << 30, metadata={"help": "largest size of the cache in bytes"})
    data: pathlib.Path | None = field(
        default=None, metadata={"help": "folder of records; default: records/ in the cache"}
    )
    spool_days: float = field(
        default=KEEP_DAYS,
        metadata={"help": "days after which records that could not be sent are dropped and counted; ingest accepts 35"},
    )
    database: str | None = field(default=None, metadata={"help": "SQLAlchemy URL that the shipper writes to"})
    ingest: str | None = field(
        default=None, metadata={"help": "URL of the fleet's ingest server; the shipper sends to it, not to a database"}
    )
    summary: pathlib.Path | None = field(default=None, metadata={"help": "file for the job's summary, JSON"})
    quiet: bool = field(default=False, metadata={"help": "1: print only failures"})
    warm_up_steps: int = field(default=2, metadata={"help": "first steps, which are not measured"})
    free_traces: int = field(
        default=8,
        metadata={"help": "first functions of a job that are stitched at once; later ones must have run for a while"},
    )
    baseline_steps: int = field(default=20, metadata={"help": "plain steps timed before the first stitched one"})
    baseline_seconds: float = field(
        default=0.5, metadata={"help": "the baseline may end earlier, after this long and one step"}
    )
    verify_steps: int = field(
        default=2, metadata={"help": "calls that must agree with TensorFlow's before a kernel runs alone"}
    )
    block_steps: int = field(default=10, metadata={"help": "steps in a plain or stitched block"})
    pairs: int = field(default=6, metadata={"help": "pairs of blocks in a row at the beginning of the stitched phase"})
    plain_share: float = field(default=0.02, metadata={"help": "share of later steps that stay plain, as the baseline"})
    sample_stride: int = field(default=50, metadata={"help": "steps after which a kernel is compared again"})
    compile_seconds: float = field(
        default=600.0, metadata={"help": "longest wait for kernels in seconds; the job then goes on without the others"}
    )
    compile_nice: int = field(
        default=10,
        metadata={
            "help": "niceness of the compiler beside the job, nice(2): at 0 it gets a full share of a busy processor, at 10 a tenth, "
            "at 19 a sixtieth"
        },
    )
    """Measured on a BERT step of 175 ms that keeps two cores busy, 23 November 2026: at 0 the job was stitched after 32 s, and until
    then a step took 360 ms; at 5, 45 s and 250 ms; at 10, 58 s and 210 ms; at 19, 98 s and 205 ms."""
    compile_patience: float = field(
        default=60.0,
        metadata={
            "help": "seconds for which busy processors may leave the compiler almost no time; then it gets the job's own priority; "
            "0: never"
        },
    )
    compile_after_end: float = field(
        default=30.0,
        metadata={
            "help": "seconds for which the compiler may go on after the job's end, so that the next run finds its kernels; "
            "0: it ends with the job"
        },
    )
    cuda_driver: pathlib.Path | None = field(
        default=None, metadata={"help": "file of NVIDIA's driver; default: the loader's libcuda.so.1"}
    )
    disable_clusters: tuple[str, ...] = field(
        default=(),
        metadata={"help": "comma-separated names, or beginnings of names, of clusters that are not stitched"},
    )
    control_file: pathlib.Path | None = field(
        default=None, metadata={"help": "file read while the job runs: 'off', 'on', or names of clusters to switch off"}
    )
    memory_limit_bytes: int = field(
        default=0,
        metadata={"help": "memory limit of the job, if lower than its control group's and the machine's; 0: none"},
    )
    untested: bool = field(
        default=False,
        metadata={
            "help": "1: stitch also on a version of TensorFlow that was not tested and has not passed the self-test"
        },
    )
    min_cluster_ops: int = field(default=2, metadata={"help": "smallest number of computing operators in a kernel"})
    products: str = field(
        default="loops",
        metadata={
            "help": "which matrix products are in kernels, on a CPU: 0: none; loops: memory-bound ones, and small ones inside loops; "
            "all: small ones outside of loops too",
            "choices": ("0", "loops", "all"),
        },
    )
    remote: bool | None = field(
        default=None,
        metadata={
            "help": "1 or 0: whether to merge clusters that no path connects (remote stitching), for fewer launches; "
            "default: only those on a GPU"
        },
    )
    """On a GPU a launch takes some 3 us, and kernels run one after the other anyway: AStitch merges there (section 3.1); no GPU was
    at hand to measure it. Measured on a CPU, where a launch takes 0.8 us, in one run with and without (scripts/bench --contestants
    stitched,stitched-remote, 23 November 2026): 6 to 22% fewer launches; BERT's step took the same time, the Transformer's 4% more.
    A cluster that waits for another one finds its operands no longer in the caches."""

    @property
    def only_switches(self) -> bool:
        """Whether the mode only tests the switch: blocks of both arms, no kernels, all numbers those of the plain graph."""
        return self.mode in ("alternate", "fallback")

    @property
    def records(self) -> pathlib.Path:
        """The folder of the records."""
        return self.data if self.data is not None else self.cache / "records"

    def environment(self) -> dict[str, str]:
        """The environment variables of these settings, for a child process. Defaults are left out."""
        plain = Settings()
        found = {}
        for spec in dataclasses.fields(self):
            value = getattr(self, spec.name)
            if value != getattr(plain, spec.name) and value is not None:
                found[PREFIX + spec.name.upper()] = _to_text(value)
        return found


def _to_text(value: object) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value)


def _boolean(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in ("1", "true", "yes", "on"):
        return True
    if lowered in ("", "0", "false", "no", "off"):
        return False
    raise ValueError("expected 1 or 0")


_PARSERS: dict[str, Callable[[str], object]] = {
    "bool": _boolean,
    "bool | None": _boolean,
    "int": int,
    "float": float,
    "str": str,
    "str | None": str,
    "pathlib.Path": pathlib.Path,
    "pathlib.Path | None": pathlib.Path,
    "tuple[str, ...]": lambda text: tuple(part.strip() for part in text.split(",") if part.strip()),
}


def read_settings(environment: Mapping[str, str], complain: Callable[[str], None]) -> Settings:
    """The settings in an environment. Calls `complain` with a line for each value that cannot be parsed, and uses the default."""
    values: dict[str, object] = {}
    for spec in dataclasses.fields(Settings):
        text = environment.get(PREFIX + spec.name.upper())
        if text is None or text == "":
            continue
        try:
            values[spec.name] = _PARSERS[str(spec.type)](text)
            choices = spec.metadata.get("choices")
            if choices and values[spec.name] not in choices:
                del values[spec.name]
                complain(f"{PREFIX}{spec.name.upper()}={text!r} is none of {', '.join(choices)}; the default is used")
        except ValueError:
            complain(f"{PREFIX}{spec.name.upper()}={text!r} is not {spec.type}; the default is used")
    return Settings(**values)  # type: ignore[arg-type]


def writable_folder(path: pathlib.Path, complain: Callable[[str], None]) -> pathlib.Path:
    """Creates a folder, with owner-only permissions if it is missing, and returns its path. If it cannot be written to, calls
    `complain` with a line and returns a new private temporary folder."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        probe = path / f".probe-{os.getpid()}"
        probe.write_bytes(b"")
        probe.unlink()
        return path
    except OSError as error:
        private = pathlib.Path(tempfile.mkdtemp(prefix="stitchfleet-"))
        complain(f"{path} cannot be written to ({error.strerror or error}); using {private} for this job")
        return private


def clean_environment() -> dict[str, str]:
    """The environment of a helper process of ours: this process's, without the plugin's activation, without GPUs, and with one
    OpenMP thread."""
    bootstrap = str(BOOTSTRAP)
    environment = {key: value for key, value in os.environ.items() if key != "STITCHFLEET_ENABLED"}
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path and path != bootstrap]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    environment.update(CUDA_VISIBLE_DEVICES="-1", TF_CPP_MIN_LOG_LEVEL="3", OMP_NUM_THREADS="1")
    return environment
