"""Reads a job's summary for `stitchfleet explain SUMMARY.json`."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .summary_text import FORMAT, loop_lines


@dataclass(frozen=True)
class ClusterKind:
    """All clusters of one structure.

    instances: their number. ops: operator -> count in one of them. kernel: names of its kernels. hlo: files. fallback_us, kernel_us:
    time of one call in microseconds, by TensorFlow's operators and by the kernel: means over the executables, weighted by their
    calls; None if not measured.
    """

    name: str
    instances: int
    ops: dict[str, int]
    scopes: tuple[str, ...]
    state: str
    kernel: str
    hlo: tuple[str, ...]
    fallback_us: float | None
    kernel_us: float | None
    over_tolerance: float | None
    """Largest error seen, as a fraction of the tolerance; None if nothing was compared."""
    failure: str

    @property
    def saved_us(self) -> float | None:
        """Microseconds saved in one step by all instances; negative if the kernel is slower, None if not measured."""
        if self.fallback_us is None or self.kernel_us is None:
            return None
        return self.instances * (self.fallback_us - self.kernel_us)


@dataclass(frozen=True)
class JobStory:
    """The contents of a summary.

    program: facts of the main program. kinds: those that save most first. stayed_out: reason -> operator -> count. loops: one line
    each. graph_path: the file of the main program's step graph, or None.
    """

    run_id: str
    versions: str
    program: dict[str, Any]
    kinds: tuple[ClusterKind, ...]
    stayed_out: dict[str, dict[str, int]]
    loops: tuple[str, ...]
    reverts: tuple[str, ...]
    graph_path: pathlib.Path | None

    @property
    def operators_us(self) -> tuple[float, float]:
        """Microseconds that one step's clusters take by (TensorFlow's operators, the kernels); clusters without both times are not
        counted."""
        both = [kind for kind in self.kinds if kind.saved_us is not None]
        before = sum(kind.instances * (kind.fallback_us or 0.0) for kind in both)
        return before, before - sum(kind.saved_us or 0.0 for kind in both)


def read_story(path: pathlib.Path) -> JobStory:
    """Reads a summary. Raises OSError, and ValueError with a line for people if the file is not a summary or has no training step."""
    expected = "expected a summary that `stitchfleet run --summary FILE` wrote"
    try:
        summary: Any = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path}: not JSON ({error}), {expected}") from None
    if not isinstance(summary, dict) or not {"format", "programs", "clusters", "stayed_out"} <= summary.keys():
        raise ValueError(f"{path}: given JSON of something else, {expected}")
    if summary["format"] != FORMAT:
        raise ValueError(f"{path}: given a summary of format {summary['format']}, expected {FORMAT}")
    try:
        program = next((p for p in summary["programs"] if p["name"] == summary["main"]), None)
        if program is None:
            raise ValueError(f"{path}: no training step was seen in this job")
        kinds = sorted((_kind(facts) for facts in summary["clusters"]), key=lambda kind: -(kind.saved_us or 0.0))
        return JobStory(
            str(summary["run_id"]),
            ", ".join(f"{name} {version}" for name, version in summary["versions"].items()),
            program,
            tuple(kinds),
            summary["stayed_out"],
            tuple(loop_lines(summary)),
            tuple(summary["reverts"]),
            _graph_path(path, program.get("step_graph")),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: a summary with something missing ({error!r}), {expected}") from None


def _graph_path(summary: pathlib.Path, named: str | None) -> pathlib.Path | None:
    """The step graph's file: the one that the summary names, or one of that name beside the summary (both may have been copied)."""
    if named is None:
        return None
    beside = summary.parent / pathlib.Path(named).name
    return beside if beside.exists() and not pathlib.Path(named).exists() else pathlib.Path(named)


def _kind(facts: dict[str, Any]) -> ClusterKind:
    executables: Sequence[dict[str, Any]] = facts["executables"]
    timed = [e for e in executables if e["fallback_us"] is not None and e["kernel_us"] is not None]
    weights = [max(1, sum(e["calls"].values())) for e in timed]
    errors = [e["error_over_tolerance"] for e in executables if e["error_over_tolerance"] is not None]

    def mean(key: str) -> float | None:
        return sum(w * e[key] for w, e in zip(weights, timed)) / sum(weights) if timed else None

    return ClusterKind(
        name=facts["name"],
        instances=facts["instances"],
        ops=facts["ops"],
        scopes=tuple(facts["scopes"]),
        state=facts["state"],
        kernel=", ".join(sorted({str(e["kernel"]) for e in executables if e["kernel"]})),
        hlo=tuple(str(e["hlo"]) for e in executables if e["hlo"]),
        fallback_us=mean("fallback_us"),
        kernel_us=mean("kernel_us"),
        over_tolerance=max(errors, default=None),
        failure=next((str(e["failure"]) for e in executables if e["failure"]), ""),
    )
