"""TrainJobs of Kubeflow's Trainer v2, and JobSets: the label on one is enough.

The Trainer's controller, JobSet's, and the webhooks of both run in the cluster.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from scripts.images.build import Image

from ..pace import pace
from . import test_mpijob as mpi
from .conftest import Images, Release
from .golden import changes, compare, normalized
from .kubernetes import Kubernetes, log_of
from .test_controller import admitted
from .test_pods import LABEL
from .test_product import CLUSTERS, SAVED, measured, query, savings_report

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("trainer", "release")]

SPACE = "trainer"
SECONDS = 400.0 * max(1.0, pace())
"""Longest wait for a job of two ranks on two cores: it took 404 s on a machine at a pace of 1.6."""
CLUSTER_RUNTIME = {"name": "torch-distributed"}
"""The Trainer's own, as it is."""
RUN_ID = "stitchfleet.io/run-id"


def trainjob(
    name: str, image: str, command: list[str], nodes: int = 1, runtime: dict[str, str] = CLUSTER_RUNTIME
) -> dict[str, Any]:
    """What a researcher writes."""
    resources = {"requests": {"cpu": "200m", "memory": "512Mi"}, "limits": {"memory": "3Gi"}}
    trainer = {"numNodes": nodes, "image": image, "command": command, "resourcesPerNode": resources}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": SPACE, "labels": LABEL},
        "spec": {"runtimeRef": runtime, "trainer": trainer},
    }


def pods_of(kubernetes: Kubernetes, name: str) -> list[dict[str, Any]]:
    words = ("-n", SPACE, "get", "pods", "-l", f"jobset.sigs.k8s.io/jobset-name={name}", "-o", "json")
    return list(json.loads(kubernetes.kubectl(*words))["items"])


def completed(kubernetes: Kubernetes, name: str, kind: str = "trainjob") -> list[dict[str, Any]]:
    """The pods of a TrainJob or a JobSet, when it has ended well."""

    def why() -> str:
        words = ("-n", SPACE, "get", "trainjobs,jobsets,jobs,pods,events", "-o", "wide")
        logs = [kubernetes.why(each["metadata"]["name"], SPACE) for each in pods_of(kubernetes, name)]
        return "\n".join((kubernetes.kubectl(*words), *logs))

    def is_complete() -> bool:
        conditions = (kubernetes.get(kind, name, SPACE).get("status") or {}).get("conditions") or ()
        true = {each["type"] for each in conditions if each["status"] == "True"}
        assert "Failed" not in true, why()
        return bool(true & {"Complete", "Completed"})

    kubernetes.wait(is_complete, SECONDS, why)
    return pods_of(kubernetes, name)


def test_the_job_is_changed_as_was_read_once(kubernetes: Kubernetes, images: Images) -> None:
    kubernetes.namespace(SPACE)
    job = trainjob("bert", "example.org/training:3", ["python", "train.py"])
    twin = copy.deepcopy(job)
    del twin["metadata"]["labels"]
    found, plain = (normalized(admitted(kubernetes, each), images) for each in (job, twin))
    compare("trainjob itself", changes(found, plain))


def test_a_trainjob_is_stitched_and_in_the_report(kubernetes: Kubernetes, images: Images, release: Release) -> None:
    kubernetes.namespace(SPACE)
    kubernetes.create(savings_report("trainer", {"namespace": SPACE}))
    command = ["python", "/app/train.py", "--steps", "1000000"]
    job = kubernetes.create(trainjob("bert", images.demo.reference, command))
    run = job["spec"]["annotations"][RUN_ID]
    (pod,) = kubernetes.wait(lambda: pods_of(kubernetes, "bert"), 60, lambda: kubernetes.kubectl("get", "events", "-A"))
    name = pod["metadata"]["name"]
    assert pod["metadata"]["annotations"]["stitchfleet.io/injected"] == "node"

    kubernetes.train_for_a_measurement(name, SPACE, "node", SECONDS)
    completed(kubernetes, "bert")

    # Who it is: the TrainJob's name and the run that its admission began, in a pod whose uid the API server vouches for.
    uid = pod["metadata"]["uid"]
    (row,) = query(kubernetes, release, SAVED.format(uid=uid))
    assert (row["uid"], row["name"], row["namespace"], row["run_id"]) == (uid, "bert", SPACE, run)
    assert row["image"] == images.demo.reference

    # Every kernel was verified on the job's tensors, and ran alone then.
    assert row["phase"] == "stitched"
    clusters = {each["name"]: each["state"] for each in query(kubernetes, release, CLUSTERS.format(uid=uid))}
    assert len(clusters) > 5
    assert set(clusters.values()) == {"stitched"}

    report = kubernetes.wait(lambda: measured(kubernetes, "trainer"), 60, "the report lacks it")
    (total,) = report["status"]["totals"]
    assert (total["jobs"]["total"], total["jobs"]["measured"]) == (1, 1)
    assert total["savedHours"] == pytest.approx(row["saved_hours"], rel=1e-9)
    kubernetes.kubectl("delete", "savingsreport", "trainer")


SHOWN = """
import json, os
import stitchfleet.plugin.entry.activation
told = {name.removeprefix("STITCHFLEET_"): value for name, value in os.environ.items() if name.startswith("STITCHFLEET_")}
print("SHOWN " + json.dumps(told))
"""


def shown(kubernetes: Kubernetes, pod: dict[str, Any]) -> dict[str, Any]:
    log = kubernetes.kubectl("-n", SPACE, "logs", pod["metadata"]["name"], "-c", "node")
    (line,) = (line for line in log.splitlines() if line.startswith("SHOWN "))
    return dict(json.loads(line.removeprefix("SHOWN ")))


def test_the_pods_of_several_nodes_are_one_run(kubernetes: Kubernetes, images: Images) -> None:
    kubernetes.namespace(SPACE)
    job = kubernetes.create(trainjob("wide", images.demo.reference, ["python", "-c", SHOWN], nodes=2))
    pods = completed(kubernetes, "wide")
    told = [shown(kubernetes, each) for each in pods]
    assert {each["POD_UID"] for each in told} == {each["metadata"]["uid"] for each in pods}
    assert len(told) == 2
    for each in told:
        assert (each["RUN_ID"], each["JOB_NAME"], each["ATTEMPT"]) == (job["spec"]["annotations"][RUN_ID], "wide", "0")


def test_a_restart_is_another_attempt_of_the_same_run(kubernetes: Kubernetes, images: Images) -> None:
    kubernetes.namespace(SPACE)
    container = {"name": "node", "image": images.demo.reference}
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    pods = {"backoffLimit": 0, "template": {"spec": {"containers": [container]}}}
    jobs = [{"name": "node", "template": {"metadata": {"labels": labels}, "spec": pods}}]
    runtime = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": "again", "namespace": SPACE},
        "spec": {"template": {"spec": {"failurePolicy": {"maxRestarts": 1}, "replicatedJobs": jobs}}},
    }
    kubernetes.create(runtime)
    command = ["python", "-c", f"{SHOWN}raise SystemExit(told['ATTEMPT'] != '1')"]
    job = kubernetes.create(
        trainjob("again", images.demo.reference, command, runtime={"kind": "TrainingRuntime", "name": "again"})
    )
    (pod,) = completed(kubernetes, "again")
    told = shown(kubernetes, pod)
    assert (told["RUN_ID"], told["ATTEMPT"]) == (job["spec"]["annotations"][RUN_ID], "1")


def test_a_jobset_that_a_person_labels(kubernetes: Kubernetes, images: Images) -> None:
    """Its two kinds of pods, three in all, are one run, which is called as the JobSet is."""
    kubernetes.namespace(SPACE)
    container = {"name": "node", "image": images.demo.reference, "command": ["python", "-c", SHOWN]}
    pod = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    jobs = [
        {"name": name, "template": {"spec": {"parallelism": count, "completions": count, "template": pod}}}
        for name, count in (("chief", 1), ("worker", 2))
    ]
    metadata = {"name": "labelled", "namespace": SPACE, "labels": LABEL}
    jobset = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata}
    kubernetes.create({**jobset, "spec": {"replicatedJobs": jobs}})
    pods = completed(kubernetes, "labelled", "jobset")
    assert [each["metadata"]["annotations"]["stitchfleet.io/injected"] for each in pods] == ["node"] * 3
    told = [shown(kubernetes, each) for each in pods]
    assert {each["POD_UID"] for each in told} == {each["metadata"]["uid"] for each in pods}
    assert {(each["JOB_NAME"], each["ATTEMPT"]) for each in told} == {("labelled", "0")}
    assert len({each["RUN_ID"] for each in told}) == 1


KEYS = "install -D -m 600 -t /root/.ssh /mnt/ssh/*"
"""The Trainer mounts keys with modes that root's ssh refuses."""


def mpi_runtime(image: Image) -> dict[str, Any]:
    """As the Trainer's own for DeepSpeed, with our image: the launcher is one of the nodes, the others are ssh servers."""
    launcher: dict[str, Any] = {"name": "node", "image": image.reference}
    serve = {"command": ["sh", "-c", f"{KEYS} && exec /usr/sbin/sshd -De"]}
    node = {**launcher, **serve, "readinessProbe": {"tcpSocket": {"port": 22}}}
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    policy = {"mpiImplementation": "OpenMPI", "sshAuthMountPath": "/mnt/ssh", "runLauncherAsNode": True}
    jobs = [
        {
            "name": "launcher",
            "template": {"metadata": {"labels": labels}, "spec": {"template": {"spec": {"containers": [launcher]}}}},
        },
        {"name": "node", "template": {"spec": {"template": {"spec": {"containers": [node]}}}}},
    ]
    jobset = {
        "network": {"publishNotReadyAddresses": True},
        "successPolicy": {"operator": "All", "targetReplicatedJobs": ["launcher"]},
        "replicatedJobs": jobs,
    }
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": "mpi", "namespace": SPACE},
        "spec": {"mlPolicy": {"numNodes": 1, "mpi": policy}, "template": {"spec": jobset}},
    }


def test_the_ranks_of_an_mpi_runtime_are_one_run_and_stitched_alike(
    kubernetes: Kubernetes, horovod: Image, release: Release
) -> None:
    kubernetes.namespace(SPACE)
    kubernetes.create(mpi_runtime(horovod))
    words = ("mpirun", "--bind-to", "none", "-np", "2", "-x", "PATH", "-x", "PYTHONUNBUFFERED=1")
    train = " ".join((*words, mpi.PYTHON, "/app/train.py", "--steps", str(mpi.STEPS)))
    command = ["sh", "-c", f"{KEYS} && exec {train}"]
    runtime = {"kind": "TrainingRuntime", "name": "mpi"}
    job = kubernetes.create(trainjob("ranks", horovod.reference, command, nodes=2, runtime=runtime))
    pods = completed(kubernetes, "ranks")
    (launcher,) = (name for each in pods if "-launcher-" in (name := each["metadata"]["name"]))
    text = log_of(kubernetes, launcher, SPACE, "node")
    mpi.check_weights(text)
    rows = mpi.rows_of_both(kubernetes, release, job["spec"]["annotations"][RUN_ID])
    assert [(row["rank"], row["phase"], row["name"]) for row in rows] == [
        (0, "stitched", "ranks"),
        (1, "stitched", "ranks"),
    ]
    assert {row["uid"] for row in rows} <= {each["metadata"]["uid"] for each in pods}
    assert len({row["uid"] for row in rows}) == 2


def test_without_the_label_nothing_is_changed(kubernetes: Kubernetes, images: Images) -> None:
    kubernetes.namespace(SPACE)
    plain = trainjob("plain", images.demo.reference, ["true"])
    del plain["metadata"]["labels"]
    assert "annotations" not in kubernetes.create(plain)["spec"]
    (pod,) = completed(kubernetes, "plain")
    assert "initContainers" not in pod["spec"]
    assert "STITCHFLEET" not in json.dumps(pod)
