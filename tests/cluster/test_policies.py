"""What a namespace's policy and a pod's own annotations change, on the real cluster: which pods are injected, with which secrets the
payload is pulled, and where kernels are kept."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import REGISTRY_PASSWORD, REGISTRY_USER, Images, builder
from .kubernetes import Kubernetes, log_of
from .load import dry_run, is_injected
from .test_pods import LABEL, SPACE, pod, ran

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("release")]

IMAGE = "example.org/training:3"
TRAIN = "exec python /app/train.py --steps 1500"
SECONDS = 300.0


@pytest.fixture
def policy(kubernetes: Kubernetes) -> Iterator[Any]:
    """policy(field=value, ...): the namespace's, gone afterwards."""
    kubernetes.namespace(SPACE)

    def make(**spec: Any) -> None:
        about = {"apiVersion": "stitchfleet.io/v1alpha1", "kind": "StitchPolicy"}
        kubernetes.create({**about, "metadata": {"name": "some", "namespace": SPACE}, "spec": spec})

    yield make
    kubernetes.kubectl("-n", SPACE, "delete", "stitchpolicies", "--all")


def test_a_policy_for_some_labels_leaves_other_pods_alone(kubernetes: Kubernetes, policy: Any) -> None:
    policy(matchLabels={"team": "eyes"})
    kubernetes.wait(lambda: not is_injected(dry_run(kubernetes, pod(IMAGE))), 30, "the webhook does not learn of it")
    ears, eyes = (dry_run(kubernetes, pod(IMAGE, {**LABEL, "team": team})) for team in ("ears", "eyes"))
    assert "is for pods with team=eyes" in ears["metadata"]["annotations"]["stitchfleet.io/not-injected"]
    assert is_injected(eyes)


def test_the_payloads_secrets_are_the_pods_too(kubernetes: Kubernetes, policy: Any) -> None:
    policy(payloadPullSecrets=["mirror", "team"])

    def secrets(given: dict[str, Any]) -> list[str]:
        return [each["name"] for each in dry_run(kubernetes, given)["spec"].get("imagePullSecrets", ())]

    given = pod(IMAGE)
    given["spec"]["imagePullSecrets"] = [{"name": "own"}, {"name": "team"}]
    kubernetes.wait(lambda: "mirror" in secrets(given), 30, lambda: f"it has {secrets(given)}")
    assert sorted(secrets(given)) == ["mirror", "own", "team"], "its own are there once"
    assert secrets(pod(IMAGE, {})) == [], "a pod without the label keeps what it has"


def test_a_payload_is_pulled_from_a_registry_with_the_policys_secret(
    kubernetes: Kubernetes, policy: Any, images: Images, closed_registry: str
) -> None:
    where = builder(print).push("payload", closed_registry)
    words = (
        "--docker-server",
        closed_registry,
        "--docker-username",
        REGISTRY_USER,
        "--docker-password",
        REGISTRY_PASSWORD,
    )
    kubernetes.kubectl("-n", SPACE, "create", "secret", "docker-registry", "mirror", *words)
    policy(payloadImage=where, payloadPullSecrets=["mirror"])

    def init() -> dict[str, Any]:
        return next(iter(dry_run(kubernetes, pod(IMAGE))["spec"].get("initContainers", ())), {})

    kubernetes.wait(lambda: init().get("image") == where, 30, "the webhook does not learn of the policy")
    assert ran(kubernetes, pod(images.demo.reference))["spec"]["initContainers"][0]["image"] == where
    (copied,) = kubernetes.get("pod", "train", SPACE)["status"]["initContainerStatuses"]
    assert (
        copied["state"]["terminated"]["exitCode"] == 0
    )  # its `image` is any name that the node has for the same content
    events = kubernetes.kubectl("-n", SPACE, "get", "events", "--field-selector", "reason=Pulled", "-o", "json")
    assert any(where in each["message"] for each in json.loads(events)["items"]), events


@pytest.fixture
def claim(kubernetes: Kubernetes, tmp_path: Path) -> Iterator[str]:
    """The name of a claim to a folder of this machine that all users may write to."""
    folder = tmp_path / "kernels"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    kubernetes.namespace(SPACE)
    size = {"storage": "1Gi"}
    kubernetes.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "kernels"},
            "spec": {
                "capacity": size,
                "accessModes": ["ReadWriteMany"],
                "storageClassName": "",
                "hostPath": {"path": str(folder)},
                "claimRef": {"namespace": SPACE, "name": "kernels"},
            },
        }
    )
    kubernetes.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "kernels", "namespace": SPACE},
            "spec": {"accessModes": ["ReadWriteMany"], "storageClassName": "", "resources": {"requests": size}},
        }
    )
    yield "kernels"
    kubernetes.kubectl("-n", SPACE, "delete", "pods", "--all", "--wait")
    kubernetes.kubectl("-n", SPACE, "delete", "pvc", "kernels")
    kubernetes.kubectl("delete", "pv", "kernels")


def test_kernels_in_a_claim_outlive_the_pod_that_made_them(kubernetes: Kubernetes, images: Images, claim: str) -> None:
    """The second pod has them from its first steps on."""
    stitched_from = []
    for name in ("first", "second"):
        given = pod(images.demo.reference, name=name, command=["sh", "-c", TRAIN])
        given["metadata"]["annotations"] = {"stitchfleet.io/cache-claim": claim}
        kubernetes.create(given)
        found = kubernetes.finished(name, SPACE, SECONDS)
        assert found["status"]["phase"] == "Succeeded", kubernetes.why(name, SPACE)
        assert is_injected(found)
        line = re.search(r"stitched from step (\d+) on", log_of(kubernetes, name, SPACE))
        assert line is not None, log_of(kubernetes, name, SPACE)
        stitched_from.append(int(line[1]))
    print(f"stitched from steps {stitched_from} on")
    assert stitched_from[1] < min(20, stitched_from[0])
