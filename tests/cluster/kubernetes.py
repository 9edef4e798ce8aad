"""What tests ask of the API server, by kubectl: what a person would type stands in the test."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .node import STATE, Node

MEASURED_STEPS = 500
"""Stitched steps for which a measured pod goes on: pairs of blocks come first of all."""

Object = dict[str, Any]


class Kubernetes:
    """A cluster by its node."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def kubectl(self, *words: str, stdin: str | None = None, seconds: float = 120.0) -> str:
        """What it prints. Raises AssertionError with what it complains of."""
        command = ["kubectl", "--kubeconfig", str(self.node.kubeconfig), *words]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=seconds, check=False)
        assert done.returncode == 0, f"kubectl {' '.join(words[:3])}: {done.stderr.strip()[-2000:]}"
        return done.stdout

    def helm(self, *words: str, seconds: float = 300.0) -> str:
        command = [str(self.node.helm), "--kubeconfig", str(self.node.kubeconfig), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
        assert done.returncode == 0, f"helm {words[0]}: {done.stderr.strip()[-3000:]}"
        return done.stdout

    def create(self, manifest: Object) -> Object:
        found: Object = json.loads(self.kubectl("create", "-f", "-", "-o", "json", stdin=json.dumps(manifest)))
        return found

    def apply(self, *manifests: str) -> None:
        """YAML, kinds of objects among them, which are served when this returns."""
        for text in manifests:
            self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)
        kinds = [each for each in self.kubectl("get", "crd", "-o", "name").split() if each]
        # `kubectl wait` fails at once on an object that has no status yet
        self.wait(lambda: self._said("wait", "--for=condition=Established", "--timeout=30s", *kinds), 60, "the kinds")

    def get(self, kind: str, name: str, namespace: str = "default") -> Object:
        found: Object = json.loads(self.kubectl("-n", namespace, "get", kind, name, "-o", "json"))
        return found

    def namespace(self, name: str, **labels: str) -> None:
        """A fresh one: what a test before left in it is gone."""
        self.kubectl("delete", "namespace", name, "--ignore-not-found", "--wait", "--timeout=100s")
        self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        # a pod is refused until the account that it runs as is there
        self.wait(
            lambda: bool(self.kubectl("-n", name, "get", "serviceaccount", "default", "--ignore-not-found")), 30, name
        )

    def finished(self, name: str, namespace: str, seconds: float) -> Object:
        """The pod, when its containers have ended."""

        def ended() -> Object | None:
            pod = self.get("pod", name, namespace)
            return pod if pod["status"].get("phase") in ("Succeeded", "Failed") else None

        pod: Object = self.wait(ended, seconds, lambda: self.why(name, namespace))
        return pod

    def train_for_a_measurement(self, name: str, namespace: str, container: str, seconds: float) -> None:
        """Lets a labelled training pod run until it has been stitched for long enough to know what that saves, and tells it to end
        as a preemption does. seconds: for each of the two waits."""

        def log() -> str:
            return log_of(self, name, namespace, container)

        self.wait(lambda: "stitched from step" in log(), seconds, lambda: self.why(name, namespace))
        first = last_step(log())
        self.wait(lambda: last_step(log()) > first + MEASURED_STEPS, seconds, log)
        self.kubectl("-n", namespace, "exec", name, "-c", container, "--", "python", "-c", "import os; os.kill(1, 15)")

    def why(self, name: str, namespace: str) -> str:
        """All that is known of a pod that is not as it should be."""
        events = ["get", "events", "--field-selector", f"involvedObject.name={name}"]
        parts = [
            self._said("-n", namespace, "describe", "pod", name),
            self._said("-n", namespace, "logs", name, "--all-containers", "--tail=40"),
            self._said("-n", namespace, *events),
        ]
        return "\n".join(parts)

    def _said(self, *words: str) -> str:
        try:
            return self.kubectl(*words)
        except AssertionError as error:
            return str(error)

    @staticmethod
    def wait(found: Callable[[], Any], seconds: float, what: str | Callable[[], str]) -> Any:
        """What `found` returns, as soon as that is something. Raises AssertionError."""
        until = time.monotonic() + seconds
        while not (result := found()):
            assert time.monotonic() < until, f"not within {seconds:.0f} s: {what if isinstance(what, str) else what()}"
            time.sleep(0.2)
        return result

    def audit(self, since: str = "") -> Iterator[Object]:
        """The API server's audit log. since: a time in UTC, written as the log's own."""
        with open(self.node.audit_log, encoding="utf-8") as log:
            for line in log:
                event = json.loads(line)
                if event["requestReceivedTimestamp"] >= since:
                    yield event


def log_of(kubernetes: Kubernetes, name: str, namespace: str, container: str = "main") -> str:
    """What the pod's container has written so far; nothing before it runs."""
    started = kubernetes.get("pod", name, namespace)["status"].get("phase") not in (None, "Pending")
    return kubernetes.kubectl("-n", namespace, "logs", name, "-c", container) if started else ""


def last_step(log: str) -> int:
    """Of a training script's log; 0 before the first that it tells of."""
    return int((re.findall(r"step (\d+) loss", log) or ["0"])[-1])


def volume_of(uid: str) -> Path:
    """The volume with payload and cache of a pod that is there, on the node."""
    return STATE / "kubelet" / "pods" / uid / "volumes" / "kubernetes.io~empty-dir" / "stitchfleet"
