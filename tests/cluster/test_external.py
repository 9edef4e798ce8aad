"""The chart with PostgreSQL, over its life: installed, tested by helm, upgraded and rolled back, its database away, uninstalled; jobs
run through all of it."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from stitchfleet.operator.controller.roster import LOOK_SECONDS

from .conftest import NAMESPACE, PASSWORD, Images, Release, Releases
from .kubernetes import Kubernetes, last_step, log_of
from .load import dry_run, is_injected, under_load
from .rights import rights_of

pytestmark = pytest.mark.slow

SPACE = "speech"
SECONDS = 240.0
OF_OURS = "app.kubernetes.io/part-of=stitchfleet"


def rows(kubernetes: Kubernetes, statement: str) -> list[list[str]]:
    """Read by PostgreSQL's own program."""
    words = ("psql", "-h", "127.0.0.1", "-U", "stitchfleet", "-d", "stitchfleet", "-At", "-F", "|", "-c", statement)
    found = kubernetes.kubectl(
        *("-n", NAMESPACE, "exec", "deploy/postgres", "--", "env", f"PGPASSWORD={PASSWORD}", *words)
    )
    return [line.split("|") for line in found.splitlines()]


def pod(image: str, name: str, steps: int = 1_000_000) -> dict[str, Any]:
    """A labelled training pod."""
    main = {"name": "main", "image": image, "command": ["python", "/app/train.py", "--steps", str(steps)]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": SPACE, "labels": {"stitchfleet.io/enabled": "true"}},
        "spec": {"restartPolicy": "Never", "containers": [main]},
    }


def running(kubernetes: Kubernetes, image: str, name: str) -> None:
    """A job that has made its first hundred steps."""
    created = kubernetes.create(pod(image, name))
    assert created["metadata"]["annotations"]["stitchfleet.io/injected"] == "main"
    kubernetes.wait(
        lambda: "step 100 " in log_of(kubernetes, name, SPACE), SECONDS, lambda: kubernetes.why(name, SPACE)
    )


def ended(kubernetes: Kubernetes, name: str) -> dict[str, Any]:
    """The job, asked to end as a preemption asks."""
    kubernetes.kubectl("-n", SPACE, "exec", name, "-c", "main", "--", "python", "-c", "import os; os.kill(1, 15)")
    found = kubernetes.finished(name, SPACE, SECONDS)
    assert found["status"]["phase"] == "Succeeded", kubernetes.why(name, SPACE)
    return found


def whole(kubernetes: Kubernetes, pod: dict[str, Any]) -> bool:
    """Whether the database has every iteration of a job that ended, from its first to its last, and the job's own last word."""
    count = "plain_count + stitched_count + uncounted_count"
    statement = (
        f"SELECT sum({count}), max(first_step + ({count} - 1) * stride) - min(first_step) + 1, count(DISTINCT e.process_id)"
        " FROM jobs AS j JOIN iteration_blocks USING (process_id) LEFT JOIN job_ends AS e USING (process_id)"
        f" WHERE j.uid = '{pod['metadata']['uid']}'"
    )
    ((stored, span, ends),) = rows(kubernetes, statement)
    return ends == "1" and int(stored) == int(span) >= last_step(log_of(kubernetes, pod["metadata"]["name"], SPACE)) - 1


def test_helm_test_says_whether_labelled_pods_are_injected(kubernetes: Kubernetes, external: Release) -> None:
    assert "Phase:          Succeeded" in kubernetes.helm("test", "stitchfleet", "-n", external.namespace)
    left = kubernetes.kubectl("get", "namespace", "-l", OF_OURS, "-o", "name").split()
    kubernetes.wait(
        lambda: not kubernetes.kubectl("get", "namespace", "-l", OF_OURS, "-o", "name"), 60, f"{left} stay behind"
    )


def test_two_ingest_servers_and_two_webhooks_share_one_database(
    kubernetes: Kubernetes, external: Release, images: Images
) -> None:
    deployments = json.loads(
        kubernetes.kubectl("-n", external.namespace, "get", "deploy", "-l", OF_OURS, "-o", "json")
    )["items"]
    ready = {each["metadata"]["name"]: each["status"]["readyReplicas"] for each in deployments}
    assert ready == {"stitchfleet-webhook": 2, "stitchfleet-ingest": 2, "stitchfleet-controller": 1}
    kubernetes.namespace(SPACE)
    kubernetes.create(pod(images.demo.reference, "train", steps=300))
    found = kubernetes.finished("train", SPACE, SECONDS)
    assert found["status"]["phase"] == "Succeeded", kubernetes.why("train", SPACE)
    assert whole(kubernetes, found)
    week = time.strftime("%G-W%V", time.gmtime()).lower()

    def totals() -> list[dict[str, Any]]:
        return list((kubernetes.get("savingsreport", week).get("status") or {}).get("totals") or ())

    ((stored,),) = rows(kubernetes, "SELECT count(DISTINCT run_id) FROM jobs")  # those of tests before, too
    kubernetes.wait(
        lambda: [each["jobs"]["total"] for each in totals()] == [int(stored)], 60, lambda: f"{stored}: {totals()}"
    )


def test_a_database_that_is_away_loses_nothing_and_nobody_restarts(
    kubernetes: Kubernetes, external: Release, images: Images
) -> None:
    """Ingest is not ready, the report says why, the job goes on and keeps its records; afterwards all of them are there."""
    kubernetes.namespace(SPACE)
    running(kubernetes, images.demo.reference, "train")
    before = restarts(kubernetes)
    scale = ("-n", external.namespace, "scale", "deploy/postgres")
    kubernetes.kubectl(*scale, "--replicas=0")
    try:
        week = time.strftime("%G-W%V", time.gmtime()).lower()

        def condition() -> dict[str, Any]:
            conditions = (kubernetes.get("savingsreport", week).get("status") or {}).get("conditions") or ()
            return dict({each["type"]: each for each in conditions}.get("Ready", {}))

        def ready_ingests() -> int:
            return int(
                kubernetes.get("deploy", "stitchfleet-ingest", external.namespace)["status"].get("readyReplicas", 0)
            )

        kubernetes.wait(lambda: ready_ingests() == 0, 90, "the ingest servers are ready without a database")
        kubernetes.wait(lambda: condition().get("status") == "False", 90, lambda: str(condition()))
        assert condition()["reason"] == "DatabaseUnavailable"
        step = last_step(log_of(kubernetes, "train", SPACE))
        kubernetes.wait(
            lambda: last_step(log_of(kubernetes, "train", SPACE)) >= step + 300,
            SECONDS,
            "the job waits for the database",
        )
    finally:
        kubernetes.kubectl(*scale, "--replicas=1")
    kubernetes.kubectl("-n", external.namespace, "rollout", "status", "deploy/stitchfleet-ingest", "--timeout=120s")
    kubernetes.wait(lambda: condition().get("status") == "True", 90, lambda: str(condition()))
    found = ended(kubernetes, "train")
    kubernetes.wait(lambda: whole(kubernetes, found), 60, lambda: log_of(kubernetes, "train", SPACE)[-3000:])
    assert restarts(kubernetes) == before


def test_two_controllers_at_once_write_the_same(kubernetes: Kubernetes, external: Release, images: Images) -> None:
    """As after a partition, when the old one's node comes back: one Event, and a status that stays as it is."""
    kubernetes.namespace(SPACE)
    scale = ("-n", external.namespace, "scale", "deploy/stitchfleet-controller")
    kubernetes.kubectl(*scale, "--replicas=2")
    rollout = ("-n", external.namespace, "rollout", "status", "deploy/stitchfleet-controller", "--timeout=90s")
    kubernetes.kubectl(*rollout)
    try:
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        left = pod(images.demo.reference, "left")
        left["metadata"]["annotations"] = {"stitchfleet.io/skip": "I debug it"}
        left["spec"]["containers"][0]["command"] = ["sleep", "600"]
        kubernetes.create(left)
        about = {"apiVersion": "stitchfleet.io/v1alpha1", "kind": "StitchPolicy"}
        kubernetes.create({**about, "metadata": {"name": "team", "namespace": SPACE}, "spec": {"sampleStride": 10}})
        week = time.strftime("%G-w%V", time.gmtime())
        kubernetes.wait(lambda: events_of(kubernetes, "left"), 60, "no event")
        kubernetes.wait(lambda: "I debug it" in json.dumps(kubernetes.get("savingsreport", week)), 60, "the report")
        kubernetes.wait(lambda: kubernetes.get("stitchpolicy", "team", SPACE).get("status"), 60, "the policy's status")

        def versions() -> tuple[str, str]:
            objects = kubernetes.get("savingsreport", week), kubernetes.get("stitchpolicy", "team", SPACE)
            return objects[0]["metadata"]["resourceVersion"], objects[1]["metadata"]["resourceVersion"]

        settled = versions()
        until = time.monotonic() + LOOK_SECONDS + 5  # ten looks at the reports by each, and one at the pods
        while time.monotonic() < until:
            assert versions() == settled, kubernetes.kubectl("get", "savingsreport", week, "-o", "yaml")
            time.sleep(0.5)
        assert [each["message"] for each in events_of(kubernetes, "left")] == ["I debug it"]
        names = kubernetes.kubectl(
            *("-n", external.namespace, "get", "pods", "-l", "app.kubernetes.io/component=controller", "-o", "name")
        ).split()
        assert len(names) == 2
        for name in names:
            log = kubernetes.kubectl("-n", external.namespace, "logs", name, f"--since-time={since}").splitlines()
            assert not [line for line in log if "stitchfleet controller:" in line and "looks after" not in line]
    finally:
        kubernetes.kubectl(*scale, "--replicas=1")
        kubernetes.kubectl(*rollout)
        kubernetes.kubectl("delete", "namespace", SPACE, "--wait=false")


def test_without_a_controller_all_can_be_deleted_and_pods_are_injected(
    kubernetes: Kubernetes, external: Release, images: Images
) -> None:
    """Objects that the controller has looked after are free of it: none waits for it to take a finalizer away."""
    kubernetes.namespace(SPACE)
    week = time.strftime("%G-w%V", time.gmtime())
    about = {"apiVersion": "stitchfleet.io/v1alpha1"}
    sleeper = pod(images.demo.reference, "sleeper")
    sleeper["spec"]["containers"][0]["command"] = ["sleep", "600"]
    sleeper["spec"]["terminationGracePeriodSeconds"] = 1
    template = {"metadata": {"labels": sleeper["metadata"]["labels"]}, "spec": sleeper["spec"]}
    job = {"metadata": {"name": "job", "namespace": SPACE}, "spec": {"template": template}}
    kubernetes.create(sleeper)
    kubernetes.create({"apiVersion": "batch/v1", "kind": "Job", **job})
    kubernetes.create({**about, "kind": "StitchPolicy", "metadata": {"name": "team", "namespace": SPACE}, "spec": {}})
    kubernetes.kubectl("delete", "savingsreport", "asked", "--ignore-not-found")
    kubernetes.create({**about, "kind": "SavingsReport", "metadata": {"name": "asked"}, "spec": {"week": week.upper()}})
    ours = [("pod", "sleeper"), ("job", "job"), ("stitchpolicy", "team"), ("savingsreport", "asked")]
    kubernetes.wait(
        lambda: kubernetes.get("stitchpolicy", "team", SPACE).get("status"), 60, "it has not seen the policy"
    )
    kubernetes.wait(lambda: kubernetes.get("savingsreport", "asked").get("status"), 60, "it has not seen the report")
    phases = ("-n", SPACE, "get", "pods", "-o", "jsonpath={.items[*].status.phase}")
    kubernetes.wait(lambda: kubernetes.kubectl(*phases) == "Running Running", SECONDS, "the pods do not run")
    scale = ("-n", external.namespace, "scale", "deploy/stitchfleet-controller")
    component = ("-l", "app.kubernetes.io/component=controller")
    kubernetes.kubectl(*scale, "--replicas=0")
    kubernetes.kubectl("-n", external.namespace, "wait", "--for=delete", "pod", *component, "--timeout=60s")
    try:
        for kind, name in (*ours, ("savingsreport", week)):
            assert "finalizers" not in kubernetes.get(kind, name, SPACE)["metadata"], f"{kind}/{name}"
            kubernetes.kubectl("-n", SPACE, "delete", kind, name, "--timeout=30s")
        kubernetes.wait(lambda: not kubernetes.kubectl(*phases), 30, "the job's pod stays")
        created = kubernetes.create(sleeper)
        assert created["metadata"]["annotations"]["stitchfleet.io/injected"] == "main"
        kubernetes.kubectl("-n", SPACE, "delete", "pod", "sleeper", "--timeout=30s")
    finally:
        kubernetes.kubectl(*scale, "--replicas=1")
        rollout = ("rollout", "status", "deploy/stitchfleet-controller", "--timeout=90s")
        kubernetes.kubectl("-n", external.namespace, *rollout)
    there = ("get", "savingsreport", week, "--ignore-not-found")
    kubernetes.wait(lambda: kubernetes.kubectl(*there), 60, "this week's report is not made anew")
    kubernetes.kubectl("delete", "namespace", SPACE, "--wait=false")


def events_of(kubernetes: Kubernetes, name: str) -> list[dict[str, Any]]:
    words = ("-n", SPACE, "get", "events", "--field-selector", f"involvedObject.name={name}", "-o", "json")
    found = json.loads(kubernetes.kubectl(*words))["items"]
    return [each for each in found if each["source"].get("component", "").startswith("stitchfleet")]


RARE = {
    "webhook": {("", "secrets", "update")},
    "ingest": {("authorization.k8s.io", "subjectaccessreviews", "create")},
    "controller": {("", "pods", "patch"), ("", "configmaps", "update"), ("", "events", "create")},
}
"""Rights of which the tests of this module give no occasion; test_pods.py does, where one account has those of two."""


def test_each_account_has_what_it_needs_and_no_more(kubernetes: Kubernetes, external: Release) -> None:
    found = rights_of(kubernetes, external)
    assert set(found) == set(RARE)
    for account, rights in found.items():
        assert rights.refused == set(), account
        assert rights.granted - rights.used <= RARE[account], account


def test_an_upgrade_and_a_rollback_leave_a_running_job_alone_and_miss_no_pod(
    kubernetes: Kubernetes, external: Release, releases: Releases, images: Images
) -> None:
    kubernetes.namespace(SPACE)
    running(kubernetes, images.demo.reference, "train")
    asked = pod(images.demo.reference, "asked")
    (revision,) = json.loads(kubernetes.helm("list", "-n", external.namespace, "-o", "json"))
    with under_load(lambda: is_injected(dry_run(kubernetes, asked))) as load:
        releases.upgrade("--set", "webhook.resources.requests.memory=130Mi", "--set", "controller.keepDays=30")
        running(kubernetes, images.demo.reference, "during")
        kubernetes.helm(
            "rollback", "stitchfleet", revision["revision"], "-n", external.namespace, "--wait", "--timeout", "3m"
        )
    print(f"{load.injected} pods injected during an upgrade and a rollback")
    assert (load.plain, load.failed) == (0, [])
    assert load.injected > 20
    running(kubernetes, images.demo.reference, "after")
    for name in ("train", "during", "after"):
        assert whole(kubernetes, ended(kubernetes, name)), log_of(kubernetes, name, SPACE)[-3000:]


def test_an_uninstall_leaves_running_jobs_alone_and_only_the_data(
    kubernetes: Kubernetes, external: Release, releases: Releases, images: Images
) -> None:
    kubernetes.namespace(SPACE)
    of_others = {each for each in named(kubernetes) if not is_of(each, external)}
    running(kubernetes, images.demo.reference, "train")
    releases.uninstall()
    kubernetes.create(pod(images.demo.reference, "after", steps=20))
    found = kubernetes.finished("after", SPACE, SECONDS)
    assert found["status"]["phase"] == "Succeeded", kubernetes.why("after", SPACE)
    assert "annotations" not in found["metadata"]
    ended(kubernetes, "train")

    def left() -> set[str]:
        return named(kubernetes) - of_others

    kubernetes.wait(lambda: all(is_data(each, external) for each in left()), 60, lambda: str(left()))
    assert kubernetes.get("savingsreport", time.strftime("%G-W%V", time.gmtime()).lower())["status"]["totals"]


def named(kubernetes: Kubernetes) -> set[str]:
    """Every object of every kind whose name has ours in it."""
    kinds = kubernetes.kubectl("api-resources", "--verbs=list", "-o", "name").split()
    kinds = [kind for kind in kinds if kind not in ("events", "events.events.k8s.io", "componentstatuses")]
    found = kubernetes.kubectl("get", ",".join(kinds), "-A", "-o", "name", "--ignore-not-found").split()
    return {each for each in found if "stitchfleet" in each}


def is_of(name: str, release: Release) -> bool:
    """Whether an object is the release's: its own names begin with the release's name."""
    return name.partition("/")[2].startswith(("stitchfleet", release.namespace))


def is_data(name: str, release: Release) -> bool:
    """What an uninstall leaves on purpose: reports and policies, their kinds, and the namespace, which is not the chart's."""
    kind, _, _ = name.partition("/")
    of_resources = ("savingsreport.", "stitchpolicy.", "customresourcedefinition.", "apiservice.")
    return kind.startswith(of_resources) or name == f"namespace/{release.namespace}"


def restarts(kubernetes: Kubernetes) -> dict[str, int]:
    pods = json.loads(kubernetes.kubectl("-n", NAMESPACE, "get", "pods", "-l", OF_OURS, "-o", "json"))["items"]
    return {
        each["metadata"]["name"]: sum(status["restartCount"] for status in each["status"]["containerStatuses"])
        for each in pods
    }
