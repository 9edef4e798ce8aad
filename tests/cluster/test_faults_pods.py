"""Pods for which something is too little or too much: disk, the API's size limit, a thousand at once, a policy that is wrong."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from .conftest import Images, Release
from .figures import note
from .kubernetes import Kubernetes, log_of, volume_of
from .load import PARTS, all_at_once, dry_run, is_injected, usage
from .test_pods import LABEL, pod

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("release")]

SPACE = "pods"
IMAGE = "example.org/training:3"
GATE = [{"name": "stitchfleet.io/of-the-test"}]
"""A pod with it is not scheduled until it goes."""
STEPS = 600


def test_a_thousand_pods_at_once_are_all_injected(kubernetes: Kubernetes, release: Release) -> None:
    """And what each part takes at rest, with them, and with a thousand pods that are there."""
    kubernetes.namespace(SPACE)
    rest = {part: usage(part) for part in PARTS}
    time.sleep(20)
    for part, before in rest.items():
        now = usage(part)
        cpu = (now.cpu_seconds - before.cpu_seconds) / 20
        note(f"{part} at rest", resident_mb=round(now.resident_mb), cores=round(cpu, 4))
    rest, started = {part: usage(part) for part in PARTS}, time.monotonic()
    pods = [pod(IMAGE, name=f"train-{number}") for number in range(1000)]
    found = all_at_once(kubernetes, pods, 100)
    took = time.monotonic() - started
    assert sum(map(is_injected, found)) == 1000
    note("1000 admissions, 100 at a time", seconds=round(took, 2))
    for part, before in rest.items():
        now = usage(part)
        spent = round(now.cpu_seconds - before.cpu_seconds, 2)
        note(
            f"{part} with 1000 admissions",
            resident_mb=round(now.resident_mb),
            most_mb=round(now.most_mb),
            cpu_seconds=spent,
        )
    kept = []
    for each in pods:
        each["spec"]["schedulingGates"] = GATE
        kept.append({**each, "apiVersion": "v1", "kind": "Pod"})
    kubernetes.kubectl(
        "create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": kept}), seconds=300
    )
    week = time.strftime("%G-w%V", time.gmtime())

    def counted() -> bool:
        pods = (kubernetes.get("savingsreport", week).get("status") or {}).get("pods") or {}
        return bool(pods.get("injected", 0) >= 1000)

    kubernetes.wait(counted, 90, "the report does not count them")
    before, started = usage("controller"), time.monotonic()
    time.sleep(30)
    now = usage("controller")
    cpu = (now.cpu_seconds - before.cpu_seconds) / (time.monotonic() - started)
    note(
        "controller with 1000 pods", resident_mb=round(now.resident_mb), most_mb=round(now.most_mb), cores=round(cpu, 4)
    )
    assert now.most_mb < 1000  # the chart's limit is 1Gi
    kubernetes.kubectl("delete", "namespace", SPACE, "--wait=false")


@contextmanager
def small_disk(kubernetes: Kubernetes, image: str, size: str) -> Iterator[Path]:
    """A labelled training pod, about to start, whose volume for payload and cache is a file system of its own."""
    held = pod(image, command=["python", "/app/train.py", "--steps", str(STEPS)])
    held["spec"]["schedulingGates"] = GATE
    created = kubernetes.create(held)
    assert is_injected(created)
    folder = volume_of(created["metadata"]["uid"])
    folder.mkdir(parents=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0777", "stitchfleet-test", str(folder)], check=True
    )
    try:
        gone = json.dumps([{"op": "remove", "path": "/spec/schedulingGates"}])
        kubernetes.kubectl("-n", SPACE, "patch", "pod", "train", "--type=json", "-p", gone)
        yield folder
    finally:
        kubernetes.kubectl("-n", SPACE, "delete", "pod", "train", "--grace-period=0", "--force", "--wait=false")
        subprocess.run(
            ["umount", "--lazy", str(folder)], capture_output=True, check=False
        )  # unless the kubelet has done it


def free_bytes(folder: Path) -> int:
    return int(subprocess.run(["stat", "-f", "-c", "%f", str(folder)], capture_output=True, check=True).stdout) * 4096


def test_a_disk_that_is_full_before_the_payload_is_copied(kubernetes: Kubernetes, images: Images) -> None:
    kubernetes.namespace(SPACE)
    with small_disk(kubernetes, images.demo.reference, "2m") as folder:
        kubernetes.wait(
            lambda: "step 1 loss" in log_of(kubernetes, "train", SPACE), 90, lambda: kubernetes.why("train", SPACE)
        )
        assert not (folder / "payload").exists()
        found = kubernetes.finished("train", SPACE, 120.0)
        log = log_of(kubernetes, "train", SPACE)
        assert found["status"]["phase"] == "Succeeded", log
        assert f"step {STEPS} loss" in log
        assert "stitchfleet" not in log


def test_a_disk_that_is_full_when_kernels_are_built(kubernetes: Kubernetes, images: Images) -> None:
    kubernetes.namespace(SPACE)
    with small_disk(kubernetes, images.demo.reference, "1g") as folder:
        kubernetes.wait(
            lambda: "step 1 loss" in log_of(kubernetes, "train", SPACE), 90, lambda: kubernetes.why("train", SPACE)
        )
        (folder / "filler").write_bytes(b"")
        subprocess.run(["dd", "if=/dev/zero", f"of={folder / 'filler'}", "bs=1M"], capture_output=True, check=False)
        assert free_bytes(folder) == 0
        found = kubernetes.finished("train", SPACE, 240.0)
        log = log_of(kubernetes, "train", SPACE)
        assert found["status"]["phase"] == "Succeeded", log
        assert f"step {STEPS} loss" in log


def padded(size: int, name: str, labels: dict[str, str]) -> dict[str, Any]:
    """A pod whose JSON has so many bytes. It is never scheduled."""
    found = pod(IMAGE, labels, name)
    found["spec"]["schedulingGates"] = GATE
    chunk = 100_000  # an argument may be long, and the API server wants annotations short
    arguments: list[str] = []
    found["spec"]["containers"][0]["args"] = arguments
    while (missing := size - len(json.dumps(found)) - 4) > 0:
        arguments.append("x" * min(chunk, missing))
    return found


def created(kubernetes: Kubernetes, manifest: dict[str, Any]) -> dict[str, Any] | None:
    """None: it is too large for the API server."""
    try:
        return kubernetes.create(manifest)
    except AssertionError as error:
        if re.search("too large|exceeds|limit", str(error)):
            return None
        raise


def test_a_pod_near_the_api_s_size_limit_is_created_whenever_its_twin_is(kubernetes: Kubernetes) -> None:
    kubernetes.namespace(SPACE)
    outcomes = {}
    for size in (500_000, 1_000_000, 1_300_000, *range(1_400_000, 1_600_000, 10_000)):
        twin, mine = (
            created(kubernetes, padded(size, f"{name}-{size}", labels))
            for name, labels in (("twin", {}), ("mine", LABEL))
        )
        outcomes[size] = (twin is not None, mine is not None, mine is not None and is_injected(mine))
    print(outcomes)
    assert all(mine or not twin for twin, mine, _ in outcomes.values()), outcomes
    assert outcomes[1_300_000] == (True, True, True)
    assert (True, True, False) in outcomes.values(), "none was left alone for its size"
    assert (False, False, False) in outcomes.values(), "the limit was not reached"


ABOUT = {
    "apiVersion": "stitchfleet.io/v1alpha1",
    "kind": "StitchPolicy",
    "metadata": {"name": "wrong", "namespace": SPACE},
}
WRONG = {
    "enabled": "yes",
    "stopped": 1,
    "canaryPercent": 101,
    "payloadImage": "",
    "payloadPullSecrets": ["No Secret"],
    "matchLabels": "team",
    "mode": "fast",
    "baselineSteps": -1,
    "verifySteps": 0,
    "sampleStride": 0,
    "plainSharePercent": 51,
    "compileNice": 20,
    "cacheMegabytes": 15,
    "disableClusters": ["../etc"],
}


def test_each_wrong_field_of_a_policy_is_refused_by_its_name(kubernetes: Kubernetes) -> None:
    kubernetes.namespace(SPACE)
    schema = kubernetes.get("crd", "stitchpolicies.stitchfleet.io")["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert WRONG.keys() == schema["properties"]["spec"]["properties"].keys()
    for field, value in WRONG.items():
        with pytest.raises(AssertionError, match=rf"spec\.{field}(\[0\])?: (Invalid|Unsupported) value"):
            kubernetes.create({**ABOUT, "spec": {field: value}})
    with pytest.raises(AssertionError, match=r'unknown field "spec\.canary"'):
        kubernetes.create({**ABOUT, "spec": {"canary": 5}})
    with pytest.raises(AssertionError, match="spec: Invalid value"):
        kubernetes.create({**ABOUT, "spec": ["enabled"]})


def test_a_policy_that_no_schema_can_know_to_be_wrong_holds_no_pod(kubernetes: Kubernetes, images: Images) -> None:
    """A payload's name that is none: the pod runs plain."""
    kubernetes.namespace(SPACE)
    kubernetes.create({**ABOUT, "spec": {"payloadImage": "NO such image"}})
    given = pod(images.demo.reference, command=["true"])

    def is_pinned() -> bool:
        (init,) = dry_run(kubernetes, given)["spec"].get("initContainers") or [{}]
        return init.get("image") == "NO such image" or not is_injected(dry_run(kubernetes, given))

    kubernetes.wait(is_pinned, 20, "the webhook does not learn of the policy")
    kubernetes.create(given)
    found = kubernetes.finished("train", SPACE, 120.0)
    assert found["status"]["phase"] == "Succeeded", kubernetes.why("train", SPACE)
    assert found["metadata"]["annotations"]["stitchfleet.io/not-injected"]
    kubernetes.kubectl("-n", SPACE, "delete", "stitchpolicy", "wrong")
    # the next test's namespace has the same name, and may be there sooner than the webhook looks again
    kubernetes.wait(
        lambda: is_injected(dry_run(kubernetes, pod(images.demo.reference, name="later"))),
        20,
        "the webhook does not learn that the policy is gone",
    )
