"""Certificates that end while pods are created: each request has a connection of its own, none fails, and every pod is injected."""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import pytest

from stitchfleet.operator.cluster.certificates import AUTHORITY, Lifetimes, Server, renewed
from stitchfleet.operator.webhook.command import hosts_of

from .conftest import Release
from .kubernetes import Kubernetes
from .load import WebhookSocket, dry_run, is_injected
from .test_pods import SECRET, pod

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("release")]

SPACE = "pods"
IMAGE = "example.org/training:3"
HOUR = datetime.timedelta(hours=1)
LOOK_SECONDS = 30.0
"""How often the webhook looks after its certificates."""


@dataclass
class Load:
    """What came of requests so far. served: by certificate, how often it was."""

    injected: int = 0
    plain: int = 0
    failed: list[str] = field(default_factory=list)
    served: Counter[str] = field(default_factory=Counter)


def under_load(kubernetes: Kubernetes, release: Release, load: Load, ended: threading.Event) -> list[threading.Thread]:
    """Asks the webhook itself, and the API server, until `ended` is set."""

    def ask_webhook() -> None:
        webhook, read = WebhookSocket(kubernetes, release.namespace), time.monotonic()
        while not ended.is_set():
            try:
                if time.monotonic() - read > 2:  # the API server learns of a change sooner
                    webhook.read_authority()
                    read = time.monotonic()
                response, certificate = webhook.admit(pod(IMAGE))
                load.served[hashlib.sha256(certificate).hexdigest()] += 1
                if "patch" in response:
                    load.injected += 1
                else:
                    load.plain += 1
            except (OSError, AssertionError) as error:
                load.failed.append(f"{type(error).__name__}: {error}")
            time.sleep(0.05)

    def ask_api_server() -> None:
        while not ended.is_set():
            try:
                if is_injected(dry_run(kubernetes, pod(IMAGE))):
                    load.injected += 1
                else:
                    load.plain += 1
            except (OSError, AssertionError) as error:
                load.failed.append(f"{type(error).__name__}: {error}")
            time.sleep(0.05)

    return [threading.Thread(target=each) for each in (ask_webhook, ask_api_server)]


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
    load, ended = Load(), threading.Event()
    threads = under_load(kubernetes, release, load, ended)
    for each in threads:
        each.start()
    try:
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
        kubernetes.wait(lambda: len(load.served) >= 2, LOOK_SECONDS, lambda: str(load))

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
        kubernetes.wait(lambda: len(load.served) >= 3, LOOK_SECONDS, lambda: str(load))
        count = load.injected
        kubernetes.wait(lambda: load.injected > count + 50, 30, lambda: str(load))
    finally:
        ended.set()
        for each in threads:
            each.join()
    connections = sum(load.served.values())
    print(
        f"{load.injected} injected, {connections} of them over new connections; certificates: {list(load.served.values())}"
    )
    assert load.failed == []
    assert load.plain == 0
