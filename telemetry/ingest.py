"""The fleet's ingest server: batches of segments over HTTP (see wire) into the database.

A batch is answered when it is committed. What the server cannot take now it refuses, and the sender keeps: too much at once with 429,
a database that does not answer with 503, each with Retry-After. Bodies are bounded before they are read. Batches are written by a
few threads; the event loop itself never waits for the database.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass

import sqlalchemy as sa
from aiohttp import web

from . import database, openapi, partitions, wire
from .authentication import Caller, RefusedError, ReviewerError, StaticTokens, TokenReviewer
from .database import DatabaseError
from .metrics import Metrics
from .receiving import ForbiddenError, receive
from .recording import DAY_NS

RETRY_SECONDS = 5
"""Retry-After of a refusal; senders add jitter of their own."""
BODY_SECONDS = 60.0
"""How long a body may take: one that never comes would hold its room for ever."""
PROBE_SECONDS = 2.0
"""How long an answer of /readyz holds."""
WATCH_SECONDS = 15.0
"""How often the database is asked where nobody asks /readyz: the metric that says whether it is up must not be older."""
PARTITION_SECONDS = 3600.0
SHUTDOWN_SECONDS = 25.0
"""How long batches under way may take after SIGTERM; Kubernetes kills 30 s after it."""

_NEVER = (float("-inf"), "")
"""When the database was asked last, and why it cannot be used: as nobody has asked yet."""


@dataclass(frozen=True)
class Limits:
    """What the server holds at once."""

    body_bytes: int = wire.MAX_BODY_BYTES
    pending_bytes: int = 256 << 20
    pending_requests: int = 256
    writers: int = 4


class RefusalError(Exception):
    """An answer that is no success. `reason` is one of metrics.REJECTIONS."""

    def __init__(self, status: int, reason: str, text: str, retry: bool = False) -> None:
        super().__init__(text)
        self.status, self.reason, self.retry = status, reason, retry


class Ingest:
    """The server's state and its handlers."""

    def __init__(
        self,
        engine: sa.Engine,
        tokens: StaticTokens | None,
        reviewer: TokenReviewer | None,
        limits: Limits = Limits(),
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.engine, self.tokens, self.reviewer, self.limits, self.now_ns = engine, tokens, reviewer, limits, now_ns
        self.metrics = Metrics()
        self.metrics.pending_limit.set(limits.pending_requests)
        self.metrics.pending_bytes_limit.set(limits.pending_bytes)
        self.draining = False
        # SQLite has one writer at a time: more threads would only wait for its lock
        writers = 1 if engine.dialect.name == "sqlite" else limits.writers
        self._writers = concurrent.futures.ThreadPoolExecutor(writers, "stitchfleet-ingest")
        self._prober = concurrent.futures.ThreadPoolExecutor(1, "stitchfleet-probe")
        self._pending_requests = self._pending_bytes = 0
        self._probed = _NEVER
        self._tasks: list[asyncio.Task[None]] = []

    def application(self) -> web.Application:
        app = web.Application(client_max_size=self.limits.body_bytes)
        app.router.add_post(wire.PATH, self.take)
        app.router.add_get("/healthz", self.healthz)
        app.router.add_get("/readyz", self.readyz)
        app.router.add_get("/metrics", self.prometheus)
        app.router.add_get("/openapi.json", self.describe)
        app.on_startup.append(self._start)
        app.on_shutdown.append(self._drain)
        app.on_cleanup.append(self._stop)
        return app

    # ---- batches ----------------------------------------------------------------------------------------------------------------

    async def take(self, request: web.Request) -> web.Response:
        """POST of a batch."""
        try:
            answer = await self._take(request)
        except RefusalError as refusal:
            self.metrics.rejections.labels(refusal.reason).inc()
            headers = {"Retry-After": str(RETRY_SECONDS)} if refusal.retry else {}
            answer = web.json_response({"error": str(refusal)}, status=refusal.status, headers=headers)
            if not request.content.at_eof():
                answer.force_close()  # the rest of the body is not waited for
        except Exception:
            self.metrics.requests.labels("500").inc()
            raise
        self.metrics.requests.labels(str(answer.status)).inc()
        return answer

    async def _take(self, request: web.Request) -> web.Response:
        if self.draining:
            raise RefusalError(503, "draining", "the server is shutting down", retry=True)
        announced = request.content_length
        if announced is not None and announced > self.limits.body_bytes:
            raise self._too_large(announced)
        # before anything is held for it: who has no token holds up nobody
        caller = await self._authenticate(request)
        # a body of unknown length counts as the longest
        weight = announced if announced is not None else self.limits.body_bytes
        if (
            self._pending_requests >= self.limits.pending_requests
            or self._pending_bytes + weight > self.limits.pending_bytes
        ):
            raise RefusalError(429, "busy", "as much as may be is being written already", retry=True)
        self._hold(1, weight)
        try:
            body = await self._body(request)
            return await self._write(body, caller)
        finally:
            self._hold(-1, -weight)

    def _hold(self, requests: int, size: int) -> None:
        self._pending_requests += requests
        self._pending_bytes += size
        self.metrics.pending.set(self._pending_requests)
        self.metrics.pending_bytes.set(self._pending_bytes)

    def _too_large(self, size: int) -> RefusalError:
        return RefusalError(413, "too_large", f"the body has {size} bytes; at most {self.limits.body_bytes} are taken")

    async def _authenticate(self, request: web.Request) -> Caller:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise RefusalError(401, "token_missing", "Authorization: Bearer TOKEN is needed")
        caller = self.tokens.caller(token.strip()) if self.tokens is not None else None
        if caller is not None:
            return caller
        if self.reviewer is None:
            raise RefusalError(401, "token_refused", "the token is not known")
        try:
            return await self.reviewer.caller(token.strip())
        except RefusedError as error:
            raise RefusalError(401, "token_refused", str(error)) from None
        except ReviewerError as error:
            raise RefusalError(503, "reviewer_unavailable", str(error), retry=True) from None

    async def _body(self, request: web.Request) -> bytes:
        try:
            body = await asyncio.wait_for(request.read(), BODY_SECONDS)
        except asyncio.TimeoutError:
            raise RefusalError(408, "slow", f"the body did not come within {BODY_SECONDS:.0f} s") from None
        except web.HTTPRequestEntityTooLarge as error:
            raise RefusalError(413, "too_large", error.text or "the body is too large") from None
        except (web.RequestPayloadError, ValueError) as error:
            raise RefusalError(400, "malformed", f"the body cannot be read: {error}") from None
        self.metrics.body_bytes.inc(len(body))
        return body

    async def _write(self, body: bytes, caller: Caller) -> web.Response:
        try:
            segments = wire.decode(body)
        except wire.WireError as error:
            raise RefusalError(400, "malformed", str(error)) from None
        started = time.monotonic()
        work = asyncio.get_running_loop().run_in_executor(
            self._writers, receive, self.engine, segments, caller, self.metrics.book, self.now_ns
        )
        try:
            # a sender that goes away does not stop a write half-way: what it began is committed
            receipts = await asyncio.shield(work)
        except ForbiddenError as error:
            raise RefusalError(403, "forbidden", str(error)) from None
        except sa.exc.SQLAlchemyError as error:
            self.metrics.database_up.set(0)
            self._probed = _NEVER  # what it said before does not hold any more
            why = f"the database cannot be written to: {database.reason(error)}"
            raise RefusalError(503, "database", why, retry=True) from None
        self.metrics.database_up.set(1)
        self.metrics.write_seconds.observe(time.monotonic() - started)
        return web.json_response({"segments": [receipt.to_json() for receipt in receipts]})

    # ---- health -----------------------------------------------------------------------------------------------------------------

    async def healthz(self, _request: web.Request) -> web.Response:
        """The process lives and its event loop runs; a database that is away is no reason to restart it."""
        return web.Response(text="ok\n")

    async def readyz(self, _request: web.Request) -> web.Response:
        """Whether batches can be taken."""
        why = "shutting down" if self.draining else await self._probe()
        return web.Response(text=f"{why or 'ok'}\n", status=503 if why else 200)

    async def _probe(self) -> str:
        """Why the database cannot be used; empty where it can."""
        at, why = self._probed
        if time.monotonic() - at >= PROBE_SECONDS:
            work = asyncio.get_running_loop().run_in_executor(self._prober, self._check)
            try:
                why = await asyncio.wait_for(asyncio.shield(work), 2 * database.CONNECT_SECONDS)
            except asyncio.TimeoutError:
                why = "the database does not answer"
            self._probed = (time.monotonic(), why)
            self.metrics.database_up.set(0 if why else 1)
        return why

    def _check(self) -> str:
        try:
            with self.engine.connect() as connection:
                database.check(connection)
        except DatabaseError as error:
            return str(error)
        except sa.exc.SQLAlchemyError as error:
            return f"the database cannot be used: {database.reason(error)}"
        return ""

    async def prometheus(self, _request: web.Request) -> web.Response:
        """The metrics."""
        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=self.metrics.exposition(), headers=headers)

    async def describe(self, _request: web.Request) -> web.Response:
        """The interface."""
        return web.json_response(openapi.description())

    # ---- life -------------------------------------------------------------------------------------------------------------------

    async def _start(self, _app: web.Application) -> None:
        self._tasks = [asyncio.create_task(self._keep_partitions()), asyncio.create_task(self._watch_database())]

    async def _keep_partitions(self) -> None:
        """Makes the next days' partitions, now and then; without it the first rows of a day make its own."""
        loop = asyncio.get_running_loop()
        while True:
            await loop.run_in_executor(self._prober, self._make_partitions)
            await asyncio.sleep(PARTITION_SECONDS)

    async def _watch_database(self) -> None:
        while True:
            await self._probe()
            await asyncio.sleep(WATCH_SECONDS)

    def _make_partitions(self) -> None:
        try:
            with database.writing(self.engine) as connection:
                database.check(connection)
                partitions.ensure_ahead(connection, self.now_ns() // DAY_NS)
        except (DatabaseError, sa.exc.SQLAlchemyError):
            pass  # /readyz says why, and the next round tries again

    async def _drain(self, _app: web.Application) -> None:
        self.draining = True

    async def _stop(self, _app: web.Application) -> None:
        for task in self._tasks:
            task.cancel()
        if self.reviewer is not None:
            await self.reviewer.close()
        await asyncio.get_running_loop().run_in_executor(None, self._writers.shutdown)
        self._prober.shutdown(wait=False, cancel_futures=True)
        self.engine.dispose()


async def serve(
    ingest: Ingest,
    host: str,
    port: int,
    tls: ssl.SSLContext | None,
    ended: asyncio.Event,
    ready: Callable[[int], None],
) -> None:
    """Serves until `ended` is set, then ends what is under way. Tells `ready` the port, which is chosen where it is 0.

    Raises OSError where the address cannot be had.
    """
    runner = web.AppRunner(ingest.application(), access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, ssl_context=tls)
        await site.start()
        ready(runner.addresses[0][1])
        await ended.wait()
        ingest.draining = True
    finally:
        await runner.cleanup()
