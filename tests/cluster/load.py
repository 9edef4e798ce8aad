"""Admissions, many at once, and what stitchfleet's processes take meanwhile."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import pathlib
import socket
import ssl
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from .kubernetes import Kubernetes, Object
from .node import API, TOKEN

SECONDS = 60.0
CONFIGURATION = "stitchfleet-stitchfleet"
"""The release's MutatingWebhookConfiguration."""


def dry_run(kubernetes: Kubernetes, pod: Object) -> Object:
    """The pod as the API server would create it, asked for over a connection of its own. Raises OSError if it cannot be asked."""
    address = urllib.parse.urlsplit(API)
    context = ssl.create_default_context(cafile=str(kubernetes.node.state / "certs" / "apiserver.crt"))
    context.check_hostname = False
    connection = http.client.HTTPSConnection(str(address.hostname), address.port, timeout=SECONDS, context=context)
    path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods?dryRun=All"
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    try:
        connection.request("POST", path, json.dumps(pod), headers)
        answer = connection.getresponse()
        text = answer.read()
    except http.client.HTTPException as error:
        raise ConnectionError(f"{type(error).__name__}: {error}") from None
    finally:
        connection.close()
    if answer.status >= 500:
        raise ConnectionError(f"{answer.status}: {text[:300]!r}")
    assert answer.status == 201, f"{answer.status}: {text[:500]!r}"
    return dict(json.loads(text))


def all_at_once(kubernetes: Kubernetes, pods: Iterable[Object], workers: int) -> list[Object]:
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(lambda pod: dry_run(kubernetes, pod), pods))


def is_injected(pod: Object) -> bool:
    return "stitchfleet.io/injected" in (pod["metadata"].get("annotations") or {})


@dataclass
class Load:
    """What came of admissions so far."""

    injected: int = 0
    plain: int = 0
    failed: list[str] = field(default_factory=list)


@contextlib.contextmanager
def under_load(*askers: Callable[[], bool], pause: float = 0.05) -> Iterator[Load]:
    """While the block runs, each asker is called again and again in a thread of its own. An asker asks for one admission and
    returns whether the pod was injected; OSError and AssertionError are kept as failures. pause: seconds between two of its calls."""
    load, ended = Load(), threading.Event()

    def ask(asker: Callable[[], bool]) -> None:
        while not ended.is_set():
            try:
                if asker():
                    load.injected += 1
                else:
                    load.plain += 1
            except (OSError, AssertionError) as error:
                load.failed.append(f"{type(error).__name__}: {error}")
            time.sleep(pause)

    threads = [threading.Thread(target=ask, args=(asker,)) for asker in askers]
    for each in threads:
        each.start()
    try:
        yield load
    finally:
        ended.set()
        for each in threads:
            each.join()


class WebhookSocket:
    """The webhook as the API server reaches it, each time over a new connection."""

    def __init__(self, kubernetes: Kubernetes, namespace: str) -> None:
        self._kubernetes, self._host = kubernetes, f"stitchfleet-webhook.{namespace}.svc"
        self._address = kubernetes.get("service", "stitchfleet-webhook", namespace)["spec"]["clusterIP"]
        self.read_authority()

    def read_authority(self) -> None:
        """Whom the webhook's configuration says that the API server may trust."""
        found = self._kubernetes.get("mutatingwebhookconfiguration", CONFIGURATION)
        bundle = base64.b64decode(found["webhooks"][0]["clientConfig"]["caBundle"]).decode()
        self._context = ssl.create_default_context(cadata=bundle)

    def admit(self, pod: Object) -> tuple[Object, bytes]:
        """(the response to a review of the pod's creation, the certificate that was served). Raises OSError."""
        asked = {
            "uid": "of-the-test",
            "namespace": pod["metadata"]["namespace"],
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "operation": "CREATE",
            "object": pod,
        }
        review = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}).encode()
        head = (
            f"POST /mutate HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(review)}\r\nConnection: close\r\n\r\n"
        )
        with (
            socket.create_connection((self._address, 443), SECONDS) as plain,
            self._context.wrap_socket(plain, server_hostname=self._host) as connection,
        ):
            certificate = connection.getpeercert(binary_form=True)
            connection.sendall(head.encode() + review)
            text = b"".join(iter(lambda: connection.recv(65536), b""))
        start, _, body = text.partition(b"\r\n\r\n")
        assert start.startswith(b"HTTP/1.1 200"), start
        return dict(json.loads(body)["response"]), certificate or b""


PARTS = ("webhook", "controller", "ingest")


def processes_of(words: str) -> list[int]:
    """Of this node, by a part of their command line."""
    command = ["pgrep", "-f", "--", f"python.*{words}"]
    return [int(line) for line in subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()]


@dataclass(frozen=True)
class Usage:
    """Of one part's processes together. most_mb: the most that they had since they began."""

    resident_mb: float
    most_mb: float
    cpu_seconds: float


def usage(part: str) -> Usage:
    resident = most = cpu = 0.0
    for pid in processes_of(f"stitchfleet {part}"):
        folder = pathlib.Path("/proc", str(pid))
        facts: dict[str, Any] = dict(
            line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line
        )
        resident += int(facts["VmRSS"].split()[0]) / 1000
        most += int(facts["VmHWM"].split()[0]) / 1000
        words = (folder / "stat").read_text().rpartition(")")[2].split()
        cpu += (int(words[11]) + int(words[12])) / 100  # utime, stime
    return Usage(resident, most, cpu)
