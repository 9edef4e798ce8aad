"""Images with another TensorFlow: one payload serves all that it brings the op for, and a job with any other runs plain.

The newest version that passed the tests is used (plugin/versions/known.py), under the images' Python 3.11.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from scripts.images.build import TRAINED_WITH, Image
from stitchfleet.plugin.versions.known import PREBUILT

from .conftest import Images, Release, builder, built_images
from .kubernetes import Kubernetes, log_of
from .load import dry_run
from .node import Node
from .test_images import MOST_PAYLOAD_BYTES, files
from .test_pods import LABEL
from .test_product import CLUSTERS, SAVED, query

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("release")]

NEWEST = PREBUILT[-1]
PINNED, OTHERS = "versions", "other-versions"
"""Namespaces: the first has pinned the payload for both versions, the second has the chart's, for one."""
SECONDS = 400.0


@dataclass(frozen=True)
class OfVersions:
    """The payload for both versions, and the training image with the newest TensorFlow."""

    payload: Image
    demo: Image


@pytest.fixture(scope="module")
def versions(node: Node, images: Images) -> OfVersions:
    made_by = builder(prebuilt=(TRAINED_WITH, NEWEST), trained_with=NEWEST)
    found = OfVersions(*built_images("payload", "demo", made_by=made_by))
    for image in (found.payload, found.demo):
        node.load(image.archive, image.reference)
    return found


@pytest.fixture(scope="module")
def pinned(kubernetes: Kubernetes, versions: OfVersions) -> Iterator[str]:
    """The namespace whose policy pins the payload for both versions."""
    kubernetes.namespace(PINNED)
    about = {"apiVersion": "stitchfleet.io/v1alpha1", "kind": "StitchPolicy"}
    spec = {"payloadImage": versions.payload.reference}
    kubernetes.create({**about, "metadata": {"name": "both", "namespace": PINNED}, "spec": spec})

    def payload() -> list[str]:
        pod = dry_run(kubernetes, training_pod("train", PINNED, versions.demo, 1))
        return [each["image"] for each in pod["spec"].get("initContainers", ())][:1]

    kubernetes.wait(lambda: payload() == [versions.payload.reference], 60, "the webhook does not learn of the policy")
    yield PINNED
    kubernetes.kubectl("delete", "namespace", PINNED, "--wait=false")


def training_pod(name: str, space: str, image: Image, steps: int) -> dict[str, Any]:
    command = ["python", "/app/train.py", "--steps", str(steps)]
    main = {"name": "main", "image": image.reference, "command": command}
    metadata = {"name": name, "namespace": space, "labels": LABEL}
    spec = {"restartPolicy": "Never", "containers": [main]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def test_a_payload_for_two_versions_is_small(versions: OfVersions) -> None:
    found = files(versions.payload)
    assert sum(found.values()) < MOST_PAYLOAD_BYTES
    natives = {path.split("/")[2].rpartition("-")[0] for path in found if path.startswith("payload/native/")}
    assert natives == {f"tf-{TRAINED_WITH}", f"tf-{NEWEST}"}


@pytest.mark.parametrize("version", [TRAINED_WITH, NEWEST])
def test_a_pod_of_each_version_is_stitched_and_recorded(
    kubernetes: Kubernetes, images: Images, versions: OfVersions, release: Release, pinned: str, version: str
) -> None:
    image = versions.demo if version == NEWEST else images.demo
    name = f"train-{version.replace('.', '-')}"
    created = kubernetes.create(training_pod(name, pinned, image, 1_000_000))
    assert created["spec"]["initContainers"][0]["image"] == versions.payload.reference
    kubernetes.train_for_a_measurement(name, pinned, "main", SECONDS)
    assert kubernetes.finished(name, pinned, SECONDS)["status"]["phase"] == "Succeeded", kubernetes.why(name, pinned)
    uid = created["metadata"]["uid"]
    (row,) = query(kubernetes, release, SAVED.format(uid=uid))
    assert row["phase"] == "stitched"
    assert {each["state"] for each in query(kubernetes, release, CLUSTERS.format(uid=uid))} == {"stitched"}
    (job,) = query(kubernetes, release, f"SELECT framework, framework_version FROM jobs WHERE uid = '{uid}'")
    assert (job["framework"], job["framework_version"]) == ("tensorflow", version)


def test_a_version_that_the_payload_does_not_bring_runs_plain_and_says_so(
    kubernetes: Kubernetes, versions: OfVersions
) -> None:
    kubernetes.namespace(OTHERS)
    kubernetes.create(training_pod("train", OTHERS, versions.demo, 100))
    found = kubernetes.finished("train", OTHERS, SECONDS)
    assert found["status"]["phase"] == "Succeeded", kubernetes.why("train", OTHERS)
    (line,) = (line for line in log_of(kubernetes, "train", OTHERS).splitlines() if line.startswith("stitchfleet:"))
    assert f"the image has TensorFlow {NEWEST}; the payload supports only images with: {TRAINED_WITH}" in line
    kubernetes.kubectl("delete", "namespace", OTHERS, "--wait=false")
