"""When the collectives of a Horovod job start, plain and stitched, and how long a step spends in them.

Two runs of the workload under `recorder`, a plain one and one under `stitchfleet run`. On rank 0, Horovod's timeline is written for
some steps, and once more with TensorFlow's profiler, which tells when the backward pass starts. Horovod notes a tensor in its
timeline when its background thread finds it, within a cycle (HOROVOD_CYCLE_TIME, 1 ms) of the operator's start.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .contestants import CONTESTANTS, PLAIN, Workload
from .coverage import Recording
from .race import ContestantError, Limits

NEGOTIATE = "NEGOTIATE_"
LATER_SHARE = 0.05
"""A collective that starts later than plain's by more than this share of plain's step is listed."""


@dataclass(frozen=True)
class Timeline:
    """starts: by tensor, the times at which rank 0 had it ready, ascending. busy: disjoint intervals in which some collective ran,
    ascending. Times in seconds since the epoch."""

    starts: dict[str, list[float]]
    busy: list[tuple[float, float]]


@dataclass(frozen=True)
class Step:
    """One step of rank 0. Times in seconds since the epoch. backward: start of its backward pass, if that is known."""

    begin: float
    end: float
    backward: float | None = None


@dataclass(frozen=True)
class Arm:
    """One arm of a job. Times in milliseconds, medians over the steps.

    starts_ms: by tensor, from the step's start. after_backward_ms: by tensor, from the start of the backward pass, of steps that were
    profiled. busy_ms: time of a step in which some collective ran on rank 0, waiting for the other ranks included.
    """

    steps: int
    step_ms: float
    busy_ms: float
    starts_ms: dict[str, float]
    after_backward_ms: dict[str, float]


@dataclass(frozen=True)
class Collectives:
    """Both arms of a job of several ranks."""

    plain: Arm
    stitched: Arm

    def later_ms(self, tensor: str) -> float:
        """By how much a tensor's collective starts later than in plain, from the backward pass's start; negative if earlier."""
        return self.stitched.after_backward_ms[tensor] - self.plain.after_backward_ms[tensor]

    @property
    def late(self) -> list[str]:
        """The tensors whose collective starts later by more than LATER_SHARE of plain's step, the latest first."""
        found = [name for name in self.plain.starts_ms if self.later_ms(name) > LATER_SHARE * self.plain.step_ms]
        return sorted(found, key=self.later_ms, reverse=True)


def read_timeline(events: Iterable[Mapping[str, Any]]) -> Timeline:
    """A Timeline from the events of Horovod's timeline file (Chrome's trace format). Raises ValueError if it has no starting time."""
    epoch_us: float | None = None
    names: dict[int, str] = {}
    open_spans: dict[int, list[tuple[str, float]]] = {}
    starts: dict[str, list[float]] = {}
    spans: list[tuple[float, float]] = []
    for event in events:
        pid, kind = int(event.get("pid", 0)), event["ph"]
        if kind == "M":
            told = event.get("args", {})
            if "start_time_since_epoch_in_micros" in told:
                epoch_us = float(told["start_time_since_epoch_in_micros"])
            if "name" in told:
                names[pid] = str(told["name"])
            continue
        if epoch_us is None:
            raise ValueError("the timeline does not say when it began")
        when = (epoch_us + float(event.get("ts", 0.0))) / 1e6
        if kind == "B":
            open_spans.setdefault(pid, []).append((str(event["name"]), when))
            if str(event["name"]).startswith(NEGOTIATE):
                starts.setdefault(names[pid], []).append(when)
        elif kind == "E" and open_spans.get(pid):
            name, since = open_spans[pid].pop()
            if not open_spans[pid] and not name.startswith(NEGOTIATE):
                spans.append((since, when))
    return Timeline(starts, union(spans))


def union(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Disjoint intervals that cover the same times, ascending."""
    found: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def _offsets_ms(timeline: Timeline, steps: Sequence[Step], origin: Callable[[Step], float]) -> dict[str, float]:
    """By tensor, the median over the steps of its start's distance from `origin`; of tensors that start in every step."""
    found: dict[str, float] = {}
    for tensor, starts in timeline.starts.items():
        inside = [[when for when in starts if step.begin <= when < step.end] for step in steps]
        if all(inside):
            found[tensor] = statistics.median((whens[0] - origin(step)) * 1e3 for whens, step in zip(inside, steps))
    return found


def arm_of(clean: tuple[Timeline, Sequence[Step]], profiled: tuple[Timeline, Sequence[Step]]) -> Arm:
    """One arm from steps that were not profiled and steps that were, each of the latter with the start of its backward pass.

    Raises ValueError if there is no step, or no collective in every step.
    """
    timeline, steps = clean
    backward = [step for step in profiled[1] if step.backward is not None]
    starts = _offsets_ms(timeline, steps, lambda step: step.begin)
    after = _offsets_ms(profiled[0], backward, lambda step: step.backward or 0.0)
    common = starts.keys() & after.keys()
    if not steps or not backward or not common:
        raise ValueError("no collective was seen in every step")
    busy = [
        sum(max(0.0, min(end, step.end) - max(begin, step.begin)) for begin, end in timeline.busy) for step in steps
    ]
    return Arm(
        len(steps),
        statistics.median(step.end - step.begin for step in steps) * 1e3,
        statistics.median(busy) * 1e3,
        {name: starts[name] for name in sorted(common)},
        {name: after[name] for name in sorted(common)},
    )


# ---- the runs ----------------------------------------------------------------------------------------------------------------


def measure(
    workload: Workload,
    limits: Limits,
    mark: str,
    folder: pathlib.Path,
    cache: pathlib.Path,
    extra: tuple[str, ...],
    say: Callable[[str], None],
) -> Collectives:
    """Runs the workload twice. Raises ContestantError with one line if a run fails, or the arms have other collectives."""
    arms = []
    for name in (PLAIN, "stitched"):
        say(f"{workload.name}: timing the collectives of the {name} step")
        run = Recording(workload, CONTESTANTS[name], mark, folder)
        run.runner.start(extra, cache)
        if name != PLAIN:
            run.runner.warm_up(limits, say)
        run.go(limits)
        arms.append(_arm(run, name))
    plain, stitched = arms
    if plain.starts_ms.keys() != stitched.starts_ms.keys():
        other = sorted(plain.starts_ms.keys() ^ stitched.starts_ms.keys())
        raise ContestantError(f"{len(other)} collectives are in one arm only, {other[0]} for one")
    return Collectives(plain, stitched)


def _arm(run: Recording, name: str) -> Arm:
    found, log = run.read("collectives.json"), run.read(run.runner.files.log.name, run.runner.files.folder)
    if found is None or log is None:
        raise ContestantError(f"the {name} run ended before its collectives were timed")
    parts = []
    for part in found:
        first, last = part["steps"]
        shift = part["clock"]
        steps = [
            Step(start + shift, start + shift + seconds)
            for start, seconds in zip(log["starts"][first:last], log["seconds"][first:last])
        ]
        backward = part["backward"]
        steps = [
            dataclasses.replace(step, backward=next((b for b in backward if step.begin <= b < step.end), None))
            for step in steps
        ]
        parts.append((read_timeline(json.loads(run.text(part["timeline"]))), steps))
    try:
        return arm_of(parts[0], parts[1])
    except ValueError as error:
        raise ContestantError(f"{name}: {error}") from None


# ---- out ---------------------------------------------------------------------------------------------------------------------


def table(found: Collectives, most: int = 5) -> list[str]:
    """Lines of text for the section of a workload."""
    lines = [f"  collectives of rank 0, {len(found.plain.starts_ms)} a step, medians:"]
    for title, arm in (("plain", found.plain), ("stitched", found.stitched)):
        first, last = min(arm.starts_ms.values()), max(arm.starts_ms.values())
        lines.append(
            f"    {title:<9} step {arm.step_ms:>8.1f} ms, in collectives {arm.busy_ms:>7.1f} ms; the first starts "
            f"{first:>7.1f} ms after the step's start, {min(arm.after_backward_ms.values()):>6.1f} ms after the backward pass's; "
            f"the last {last:>7.1f} ms after the step's start"
        )
    later = sorted(found.later_ms(name) for name in found.plain.starts_ms)
    share = 100 * LATER_SHARE
    lines.append(
        f"    stitched minus plain, from the backward pass's start: {later[0]:+.1f} to {later[-1]:+.1f} ms, median "
        f"{statistics.median(later):+.1f}; {len(found.late)} start later by more than {share:.0f}% of plain's step"
    )
    lines += [f"      {found.later_ms(name):+.1f} ms  {name}" for name in found.late[:most]]
    return lines
