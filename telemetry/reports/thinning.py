"""A job's iterations as a chart shows them, of which a small part is in memory at a time.

All iterations are kept or, if there are many, the shortest, the median and the longest of each stretch and arm: no rare long
iteration is hidden, as it would be if only every n-th were drawn. Blocks of iterations are added one after the other, and one
stretch is held at a time: a 300th of the iterations (MAX_BUCKETS).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..pod.recording import PLAIN, STITCHED, UNCOUNTED

if TYPE_CHECKING:
    import numpy as np

    Floats = np.ndarray[Any, np.dtype[np.float32]]

MAX_BUCKETS = 300
"""Number of stretches, if there are more than three times as many iterations."""
ARMS = (UNCOUNTED, PLAIN, STITCHED)


@dataclass(frozen=True)
class Point:
    """One dot of the chart of iterations."""

    position: int
    """Index of the iteration, in order of time."""
    arm: int
    duration: float
    """Milliseconds."""


@dataclass
class Curve:
    """What a chart shows of a process's iterations."""

    count: int = 0
    points: list[Point] = field(default_factory=list)
    places: list[tuple[int, int]] = field(default_factory=list)
    """(position, step) of the steps that are labelled on the axis, in order."""
    longest_ms: float = 0.0
    histogram: Sequence[int] = ()
    """For each edge (see `edge`), how many iterations are above it and not above the next edge."""

    def above(self, high: float) -> int:
        """How many iterations are longer than `high` milliseconds; `high` must be an edge."""
        return int(sum(self.histogram[_bin(high) + 1 :]))


def edge(value: float) -> float:
    """A value that is not negative, rounded up by less than 1%. Edges have float32's sign, exponent and the first seven bits of
    its mantissa."""
    import numpy as np

    return float((np.array([_bin(value)], np.uint32) << np.uint32(16)).view(np.float32)[0])


def _bin(value: float) -> int:
    import numpy as np

    return int((int(np.array([value], np.float32).view(np.uint32)[0]) + 0xFFFF) >> 16)


class Thinner:
    """Makes a Curve from blocks in order of time: add each block, then call finish."""

    def __init__(self, count: int, steps: Sequence[int] = ()) -> None:
        """count: number of iterations to come. steps: the steps to label on the axis, ascending; none: positions at equal
        distances."""
        import numpy as np

        self._numpy = np
        self._curve = Curve()
        self._buckets = MAX_BUCKETS if count > 3 * MAX_BUCKETS else 0
        self._expected = count
        self._wanted = list(steps)
        self._even = [] if steps else sorted({round(share * (count - 1) / 6) for share in range(7)}) if count else []
        self._held: list[tuple[Any, Floats]] = []
        self._held_from = self._bucket = 0
        self._histogram = np.zeros(1 << 16, np.int64)

    def add(self, first_step: int, stride: int, arms: Sequence[Sequence[int]], durations_us: Floats) -> None:
        """Adds one block. first_step, stride: iteration i is step first_step + i * stride. arms: [first index, count, arm], in
        order. durations_us: float32 microseconds of the iterations. Raises ValueError if the arms do not fit the durations."""
        np = self._numpy
        lengths = [int(count) for _, count, _ in arms]
        if sum(lengths) != len(durations_us) or min(lengths, default=0) < 0:
            raise ValueError("the arms do not fit the durations")
        which = np.repeat(np.array([arm for _, _, arm in arms], np.int8), lengths)
        durations = durations_us / np.float32(1e3)
        start, end = self._curve.count, self._curve.count + len(durations)
        self._find_places(first_step, stride, start, end)
        self._curve.count = end
        self._curve.longest_ms = max(self._curve.longest_ms, float(durations.max(initial=0.0)))
        bins = (durations.view(np.uint32).astype(np.int64) + 0xFFFF) >> 16
        self._histogram += np.bincount(bins, minlength=1 << 16)[: 1 << 16]
        while len(durations):
            room = self._bucket_end() - start if self._buckets else len(durations)
            taken = min(len(durations), max(1, room))
            self._held.append((which[:taken], durations[:taken]))
            start += taken
            which, durations = which[taken:], durations[taken:]
            if not self._buckets or start >= self._bucket_end():
                self._flush(start)

    def finish(self) -> Curve:
        """The curve of all blocks that were added."""
        self._flush(self._curve.count)
        self._curve.histogram = self._histogram.tolist()
        return self._curve

    def _bucket_end(self) -> int:
        if self._bucket >= self._buckets - 1:
            return 1 << 62
        return (self._bucket + 1) * self._expected // self._buckets

    def _flush(self, end: int) -> None:
        np = self._numpy
        if self._held:
            which = np.concatenate([arms for arms, _ in self._held])
            durations = np.concatenate([times for _, times in self._held])
            for arm in ARMS:
                (members,) = np.nonzero(which == arm)
                if self._buckets and len(members):
                    order = members[np.argsort(durations[members], kind="stable")]
                    members = list(dict.fromkeys((order[0], order[len(order) // 2], order[-1])))
                self._curve.points += [Point(self._held_from + int(k), arm, float(durations[k])) for k in members]
        self._held, self._held_from = [], end
        self._bucket += 1

    def _find_places(self, first_step: int, stride: int, start: int, end: int) -> None:
        while self._wanted and (offset := max(0, -(-(self._wanted[0] - first_step) // stride))) < end - start:
            self._wanted.pop(0)
            place = (start + offset, first_step + offset * stride)
            if not self._curve.places or self._curve.places[-1][0] < place[0]:
                self._curve.places.append(place)
        while self._even and self._even[0] < end:
            position = self._even.pop(0)
            self._curve.places.append((position, first_step + (position - start) * stride))
