"""What a namespace's own token is good for at the ingest server in the cluster: its own pod's rows, and nothing else."""

from __future__ import annotations

import base64
import socket
import ssl
import time
from typing import Any

import pytest

from stitchfleet.telemetry.pod import wire

from ..telemetry.hostile.client import whole_job
from .conftest import Release
from .kubernetes import Kubernetes
from .test_pods import SECRET, pod
from .test_product import query

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("release")]

VICTIM, MALLORY = "victim", "mallory"
ROWS = """
    SELECT j.namespace, j.uid, j.name, count(b.process_id) AS blocks FROM jobs AS j
    LEFT JOIN iteration_blocks AS b USING (process_id) WHERE j.namespace IN ('victim', 'mallory')
    GROUP BY j.process_id ORDER BY j.namespace, j.uid
"""


def held_pod(kubernetes: Kubernetes, namespace: str) -> str:
    """The uid of a pod that is there, and never runs."""
    kubernetes.namespace(namespace)
    manifest = pod("example.org/training:3", {})
    manifest["metadata"]["namespace"] = namespace
    manifest["spec"]["schedulingGates"] = [{"name": "stitchfleet.io/of-the-test"}]
    return str(kubernetes.create(manifest)["metadata"]["uid"])


def token(kubernetes: Kubernetes, namespace: str, *more: str) -> str:
    """As the kubelet gets one for the pod; `more` changes for what."""
    bound = ("--bound-object-kind=Pod", "--bound-object-name=train")
    return kubernetes.kubectl("-n", namespace, "create", "token", "default", *bound, *more).strip()


FOR_INGEST = "--audience=stitchfleet-ingest"


def test_a_namespace_s_token_reaches_no_other_s_rows(kubernetes: Kubernetes, release: Release) -> None:
    victim, mallory = held_pod(kubernetes, VICTIM), held_pod(kubernetes, MALLORY)
    service = f"stitchfleet-ingest.{release.namespace}.svc"
    address = kubernetes.get("service", "stitchfleet-ingest", release.namespace)["spec"]["clusterIP"]
    authority = base64.b64decode(kubernetes.get("secret", SECRET, release.namespace)["data"]["ca.crt"]).decode()
    context = ssl.create_default_context(cadata=authority)

    def ask(method: str, path: str, bearer: str, body: bytes = b"") -> tuple[int, str]:
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {service}\r\nAuthorization: Bearer {bearer}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        with (
            socket.create_connection((address, 8475), 30) as plain,
            context.wrap_socket(plain, server_hostname=service) as connection,
        ):
            connection.sendall(head.encode() + body)
            text = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
        return int(text.split()[1]), text

    def send(bearer: str, **job: Any) -> tuple[int, str]:
        return ask("POST", wire.PATH, bearer, wire.encode([whole_job(**job)]))

    def stored() -> list[dict[str, Any]]:
        return query(kubernetes, release, ROWS)

    theirs, mine = token(kubernetes, VICTIM, FOR_INGEST), token(kubernetes, MALLORY, FOR_INGEST)
    status, text = send(theirs, process="victim-1", namespace=VICTIM, uid=victim, name="secret")
    assert status == 200, text
    before = stored()
    assert [(each["namespace"], each["uid"], each["name"]) for each in before] == [(VICTIM, victim, "secret")]
    assert before[0]["blocks"] > 0

    # Another namespace's rows, another pod's rows, another namespace's pod as one's own.
    for job in (
        {"namespace": VICTIM, "uid": victim},
        {"namespace": VICTIM, "uid": mallory},
        {"namespace": MALLORY, "uid": victim},
    ):
        for process in ("victim-1", "another"):
            status, text = send(mine, process=process, name="forged", **job)
            assert status == 403, (job, text)
    assert stored() == before

    # A token that is for the API server, and one whose pod is gone.
    status, text = send(token(kubernetes, MALLORY), process="m", namespace=MALLORY, uid=mallory)
    assert status == 401, text
    assert stored() == before

    # One's own rows are taken, and change nothing of a process of the same name that is somebody else's.
    status, text = send(mine, process="mallory-1", namespace=MALLORY, uid=mallory, name="own")
    assert status == 200, text
    send(mine, process="victim-1", namespace=MALLORY, uid=mallory, name="own")
    assert [each for each in stored() if each["namespace"] == VICTIM] == before

    # No token of a job reads anything: neither the fleet's report nor the API.
    week = time.strftime("%G-W%V", time.gmtime())
    for bearer in (mine, token(kubernetes, MALLORY)):
        status, text = ask("GET", f"/reports/{week}", bearer)
        assert status in (401, 403), text
        assert "secret" not in text
    words = ("auth", "can-i", "get", "savingsreports", f"--as=system:serviceaccount:{MALLORY}:default")
    with pytest.raises(AssertionError):
        kubernetes.kubectl(*words)

    kubernetes.kubectl("-n", MALLORY, "delete", "pod", "train", "--grace-period=0", "--force")
    kubernetes.wait(
        lambda: send(mine, process="mallory-2", namespace=MALLORY, uid=mallory)[0] == 401,
        60,
        "a dead pod's token is good",
    )
    for space in (VICTIM, MALLORY):
        kubernetes.kubectl("delete", "namespace", space, "--wait=false")
