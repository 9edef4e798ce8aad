"""What the controller does for pods that are there: Events, pauses, the kill switch, a share of jobs, and what the report says."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from .conftest import Images
from .kubernetes import Kubernetes
from .test_pods import LABEL, pod
from .test_product import stitched_step, training_pod

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("release")]

SPACE = "pods"
TRAINING = "vision"
NOTHING = "localhost/stitchfleet-nothing:2"
"""Of this module alone: another test's pause for its image outlives the test."""


def policy(kubernetes: Kubernetes, namespace: str, name: str = "team", **spec: Any) -> None:
    about = {"apiVersion": "stitchfleet.io/v1alpha1", "kind": "StitchPolicy"}
    kubernetes.apply(json.dumps({**about, "metadata": {"name": name, "namespace": namespace}, "spec": spec}))


def admitted(kubernetes: Kubernetes, manifest: dict[str, Any]) -> dict[str, Any]:
    words = ("create", "--dry-run=server", "-o", "json", "-f", "-")
    found: dict[str, Any] = json.loads(kubernetes.kubectl(*words, stdin=json.dumps(manifest)))
    return found


def why_not(kubernetes: Kubernetes, manifest: dict[str, Any]) -> str:
    return str(admitted(kubernetes, manifest)["metadata"]["annotations"].get("stitchfleet.io/not-injected", ""))


def events(kubernetes: Kubernetes, name: str, namespace: str = SPACE) -> list[tuple[str, str]]:
    words = ("-n", namespace, "get", "events", "--field-selector", f"involvedObject.name={name}", "-o", "json")
    found = json.loads(kubernetes.kubectl(*words))["items"]
    return [
        (each["reason"], each["message"]) for each in found if each["source"].get("component", "").startswith("stitch")
    ]


def test_an_event_says_why_a_pod_was_left_alone_and_the_report_counts_it(
    kubernetes: Kubernetes, images: Images
) -> None:
    kubernetes.namespace(SPACE)
    left = pod(images.demo.reference, command=["true"])
    left["metadata"]["annotations"] = {"stitchfleet.io/skip": "I debug it"}
    kubernetes.create(left)
    unseen = pod(images.demo.reference, {}, name="late", command=["sleep", "600"])
    kubernetes.create(unseen)
    kubernetes.kubectl("-n", SPACE, "label", "pod", "late", "stitchfleet.io/enabled=true")
    told = kubernetes.wait(lambda: events(kubernetes, "train"), 60, "no event")
    assert told == [("StitchfleetNotInjected", "I debug it")]
    assert "webhook did not see it" in kubernetes.wait(lambda: events(kubernetes, "late"), 60, "no event")[0][1]
    week = time.strftime("%G-w%V", time.gmtime())

    def counted() -> dict[str, Any] | None:
        pods = (kubernetes.get("savingsreport", week).get("status") or {}).get("pods") or {}
        return pods if pods.get("notInjected", 0) >= 2 else None

    found = kubernetes.wait(counted, 60, lambda: kubernetes.kubectl("get", "savingsreport", week, "-o", "yaml"))
    assert {"namespace": SPACE, "name": "train", "reason": "I debug it"} in found["examples"]


def test_the_report_names_a_pod_that_was_injected_and_sent_nothing(kubernetes: Kubernetes, images: Images) -> None:
    """Its Python reads no PYTHONPATH, so that nothing of ours runs in it."""
    kubernetes.namespace(SPACE)
    created = kubernetes.create(pod(images.demo.reference, name="mute", command=["python", "-E", "-c", "pass"]))
    assert created["metadata"]["annotations"]["stitchfleet.io/injected"] == "main"
    assert kubernetes.finished("mute", SPACE, 90)["status"]["phase"] == "Succeeded"
    week = time.strftime("%G-w%V", time.gmtime())

    def named() -> list[str]:
        pods = (kubernetes.get("savingsreport", week).get("status") or {}).get("pods") or {}
        found = [each["reason"] for each in pods.get("examples") or () if each["name"] == "mute"]
        return found if pods.get("silent", 0) >= 1 else []

    why = kubernetes.wait(named, 60, lambda: kubernetes.kubectl("get", "savingsreport", week, "-o", "yaml"))
    assert why == ["it was injected, and sent no record"]


def test_a_report_of_a_revision_that_is_none_says_so(kubernetes: Kubernetes) -> None:
    week = time.strftime("%G-W%V", time.gmtime())
    about = {"apiVersion": "stitchfleet.io/v1alpha1", "kind": "SavingsReport", "metadata": {"name": "first"}}
    with pytest.raises(AssertionError, match=r"spec\.revision"):
        kubernetes.create({**about, "spec": {"week": week, "revision": 0}})
    kubernetes.create({**about, "spec": {"week": week, "revision": 1}})

    def ready() -> dict[str, str]:
        conditions = (kubernetes.get("savingsreport", "first").get("status") or {}).get("conditions") or []
        return next((each for each in conditions if each["type"] == "Ready"), {})

    found = kubernetes.wait(ready, 60, lambda: kubernetes.kubectl("get", "savingsreport", "first", "-o", "yaml"))
    assert (found["status"], found["reason"]) == ("False", "NoSuchRevision")
    assert found["message"] == f"{week} has no revision 1: it is not frozen yet"
    with pytest.raises(AssertionError, match="stay as they are"):
        kubernetes.kubectl("patch", "savingsreport", "first", "--type=merge", "-p", '{"spec": {"revision": 2}}')
    kubernetes.kubectl("delete", "savingsreport", "first")


def test_injection_pauses_where_a_payload_could_not_be_pulled(kubernetes: Kubernetes, images: Images) -> None:
    kubernetes.namespace(SPACE)
    kubernetes.namespace("elsewhere")
    policy(kubernetes, SPACE, payloadImage=NOTHING)
    policy(kubernetes, "elsewhere", payloadImage=NOTHING)
    mine = pod(images.demo.reference, name="second")
    theirs = pod(images.demo.reference)
    theirs["metadata"]["namespace"] = "elsewhere"

    def is_pinned() -> bool:
        return all(
            NOTHING in json.dumps(admitted(kubernetes, each)["spec"].get("initContainers")) for each in (mine, theirs)
        )

    kubernetes.wait(is_pinned, 30, "the webhook does not learn of the policies")
    kubernetes.create(pod(images.demo.reference, command=["true"]))
    assert kubernetes.finished("train", SPACE, 120.0)["status"]["phase"] == "Succeeded"
    kubernetes.wait(lambda: "injection pauses until" in why_not(kubernetes, mine), 30, "injection goes on")
    assert why_not(kubernetes, theirs) == ""
    assert "could not be pulled" in kubernetes.wait(lambda: events(kubernetes, "train"), 60, "no event")[0][1]
    # another image, which is there, is another matter
    policy(kubernetes, SPACE, payloadImage=images.payload.reference)
    kubernetes.wait(lambda: why_not(kubernetes, mine) == "", 30, "the pause holds for another image too")
    kubernetes.kubectl("delete", "namespace", "elsewhere", "--wait=false")


def test_a_share_of_the_jobs_is_injected(kubernetes: Kubernetes, images: Images) -> None:
    kubernetes.namespace(SPACE)
    policy(kubernetes, SPACE, canaryPercent=0)
    kubernetes.wait(lambda: "0% of" in why_not(kubernetes, pod(images.demo.reference)), 30, "the share is not obeyed")


def test_the_kill_switch_reaches_a_running_job_within_a_minute(kubernetes: Kubernetes, images: Images) -> None:
    kubernetes.namespace(TRAINING)
    kubernetes.create(training_pod("train", images.demo.reference, 1_000_000, **LABEL))
    kubernetes.wait(lambda: stitched_step(kubernetes), 400, lambda: kubernetes.why("train", TRAINING))
    log = ("-n", TRAINING, "logs", "train", "-c", "main")
    assert "control file" not in kubernetes.kubectl(*log)
    policy(kubernetes, TRAINING, stopped=True)
    started = time.monotonic()
    kubernetes.wait(lambda: "control file: off" in kubernetes.kubectl(*log), 90, lambda: kubernetes.kubectl(*log))
    took = time.monotonic() - started
    print(f"the kill switch took {took:.0f} s")
    assert took < 60
    assert ("StitchfleetStopped",) in {each[:1] for each in events(kubernetes, "train", TRAINING)}
    kubernetes.kubectl("-n", TRAINING, "delete", "pod", "train", "--grace-period=2", "--wait")
    # of the same name, as the product's test counts whom the webhook was asked about
    assert "has stopped stitching" in why_not(kubernetes, training_pod("train", images.demo.reference, 1, **LABEL))
