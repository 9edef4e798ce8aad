"""The chart as it is installed without a value for a database: SQLite on a claim, which outlives the server's pod and the release."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from .conftest import NAMESPACE, Images, Release, Releases
from .kubernetes import Kubernetes
from .node import STATE
from .test_external import SECONDS, SPACE, pod
from .test_product import query

pytestmark = pytest.mark.slow

CLAIM = "stitchfleet-data"
ITERATIONS = """
    SELECT j.uid, j.name, sum(plain_count + stitched_count + uncounted_count) AS iterations
    FROM jobs AS j JOIN job_ends USING (process_id) JOIN iteration_blocks USING (process_id) GROUP BY j.uid, j.name
"""


@pytest.fixture
def volume(kubernetes: Kubernetes, releases: Releases) -> Iterator[None]:
    """A folder of the node for the chart's claim. The node makes no volumes by itself, as most clusters do."""
    releases.uninstall()
    folder = STATE / "embedded"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)  # a folder of the node is not given to the pod's group, as other volumes are
    kubernetes.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": CLAIM},
            "spec": {
                "capacity": {"storage": "10Gi"},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": {"namespace": NAMESPACE, "name": CLAIM},
                "hostPath": {"path": str(folder), "type": "Directory"},
            },
        }
    )
    yield
    releases.uninstall()
    kubernetes.kubectl("-n", NAMESPACE, "delete", "pvc", CLAIM, "--ignore-not-found", "--timeout=60s")
    kubernetes.kubectl("delete", "pv", CLAIM, "--ignore-not-found", "--timeout=60s")


def installed(releases: Releases) -> Release:
    return releases.with_values("deploy/stitchfleet-server")


def claim(kubernetes: Kubernetes) -> dict[str, Any]:
    return kubernetes.get("pvc", CLAIM, NAMESPACE)


@pytest.mark.usefixtures("volume")
def test_the_data_outlives_the_server_s_pod_and_the_release(
    kubernetes: Kubernetes, releases: Releases, images: Images
) -> None:
    release = installed(releases)
    assert claim(kubernetes)["status"]["phase"] == "Bound"
    kubernetes.namespace(SPACE)
    kubernetes.create(pod(images.demo.reference, "train", steps=200))
    found = kubernetes.finished("train", SPACE, SECONDS)
    assert found["status"]["phase"] == "Succeeded", kubernetes.why("train", SPACE)

    def rows() -> list[dict[str, Any]]:
        return query(kubernetes, release, ITERATIONS)

    before = kubernetes.wait(rows, 60, "no row of the job")
    assert [(each["uid"], each["name"]) for each in before] == [(found["metadata"]["uid"], "train")]

    chosen = ("-n", NAMESPACE, "-l", "app.kubernetes.io/component=server")
    kubernetes.kubectl("delete", "pod", *chosen, "--timeout=60s")
    kubernetes.kubectl("-n", NAMESPACE, "rollout", "status", release.server, "--timeout=120s")
    assert rows() == before

    uid = claim(kubernetes)["metadata"]["uid"]
    releases.uninstall()
    kubernetes.wait(lambda: not kubernetes.kubectl("get", "pod", *chosen, "-o", "name"), 60, "its pod stays")
    assert claim(kubernetes)["status"]["phase"] == "Bound"

    release = installed(releases)
    assert claim(kubernetes)["metadata"]["uid"] == uid
    assert rows() == before

    releases.uninstall()
    kubernetes.kubectl("-n", NAMESPACE, "delete", "pvc", CLAIM, "--timeout=60s")
