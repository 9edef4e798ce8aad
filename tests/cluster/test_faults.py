"""What goes wrong with the webhook: every pod is admitted, and every labelled one injected as long as a webhook pod is Ready."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from typing import Any

import pytest

from .conftest import Images, Release
from .kubernetes import Kubernetes
from .load import CONFIGURATION, dry_run, is_injected, processes_of
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


MARGIN_SECONDS = 2.0
"""What a request may take besides the wait for the webhook."""


def longest_seconds(kubernetes: Kubernetes) -> float:
    """What the creation of a pod may take: the time-out that the webhook's configuration names, and a margin."""
    (webhook,) = (
        each
        for each in kubernetes.get("mutatingwebhookconfiguration", CONFIGURATION)["webhooks"]
        if any("pods" in rule["resources"] for rule in each["rules"])
    )
    assert webhook["failurePolicy"] == "Ignore"
    return float(webhook["timeoutSeconds"]) + MARGIN_SECONDS


def test_a_webhook_that_hangs_costs_its_time_out_and_no_pod(
    kubernetes: Kubernetes, images: Images, release: Release
) -> None:
    """Its process is stopped, not ended: connections are taken, and nothing answers. The pods really run."""
    kubernetes.namespace(SPACE)
    longest = longest_seconds(kubernetes)
    kubernetes.wait(lambda: len(processes_of("stitchfleet webhook")) == 1, 60, "there is more than one webhook")
    (process,) = processes_of("stitchfleet webhook")
    subprocess.run(["kill", "-STOP", str(process)], check=True)
    took = []
    try:
        for name in ("first", "second"):
            started = time.monotonic()
            created = kubernetes.create(pod(images.demo.reference, name=name, command=["true"]))
            took.append(time.monotonic() - started)
            assert injected([created]) == 0
            assert "initContainers" not in created["spec"]
    finally:
        subprocess.run(["kill", "-CONT", str(process)], check=True)
    print(f"with a webhook that hangs pods were created within {', '.join(f'{each:.1f}' for each in took)} s")
    assert max(took) < longest
    assert min(took) > longest - MARGIN_SECONDS - 1, "it did not hang"
    for name in ("first", "second"):
        assert kubernetes.finished(name, SPACE, 90)["status"]["phase"] == "Succeeded", kubernetes.why(name, SPACE)
    kubernetes.wait(lambda: injected(admitted(kubernetes, [pod(IMAGE)])), 60, "pods are not injected again")


IN_A_ROW = 20
"""Pods, injected one after another, that say that a hanging webhook pod is asked no more."""


def test_of_two_webhooks_one_that_hangs_is_soon_asked_no_more(kubernetes: Kubernetes, release: Release) -> None:
    """Until its readiness probe has failed, some pods wait for it and start plain."""
    kubernetes.namespace(SPACE)
    longest = longest_seconds(kubernetes)
    deployment = ("-n", release.namespace, "deploy/stitchfleet-webhook")
    kubernetes.kubectl("scale", *deployment, "--replicas=2")
    kubernetes.kubectl("rollout", "status", *deployment, "--timeout=120s")
    process = processes_of("stitchfleet webhook")[0]
    plain, in_a_row, slowest = 0, 0, 0.0
    try:
        subprocess.run(["kill", "-STOP", str(process)], check=True)
        began = time.monotonic()
        while in_a_row < IN_A_ROW:
            started = time.monotonic()
            assert started - began < 90, f"after {plain} plain pods it is asked yet"
            in_a_row = in_a_row + 1 if is_injected(dry_run(kubernetes, pod(IMAGE))) else 0
            plain += in_a_row == 0
            slowest = max(slowest, time.monotonic() - started)
        print(
            f"one of two webhooks hangs: {plain} plain pods in {time.monotonic() - began:.0f} s, the slowest {slowest:.1f} s"
        )
        assert slowest < longest
    finally:
        subprocess.run(["kill", "-CONT", str(process)], check=False)  # the kubelet may have ended it
        kubernetes.kubectl("scale", *deployment, "--replicas=1")
        kubernetes.kubectl("rollout", "status", *deployment, "--timeout=120s")


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
