"""The webhook's Prometheus metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

OUTCOMES = ("injected", "carried", "left_alone", "unchanged", "error")
"""Outcomes of an admission. carried: a job's label was passed to its pods; unchanged: the pod was injected before; error: the webhook
failed, and the pod is admitted unchanged."""


class Metrics:
    """The metrics of one server, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.admissions = Counter(
            "stitchfleet_webhook_admissions",
            "Pods, and jobs of the kinds that make them, that were asked about",
            ("outcome",),
            registry=self.registry,
        )
        for outcome in OUTCOMES:
            self.admissions.labels(outcome)
        self.seconds = Histogram(
            "stitchfleet_webhook_admission_seconds",
            "Time to answer, at the server",
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5),
            registry=self.registry,
        )
        self.certificate_expiry = Gauge(
            "stitchfleet_webhook_certificate_expiry_timestamp_seconds",
            "End of the certificate that is served",
            registry=self.registry,
        )
        self.renewal_failures = Counter(
            "stitchfleet_webhook_certificate_failures",
            "Times that certificates could not be looked after",
            registry=self.registry,
        )

    def exposition(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return generate_latest(self.registry)
