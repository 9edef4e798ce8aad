"""Jobs and pods in a queue of Kueue's: what we add changes neither when they start nor what they are counted for.

Its controller and webhooks run in the cluster. A queue here has room for one of the two jobs at a time.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from .conftest import Images
from .kubernetes import Kubernetes
from .test_pods import IMPORTS, LABEL, pod

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("release")]

SPACE = "queue"
SECONDS = 120.0
QUEUE = {"kueue.x-k8s.io/queue-name": "training"}
GATE = {"name": "kueue.x-k8s.io/admission"}
ROOM = {"cpu": "200m", "memory": "600Mi"}
"""Of the queue, and what each job asks for."""


def queue() -> list[dict[str, Any]]:
    resources = [{"name": name, "nominalQuota": amount} for name, amount in ROOM.items()]
    group = {"coveredResources": list(ROOM), "flavors": [{"name": "any", "resources": resources}]}
    version = "kueue.x-k8s.io/v1beta1"
    return [
        {"apiVersion": version, "kind": "ResourceFlavor", "metadata": {"name": "any"}},
        {
            "apiVersion": version,
            "kind": "ClusterQueue",
            "metadata": {"name": "cluster"},
            "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
        },
        {
            "apiVersion": version,
            "kind": "LocalQueue",
            "metadata": {"name": "training", "namespace": SPACE},
            "spec": {"clusterQueue": "cluster"},
        },
    ]


def lone(name: str, image: str, *command: str) -> dict[str, Any]:
    found = pod(image, {**QUEUE, **LABEL}, name, command=list(command), resources={"requests": ROOM, "limits": ROOM})
    found["metadata"]["namespace"] = SPACE
    return found


def job(name: str, image: str, *command: str) -> dict[str, Any]:
    template = {"metadata": {"labels": LABEL}, "spec": lone(name, image, *command)["spec"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": SPACE, "labels": QUEUE},
        "spec": {"backoffLimit": 0, "template": template},
    }


@pytest.fixture
def space(kubernetes: Kubernetes, kueue: None) -> None:
    kubernetes.namespace(SPACE)
    for each in queue():
        make(kubernetes, each)


def make(kubernetes: Kubernetes, manifest: dict[str, Any]) -> None:
    """Kueue's webhooks answer a moment after its pod is ready."""
    said = ""

    def is_made() -> bool:
        nonlocal said
        try:
            kubernetes.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
        except AssertionError as error:
            said = str(error)
            return False
        return True

    kubernetes.wait(is_made, 60, lambda: said)


def pods_of(kubernetes: Kubernetes, name: str) -> list[dict[str, Any]]:
    words = ("-n", SPACE, "get", "pods", "-l", f"batch.kubernetes.io/job-name={name}", "-o", "json")
    return list(json.loads(kubernetes.kubectl(*words))["items"])


def counted(kubernetes: Kubernetes, owner: str) -> dict[str, Any]:
    """What Kueue has put aside for a job or a pod, when it has."""

    def admission() -> dict[str, Any] | None:
        found = json.loads(kubernetes.kubectl("-n", SPACE, "get", "workloads", "-o", "json"))["items"]
        for each in found:
            if owner in [one["name"] for one in each["metadata"].get("ownerReferences") or ()]:
                (given,) = ((each.get("status") or {}).get("admission") or {}).get("podSetAssignments") or [{}]
                return dict(given) or None
        return None

    return dict(kubernetes.wait(admission, 60, f"nothing is put aside for {owner}")["resourceUsage"])


def why(kubernetes: Kubernetes) -> str:
    return kubernetes.kubectl("-n", SPACE, "get", "jobs,pods,workloads,events", "-o", "wide")


@pytest.mark.usefixtures("space")
def test_a_job_and_a_pod_wait_in_their_queue_and_are_injected(kubernetes: Kubernetes, images: Images) -> None:
    image = images.demo.reference
    kubernetes.create(job("first", image, "sleep", "600"))
    kubernetes.wait(lambda: pods_of(kubernetes, "first"), SECONDS, lambda: why(kubernetes))
    second = kubernetes.create(job("second", image, "python", "-c", IMPORTS))
    assert second["spec"]["suspend"] is True
    third = kubernetes.create(lone("third", image, "python", "-c", IMPORTS))
    assert GATE in third["spec"]["schedulingGates"]
    assert third["metadata"]["annotations"]["stitchfleet.io/injected"] == "main"
    plain = copy.deepcopy(lone("plain", image, "true"))
    del plain["metadata"]["labels"]["stitchfleet.io/enabled"]
    kubernetes.create(plain)
    assert pods_of(kubernetes, "second") == []
    assert GATE in kubernetes.get("pod", "third", SPACE)["spec"]["schedulingGates"]

    kubernetes.kubectl("-n", SPACE, "delete", "job", "first")
    (second_pod,) = kubernetes.wait(lambda: pods_of(kubernetes, "second"), SECONDS, lambda: why(kubernetes))
    for name in (second_pod["metadata"]["name"], "third"):
        found = kubernetes.finished(name, SPACE, SECONDS)
        assert found["status"]["phase"] == "Succeeded", kubernetes.why(name, SPACE)
        assert found["metadata"]["annotations"]["stitchfleet.io/injected"] == "main"
        log = kubernetes.kubectl("-n", SPACE, "logs", name)
        assert "imported /opt/stitchfleet/payload/python" in log
    assert kubernetes.finished("plain", SPACE, SECONDS)["status"]["phase"] == "Succeeded"

    # a labelled pod is counted as its unlabelled twin is
    assert counted(kubernetes, "third") == counted(kubernetes, "plain") == {"cpu": "200m", "memory": "600Mi"}
