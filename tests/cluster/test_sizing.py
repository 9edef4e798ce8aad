"""How long a release and a labelled pod take to start: figures of docs/sizing.md."""

from __future__ import annotations

import time

import pytest

from .conftest import NAMESPACE, Images, Releases
from .figures import note
from .kubernetes import Kubernetes, last_step, log_of
from .load import is_injected
from .test_pods import LABEL, SPACE, pod

pytestmark = pytest.mark.slow
ROUNDS = 3
TRAINS = ["python", "/app/train.py", "--steps", "40"]


def seconds_to_the_first_step(kubernetes: Kubernetes, image: str, name: str, labels: dict[str, str]) -> float:
    """From `kubectl create` until the pod's log tells of a step."""
    started = time.monotonic()
    created = kubernetes.create(pod(image, labels, name, command=TRAINS))
    assert is_injected(created) is bool(labels)
    kubernetes.wait(lambda: last_step(log_of(kubernetes, name, SPACE)) > 0, 120, lambda: kubernetes.why(name, SPACE))
    took = time.monotonic() - started
    assert kubernetes.finished(name, SPACE, 120)["status"]["phase"] == "Succeeded"
    return took


def test_how_long_a_release_and_its_pods_take_to_start(
    kubernetes: Kubernetes, releases: Releases, images: Images
) -> None:
    figures: dict[str, list[float]] = {"install": [], "labelled": [], "unlabelled": []}
    values = ("--set-json", 'database.embedded.volume={"emptyDir":{}}', "--set", "webhook.replicas=1")
    for _ in range(ROUNDS):
        releases.uninstall()
        kubernetes.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=100s")
        kubernetes.namespace(NAMESPACE)
        started = time.monotonic()
        releases.with_values("deploy/stitchfleet-server", *values)
        figures["install"].append(time.monotonic() - started)
    kubernetes.namespace(SPACE)
    for number in range(ROUNDS):
        for kind, labels in (("labelled", LABEL), ("unlabelled", {})):
            took = seconds_to_the_first_step(kubernetes, images.demo.reference, f"{kind}-{number}", labels)
            figures[kind].append(took)
    kubernetes.kubectl("delete", "namespace", SPACE, "--wait=false")
    note("helm install --wait, the images being on the node", seconds=figures["install"])
    note("from create to the first step, labelled", seconds=figures["labelled"])
    note("from create to the first step, unlabelled", seconds=figures["unlabelled"])
    assert min(figures["labelled"]) < 60
