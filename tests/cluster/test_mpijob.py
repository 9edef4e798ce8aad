"""An MPIJob of Kubeflow's MPI operator: Horovod over ssh between pods, and both ranks stitched alike.

The image knows nothing of stitchfleet. Its ssh server hands on no variable of its container: what the ranks have, the launch agent
brought.
"""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest

from scripts.images.build import Image

from ..pace import pace
from .conftest import Images, Release
from .golden import changes, compare, normalized
from .kubernetes import Kubernetes, log_of
from .test_controller import admitted, policy
from .test_pods import pod
from .test_product import query

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("mpi_operator", "release")]

SPACE = "horovod"
SECONDS = 500.0 * max(1.0, pace())
PYTHON = "/opt/venv/bin/python"
STEPS = 1200
LABEL = {"stitchfleet.io/enabled": "true"}

JOBS = """
    SELECT j.rank, j.world_size, j.run_id, j.uid, j.name, j.user, e.phase FROM jobs AS j
    JOIN job_ends AS e ON e.process_id = j.process_id WHERE j.run_id = '{run}' ORDER BY j.rank
"""
CLUSTERS = """
    SELECT j.rank, c.name, c.state FROM clusters AS c JOIN jobs AS j ON j.process_id = c.process_id
    WHERE j.run_id = '{run}' ORDER BY j.rank, c.name
"""


def mpijob(
    name: str,
    image: Image,
    *words: str,
    env: Any = None,
    launcher: tuple[str, ...] = ("mpirun", "--bind-to", "none", "-np", "2"),
    workers: int = 2,
) -> dict[str, Any]:
    """A labelled job: a launcher and its workers. words: what follows on the launcher's command line."""
    about = {
        "image": image.reference,
        "resources": {"limits": {"memory": "2Gi"}, "requests": {"memory": "512Mi", "cpu": "100m"}},
    }
    starter = {"name": "launcher", **about, "command": [*launcher, *words], **({"env": env} if env else {})}
    worker = {"name": "worker", **about}
    spec = {
        "slotsPerWorker": 1,
        "launcherCreationPolicy": "WaitForWorkersReady",
        "runPolicy": {"cleanPodPolicy": "None", "backoffLimit": 4},
        "mpiReplicaSpecs": {
            "Launcher": {"replicas": 1, "template": {"spec": {"containers": [starter]}}},
            "Worker": {"replicas": workers, "template": {"spec": {"containers": [worker]}}},
        },
    }
    metadata = {"name": name, "namespace": SPACE, "labels": LABEL}
    return {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": metadata, "spec": spec}


def pods_of(kubernetes: Kubernetes, name: str, role: str) -> list[dict[str, Any]]:
    chosen = f"training.kubeflow.org/job-name={name},training.kubeflow.org/job-role={role}"
    return list(json.loads(kubernetes.kubectl("-n", SPACE, "get", "pods", "-l", chosen, "-o", "json"))["items"])


def told_by(kubernetes: Kubernetes, name: str) -> str:
    """The pods of a job and the ends of their logs."""
    chosen = f"training.kubeflow.org/job-name={name}"
    pods = kubernetes.kubectl("-n", SPACE, "get", "pods", "-l", chosen, "-o", "wide")
    names = kubernetes.kubectl("-n", SPACE, "get", "pods", "-l", chosen, "-o", "name").split()
    return "\n".join([pods, *(kubernetes.why(each.partition("/")[2], SPACE) for each in names)])


def output_of(kubernetes: Kubernetes, name: str) -> str:
    """What the launcher of the job wrote, when the job has ended well."""

    def why() -> str:
        return told_by(kubernetes, name)

    def has_ended() -> bool:
        conditions = (kubernetes.get("mpijob", name, SPACE).get("status") or {}).get("conditions") or ()
        true = {each["type"] for each in conditions if each["status"] == "True"}
        assert "Failed" not in true, why()
        return "Succeeded" in true

    kubernetes.wait(has_ended, SECONDS, why)
    ended = [each for each in pods_of(kubernetes, name, "launcher") if each["status"]["phase"] == "Succeeded"]
    return kubernetes.kubectl("-n", SPACE, "logs", ended[0]["metadata"]["name"], "-c", "launcher")


SHOWN = """
import json, os
import stitchfleet.plugin.entry.activation
names = ("PYTHONPATH", "MINE", "STITCHFLEET_RUN_ID", "STITCHFLEET_ENABLED", "OMPI_COMM_WORLD_RANK", "HOROVOD_RANK", "AGENT")
uid = open(os.environ["STITCHFLEET_POD_UID_FILE"]).read()
given = {name: os.environ.get(name) for name in names}
print("SHOWN " + json.dumps({"uid": uid, "host": os.uname().nodename, **given}))
"""


def shown(text: str) -> list[dict[str, Any]]:
    return [json.loads(line.partition("SHOWN ")[2]) for line in text.splitlines() if "SHOWN " in line]


def check_weights(text: str) -> None:
    """What the launcher wrote of the ranks' ends: two, on two hosts, with equal weights."""
    weights = re.findall(r"rank \d of 2 on (\S+) ends with weights ([\d.]+)", text)
    assert len({host for host, _ in weights}) == 2, text
    assert len({value for _, value in weights}) == 1, "the ranks' weights went apart"


def rows_of_both(kubernetes: Kubernetes, release: Release, run: str) -> list[dict[str, Any]]:
    """The rows of a run's two ranks, as soon as both are there; the clusters of both must be alike."""
    rows: list[dict[str, Any]] = kubernetes.wait(
        lambda: found if len(found := query(kubernetes, release, JOBS.format(run=run))) == 2 else None,
        60,
        "rows of both",
    )
    clusters = query(kubernetes, release, CLUSTERS.format(run=run))
    of = [[(row["name"], row["state"]) for row in clusters if row["rank"] == rank] for rank in (0, 1)]
    assert of[0] == of[1]
    assert len(of[0]) > 5
    return rows


def told_by_both(kubernetes: Kubernetes, name: str) -> list[dict[str, Any]]:
    """What the two ranks of a job that runs SHOWN tell: of one run, each of the worker that it is in, with our parts on its path."""
    ranks = shown(output_of(kubernetes, name))
    assert sorted(rank["OMPI_COMM_WORLD_RANK"] or rank["HOROVOD_RANK"] for rank in ranks) == ["0", "1"], name
    assert len({rank["STITCHFLEET_RUN_ID"] for rank in ranks}) == 1
    workers = {each["metadata"]["name"]: each["metadata"]["uid"] for each in pods_of(kubernetes, name, "worker")}
    assert {rank["host"]: rank["uid"] for rank in ranks} == workers
    for rank in ranks:
        path = rank["PYTHONPATH"].split(":")
        assert path[0].endswith("bootstrap")
        assert path[-1] == "/opt/stitchfleet/payload/python"
    return ranks


def test_the_job_is_changed_as_was_read_once(kubernetes: Kubernetes, horovod: Image, images: Images) -> None:
    kubernetes.namespace(SPACE)
    job = mpijob("bert", horovod, PYTHON, "train.py")
    for each in job["spec"]["mpiReplicaSpecs"].values():
        each["template"]["spec"]["containers"][0]["image"] = "example.org/training:3"
    twin = copy.deepcopy(job)
    del twin["metadata"]["labels"]
    found, plain = (normalized(admitted(kubernetes, each), images) for each in (job, twin))
    compare("mpijob itself", changes(found, plain))


def test_both_ranks_are_stitched_alike_and_are_one_run(
    kubernetes: Kubernetes, horovod: Image, release: Release
) -> None:
    kubernetes.namespace(SPACE)
    policy(kubernetes, SPACE, compileNice=0)  # of the namespace's settings one that the ranks have to get
    twin = pod(horovod.reference)
    twin["metadata"]["namespace"] = SPACE
    kubernetes.wait(lambda: "STITCHFLEET_COMPILE_NICE" in json.dumps(admitted(kubernetes, twin)), 30, "the policy")
    words = ("-x", "PATH", "-x", "PYTHONUNBUFFERED=1", PYTHON, "/app/train.py", "--steps", str(STEPS))
    job = kubernetes.create(mpijob("bert", horovod, *words))
    run = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["metadata"]["annotations"]["stitchfleet.io/run-id"]
    text = output_of(kubernetes, "bert")
    check_weights(text)
    # over a store that rank 0's pod keeps
    assert len(re.findall(r"all 2 ranks run \d+ verified kernels from step \d+ on", text)) == 1, text
    rows = rows_of_both(kubernetes, release, run)
    assert [(row["rank"], row["world_size"], row["phase"]) for row in rows] == [(0, 2, "stitched"), (1, 2, "stitched")]
    uids = {each["metadata"]["uid"] for each in pods_of(kubernetes, "bert", "worker")}
    assert {row["uid"] for row in rows} == uids
    assert {(row["name"], row["user"]) for row in rows} == {("bert", "admin")}


def test_without_the_users_exports_and_with_an_agent_of_their_own(kubernetes: Kubernetes, horovod: Image) -> None:
    kubernetes.namespace(SPACE)
    kubernetes.create(mpijob("plain", horovod, PYTHON, "-c", SHOWN))
    mine = [{"name": "MINE", "value": "1"}, {"name": "PYTHONPATH", "value": "/mine"}]
    kubernetes.create(mpijob("exports", horovod, "-x", "MINE", "-x", "PYTHONPATH", PYTHON, "-c", SHOWN, env=mine))
    agent = [{"name": "OMPI_MCA_orte_launch_agent", "value": "env AGENT=mine orted"}]
    kubernetes.create(mpijob("agent", horovod, PYTHON, "-c", SHOWN, env=agent))
    for name in ("plain", "exports", "agent"):
        for rank in told_by_both(kubernetes, name):
            path = rank["PYTHONPATH"].split(":")
            assert ("/mine" in path) == (rank["MINE"] == "1") == (name == "exports")
            assert rank["AGENT"] == ("mine" if name == "agent" else None)
    (launcher,) = pods_of(kubernetes, "agent", "launcher")
    assert launcher["metadata"]["annotations"]["stitchfleet.io/injected"] == "launcher"


def test_open_mpi_5_brings_the_same_to_its_ranks(kubernetes: Kubernetes, horovod: Image) -> None:
    """Its launch agent is `prted`. Its users name the host file: the variable that the operator sets is one of Open MPI 4."""
    kubernetes.namespace(SPACE)
    mpirun = ("/opt/openmpi5/bin/mpirun", "--bind-to", "none", "-np", "2", "--hostfile", "/etc/mpi/hostfile")
    mine = [{"name": "MINE", "value": "1"}]
    kubernetes.create(mpijob("five", horovod, PYTHON, "-c", SHOWN, launcher=mpirun))
    kubernetes.create(mpijob("five-exports", horovod, "-x", "MINE", PYTHON, "-c", SHOWN, launcher=mpirun, env=mine))
    for name in ("five", "five-exports"):
        for rank in told_by_both(kubernetes, name):
            assert rank["MINE"] == ("1" if name == "five-exports" else None)


HOROVODRUN = ("/opt/venv/bin/horovodrun", "--gloo")


def test_horovodrun_without_mpi_brings_the_same_to_its_ranks(kubernetes: Kubernetes, horovod: Image) -> None:
    """It hands the launcher's own environment on in the commands that it runs by ssh."""
    kubernetes.namespace(SPACE)
    launcher = (*HOROVODRUN, "-np", "2", "--hostfile", "/etc/mpi/hostfile")
    kubernetes.create(mpijob("gloo", horovod, PYTHON, "-c", SHOWN, launcher=launcher))
    told_by_both(kubernetes, "gloo")


def test_an_agent_on_the_command_line_is_left_and_told_and_the_job_runs(kubernetes: Kubernetes, horovod: Image) -> None:
    kubernetes.namespace(SPACE)
    job = mpijob("named", horovod, "--launch-agent", "orted", PYTHON, "-c", "print('ran')")
    created = kubernetes.create(job)
    assert "launch agent" in created["metadata"]["annotations"]["stitchfleet.io/not-injected"]
    assert output_of(kubernetes, "named").split().count("ran") == 2
    for each in (*pods_of(kubernetes, "named", "launcher"), *pods_of(kubernetes, "named", "worker")):
        assert "launch agent" in each["metadata"]["annotations"]["stitchfleet.io/not-injected"]
        assert "initContainers" not in each["spec"]


def until_it_tells(kubernetes: Kubernetes, name: str, words: str, seconds: float) -> None:
    """Waits for words in the log of the job's launcher."""

    def tells() -> bool:
        launchers = pods_of(kubernetes, name, "launcher")
        logs = (log_of(kubernetes, each["metadata"]["name"], SPACE, "launcher") for each in launchers)
        return any(words in log for log in logs)

    kubernetes.wait(tells, seconds, lambda: told_by(kubernetes, name))


def give_workers(kubernetes: Kubernetes, name: str, count: int) -> None:
    change = json.dumps({"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": count}}}})
    kubernetes.kubectl("-n", SPACE, "patch", "mpijob", name, "--type=merge", "-p", change)


def test_an_elastic_job_whose_workers_come_is_one_run(kubernetes: Kubernetes, horovod: Image, release: Release) -> None:
    """It begins on one worker; a second one comes while it trains. Unless an interface is named, horovodrun waits for two hosts to
    find one that they share."""
    kubernetes.namespace(SPACE)
    found = ("--host-discovery-script", "/etc/mpi/discover_hosts.sh", "--slots-per-host", "1")
    ranks = ("-np", "1", "--min-np", "1", "--max-np", "2", "--network-interfaces", "eth0")
    launcher = (*HOROVODRUN, *ranks, *found)
    words = (PYTHON, "-u", "/app/elastic.py", "--seen-size", "2")
    job = kubernetes.create(mpijob("elastic", horovod, *words, launcher=launcher, workers=1))
    run = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["metadata"]["annotations"]["stitchfleet.io/run-id"]
    until_it_tells(kubernetes, "elastic", "rank 0 step 100 ", 180)
    give_workers(kubernetes, "elastic", 2)
    text = output_of(kubernetes, "elastic")
    check_weights(text)
    workers = pods_of(kubernetes, "elastic", "worker")
    assert {each["metadata"]["annotations"]["stitchfleet.io/run-id"] for each in workers} == {run}
    rows = kubernetes.wait(
        lambda: found if len(found := query(kubernetes, release, JOBS.format(run=run))) >= 2 else None,
        60,
        "rows of both",
    )
    assert {row["uid"] for row in rows} == {each["metadata"]["uid"] for each in workers}
    assert {row["name"] for row in rows} == {"elastic"}


def test_an_elastic_job_whose_worker_goes_is_one_run(kubernetes: Kubernetes, horovod: Image, release: Release) -> None:
    """It begins on two workers; one of them is taken away while both train, and the other goes on alone."""
    kubernetes.namespace(SPACE)
    found = ("--host-discovery-script", "/etc/mpi/discover_hosts.sh", "--slots-per-host", "1")
    ranks = ("-np", "2", "--min-np", "1", "--max-np", "2", "--network-interfaces", "eth0")
    words = (PYTHON, "-u", "/app/elastic.py", "--steps", "1500")
    job = kubernetes.create(mpijob("leaving", horovod, *words, launcher=(*HOROVODRUN, *ranks, *found)))
    run = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["metadata"]["annotations"]["stitchfleet.io/run-id"]
    until_it_tells(kubernetes, "leaving", "rank 1 step 100 ", 240)
    give_workers(kubernetes, "leaving", 1)
    text = output_of(kubernetes, "leaving")
    assert re.search(r"rank 0 of 1 on \S+ ends with weights", text), text
    # Which worker is rank 0 depends on which was found first: the one that stays may have been either of two.
    left = next(each for each in pods_of(kubernetes, "leaving", "worker") if each["metadata"]["name"].endswith("-0"))
    named = f"SELECT DISTINCT run_id, rank, world_size FROM jobs WHERE uid = '{left['metadata']['uid']}'"

    def both_worlds() -> list[dict[str, Any]] | None:
        rows = query(kubernetes, release, named)
        return rows if {row["world_size"] for row in rows} == {1, 2} else None

    rows = kubernetes.wait(both_worlds, 60, lambda: f"rows: {query(kubernetes, release, named)}")
    assert {row["rank"] for row in rows if row["world_size"] == 1} == {0}
    assert {row["run_id"] for row in rows} == {run}
