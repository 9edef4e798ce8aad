"""When the collectives of a Horovod job start, plain and stitched, and how long a step spends in them.

The workload runs twice under `recorder`: plain, and under `stitchfleet run`. On rank 0, Horovod's timeline is written for some
steps: it shows when a collective runs on this rank. The starts of the collectives' operators are taken from TensorFlow's
profile of the next steps, since the timeline shows a tensor from when the first rank has it ready. The profiler makes steps
longer, most of all steps of many small operators.
"""

from __future__ import annotations

import json
import pathlib
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .contestants import CONTESTANTS, PLAIN, Workload
from .coverage import Recording
from .race import ContestantError, Limits
from .trace import StepStarts

NEGOTIATE = "NEGOTIATE_"
LATER_SHARE = 0.05
"""A collective that starts later than plain's by more than this share of plain's step is listed."""


@dataclass(frozen=True)
class Step:
    """One step of rank 0: its bounds, in seconds since the epoch."""

    begin: float
    end: float


@dataclass(frozen=True)
class Arm:
    """One arm of a job. Times in milliseconds, medians over the steps.

    busy_ms: time of a step in which some collective ran on rank 0, waiting for the other ranks included.
    profiled_step_ms: length of a step with TensorFlow's profiler, which the next two are from.
    starts_ms, after_backward_ms: by collective, its start from the step's and from that of the backward pass.
    """

    steps: int
    step_ms: float
    busy_ms: float
    profiled_step_ms: float
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
        found = [
            name for name in self.plain.starts_ms if self.later_ms(name) > LATER_SHARE * self.plain.profiled_step_ms
        ]
        return sorted(found, key=self.later_ms, reverse=True)


def busy_spans(events: Iterable[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """Disjoint intervals in which some collective ran, ascending, in seconds since the epoch.

    events: those of Horovod's timeline file (Chrome's trace format). Raises ValueError if it does not say when it began.
    """
    epoch_us: float | None = None
    open_spans: dict[int, list[tuple[str, float]]] = {}
    spans: list[tuple[float, float]] = []
    for event in events:
        pid, kind = int(event.get("pid", 0)), event["ph"]
        if kind == "M":
            epoch_us = float(event.get("args", {}).get("start_time_since_epoch_in_micros", epoch_us or 0.0)) or None
            continue
        if epoch_us is None:
            raise ValueError("the timeline does not say when it began")
        when = (epoch_us + float(event.get("ts", 0.0))) / 1e6
        if kind == "B":
            open_spans.setdefault(pid, []).append((str(event["name"]), when))
        elif kind == "E" and open_spans.get(pid):
            name, since = open_spans[pid].pop()
            if not open_spans[pid] and not name.startswith(NEGOTIATE):
                spans.append((since, when))
    return union(spans)


def union(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Disjoint intervals, ascending, that cover the same times as `spans`, which are intervals (begin, end) in any order."""
    found: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def arm_of(
    busy: Sequence[tuple[float, float]], clean: Sequence[Step], starts: StepStarts, profiled: Sequence[Step]
) -> Arm:
    """The figures of one arm. busy, clean: intervals (begin, end) of collectives, in seconds since the epoch, and the steps that they
    are from. starts, profiled: the starts in the profile, and the profiled steps.

    Raises ValueError if there is no step, no collective or no backward pass.
    """
    if not clean or not profiled or not starts.collectives or not starts.backward:
        raise ValueError("no step, no collective or no backward pass was seen")

    def medians_ms(origins: Sequence[float]) -> dict[str, float]:
        return {
            name: statistics.median((when - origin) * 1e3 for when, origin in zip(whens, origins))
            for name, whens in sorted(starts.collectives.items())
        }

    return Arm(
        len(clean),
        statistics.median(step.end - step.begin for step in clean) * 1e3,
        statistics.median(
            sum(max(0.0, min(end, step.end) - max(begin, step.begin)) for begin, end in busy) * 1e3 for step in clean
        ),
        statistics.median(step.end - step.begin for step in profiled) * 1e3,
        medians_ms(starts.begin),
        medians_ms(starts.backward),
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
    """Runs the workload twice, plain and stitched, and times its collectives. extra: further arguments of the script. Raises
    ContestantError with one line if a run fails, or if the two arms do not have the same collectives."""
    arms = []
    for name in (PLAIN, "stitched"):
        say(f"{workload.name}: timing the collectives of the {name} step")
        run = Recording(workload, CONTESTANTS[name], mark, folder)
        run.record(limits, cache, extra, say)
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
    shift = found["clock"]
    clean, profiled = (
        [
            Step(start + shift, start + shift + seconds)
            for start, seconds in zip(log["starts"][first:last], log["seconds"][first:last])
        ]
        for first, last in (found["clean"], found["profiled"])
    )
    try:
        busy = busy_spans(json.loads(run.text(found["timeline"])))
        return arm_of(busy, clean, StepStarts(**found["starts"]), profiled)
    except ValueError as error:
        raise ContestantError(f"{name}: {error}") from None


# ---- out ---------------------------------------------------------------------------------------------------------------------


def table(found: Collectives, most: int = 5) -> list[str]:
    """Lines of text for the section of a workload."""
    lines = [f"  collectives of rank 0, {len(found.plain.starts_ms)} a step, medians:"]
    for title, arm in (("plain", found.plain), ("stitched", found.stitched)):
        first, after = min(arm.starts_ms.values()), min(arm.after_backward_ms.values())
        lines += [
            f"    {title:<9} step {arm.step_ms:.1f} ms, of which {arm.busy_ms:.1f} ms in collectives",
            f"    {'':<9} with the profiler {arm.profiled_step_ms:.1f} ms; the first starts at {first:.1f} ms, {after:.1f} ms after "
            f"the backward pass; the last at {max(arm.starts_ms.values()):.1f} ms",
        ]
    later = sorted(found.later_ms(name) for name in found.plain.starts_ms)
    share = 100 * LATER_SHARE
    lines.append(
        f"    stitched minus plain, from the backward pass's start: {later[0]:+.1f} to {later[-1]:+.1f} ms, median "
        f"{statistics.median(later):+.1f}; {len(found.late)} start later by more than {share:.0f}% of plain's step"
    )
    lines += [f"      {found.later_ms(name):+.1f} ms  {name}" for name in found.late[:most]]
    return lines
