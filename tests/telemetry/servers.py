"""Servers for tests: the ingest server on a thread of its own, a Prometheus that scrapes it, and one that answers TokenReviews as
Kubernetes' API server does."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import http.server
import json
import pathlib
import socket
import ssl
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from stitchfleet.telemetry.database import access
from stitchfleet.telemetry.ingest.authentication import StaticTokens, TokenReviewer
from stitchfleet.telemetry.ingest.report_pages import ReportPages
from stitchfleet.telemetry.ingest.serving import Ingest, Limits, serve
from stitchfleet.telemetry.pod import wire

TOKEN = "a-static-token"


@dataclass
class Served:
    """A running ingest server."""

    url: str
    ingest: Ingest

    def metrics(self) -> dict[str, float]:
        """Samples by name, labels' values joined to it by a dot."""
        text = request(self.url, "GET", "/metrics")[2].decode()
        return {
            ".".join((sample.name, *sample.labels.values())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }


@contextlib.contextmanager
def ingest_server(
    url: str,
    *,
    reviewer: TokenReviewer | None = None,
    tokens: str = TOKEN,
    limits: Limits | None = None,
    upgrade: bool = True,
    tls: ssl.SSLContext | None = None,
    pages: ReportPages | None = None,
    **more: Any,
) -> Iterator[Served]:
    engine = access.open_engine(url)
    if upgrade:
        access.upgrade(engine)
    ingest = Ingest(engine, StaticTokens(tokens), reviewer, limits or Limits(), **more)
    ingest.pages = pages
    started, ports, loops = threading.Event(), list[int](), list[asyncio.AbstractEventLoop]()
    ended = asyncio.Event()

    def ready(port: int) -> None:
        loops.append(asyncio.get_running_loop())
        ports.append(port)
        started.set()

    # as the program does: asyncio.run cancels what is pending at the end
    thread = threading.Thread(target=lambda: asyncio.run(serve(ingest, "127.0.0.1", 0, tls, ended, ready)))
    thread.start()
    assert started.wait(60)
    try:
        yield Served(f"http://127.0.0.1:{ports[0]}", ingest)
    finally:
        loops[0].call_soon_threadsafe(ended.set)
        thread.join(60)
        assert not thread.is_alive()
        engine.dispose()


def request(
    url: str, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
) -> tuple[int, Any, bytes]:
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=120)
    try:
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


def post(url: str, *segments: bytes, token: str = TOKEN, body: bytes | None = None, **headers: str) -> tuple[int, Any]:
    """Status and answer. Names of headers have _ for -."""
    whole = wire.encode(segments) if body is None else body
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    status, found, text = request(url, "POST", wire.PATH, whole, {"Authorization": f"Bearer {token}", **named})
    answer = json.loads(text)
    return status, {**answer, "retry_after": found.get("Retry-After")}


@dataclass
class Prometheus:
    """A Prometheus that scrapes an ingest server and evaluates rules, three times a second each."""

    url: str

    def get(self, path: str, **arguments: str) -> Any:
        """The `data` of an answer of its HTTP API; its error's text as an AssertionError."""
        _, _, text = request(self.url, "GET", f"/api/v1/{path}?{urllib.parse.urlencode(arguments)}")
        answer = json.loads(text)
        assert answer["status"] == "success", answer.get("error")
        return answer["data"]

    def ask(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Labels and values of an instant query."""
        found = self.get("query", query=expression)["result"]
        return [(series["metric"], float(series["value"][1])) for series in found]

    def wait_for(self, expression: str, done: Callable[[list[tuple[dict[str, str], float]]], object]) -> None:
        """Until the answer is as wanted, at most a minute."""
        for _ in range(300):
            if done(found := self.ask(expression)):
                return
            time.sleep(0.2)
        raise AssertionError(f"{expression} is {found}")


@contextlib.contextmanager
def prometheus(folder: pathlib.Path, ingest: str, rules: str = "") -> Iterator[Prometheus]:
    """`rules` is the text of a file of rules."""
    folder.mkdir(exist_ok=True)
    target = urllib.parse.urlsplit(ingest).netloc
    (folder / "rules.yml").write_text(rules or "groups: []")
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 300ms, evaluation_interval: 300ms}\nrule_files: [rules.yml]\n"
        f"scrape_configs: [{{job_name: ingest, static_configs: [{{targets: ['{target}']}}]}}]\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    words = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            ["prometheus", *words, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log, cwd=folder
        )
    found = Prometheus(f"http://127.0.0.1:{port}")
    try:
        for _ in range(300):
            assert process.poll() is None, (folder / "log").read_text()
            with contextlib.suppress(OSError):
                if request(found.url, "GET", "/-/ready")[0] == 200:
                    break
            time.sleep(0.2)
        found.wait_for("up", lambda up: [value for _, value in up] == [1.0])
        yield found
    finally:
        process.terminate()
        process.wait()


@dataclass
class ApiServer:
    """What a TokenReview of the API server answers: for each known token its status; for others, not authenticated."""

    url: str
    own_token: str
    statuses: dict[str, dict[str, Any]] = field(default_factory=dict)
    reviews: list[dict[str, Any]] = field(default_factory=list)
    failing: bool = False
    allowed: set[tuple[str, str, str, str]] = field(default_factory=set)
    """Of a SubjectAccessReview: (user, verb, resource, name)."""

    def add_person(self, token: str, name: str) -> str:
        """A token for the API server itself."""
        user = {"username": name, "uid": "7", "groups": ["system:authenticated"], "extra": {}}
        self.statuses[token] = {"authenticated": True, "user": user, "audiences": ["kubernetes"]}
        return token

    def add(self, token: str, *, namespace: str = "team", uid: str | None = "u-1", **changes: Any) -> str:
        """A projected token of a pod."""
        extra = {"authentication.kubernetes.io/pod-name": ["bert-1-x7k2p"]}
        if uid is not None:
            extra["authentication.kubernetes.io/pod-uid"] = [uid]
        user = {
            "username": f"system:serviceaccount:{namespace}:default",
            "uid": "5a1e",
            "groups": ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"],
            "extra": extra,
        }
        self.statuses[token] = {
            "authenticated": True, "user": user, "audiences": ["stitchfleet-ingest"], **changes,
        }  # fmt: skip
        return token


@contextlib.contextmanager
def api_server() -> Iterator[ApiServer]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            code, answer = self._answer(body)
            text = json.dumps(answer).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def _answer(self, review: dict[str, Any]) -> tuple[int, dict[str, Any]]:
            failure = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
            if found.failing:
                return 500, {**failure, "reason": "InternalError", "code": 500}
            if self.headers.get("Authorization") != f"Bearer {found.own_token}":
                return 401, {**failure, "reason": "Unauthorized", "code": 401}
            access = (
                "/apis/authorization.k8s.io/v1/subjectaccessreviews",
                "SubjectAccessReview",
                "authorization.k8s.io/v1",
            )
            if (self.path, review.get("kind"), review.get("apiVersion")) == access:
                found.reviews.append(review)
                asked_for = review["spec"]["resourceAttributes"]
                key = (review["spec"]["user"], asked_for["verb"], asked_for["resource"], asked_for["name"])
                return 201, {**review, "status": {"allowed": key in found.allowed}}
            expected = ("/apis/authentication.k8s.io/v1/tokenreviews", "TokenReview", "authentication.k8s.io/v1")
            if (self.path, review.get("kind"), review.get("apiVersion")) != expected:
                return 404, {**failure, "reason": "NotFound", "code": 404}
            found.reviews.append(review)
            unknown = {"user": {}, "error": "[invalid bearer token, service account token has expired]"}
            status = found.statuses.get(review["spec"]["token"], unknown)
            asked = review["spec"].get("audiences") or ["kubernetes"]
            if status.get("authenticated") and status.get("audiences") and not set(asked) & set(status["audiences"]):
                status = {"user": {}, "error": f"[invalid bearer token, token audiences {status['audiences']!r}]"}
            return 201, {**review, "metadata": {"creationTimestamp": None}, "status": status}

        def log_message(self, *words: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = ApiServer(f"http://127.0.0.1:{server.server_address[1]}", "the-ingest-servers-own")
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
