"""Latency of the admission webhook at its socket, in an open loop (`scripts/bench --admissions`).

The webhook runs in a separate process on one processor, the client on another. Reviews of a training pod are sent at fixed times,
whether or not earlier ones are answered; latency is measured from the time at which a review was due. Then a number of them is sent
at once. Client and server use TLS and keep connections, as the API server does.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import datetime
import json
import multiprocessing
import os
import pathlib
import resource
import socket
import ssl
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from typing import Any

import aiohttp

from stitchfleet.operator.cluster.certificates import AUTHORITY, Server, renewed
from stitchfleet.operator.policy.names import ENABLED, INJECTED
from stitchfleet.operator.policy.policy import Policy
from stitchfleet.operator.webhook.server import PATH, Webhook
from stitchfleet.operator.webhook.serving import Serving

RATE, SECONDS, AT_ONCE = 100.0, 20.0, 200
BOUND_MS = 50.0
"""Limit on the 99th percentile of the latency at RATE."""


@dataclass(frozen=True)
class Figures:
    """The figures of one load. injected: number of answers that inject the pod. processor_s, memory_mb: of the webhook's process so
    far."""

    what: str
    sent: int
    injected: int
    median_ms: float
    p99_ms: float
    most_ms: float
    processor_s: float
    memory_mb: float


def review(number: int) -> bytes:
    """The review of a training pod, as long as those of the API server."""
    resources = {"limits": {"memory": "8Gi", "nvidia.com/gpu": "1"}, "requests": {"cpu": "4", "memory": "8Gi"}}
    entries = [{"name": f"VARIABLE_{index}", "value": "x" * 40} for index in range(15)]
    words = ["python", "train.py", "--epochs", "7"]
    main = {"name": "main", "image": "example.org/training:3", "command": words, "resources": resources, "env": entries}
    fields: list[dict[str, Any]] = [{"f:metadata": {f"f:labels-{index}": {} for index in range(60)}}]
    metadata = {
        "generateName": f"train-{number}-",
        "namespace": "vision",
        "labels": {ENABLED: "true"},
        "managedFields": fields,
    }
    spec = {"containers": [main], "restartPolicy": "Never", "serviceAccountName": "default", "volumes": []}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    request = {"uid": f"review-{number}", "object": pod, "namespace": "vision", "userInfo": {"username": "ada"}}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def serve(port: int, certificates: dict[str, bytes], processor: int, pipe: Connection) -> None:
    """The main function of the webhook's process. Over the pipe it reports when it serves, and its use of processor and memory when
    asked."""
    os.sched_setaffinity(0, {processor})
    policy = Policy("example.org/payload:1", "prod", "https://ingest:8475", certificates[AUTHORITY].decode())
    serving = Serving(Webhook(lambda _: policy), lambda: certificates)

    async def all_of_it() -> None:
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()

        def answer() -> None:
            if pipe.recv() == "end":
                ended.set()
            else:
                used = resource.getrusage(resource.RUSAGE_SELF)
                pipe.send((used.ru_utime + used.ru_stime, used.ru_maxrss / 1024))

        loop.add_reader(pipe.fileno(), answer)
        await serving.run("127.0.0.1", port, ended, lambda _: pipe.send("ready"))

    asyncio.run(all_of_it())


async def send(session: aiohttp.ClientSession, url: str, due: float, body: bytes) -> tuple[float, bool]:
    """Sends a review when it is due. due: a time of time.perf_counter(), in seconds. Returns (seconds from then to the answer,
    whether the answer injects the pod)."""
    await asyncio.sleep(max(0.0, due - time.perf_counter()))
    async with session.post(url, data=body) as answered:
        answer: dict[str, Any] = json.loads(await answered.read())
    patch = base64.b64decode(answer["response"].get("patch", "")).decode()
    return time.perf_counter() - due, INJECTED.replace("/", "~1") in patch or INJECTED in patch


async def run(session: aiohttp.ClientSession, url: str, what: str, dues: Sequence[float], pipe: Connection) -> Figures:
    """Sends a review at each of `dues` (seconds from now), and returns the figures of this load, which is called `what`. pipe: to the
    webhook's process (`serve`)."""
    bodies = [review(number) for number in range(len(dues))]
    start = time.perf_counter() + 0.2
    found = await asyncio.gather(*(send(session, url, start + due, body) for due, body in zip(dues, bodies)))
    times = sorted(1e3 * seconds for seconds, _ in found)
    pipe.send("used")
    processor_s, memory_mb = pipe.recv()
    p99 = times[min(len(times) - 1, int(0.99 * len(times)))]
    injected = sum(is_injected for _, is_injected in found)
    return Figures(what, len(dues), injected, statistics.median(times), p99, times[-1], processor_s, memory_mb)


def measure(rate: float, seconds: float, at_once: int) -> list[Figures]:
    """The figures of the open loop (`rate` reviews per second for `seconds`), and of `at_once` reviews at once."""
    now = datetime.datetime.now(datetime.timezone.utc)
    certificates = renewed({}, [Server("webhook", ("localhost",))], now)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    mine, theirs = multiprocessing.Pipe()
    processors = sorted(os.sched_getaffinity(0))
    context = multiprocessing.get_context("spawn")
    child = context.Process(target=serve, args=(port, certificates, processors[0], theirs), daemon=True)
    child.start()
    try:
        assert mine.recv() == "ready"
        if len(processors) > 1:
            os.sched_setaffinity(0, set(processors[1:]))
        return asyncio.run(_all(certificates, f"https://localhost:{port}{PATH}", rate, seconds, at_once, mine))
    finally:
        os.sched_setaffinity(0, processors)
        mine.send("end")
        child.join(20)
        child.kill()


async def _all(
    certificates: dict[str, bytes], url: str, rate: float, seconds: float, at_once: int, pipe: Connection
) -> list[Figures]:
    trusted = ssl.create_default_context(cadata=certificates[AUTHORITY].decode())
    connector = aiohttp.TCPConnector(ssl=trusted, limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        await run(session, url, "warm-up", [number / rate for number in range(int(rate))], pipe)
        steady = await run(
            session, url, f"{rate:.0f} a second", [number / rate for number in range(int(rate * seconds))], pipe
        )
        return [steady, await run(session, url, f"{at_once} at once", [0.0] * at_once, pipe)]


def main(words: Sequence[str] = ()) -> int:
    """The command. Returns exit code 0; 1 if the bound is missed or a pod was not injected; 2 for a mistake on the command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench --admissions", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--rate", type=float, default=RATE, help=f"reviews per second (default {RATE:.0f})")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help=f"length of the open loop (default {SECONDS:.0f})"
    )
    parser.add_argument(
        "--at-once", type=int, default=AT_ONCE, metavar="N", help=f"reviews at once (default {AT_ONCE})"
    )
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the figures to FILE")
    arguments = parser.parse_args(list(words))
    found = measure(arguments.rate, arguments.seconds, arguments.at_once)
    print(
        f"{'reviews':>14} {'sent':>6} {'injected':>9} {'median':>9} {'p99':>9} {'most':>9} {'processor':>10} {'memory':>8}"
    )
    for each in found:
        print(
            f"{each.what:>14} {each.sent:>6} {each.injected:>9} {each.median_ms:>6.1f} ms {each.p99_ms:>6.1f} ms "
            f"{each.most_ms:>6.1f} ms {each.processor_s:>8.1f} s {each.memory_mb:>5.0f} MB"
        )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(each) for each in found], indent=2) + "\n")
    return 0 if found[0].p99_ms <= BOUND_MS and all(each.injected == each.sent for each in found) else 1
