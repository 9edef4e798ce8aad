"""Pods as each controller makes them, admitted through the real API server: injected, or left alone with the reason."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from .conftest import Images
from .golden import changes, compare, normalized
from .kubernetes import Kubernetes

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("release")]

SPACE = "shapes"
COMMAND = ["python", "train.py"]
JOBSET = {"jobset.sigs.k8s.io/jobset-name": "bert", "jobset.sigs.k8s.io/replicatedjob-name": "node"}
GATE = [{"name": "kueue.x-k8s.io/admission"}]
SIDECAR = {"name": "proxy", "image": "example.org/proxy:1", "restartPolicy": "Always", "command": ["proxy"]}


def shape(
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    container: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    main = {"name": "main", "image": "example.org/training:3", "command": COMMAND, **(container or {})}
    metadata: dict[str, Any] = {"name": "train", "namespace": SPACE, "annotations": annotations or {}}
    metadata["labels"] = {"stitchfleet.io/enabled": "true", **(labels or {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [main], **spec}}


def variables(**values: str) -> dict[str, Any]:
    return {"env": [{"name": name, "value": value} for name, value in values.items()]}


INJECTED = {
    "plain": (shape(), "train"),
    "job": (shape({"job-name": "bert", "batch.kubernetes.io/job-name": "bert"}, restartPolicy="Never"), "bert"),
    "jobset": (
        shape({**JOBSET, "batch.kubernetes.io/job-name": "bert-node-0", "jobset.sigs.k8s.io/restart-attempt": "2"}),
        "bert",
    ),
    "trainjob": (
        shape(
            {**JOBSET, "trainer.kubeflow.org/trainjob-ancestor-step": "trainer"},
            container=variables(PET_NNODES="2", PET_NODE_RANK="0", PET_NPROC_PER_NODE="1"),
        ),
        "bert",
    ),
    "tfjob": (
        shape(
            {"training.kubeflow.org/job-name": "wide", "training.kubeflow.org/replica-type": "worker"},
            container={"name": "tensorflow", **variables(TF_CONFIG='{"cluster": {"worker": ["a:1"]}}')},
        ),
        "wide",
    ),
    "pytorchjob": (
        shape(
            {"training.kubeflow.org/job-name": "deep", "training.kubeflow.org/job-role": "master"},
            container={"name": "pytorch", **variables(MASTER_ADDR="deep-master-0", WORLD_SIZE="2", RANK="0")},
        ),
        "deep",
    ),
    "mpi worker": (
        shape(
            {
                "training.kubeflow.org/operator-name": "mpi-operator",
                "training.kubeflow.org/job-name": "bert",
                "training.kubeflow.org/job-role": "worker",
                "training.kubeflow.org/replica-index": "1",
            },
            {"stitchfleet.io/run-id": "0123456789abcdef0123456789abcdef"},
            container={"command": ["/usr/sbin/sshd", "-De"]},
        ),
        "bert",
    ),
    "volcano": (
        shape({"volcano.sh/job-name": "v"}, {"scheduling.k8s.io/group-name": "group"}, schedulerName="volcano"),
        "train",
    ),
    "kueue": (
        shape({"kueue.x-k8s.io/queue-name": "gpus", "kueue.x-k8s.io/managed": "true"}, schedulingGates=GATE),
        "train",
    ),
    "sidecar": (shape(initContainers=[SIDECAR]), "train"),
    "host network": (shape(hostNetwork=True, dnsPolicy="ClusterFirstWithHostNet"), "train"),
    "read-only": (shape(container={"securityContext": {"readOnlyRootFilesystem": True}}), "train"),
    "share of processes": (shape(shareProcessNamespace=True), "train"),
}
LEFT_ALONE = {
    "windows": (shape(os={"name": "windows"}), "for windows"),
    "arm": (shape(nodeSelector={"kubernetes.io/arch": "arm64"}), "for arm64"),
    "host network": (shape(hostNetwork=True), "dnsPolicy: ClusterFirstWithHostNet"),
    "names of the node": (shape(dnsPolicy="Default"), "dnsPolicy: ClusterFirst"),
    "no command": (shape(container={"command": None}), "has no command"),
    "init container": (
        shape(annotations={"stitchfleet.io/containers": "proxy"}, initContainers=[SIDECAR]),
        "names proxy; the pod has main",
    ),
    "skipped": (shape(annotations={"stitchfleet.io/skip": "I debug it"}), "I debug it"),
}


@pytest.fixture(scope="module")
def space(kubernetes: Kubernetes) -> None:
    kubernetes.namespace(SPACE)


def admitted(kubernetes: Kubernetes, pod: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        kubernetes.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(pod))
    )
    return found


@pytest.mark.usefixtures("space")
@pytest.mark.parametrize("name", INJECTED)
def test_what_is_injected_keeps_all_it_had(kubernetes: Kubernetes, name: str) -> None:
    given, job = INJECTED[name]
    main = given["spec"]["containers"][0]["name"]
    found = admitted(kubernetes, given)
    assert found["metadata"]["annotations"]["stitchfleet.io/injected"] == main
    twin = copy.deepcopy(given)
    del twin["metadata"]["labels"]["stitchfleet.io/enabled"]
    plain = admitted(kubernetes, twin)
    assert holds(found["spec"], plain["spec"]), name
    entries = {entry["name"]: entry for entry in found["spec"]["containers"][0]["env"]}
    told = entries["STITCHFLEET_JOB_NAME"]
    assert told.get("value", "train") == job
    assert found["spec"]["initContainers"][0]["name"] == "stitchfleet-payload"


@pytest.mark.usefixtures("space")
@pytest.mark.parametrize("name", INJECTED)
def test_what_is_changed_is_what_was_read_once(kubernetes: Kubernetes, images: Images, name: str) -> None:
    """The golden file of `plain` has all of it, those of the others what differs from that."""
    change, of_plain = (changed(kubernetes, images, INJECTED[each][0]) for each in (name, "plain"))
    if name != "plain":
        less = sorted(of_plain.keys() - change.keys())
        change = {path: value for path, value in change.items() if of_plain.get(path) != value}
        change |= {"less": less} if less else {}
    compare(name, change)


def changed(kubernetes: Kubernetes, images: Images, given: dict[str, Any]) -> dict[str, Any]:
    """By path, what the labelled pod has and its twin has not. Its container is called main, however it is called."""
    twin = copy.deepcopy(given)
    del twin["metadata"]["labels"]["stitchfleet.io/enabled"]
    found, plain = (normalized(admitted(kubernetes, each), images) for each in (given, twin))
    main = given["spec"]["containers"][0]["name"]
    return {
        path.replace(f"containers[{main}]", "containers[main]"): value for path, value in changes(found, plain).items()
    }


@pytest.mark.usefixtures("space")
@pytest.mark.parametrize("name", LEFT_ALONE)
def test_what_is_left_alone_says_why(kubernetes: Kubernetes, name: str) -> None:
    given, reason = LEFT_ALONE[name]
    found = admitted(kubernetes, given)
    assert reason in found["metadata"]["annotations"]["stitchfleet.io/not-injected"]
    assert not [each for each in found["spec"]["volumes"] if each["name"].startswith("stitchfleet")]


def holds(changed: Any, plain: Any) -> bool:
    """Whether all that the pod would be without us is in it: of lists as a part, in their order."""
    if isinstance(plain, dict):
        return all(key in changed and holds(changed[key], value) for key, value in plain.items())
    if isinstance(plain, list):
        rest = list(changed)
        for value in plain:
            while rest and not holds(rest[0], value):
                rest.pop(0)
            if not rest:
                return False
            rest.pop(0)
        return True
    if isinstance(plain, str) and plain.startswith("kube-api-access-"):
        return str(changed).startswith("kube-api-access-")
    return bool(changed == plain)
