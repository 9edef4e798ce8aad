"""The plugin's settings, read once from the environment: one documented table, typed, with defaults that work.

Every variable begins with STITCHFLEET_. A value that cannot be read is reported in one line and the default is used: a typing
mistake in a setting must not cost the job.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from stitchfleet.telemetry.pod.spool import KEEP_DAYS

PREFIX = "STITCHFLEET_"
BOOTSTRAP = pathlib.Path(__file__).parents[1] / "bootstrap"
"""First on a job's PYTHONPATH, and on that of none of our helpers."""


def _default_cache() -> pathlib.Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return pathlib.Path(base) / "stitchfleet"


@dataclass(frozen=True)
class Settings:
    """What steers one job. Counts of steps are per training function."""

    enabled: bool = field(default=False, metadata={"help": "1 switches the plugin on in this process and its children"})
    mode: str = field(
        default="auto",
        metadata={
            "help": "auto: all phases; observe: measure only, never stitch; idle: loaded and nothing switched on; "
            "alternate: plain and empty stitched arm in turn, nothing stitched (a self-test of the switch); fallback: the same with "
            "stitch ops that run TensorFlow's operators, never a kernel (a self-test of the rewritten graph)"
        },
    )
    cache: pathlib.Path = field(default_factory=_default_cache, metadata={"help": "folder of kernels and native code"})
    payload: pathlib.Path | None = field(
        default=None,
        metadata={
            "help": "folder with native code that was built before, as a pod's payload brings it; the cache goes first"
        },
    )
    cache_bytes: int = field(default=2 << 30, metadata={"help": "most bytes the cache may hold"})
    data: pathlib.Path | None = field(
        default=None, metadata={"help": "folder of records; default: the cache's records/"}
    )
    spool_days: float = field(
        default=KEEP_DAYS,
        metadata={"help": "records that could not be sent for so many days are dropped and counted; ingest takes 35"},
    )
    database: str | None = field(default=None, metadata={"help": "SQLAlchemy URL that the shipper writes to"})
    ingest: str | None = field(
        default=None, metadata={"help": "URL of the fleet's ingest server; the shipper sends there, not to a database"}
    )
    summary: pathlib.Path | None = field(default=None, metadata={"help": "file for the job's summary, JSON"})
    quiet: bool = field(default=False, metadata={"help": "1: print nothing but failures"})
    warm_up_steps: int = field(default=2, metadata={"help": "first steps that nobody counts"})
    free_traces: int = field(
        default=8,
        metadata={"help": "first functions of a job that are stitched as soon as they can be; later ones have to last"},
    )
    baseline_steps: int = field(default=20, metadata={"help": "plain steps timed before the first stitched one"})
    baseline_seconds: float = field(
        default=0.5, metadata={"help": "the baseline may end earlier, after this long and one step"}
    )
    verify_steps: int = field(default=2, metadata={"help": "steps on which both run before a kernel may run alone"})
    block_steps: int = field(default=10, metadata={"help": "steps of a plain block and of its stitched partner"})
    pairs: int = field(default=6, metadata={"help": "pairs of blocks in a row when the stitched phase begins"})
    plain_share: float = field(
        default=0.02, metadata={"help": "share of later steps that stay plain, for an honest baseline"}
    )
    sample_stride: int = field(default=50, metadata={"help": "each kernel is re-verified once in so many steps"})
    compile_seconds: float = field(
        default=600.0, metadata={"help": "longest wait for kernels before going on without the rest"}
    )
    compile_nice: int = field(
        default=10,
        metadata={
            "help": "priority of the compiler beside the job, nice(2): at 0 it has a full share of a busy processor, at 10 a tenth, "
            "at 19 a sixtieth"
        },
    )
    """Measured on a BERT step of 175 ms that keeps two cores busy, 23 November 2026: at 0 the job was stitched after 32 s, and until
    then a step took 360 ms; at 5, 45 s and 250 ms; at 10, 58 s and 210 ms; at 19, 98 s and 205 ms."""
    compile_patience: float = field(
        default=60.0,
        metadata={
            "help": "seconds for which the compiler may get next to nothing of busy processors; then it has the job's own priority; "
            "0: never"
        },
    )
    cuda_driver: pathlib.Path | None = field(
        default=None, metadata={"help": "NVIDIA's driver; default: libcuda.so.1, wherever the loader finds it"}
    )
    disable_clusters: tuple[str, ...] = field(
        default=(), metadata={"help": "comma-separated names or beginnings of names of clusters to leave alone"}
    )
    control_file: pathlib.Path | None = field(
        default=None, metadata={"help": "file read while the job runs: 'off', 'on', or names of clusters to switch off"}
    )
    memory_limit_bytes: int = field(
        default=0, metadata={"help": "what the job may use where neither control group nor machine tells; 0: they tell"}
    )
    min_cluster_ops: int = field(default=2, metadata={"help": "smallest number of computing operators worth a kernel"})
    remote: bool | None = field(
        default=None,
        metadata={
            "help": "1 or 0: whether clusters that no path connects become one as well (remote stitching): fewer launches; "
            "default: those on a GPU"
        },
    )
    """On a GPU a launch takes some 3 us, and what is launched runs one after the other anyway: AStitch merges there (section 3.1);
    no GPU was at hand to measure it. Measured on a CPU, where a launch is 0.8 us, in one run with and without (scripts/bench
    --contestants stitched,stitched-remote, 23 November 2026): 6 to 22% fewer launches, BERT's step as fast, the Transformer's 4%
    slower. What waits for others finds its operands no longer in the caches."""

    @property
    def only_switches(self) -> bool:
        """The modes that test the switch: the arms in turn, no kernel, and so every number the plain graph's."""
        return self.mode in ("alternate", "fallback")

    @property
    def records(self) -> pathlib.Path:
        return self.data if self.data is not None else self.cache / "records"

    def environment(self) -> dict[str, str]:
        """The variables that give these settings to a child process; defaults are left out."""
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
    """The settings an environment asks for; `complain` gets one line for each value that cannot be read."""
    values: dict[str, object] = {}
    for spec in dataclasses.fields(Settings):
        text = environment.get(PREFIX + spec.name.upper())
        if text is None or text == "":
            continue
        try:
            values[spec.name] = _PARSERS[str(spec.type)](text)
        except ValueError:
            complain(f"{PREFIX}{spec.name.upper()}={text!r} is not {spec.type}; the default is used")
    return Settings(**values)  # type: ignore[arg-type]


def writable_folder(path: pathlib.Path, complain: Callable[[str], None]) -> pathlib.Path:
    """The folder, made with owner-only permissions, or a private temporary one where it cannot be written to."""
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
    """The environment of a helper process of ours: the activation and the user's GPUs are not inherited."""
    bootstrap = str(BOOTSTRAP)
    environment = {key: value for key, value in os.environ.items() if key != "STITCHFLEET_ENABLED"}
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path and path != bootstrap]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    environment.update(CUDA_VISIBLE_DEVICES="-1", TF_CPP_MIN_LOG_LEVEL="3", OMP_NUM_THREADS="1")
    return environment
