"""The controller's Prometheus metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

POD_STATES = {"injected": "injected", "not_injected": "notInjected", "silent": "silent"}
"""States of the pods with the label that exist now, with the field of a SavingsReport's status that holds their number. silent:
injected pods of which no record has arrived."""


class Metrics:
    """The metrics of one controller, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.looks = Counter(
            "stitchfleet_controller_looks",
            "Times that a loop looked at the fleet",
            ("loop", "outcome"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "stitchfleet_controller_look_seconds",
            "Time of one look",
            ("loop",),
            buckets=(0.01, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0, 300.0),
            registry=self.registry,
        )
        self.pods = Gauge(
            "stitchfleet_controller_pods",
            "Pods with the label that are there; silent ones are injected ones too",
            ("state",),
            registry=self.registry,
        )
        for state in POD_STATES:
            self.pods.labels(state)
        self.released = Counter(
            "stitchfleet_controller_released_pods",
            "Pods that were released because the payload's image could not be pulled",
            registry=self.registry,
        )
        self.paused = Gauge(
            "stitchfleet_controller_paused_namespaces",
            "Namespaces in which injection pauses",
            registry=self.registry,
        )
        self.reports = Counter(
            "stitchfleet_controller_reports_computed",
            "SavingsReports whose figures were worked out from the database",
            registry=self.registry,
        )

    def serve(self, port: int) -> None:
        """Serves GET /metrics over HTTP on a thread of its own. port: TCP port, on all addresses. Raises OSError if it cannot be
        bound."""
        start_http_server(port, registry=self.registry)
