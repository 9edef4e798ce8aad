"""What goes wrong with the webhook: every pod is admitted, and every labelled one injected as long as a webhook pod is Ready."""

from __future__ import annotations

import json
import subprocess
import threading
from typing import Any

import pytest

from .conftest import Release
from .kubernetes import Kubernetes
from .load import processes_of
from .test_pods import LABEL, pod

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("release")]

SPACE = "pods"
IMAGE = "example.org/training:3"
WEBHOOK = "app.kubernetes.io/component=webhook"


def admitted(kubernetes: Kubernetes, pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All of them, asked for one after the other, none created."""
    words = ("create", "--dry-run=server", "-o", "json", "-f", "-")
    text = kubernetes.kubectl(
        *words, stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}), seconds=300
    )
    found, place = [], 0
    while place < len(text.rstrip()):  # one object after another
        each, place = json.JSONDecoder().raw_decode(text, place)
        found.append(each)
        place += len(text[place:]) - len(text[place:].lstrip())
    return found


def injected(pods: list[dict[str, Any]]) -> int:
    return sum("stitchfleet.io/injected" in (each["metadata"].get("annotations") or {}) for each in pods)


def webhooks(kubernetes: Kubernetes, release: Release) -> list[str]:
    words = (
        "-n",
        release.namespace,
        "get",
        "pods",
        "-l",
        WEBHOOK,
        "--field-selector=status.phase=Running",
        "-o",
        "name",
    )
    return kubernetes.kubectl(*words).split()


def test_a_webhook_pod_is_deleted_while_pods_are_created_and_none_is_missed(
    kubernetes: Kubernetes, release: Release
) -> None:
    kubernetes.namespace(SPACE)
    deployment = ("-n", release.namespace, "deploy/stitchfleet-webhook")
    kubernetes.kubectl("scale", *deployment, "--replicas=2")
    kubernetes.kubectl("rollout", "status", *deployment, "--timeout=120s")
    try:
        victim = webhooks(kubernetes, release)[0]
        delete = threading.Timer(1.0, kubernetes.kubectl, ("-n", release.namespace, "delete", victim, "--wait=false"))
        delete.start()
        pods = [pod(IMAGE, name=f"train-{number}") for number in range(400)]
        found = admitted(kubernetes, pods)
        delete.join()
        assert len(found) == injected(found) == 400
        kubernetes.wait(lambda: victim not in webhooks(kubernetes, release), 60, "it was not deleted")
    finally:
        kubernetes.kubectl("scale", *deployment, "--replicas=1")
        kubernetes.kubectl("rollout", "status", *deployment, "--timeout=120s")


def test_a_webhook_that_hangs_costs_its_time_out_and_no_pod(kubernetes: Kubernetes, release: Release) -> None:
    """Its process is stopped, not ended: connections are taken, and nothing answers."""
    kubernetes.namespace(SPACE)
    kubernetes.wait(lambda: len(processes_of("stitchfleet webhook")) == 1, 60, "there is more than one webhook")
    (process,) = processes_of("stitchfleet webhook")
    subprocess.run(["kill", "-STOP", str(process)], check=True)
    try:
        (found,) = admitted(kubernetes, [pod(IMAGE)])
        assert injected([found]) == 0
        assert "initContainers" not in found["spec"]
    finally:
        subprocess.run(["kill", "-CONT", str(process)], check=True)
    kubernetes.wait(lambda: injected(admitted(kubernetes, [pod(IMAGE)])), 60, "pods are not injected again")


HOSTILE = ["$(touch /tmp/x)", "; rm -rf /", "../../../etc", "a\nb", "$(PYTHONPATH)", "`id`", "\u0000", "é" * 100]


def test_hostile_annotations_are_only_text(kubernetes: Kubernetes) -> None:
    kubernetes.namespace(SPACE)
    given = []
    for number, text in enumerate(HOSTILE):
        each = pod(IMAGE, name=f"train-{number}")
        names = ("user", "run-id", "python-path")
        each["metadata"]["annotations"] = {f"stitchfleet.io/{name}": text for name in names}
        given.append(each)
    for text, found in zip(HOSTILE, admitted(kubernetes, given)):
        main = found["spec"]["containers"][0]
        entries = {entry["name"]: entry for entry in main["env"]}
        assert "value" not in entries["STITCHFLEET_RUN_ID"]  # the pod's uid instead
        assert entries["STITCHFLEET_USER"]["value"] == text.replace("$(", "$$(")
        assert main["command"][3:] == pod(IMAGE)["spec"]["containers"][0]["command"]
        assert LABEL.items() <= found["metadata"]["labels"].items()
