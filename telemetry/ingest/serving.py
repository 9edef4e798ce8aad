"""The fleet's ingest server: takes batches of segments over HTTP (see wire) and stores them in the database.

A batch is answered after it is committed. What the server cannot take now it refuses, and the sender keeps it: 429 if there is too
much at once, 503 if the database does not answer, each with Retry-After. Everything that a sender may send has a bound
(docs/limits.md), and each caller has a share. A few threads decompress, read and write batches; the event loop itself parses
nothing and never blocks.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import json
import logging
import ssl
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import sqlalchemy as sa
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from ..database import access, partitions
from ..database.errors import DatabaseError, SchemaError
from ..pod import wire
from ..pod.recording import DAY_NS
from . import connections, openapi, report_pages
from .api_server import ReviewerError
from .authentication import Caller, RefusedError, StaticTokens, TokenReviewer
from .connections import Connections
from .metrics import Metrics, Written
from .receiving import ForbiddenError, receive_body
from .report_pages import ReportPages
from .shares import Shares, Turns

RETRY_SECONDS = 5
"""Seconds in the header Retry-After of a refusal; senders add a random delay of their own."""
BODY_SECONDS = 60.0
"""Time limit for receiving a body: one that never arrives would hold its room forever."""
WORK_SECONDS = 30.0
"""Longest time that a batch waits for the memory in which it is decompressed and read."""
PROBE_SECONDS = 2.0
"""How long an answer of /readyz is cached."""
WATCH_SECONDS = 15.0
"""How often the database is checked if nobody asks /readyz: the metric that shows if it is up must not be older."""
PARTITION_SECONDS = 3600.0
SHUTDOWN_SECONDS = 25.0
"""How long batches in progress may take after SIGTERM; Kubernetes kills after 30 s."""
SAID_AGAIN_SECONDS = 60.0
"""A persistent problem is logged once in this many seconds."""

_NEVER = (float("-inf"), "")
"""Time of the last check of the database, and why it cannot be used: no check has been made yet."""


@dataclass(frozen=True)
class Limits:
    """What the server holds at once. pending_requests: batches that wait or are processed. writers: threads that write to the
    database (one on SQLite). connections: open sockets."""

    body_bytes: int = wire.MAX_BODY_BYTES
    """Bytes of one body, before and after decompression."""
    pending_bytes: int = 96 << 20
    """Bytes of all pending bodies together, as they were sent."""
    pending_requests: int = 256
    work_bytes: int = 64 << 20
    """Bytes of the bodies that are being read and written together, decompressed."""
    writers: int = 4
    connections: int = 1024
    processes_a_day: int = 200_000
    """Processes that one namespace may register per day, in each server: every process is a row that reports read."""


class RefusalError(Exception):
    """An answer to a batch other than success. status: of HTTP. reason: one of metrics.REJECTIONS. retry: whether the answer has
    Retry-After."""

    def __init__(self, status: int, reason: str, text: str, retry: bool = False) -> None:
        super().__init__(text)
        self.status, self.reason, self.retry = status, reason, retry


class Ingest:
    """The server's state and its handlers. All methods but `say_once` are for the event loop's thread."""

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
        self.pages: ReportPages | None = None
        """Report pages for people; None if their tokens cannot be reviewed."""
        # SQLite has one writer at a time: more threads would only wait for its lock
        writers = 1 if engine.dialect.name == "sqlite" else limits.writers
        self._writers = concurrent.futures.ThreadPoolExecutor(writers, "stitchfleet-ingest")
        self._prober = concurrent.futures.ThreadPoolExecutor(1, "stitchfleet-probe")
        self._unpacker = concurrent.futures.ThreadPoolExecutor(1, "stitchfleet-unpack")
        self._shares = Shares(limits.pending_requests, limits.pending_bytes)
        self._turns = Turns(limits.work_bytes, writers, WORK_SECONDS)
        self.connections = Connections(limits.connections, lambda why: self.metrics.closed.labels(why).inc())
        self._probed = _NEVER
        self._said: dict[str, float] = {}
        self._counting = threading.Lock()
        self._registered: Counter[str] = Counter()
        """Number of processes registered on a day, by caller."""
        self._registered_on = 0
        self._tasks: list[asyncio.Task[None]] = []

    def application(self) -> web.Application:
        """The aiohttp application with all routes."""
        app = web.Application(middlewares=[self.connections.middleware])
        app.router.add_post(wire.PATH, self.take)
        app.router.add_get("/healthz", self.healthz)
        app.router.add_get("/readyz", self.readyz)
        app.router.add_get("/metrics", self.prometheus)
        app.router.add_get("/openapi.json", self.describe)
        if self.pages is not None:
            app.router.add_get(report_pages.PATH, self.pages.show)
        app.on_startup.append(self._start)
        app.on_shutdown.append(self._drain)
        app.on_cleanup.append(self._stop)
        return app

    # ---- batches ----------------------------------------------------------------------------------------------------------------

    async def take(self, request: web.Request) -> web.Response:
        """Handles a posted batch. Answers 200 with a receipt per segment as soon as it is committed, or one of metrics.CODES with
        an error as JSON."""
        try:
            answer = await self._take(request)
        except RefusalError as refusal:
            self.metrics.rejections.labels(refusal.reason).inc()
            headers = {"Retry-After": str(RETRY_SECONDS)} if refusal.retry else {}
            answer = web.json_response({"error": str(refusal)}, status=refusal.status, headers=headers)
            if not request.content.at_eof():
                answer.force_close()  # do not wait for the rest of the body
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
        encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in ("identity", "gzip", ""):
            raise RefusalError(415, "malformed", "a body must be uncompressed, or compressed by gzip")
        # before anything is held for the request: a sender without a token delays nobody
        caller = await self._authenticate(request)
        whose = caller.name if caller.namespace is None else f"namespace {caller.namespace}"
        if self._registered_on == self.now_ns() // DAY_NS and self._registered[whose] >= self.limits.processes_a_day:
            raise RefusalError(429, "quota", "too many processes were registered today", retry=True)
        self._admit(whose, 1, announced or 0)
        held = [announced or 0]
        try:
            body = await asyncio.wait_for(self._read(request, whose, held), BODY_SECONDS)
            return await self._write(body, encoding == "gzip", whose, caller)
        except asyncio.TimeoutError:
            raise RefusalError(408, "slow", f"the body did not arrive within {BODY_SECONDS:.0f} s") from None
        finally:
            self._hold(whose, -1, -held[0])

    async def _read(self, request: web.Request, whose: str, held: list[int]) -> bytearray:
        """The body as it was sent. held[0]: bytes of room that it holds."""
        body = bytearray()
        try:
            async for chunk in request.content.iter_any():
                length = len(body) + len(chunk)
                if length > self.limits.body_bytes:
                    raise self._too_large(length)
                if length > held[0]:
                    # its length is not known: it is counted as it arrives
                    self._admit(whose, 0, length - held[0])
                    held[0] = length
                body += chunk
        except (web.RequestPayloadError, ConnectionError, ValueError) as error:
            raise RefusalError(400, "malformed", f"the body cannot be read: {type(error).__name__}") from None
        return body

    def _admit(self, whose: str, requests: int, size: int) -> None:
        """Reserves room for a request. Raises RefusalError if there is none, or none for this caller."""
        if not self._shares.admits(whose, requests, size):
            raise RefusalError(429, "busy", "too much is being written already", retry=True)
        self._hold(whose, requests, size)

    def _hold(self, whose: str, requests: int, size: int) -> None:
        self._shares.hold(whose, requests, size)
        self.metrics.pending.set(self._shares.used[0])
        self.metrics.pending_bytes.set(self._shares.used[1])

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

    async def _write(self, body: bytearray, is_packed: bool, whose: str, caller: Caller) -> web.Response:
        loop = asyncio.get_running_loop()
        started = time.monotonic()
        whole: bytes | bytearray = body
        try:
            async with self._turns.turn(whose, self.limits.body_bytes if is_packed else len(body)) as turn:
                if is_packed:
                    # one at a time: its size is not known until it is decompressed
                    whole = await loop.run_in_executor(self._unpacker, wire.decompressed, body, self.limits.body_bytes)
                    turn.shrink(len(whole))
                self.metrics.body_bytes.inc(len(whole))
                work = loop.run_in_executor(
                    self._writers,
                    receive_body,
                    self.engine,
                    whole,
                    caller,
                    functools.partial(self._book, whose),
                    self.now_ns,
                )
                # a sender that disconnects does not stop a write halfway: a write that began is committed
                answer = await asyncio.shield(work)
        except asyncio.TimeoutError:
            raise RefusalError(429, "busy", "too much is being written already", retry=True) from None
        except wire.TooLargeError as error:
            raise RefusalError(413, "too_large", str(error)) from None
        except wire.WireError as error:
            raise RefusalError(400, "malformed", str(error)) from None
        except ForbiddenError as error:
            raise RefusalError(403, "forbidden", str(error)) from None
        except (sa.exc.SQLAlchemyError, MemoryError) as error:
            self.metrics.database_up.set(0)
            self._probed = _NEVER  # the last check is no longer valid
            self.say_once(f"the database cannot be written to: {access.reason(error)}")
            raise RefusalError(503, "database", "the database cannot be written to", retry=True) from None
        self.metrics.database_up.set(1)
        self.metrics.write_seconds.observe(time.monotonic() - started)
        return web.Response(body=answer, content_type="application/json")

    def _book(self, whose: str, written: Written) -> None:
        """Books what was committed, on the writer's thread."""
        self.metrics.book(written)
        if written.registered:
            today = self.now_ns() // DAY_NS
            with self._counting:
                if today != self._registered_on:
                    self._registered_on, self._registered = today, Counter()
                self._registered[whose] += written.registered

    def say_once(self, text: str) -> None:
        """Logs a line that is not for callers; logs the same line again only after SAID_AGAIN_SECONDS. Any thread may call it."""
        now = time.monotonic()
        self._said = {line: at for line, at in self._said.items() if now - at < SAID_AGAIN_SECONDS}
        if text not in self._said:
            self._said[text] = now
            print(f"stitchfleet ingest: {text}", file=sys.stderr, flush=True)

    # ---- health -----------------------------------------------------------------------------------------------------------------

    async def healthz(self, _request: web.Request) -> web.Response:
        """Answers 200: the event loop runs. A database that is down is no reason to restart the process."""
        return web.Response(text="ok\n")

    async def readyz(self, _request: web.Request) -> web.Response:
        """Answers 200 if batches can be taken, else 503 with the reason."""
        why = "shutting down" if self.draining else await self._probe()
        return web.Response(text=f"{why or 'ok'}\n", status=503 if why else 200)

    async def _probe(self) -> str:
        """Why the database cannot be used; "" if it can."""
        at, why = self._probed
        if time.monotonic() - at >= PROBE_SECONDS:
            work = asyncio.get_running_loop().run_in_executor(self._prober, self._check)
            # not wait_for: before Python 3.12 it loses a cancel that arrives as the work ends, and the server never ends
            done, _ = await asyncio.wait({work}, timeout=2 * access.CONNECT_SECONDS)
            why = work.result() if done else "the database does not answer"
            self._probed = (time.monotonic(), why)
            self.metrics.database_up.set(0 if why else 1)
        return why

    def _check(self) -> str:
        """Why the database cannot be used, as callers may know it; details go to the log."""
        try:
            with self.engine.connect() as connection:
                access.check(connection)
                partitions.check_rights(connection)
        except SchemaError as error:
            self.say_once(str(error))
            return str(error)
        except (DatabaseError, sa.exc.SQLAlchemyError) as error:
            self.say_once(f"the database cannot be used: {access.reason(error)}")
            return "the database cannot be used; the server's log says why"
        return ""

    async def prometheus(self, _request: web.Request) -> web.Response:
        """Answers 200 with the metrics in Prometheus' text format."""
        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=self.metrics.exposition(), headers=headers)

    async def describe(self, _request: web.Request) -> web.Response:
        """Answers 200 with the OpenAPI description of the interface, as JSON."""
        return web.Response(body=_description(), content_type="application/json")

    # ---- life -------------------------------------------------------------------------------------------------------------------

    async def _start(self, _app: web.Application) -> None:
        forever = (self._keep_partitions(), self._watch_database(), self.connections.watch())
        self._tasks = [asyncio.create_task(each) for each in forever]

    async def _keep_partitions(self) -> None:
        """Makes the next days' partitions, once an hour; otherwise the first rows of a day make its own."""
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
            with access.writing(self.engine) as connection:
                access.check(connection)
                partitions.ensure_ahead(connection, self.now_ns() // DAY_NS)
        except (DatabaseError, sa.exc.SQLAlchemyError) as error:
            self.say_once(f"the next days' partitions cannot be made: {access.reason(error)}")

    async def _drain(self, _app: web.Application) -> None:
        self.draining = True

    async def _stop(self, _app: web.Application) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.reviewer is not None:
            await self.reviewer.close()
        if self.pages is not None:
            await self.pages.close()
        self._unpacker.shutdown(wait=False, cancel_futures=True)
        await asyncio.get_running_loop().run_in_executor(None, self._writers.shutdown)
        self._prober.shutdown(wait=False, cancel_futures=True)
        self.engine.dispose()


@functools.cache
def _description() -> bytes:
    return json.dumps(openapi.description()).encode()


class _Log(logging.Handler):
    """The HTTP library's log. Malformed requests are not logged, and their text, which may hold a token, never is."""

    def __init__(self, ingest: Ingest) -> None:
        super().__init__()
        self.ingest = ingest

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            self.ingest.metrics.rejections.labels("malformed").inc()
        elif error is not None:
            self.ingest.say_once("".join(traceback.format_exception(type(error), error, error.__traceback__)).rstrip())
        else:
            self.ingest.say_once(record.getMessage())


def _logger(ingest: Ingest) -> logging.Logger:
    """A logger for this server only."""
    found = logging.Logger("stitchfleet.ingest", logging.WARNING)
    found.addHandler(_Log(ingest))
    return found


async def serve(
    ingest: Ingest,
    host: str,
    port: int,
    tls: ssl.SSLContext | None,
    ended: asyncio.Event,
    ready: Callable[[int], None],
) -> None:
    """Serves until `ended` is set, then finishes what is in progress. Calls `ready` with the port, which the system chooses if
    `port` is 0.

    Raises OSError if the address cannot be bound.
    """
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(
        lambda _loop, context: ingest.say_once(str(context.get("exception") or context["message"]))
    )
    # our own threads decompress, with a bound of their own
    runner = web.AppRunner(
        ingest.application(),
        access_log=None,
        auto_decompress=False,
        keepalive_timeout=connections.IDLE_SECONDS,
        shutdown_timeout=SHUTDOWN_SECONDS,
        logger=_logger(ingest),
    )
    await runner.setup()
    listener = None
    try:
        assert runner.server is not None
        listener = await loop.create_server(
            ingest.connections.factory(runner.server),
            host,
            port,
            ssl=tls,
            ssl_handshake_timeout=connections.HANDSHAKE_SECONDS if tls is not None else None,
            backlog=connections.BACKLOG,
        )
        ready(listener.sockets[0].getsockname()[1])
        await ended.wait()
        ingest.draining = True
    finally:
        if listener is not None:
            listener.close()
        await runner.cleanup()
