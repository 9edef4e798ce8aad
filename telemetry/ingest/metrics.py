"""The ingest server's Prometheus metrics, named by its conventions. No label identifies a job, since a fleet has too many."""

from __future__ import annotations

from collections import Counter as Tally
from dataclasses import dataclass, field
from importlib import metadata

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from ..database.rows import IRREGULARITIES

UNITS = ("cpu", "gpu")
TOO_OLD, TOO_NEW = "too_old", "too_new"
REJECTIONS = (
    *("token_missing", "token_refused", "reviewer_unavailable", "forbidden", "too_large", "malformed", "slow"),
    *("busy", "quota", "draining", "database"),
)
CODES = ("200", "400", "401", "403", "408", "413", "415", "429", "500", "503")
"""HTTP status codes of answers to a batch."""


@dataclass
class DeviceSeconds:
    """Device-seconds (devices of the job times seconds) of blocks of iterations.

    actual: what they took. baseline_equivalent: what they would have taken if stitched iterations took as long as the mean plain
    one known by then. overhead: what stitching cost jobs that have ended (tracing, verifying).
    """

    actual: float = 0.0
    baseline_equivalent: float = 0.0
    overhead: float = 0.0


@dataclass
class Written:
    """What one transaction changed in the database, and what was odd about a batch. rows: of its segments, new or not.
    iterations, blocks: new ones. dropped: blocks that were not stored, by reason. irregular: records with an irregularity, by
    kind."""

    rows: int = 0
    iterations: int = 0
    blocks: int = 0
    duplicate_blocks: int = 0
    damaged: int = 0
    future_segments: int = 0
    lost: int = 0
    registered: int = 0
    """Number of processes of which nothing was known before."""
    dropped: Tally[str] = field(default_factory=Tally)
    irregular: Tally[str] = field(default_factory=Tally)
    device_seconds: dict[str, DeviceSeconds] = field(default_factory=lambda: {unit: DeviceSeconds() for unit in UNITS})


class Metrics:
    """The server's metrics, in a registry of their own."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series per counter, which nobody uses
        self.registry = CollectorRegistry()
        self.actual = self._counter(
            "stitchfleet_actual_device_seconds",
            "Devices times time that recorded iterations took. Rank 0 stands for its job.",
            "unit",
        )
        self.baseline = self._counter(
            "stitchfleet_baseline_equivalent_device_seconds",
            "The same, had stitched iterations taken as long as the mean of the job's plain blocks known by then. "
            "Minus the actual and the overhead: what was saved; the weekly report has the estimate with its interval.",
            "unit",
        )
        self.overhead = self._counter(
            "stitchfleet_overhead_device_seconds",
            "Devices times time that stitching cost jobs that have ended: tracing, verifying.",
            "unit",
        )
        self.requests = self._counter("stitchfleet_ingest_requests", "Answers to posted batches.", "code")
        self.rejections = self._counter("stitchfleet_ingest_rejections", "Batches that were not taken.", "reason")
        self.iterations = self._counter("stitchfleet_ingest_iterations", "Iterations committed, none twice.")
        self.blocks = self._counter("stitchfleet_ingest_blocks", "Blocks of iterations committed, none twice.")
        self.duplicates = self._counter("stitchfleet_ingest_duplicate_blocks", "Blocks that were there already.")
        self.dropped = self._counter(
            "stitchfleet_ingest_dropped_blocks", "Blocks dated too far from today to be kept.", "reason"
        )
        self.damaged = self._counter("stitchfleet_ingest_damaged_records", "Records that could not be used.")
        self.future = self._counter(
            "stitchfleet_ingest_future_segments", "Segments of a format that this version does not know."
        )
        self.irregular = self._counter(
            "stitchfleet_ingest_irregular_records", "Records taken although something was odd.", "reason"
        )
        self.lost = self._counter("stitchfleet_lost_records", "Records that training processes reported as lost.")
        self.body_bytes = self._counter("stitchfleet_ingest_body_bytes", "Bytes of batches, decompressed.")
        self.pending = Gauge(
            "stitchfleet_ingest_pending_requests", "Batches waiting or being written.", registry=self.registry
        )
        self.pending_bytes = Gauge(
            "stitchfleet_ingest_pending_bytes", "Bytes of these batches.", registry=self.registry
        )
        self.pending_limit = Gauge(
            "stitchfleet_ingest_pending_requests_limit", "Most batches that may be pending.", registry=self.registry
        )
        self.pending_bytes_limit = Gauge(
            "stitchfleet_ingest_pending_bytes_limit", "Most bytes that may be pending.", registry=self.registry
        )
        self.closed = self._counter(
            "stitchfleet_ingest_closed_connections",
            "Connections that were closed without a request: idle for too long, or to make room for another.",
            "reason",
        )
        self.database_up = Gauge(
            "stitchfleet_ingest_database_up",
            "1 if the database accepted the last write or check.",
            registry=self.registry,
        )
        self.write_seconds = Histogram(
            "stitchfleet_ingest_write_seconds", "From a whole batch to its commit.", registry=self.registry
        )
        info = Gauge("stitchfleet_build_info", "1; the label says the version.", ["version"], registry=self.registry)
        info.labels(metadata.version("stitchfleet")).set(1)
        # a series that exists from the start shows its first increase
        for counter, values in (
            *((counter, UNITS) for counter in (self.actual, self.baseline, self.overhead)),
            (self.requests, CODES),
            (self.rejections, REJECTIONS),
            (self.irregular, IRREGULARITIES),
            (self.dropped, (TOO_OLD, TOO_NEW)),
            (self.closed, ("idle", "full")),
        ):
            for value in values:
                counter.labels(value)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def book(self, written: Written) -> None:
        """Adds what was committed to the counters. Any thread may call it. It never raises, because what is committed must be
        answered."""
        for unit, seconds in written.device_seconds.items():
            self.actual.labels(unit).inc(seconds.actual)
            self.baseline.labels(unit).inc(seconds.baseline_equivalent)
            self.overhead.labels(unit).inc(seconds.overhead)
        self.iterations.inc(written.iterations)
        self.blocks.inc(written.blocks)
        self.duplicates.inc(written.duplicate_blocks)
        self.damaged.inc(written.damaged)
        self.future.inc(written.future_segments)
        self.lost.inc(written.lost)
        for counter, tally in ((self.dropped, written.dropped), (self.irregular, written.irregular)):
            for reason, count in tally.items():
                counter.labels(reason).inc(count)

    def exposition(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return generate_latest(self.registry)
