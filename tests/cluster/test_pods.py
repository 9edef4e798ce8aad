"""Pods of every kind on the real cluster: each starts as it would without us, and those that can be are injected."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import Images, Release
from .kubernetes import Kubernetes, volume_of
from .load import dry_run, is_injected
from .node import ADDRESS
from .programs import PAUSE_IMAGE
from .rights import rights_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("release")]

SPACE = "pods"
LABEL = {"stitchfleet.io/enabled": "true"}
SECRET = "stitchfleet-certificates"
SECONDS = 90.0
IMPORTS = (
    "import classifier, sys; from stitchfleet.plugin.entry import activation; print('imported', activation.__file__)"
)
"""Ours from the payload, and the image's own module, which only its PYTHONPATH leads to."""


@pytest.fixture
def image(images: Images) -> str:
    return images.demo.reference


def pod(image: str, labels: dict[str, str] = LABEL, name: str = "train", **container: Any) -> dict[str, Any]:
    main = {"name": "main", "image": image, "command": ["python", "-c", IMPORTS], **container}
    spec = {"restartPolicy": "Never", "containers": [main]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": SPACE, "labels": labels},
        "spec": spec,
    }


def ran(kubernetes: Kubernetes, manifest: dict[str, Any]) -> dict[str, Any]:
    """The pod, which ended well, injected."""
    kubernetes.create(manifest)
    found = kubernetes.finished(manifest["metadata"]["name"], SPACE, SECONDS)
    assert found["status"]["phase"] == "Succeeded", kubernetes.why(manifest["metadata"]["name"], SPACE)
    assert found["metadata"]["annotations"]["stitchfleet.io/injected"] == "main"
    assert "imported /opt/stitchfleet/payload/python" in kubernetes.kubectl(
        "-n", SPACE, "logs", manifest["metadata"]["name"]
    )
    return found


SHOWN = """
import json, os
files = os.environ["STITCHFLEET_INGEST_TOKEN_FILE"], os.environ["STITCHFLEET_LABELS_FILE"], os.environ["STITCHFLEET_INGEST_CA_FILE"]
print(json.dumps([dict(os.environ), *(open(file).read() for file in files)]))
"""
SMALL = {"requests": {"cpu": "100m", "memory": "200Mi"}, "limits": {"cpu": "1", "memory": "500Mi"}}


def test_a_quota_that_fits_the_pod_alone_is_enough(kubernetes: Kubernetes, image: str) -> None:
    kubernetes.namespace(SPACE)
    hard = {
        "requests.cpu": "100m",
        "requests.memory": "200Mi",
        "limits.cpu": "1",
        "limits.memory": "500Mi",
        "pods": "1",
    }
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": SPACE},
        "spec": {"hard": hard},
    }
    kubernetes.create(quota)
    kubernetes.wait(lambda: kubernetes.get("resourcequota", "q", SPACE).get("status", {}).get("hard"), 30, "the quota")
    ran(kubernetes, pod(image, resources=SMALL))


def test_a_limit_range_s_defaults_and_bounds_hold_for_both_containers(kubernetes: Kubernetes, image: str) -> None:
    kubernetes.namespace(SPACE)
    limits = {
        "type": "Container",
        "default": {"cpu": "1", "memory": "600Mi"},
        "max": {"cpu": "1", "memory": "600Mi"},
        "min": {"memory": "500Mi"},
    }
    bounds = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "l", "namespace": SPACE},
        "spec": {"limits": [limits]},
    }
    kubernetes.create(bounds)
    found = ran(kubernetes, pod(image))
    assert found["spec"]["initContainers"][0]["resources"] == found["spec"]["containers"][0]["resources"]


def test_a_guaranteed_pod_stays_guaranteed(kubernetes: Kubernetes, image: str) -> None:
    kubernetes.namespace(SPACE)
    same = {"cpu": "500m", "memory": "500Mi"}
    assert (
        ran(kubernetes, pod(image, resources={"requests": same, "limits": same}))["status"]["qosClass"] == "Guaranteed"
    )


def test_a_root_pod_and_a_pod_of_any_user(kubernetes: Kubernetes, image: str) -> None:
    kubernetes.namespace(SPACE)
    ran(kubernetes, pod(image, name="root", securityContext={"runAsUser": 0}))
    ran(kubernetes, pod(image, name="somebody", securityContext={"runAsUser": 12345, "runAsGroup": 54321}))
    read_only = pod(image, name="read-only", securityContext={"readOnlyRootFilesystem": True})
    read_only["spec"]["volumes"] = [
        {"name": "tmp", "emptyDir": {}}
    ]  # TensorFlow itself needs a folder for temporary files
    read_only["spec"]["containers"][0]["volumeMounts"] = [{"name": "tmp", "mountPath": "/tmp"}]
    ran(kubernetes, read_only)


def test_a_job_knows_who_it_is(kubernetes: Kubernetes, image: str) -> None:
    """A Job's pod: what the process sees in its environment and files is what the API server says of it."""
    kubernetes.namespace(SPACE)
    template = pod(image, {**LABEL, "team": "eyes"}, command=["python", "-c", SHOWN])
    template = {"metadata": {"labels": template["metadata"]["labels"]}, "spec": template["spec"]}
    job = kubernetes.create(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "bert", "namespace": SPACE},
            "spec": {"template": template},
        }
    )

    def its_pods() -> list[dict[str, Any]]:
        found = json.loads(kubernetes.kubectl("-n", SPACE, "get", "pods", "-l", "job-name=bert", "-o", "json"))["items"]
        return [each for each in found if each["status"].get("phase") == "Succeeded"]

    (found,) = kubernetes.wait(its_pods, SECONDS, lambda: kubernetes.kubectl("-n", SPACE, "describe", "pods"))
    name = found["metadata"]["name"]
    environment, token, labels, authority = json.loads(
        kubernetes.kubectl("-n", SPACE, "logs", name).strip().splitlines()[-1]
    )
    told = {key.removeprefix("STITCHFLEET_"): value for key, value in environment.items()}
    assert (told["NAMESPACE"], told["POD_UID"], told["CLUSTER"]) == (SPACE, found["metadata"]["uid"], "test-cluster")
    assert (told["JOB_NAME"], told["RUN_ID"], told["IMAGE"]) == ("bert", job["metadata"]["uid"], image)
    assert 'team="eyes"' in labels
    assert authority.startswith("-----BEGIN CERTIFICATE-----")
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    assert claims["aud"] == ["stitchfleet-ingest"]
    assert claims["kubernetes.io"]["pod"]["uid"] == found["metadata"]["uid"]


def test_a_job_in_a_pod_that_limits_little_disk_is_left_alone_and_told(kubernetes: Kubernetes, image: str) -> None:
    kubernetes.namespace(SPACE)
    kubernetes.create(pod(image, resources={"limits": {"ephemeral-storage": "200Mi"}}, command=["true"]))
    found = kubernetes.finished("train", SPACE, SECONDS)
    assert found["status"]["phase"] == "Succeeded"
    assert "ephemeral storage is 200 MiB" in found["metadata"]["annotations"]["stitchfleet.io/not-injected"]


def test_a_policy_holds_for_pods_that_come_after_it(kubernetes: Kubernetes, image: str) -> None:
    kubernetes.namespace(SPACE)
    about = {"apiVersion": "stitchfleet.io/v1alpha1", "kind": "StitchPolicy"}
    kubernetes.create({**about, "metadata": {"name": "quiet", "namespace": SPACE}, "spec": {"enabled": False}})

    def says_no() -> bool:
        dry = kubernetes.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(pod(image)))
        return "quiet" in json.loads(dry)["metadata"]["annotations"].get("stitchfleet.io/not-injected", "")

    kubernetes.wait(says_no, 20, "the webhook does not learn of the policy")
    wait = ("wait", "stitchpolicy/quiet", "--for=condition=InEffect", "--timeout=30s")
    kubernetes.wait(lambda: kubernetes.get("stitchpolicy", "quiet", SPACE).get("status"), 30, "its status")
    kubernetes.kubectl("-n", SPACE, *wait)
    bad = {**about, "metadata": {"name": "bad", "namespace": SPACE}, "spec": {"mode": "fast"}}
    with pytest.raises(AssertionError, match="Unsupported value"):
        kubernetes.create(bad)
    kubernetes.kubectl("-n", SPACE, "delete", "stitchpolicy", "quiet")
    # the next test's namespace has the same name, and may be there sooner than the webhook looks again
    kubernetes.wait(lambda: not says_no(), 20, "the webhook does not learn that the policy is gone")


BARE: dict[str, Any] = {"image": PAUSE_IMAGE, "imagePullPolicy": "Never", "command": ["/pause"]}
"""An image with one program, and no shell."""


def bare_pod(name: str, says_so: bool = True) -> dict[str, Any]:
    found = pod(name=name, **BARE)
    if says_so:
        found["metadata"]["annotations"] = {"stitchfleet.io/shell": "none"}
    return found


@pytest.mark.parametrize("says_so", [False, True])
def test_an_image_without_a_shell_starts_and_sees_its_path(kubernetes: Kubernetes, says_so: bool) -> None:
    kubernetes.namespace(SPACE)
    kubernetes.create(bare_pod("train", says_so))
    kubernetes.wait(lambda: is_running(kubernetes, "train"), SECONDS, lambda: kubernetes.why("train", SPACE))
    uid = kubernetes.get("pod", "train", SPACE)["metadata"]["uid"]

    def ours() -> list[dict[str, str]]:
        return [found for found in environments_of("/pause") if found.get("STITCHFLEET_NAMESPACE") == SPACE]

    # the container runs from the starter's first instruction on
    (environment,) = kubernetes.wait(ours, 30, "the starter did not start the command")
    assert environment["PYTHONPATH"].split(":")[-1] == "/opt/stitchfleet/payload/python"
    assert (volume_of(uid) / "payload" / "python").is_dir()


def is_running(kubernetes: Kubernetes, name: str) -> bool:
    return bool(kubernetes.get("pod", name, SPACE)["status"].get("phase") == "Running")


def environments_of(command: str) -> list[dict[str, str]]:
    """Of the processes on this node that were started so."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cmdline").read_bytes() == f"{command}\0".encode():
                lines = (process / "environ").read_text().split("\0")
                found.append(dict(line.split("=", 1) for line in lines if line))
    return found


def test_a_reports_link_opens_for_those_who_may_get_the_report(kubernetes: Kubernetes, release: Release) -> None:
    kubernetes.namespace(SPACE)
    for name in ("manager", "stranger"):
        kubernetes.kubectl("-n", SPACE, "create", "serviceaccount", name)
    kubernetes.kubectl("delete", "clusterrole,clusterrolebinding", "report-readers", "--ignore-not-found")
    kubernetes.kubectl("create", "clusterrole", "report-readers", "--verb=get", "--resource=savingsreports")
    kubernetes.kubectl(
        "create",
        "clusterrolebinding",
        "report-readers",
        "--clusterrole=report-readers",
        f"--serviceaccount={SPACE}:manager",
    )
    week = time.strftime("%G-W%V", time.gmtime())
    link = kubernetes.wait(
        lambda: (kubernetes.get("savingsreport", week.lower()).get("status") or {}).get("link"), 60, "there is no link"
    )
    assert link == f"https://stitchfleet-ingest.{release.namespace}.svc:8475/reports/{week}"
    answers = {name: page(kubernetes, release, link, name) for name in ("manager", "stranger")}
    assert answers["manager"].startswith("HTTP/1.1 200"), answers["manager"]
    assert "<!doctype html>" in answers["manager"]
    assert answers["stranger"].startswith("HTTP/1.1 403"), answers["stranger"]
    assert "stranger may not get savingsreports.stitchfleet.io" in answers["stranger"]


def page(kubernetes: Kubernetes, release: Release, link: str, account: str) -> str:
    """What the ingest server's certificate holder answers to somebody with a token of the account."""
    host, _, path = link.removeprefix("https://").partition("/")
    name, _, port = host.partition(":")
    token = kubernetes.kubectl("-n", SPACE, "create", "token", account).strip()
    address = kubernetes.get("service", "stitchfleet-ingest", release.namespace)["spec"]["clusterIP"]
    held = kubernetes.get("secret", SECRET, release.namespace)["data"]["ca.crt"]
    context = ssl.create_default_context(cadata=base64.b64decode(held).decode())
    with (
        socket.create_connection((address, int(port)), 30) as plain,
        context.wrap_socket(plain, server_hostname=name) as connection,
    ):
        head = f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        connection.sendall(head.encode())
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode()


@pytest.fixture(params=["nobody answers", "somebody who says nothing"])
def nothing(request: pytest.FixtureRequest) -> Iterator[str]:
    """An image that cannot be pulled, by who answers at its registry."""
    if request.param == "nobody answers":
        yield "localhost/stitchfleet-nothing:1"
        return
    with socket.create_server(
        (ADDRESS, 0), backlog=64
    ) as silent:  # connections are accepted by the kernel, and never read
        yield f"{ADDRESS}:{silent.getsockname()[1]}/stitchfleet-nothing:1"


def test_a_payload_that_cannot_be_pulled_holds_no_pod(kubernetes: Kubernetes, image: str, nothing: str) -> None:
    kubernetes.namespace(SPACE)
    about = {
        "apiVersion": "stitchfleet.io/v1alpha1",
        "kind": "StitchPolicy",
        "metadata": {"name": "pinned", "namespace": SPACE},
    }
    kubernetes.create({**about, "spec": {"payloadImage": nothing}})

    def is_pinned() -> bool:
        dry = kubernetes.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(pod(image)))
        # until it learns of this namespace's policy, the webhook may have one of a namespace of the same name that is gone
        (init,) = json.loads(dry)["spec"].get("initContainers") or [{}]
        return bool(init.get("image") == nothing)

    kubernetes.wait(is_pinned, 20, "the webhook does not learn of the policy")
    kubernetes.create(pod(image, command=["true"]))
    kubernetes.create(bare_pod("bare"))
    found = kubernetes.finished("train", SPACE, 120.0)
    assert found["status"]["phase"] == "Succeeded", kubernetes.why("train", SPACE)
    kubernetes.wait(lambda: is_running(kubernetes, "bare"), 30, lambda: kubernetes.why("bare", SPACE))
    assert "could not be pulled" in found["metadata"]["annotations"]["stitchfleet.io/not-injected"]
    assert "stitchfleet.io/injected" not in found["metadata"]["annotations"]


@pytest.mark.parametrize("memory", ["64Mi", "20Mi"])
def test_a_pod_with_the_least_of_limits_starts(kubernetes: Kubernetes, image: str, memory: str) -> None:
    """The init container, which has the same limits, copies the payload in them."""
    kubernetes.namespace(SPACE)
    limits = {"memory": memory, "cpu": "50m"}
    wanted = pod(image, command=["true"], resources={"limits": limits, "requests": limits})
    forgets = "the webhook still knows the policy of the namespace that had this name before"
    kubernetes.wait(lambda: is_injected(dry_run(kubernetes, wanted)), 30, forgets)
    kubernetes.create(wanted)
    found = kubernetes.finished("train", SPACE, 120.0)
    assert found["status"]["phase"] == "Succeeded", kubernetes.why("train", SPACE)
    (copied,) = found["status"]["initContainerStatuses"]
    assert copied["state"]["terminated"]["exitCode"] == 0


def test_without_a_webhook_pods_start_and_with_it_they_are_injected_again(
    kubernetes: Kubernetes, image: str, release: Release
) -> None:
    kubernetes.namespace(SPACE)
    scale = ("-n", release.namespace, "scale", "deploy/stitchfleet-webhook")
    kubernetes.kubectl(*scale, "--replicas=0")
    kubernetes.kubectl(
        "-n",
        release.namespace,
        "wait",
        "--for=delete",
        "pod",
        "-l",
        "app.kubernetes.io/component=webhook",
        "--timeout=60s",
    )
    try:
        started = time.monotonic()
        created = kubernetes.create(pod(image, command=["true"]))
        assert time.monotonic() - started < 20
        assert "initContainers" not in created["spec"]
        assert kubernetes.finished("train", SPACE, SECONDS)["status"]["phase"] == "Succeeded"
    finally:
        kubernetes.kubectl(*scale, "--replicas=1")
        kubernetes.kubectl("-n", release.namespace, "rollout", "status", "deploy/stitchfleet-webhook", "--timeout=90s")
    ran(kubernetes, pod(image, name="after"))


def test_certificates_that_are_gone_are_made_anew(kubernetes: Kubernetes, image: str, release: Release) -> None:
    """Somebody deletes one, then all: the webhook makes new ones, tells the API server, and goes on."""
    kubernetes.namespace(SPACE)

    def held() -> dict[str, str]:
        """The Secret's certificates; none if there is no Secret."""
        found = kubernetes.kubectl(
            "-n", release.namespace, "get", "secret", SECRET, "--ignore-not-found", "-o", "jsonpath={.data}"
        )
        return dict(json.loads(found or "{}"))

    def published() -> str:
        found = kubernetes.get("mutatingwebhookconfiguration", "stitchfleet-stitchfleet")
        return str(found["webhooks"][0]["clientConfig"]["caBundle"])

    def is_injected() -> bool:
        dry = kubernetes.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(pod(image)))
        return "initContainers" in json.loads(dry)["spec"]

    before = held()
    removal = json.dumps([{"op": "remove", "path": "/data/webhook.crt"}])
    kubernetes.kubectl("-n", release.namespace, "patch", "secret", SECRET, "--type=json", "-p", removal)
    kubernetes.wait(lambda: held().get("webhook.crt"), 60, "the certificate is not made anew")
    assert held()["ca.crt"] == before["ca.crt"]
    kubernetes.wait(is_injected, 60, "pods are not injected any more")
    kubernetes.kubectl("-n", release.namespace, "delete", "secret", SECRET)
    kubernetes.wait(lambda: held().get("ca.crt") not in (None, before["ca.crt"]), 60, "there is no new authority")
    kubernetes.wait(lambda: published() == held()["ca.crt"], 60, "it is not published")
    kubernetes.wait(is_injected, 60, "pods are not injected any more")


def test_each_right_in_the_chart_is_used_and_none_is_lacking(kubernetes: Kubernetes, release: Release) -> None:
    """In all that the tests before did: nothing of ours is always refused, and every verb that we may use was used."""
    found = rights_of(kubernetes, release)
    assert set(found) == {"webhook", "server"}
    assert [rights.refused for rights in found.values()] == [set(), set()]
    assert set.union(*(rights.granted - rights.used for rights in found.values())) == set()
