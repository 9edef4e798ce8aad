"""The webhook's server over real TLS: what it answers, and that nothing of ours keeps a pod from being admitted."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime
import functools
import json
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import jsonpatch
import pytest

from stitchfleet.operator.cluster.certificates import AUTHORITY, Lifetimes, Server, renewed
from stitchfleet.operator.policy import names
from stitchfleet.operator.policy.mutate import mutate
from stitchfleet.operator.policy.policy import Admission, Policy
from stitchfleet.operator.webhook import server as server_module
from stitchfleet.operator.webhook import serving as serving_module
from stitchfleet.operator.webhook.command import certificates_in
from stitchfleet.operator.webhook.server import Webhook
from stitchfleet.operator.webhook.serving import Serving

from ..pods import POLICY, Object, container, pod

HOST = Server("webhook", ("localhost",))


class Authority:
    """In the place of the Secret. `turn`: makes the next look find another certificate."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}
        self.now = datetime.datetime.now(datetime.timezone.utc)
        self.fails = False
        self._one = threading.Lock()

    def ensure(self) -> dict[str, bytes]:
        if self.fails:
            raise OSError("the API server is away")
        with self._one:
            self.held = renewed(self.held, [HOST], self.now, Lifetimes())
            return self.held

    def turn(self) -> None:
        with self._one:
            self.now += datetime.timedelta(seconds=1)
            self.held = {name: pem for name, pem in self.held.items() if name != "webhook.crt"}


@contextlib.asynccontextmanager
async def running(
    authority: Authority, policy_of: Callable[[str], Policy] = lambda _: POLICY
) -> AsyncIterator[tuple[str, Serving]]:
    """(its URL, the server)."""
    serving = Serving(Webhook(policy_of), authority.ensure)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ended, up = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(serving.run("127.0.0.1", port, ended, lambda _: up.set()))
    await up.wait()
    try:
        yield f"https://localhost:{port}", serving
    finally:
        ended.set()
        await task


def trusting(authority: Authority) -> aiohttp.ClientSession:
    """A session of which each request is a connection of its own, as after a rotation the API server's are."""
    context = ssl.create_default_context(cadata=authority.held[AUTHORITY].decode())
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context, force_close=True))


def review(given: Object, namespace: str = "vision") -> Object:
    request = {"uid": "r-1", "object": given, "namespace": namespace, "userInfo": {"username": "ada"}}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


async def asked(url: str, authority: Authority, body: Any) -> tuple[int, Object]:
    async with trusting(authority) as session, session.post(f"{url}/mutate", data=body) as answer:
        return answer.status, json.loads(await answer.read()) if answer.status == 200 else {}


def ask(body: Any, policy_of: Callable[[str], Policy] = lambda _: POLICY) -> tuple[int, Object, str]:
    """(status, the review's response, the metrics after it)."""

    async def all_of_it() -> tuple[int, Object, str]:
        authority = Authority()
        async with running(authority, policy_of) as (url, serving):
            status, answer = await asked(url, authority, body)
            return status, answer.get("response", {}), serving.webhook.metrics.exposition().decode()

    return asyncio.run(all_of_it())


def test_the_patch_makes_the_pod_what_mutate_says() -> None:
    given = pod()
    status, response, metrics = ask(json.dumps(review(given)))
    assert (status, response["uid"], response["allowed"], response["patchType"]) == (200, "r-1", True, "JSONPatch")
    patch = json.loads(base64.b64decode(response["patch"]))
    assert jsonpatch.apply_patch(given, patch) == mutate(given, POLICY, Admission("vision", "ada"))
    assert 'stitchfleet_webhook_admissions_total{outcome="injected"} 1.0' in metrics


def test_whoever_creates_a_pod_that_is_left_alone_is_told_why() -> None:
    _, response, metrics = ask(json.dumps(review(pod(os={"name": "windows"}))))
    assert response["warnings"] == [
        "stitchfleet: not injected: the pod is for windows; there is a payload for Linux only"
    ]
    assert 'outcome="left_alone"} 1.0' in metrics


def test_a_pod_that_was_injected_before_gets_no_patch() -> None:
    _, response, metrics = ask(json.dumps(review(mutate(pod(), POLICY))))
    assert "patch" not in response
    assert 'outcome="unchanged"} 1.0' in metrics


@pytest.mark.parametrize("broken", [{"spec": {}}, {"metadata": 5, "spec": {"containers": [5]}}, "text", None])
def test_a_failure_of_ours_admits_the_pod_as_it_is_and_is_counted(broken: Any) -> None:
    status, response, metrics = ask(json.dumps(review(broken)))
    assert (status, response) == (200, {"uid": "r-1", "allowed": True})
    assert 'outcome="error"} 1.0' in metrics


def test_a_policy_that_cannot_be_had_admits_the_pod_as_it_is() -> None:
    def fail(_: str) -> Policy:
        raise RuntimeError("no policy")

    assert ask(json.dumps(review(pod())), fail)[1] == {"uid": "r-1", "allowed": True}


@pytest.mark.parametrize("body", ["", "{", "[]", "{}", '{"request": {}}', "[" * 100_000])
def test_what_is_no_review_is_refused(body: str) -> None:
    assert ask(body)[0] == 400


def test_a_large_pod_is_injected_and_one_that_could_become_too_large_is_left_as_it_is() -> None:
    def huge(entries: int) -> Object:
        return pod(container(env=[{"name": f"V{number}", "value": "x" * 1000} for number in range(entries)]))

    status, response, _ = ask(json.dumps(review(huge(1350))))
    assert status == 200
    assert "patch" in response
    status, response, metrics = ask(json.dumps(review(huge(1500))))
    assert (status, response["allowed"]) == (200, True)
    assert "patch" not in response
    assert "so large" in response["warnings"][0]
    assert 'outcome="left_alone"} 1.0' in metrics
    assert len(json.dumps(review(huge(1500)))) < server_module.MAX_BODY_BYTES


def test_certificates_turn_while_requests_come_and_none_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_module, "LOOK_SECONDS", 0.02)

    async def all_of_it() -> set[bytes]:
        authority, seen = Authority(), set()
        async with running(authority) as (url, _):
            port = int(url.rpartition(":")[2])
            for number in range(120):
                if number % 20 == 10:
                    authority.turn()
                    await asyncio.sleep(0.05)
                status, answer = await asked(url, authority, json.dumps(review(pod())))
                assert status == 200
                assert "patch" in answer["response"]
                seen.add(await served(port))
        return seen

    assert len(asyncio.run(all_of_it())) >= 4


async def served(port: int) -> bytes:
    """The certificate that a new connection is shown."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return bytes(found)


def test_an_api_server_that_is_away_leaves_what_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_module, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(serving_module, "RETRY_SECONDS", 0.01)

    async def all_of_it() -> str:
        authority = Authority()
        async with running(authority) as (url, serving):
            authority.fails = True
            await asyncio.sleep(0.1)
            status, answer = await asked(url, authority, json.dumps(review(pod())))
            assert status == 200
            assert names.INJECTED in base64.b64decode(answer["response"]["patch"]).decode()
            return serving.webhook.metrics.exposition().decode()

    metrics = asyncio.run(all_of_it())
    failures = next(
        line for line in metrics.splitlines() if line.startswith("stitchfleet_webhook_certificate_failures_total ")
    )
    assert float(failures.split()[1]) >= 1


def test_health_readiness_and_metrics_have_pages() -> None:
    async def all_of_it() -> list[int]:
        authority = Authority()
        async with running(authority) as (url, serving), trusting(authority) as session:
            found = []
            for page in ("healthz", "readyz", "metrics"):
                async with session.get(f"{url}/{page}") as answer:
                    found.append(answer.status)
            serving.webhook.not_ready = "not yet"
            async with session.get(f"{url}/readyz") as answer:
                found.append(answer.status)
            return found

    assert asyncio.run(all_of_it()) == [200, 200, 200, 503]


def test_certificates_that_somebody_else_keeps_are_read_from_their_volume(tmp_path: Path) -> None:
    held = renewed({}, [HOST], datetime.datetime.now(datetime.timezone.utc), Lifetimes())
    with pytest.raises(OSError, match=r"webhook\.crt"):
        certificates_in(tmp_path)
    for name in ("webhook.crt", "webhook.key", AUTHORITY):
        (tmp_path / name).write_bytes(held[name])

    async def scenario() -> None:
        authority = Authority()
        authority.held = held
        authority.ensure = functools.partial(certificates_in, tmp_path)  # type: ignore[method-assign]
        async with running(authority) as (url, serving), trusting(authority) as session:
            assert (await session.get(f"{url}/readyz")).status == 200
            assert serving.authority == held[AUTHORITY].decode()

    asyncio.run(scenario())
