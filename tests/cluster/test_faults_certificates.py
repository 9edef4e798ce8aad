"""Certificates that end while pods are created: each request has a connection of its own, none fails, and every pod is injected."""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import time
from collections import Counter

import pytest

from stitchfleet.operator.cluster.certificates import AUTHORITY, Lifetimes, Server, renewed
from stitchfleet.operator.webhook.command import hosts_of

from .conftest import Release
from .kubernetes import Kubernetes, Object
from .load import WebhookSocket, dry_run, is_injected, under_load
from .test_pods import SECRET, pod

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("release")]

SPACE = "pods"
IMAGE = "example.org/training:3"
HOUR = datetime.timedelta(hours=1)
LOOK_SECONDS = 30.0
"""How often the webhook looks after its certificates."""


class Webhook:
    """Its socket, by the authority that the API server trusts just now."""

    def __init__(self, kubernetes: Kubernetes, release: Release) -> None:
        self._socket, self._read = WebhookSocket(kubernetes, release.namespace), time.monotonic()

    def admit(self) -> tuple[Object, bytes]:
        """(the response to a review of a pod's creation, the certificate that was served). Raises OSError."""
        if time.monotonic() - self._read > 2:  # the API server learns of a change sooner
            self._socket.read_authority()
            self._read = time.monotonic()
        return self._socket.admit(pod(IMAGE))


def test_certificates_end_under_load_and_no_pod_is_missed(kubernetes: Kubernetes, release: Release) -> None:
    kubernetes.namespace(SPACE)
    servers = [Server(name, hosts_of(f"stitchfleet-{name}", release.namespace)) for name in ("webhook", "ingest")]

    def held() -> dict[str, bytes]:
        data = kubernetes.get("secret", SECRET, release.namespace)["data"]
        return {name: base64.b64decode(text) for name, text in data.items()}

    def write(wanted: dict[str, bytes]) -> None:
        data = json.dumps({"data": {name: base64.b64encode(pem).decode() for name, pem in wanted.items()}})
        kubernetes.kubectl("-n", release.namespace, "patch", "secret", SECRET, "--type=merge", "-p", data)

    now = datetime.datetime.now(datetime.timezone.utc)
    webhook, served = Webhook(kubernetes, release), Counter[str]()

    def ask_webhook() -> bool:
        response, certificate = webhook.admit()
        served[hashlib.sha256(certificate).hexdigest()] += 1
        return "patch" in response

    with under_load(ask_webhook, lambda: is_injected(dry_run(kubernetes, pod(IMAGE)))) as load:
        kubernetes.wait(lambda: load.injected > 20, 30, lambda: str(load))

        # A serving certificate that ended yesterday, by the authority that everybody trusts.
        before = held()
        of_authority = {name: pem for name, pem in before.items() if not name.startswith(("webhook", "ingest"))}
        ended_yesterday = renewed(of_authority, servers, now - datetime.timedelta(days=91))
        write(ended_yesterday)
        kubernetes.wait(
            lambda: held()["webhook.crt"] not in (before["webhook.crt"], ended_yesterday["webhook.crt"]),
            2 * LOOK_SECONDS,
            "it is not renewed",
        )
        kubernetes.wait(lambda: len(served) >= 2, LOOK_SECONDS, lambda: f"{load} {served}")

        # An authority near its end: its follower is published beside it an hour before it signs. Here most of the hour is over.
        before = held()
        soon = datetime.datetime.now(datetime.timezone.utc) - HOUR + datetime.timedelta(seconds=1.5 * LOOK_SECONDS)
        long = datetime.timedelta(days=20_000)
        with_next = renewed(before, servers, soon, Lifetimes(authority=long, overlap=long))
        assert with_next[AUTHORITY].startswith(before[AUTHORITY])
        assert with_next[AUTHORITY].count(b"BEGIN CERTIFICATE") == 2
        write(with_next)
        kubernetes.wait(lambda: "next.crt" not in held(), 4 * LOOK_SECONDS, "the new authority does not sign")
        assert held()[AUTHORITY].startswith(with_next["next.crt"])
        kubernetes.wait(lambda: len(served) >= 3, LOOK_SECONDS, lambda: f"{load} {served}")
        count = load.injected
        kubernetes.wait(lambda: load.injected > count + 50, 30, lambda: str(load))
    print(
        f"{load.injected} injected, {sum(served.values())} by the webhook's socket; certificates: {list(served.values())}"
    )
    assert load.failed == []
    assert load.plain == 0
