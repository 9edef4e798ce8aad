"""The weekly report over HTTP, for people: GET /reports/2026-W07, or one of its revisions with ?revision=1.

The request carries a token of the cluster, as kubectl sends it. The API server says whose it is (TokenReview) and whether that
person may `get` SavingsReports (SubjectAccessReview). Nothing else is needed: whoever may read the objects may read the page.

A page of a large fleet takes seconds of processor time. So pages are made one at a time, in a process of their own (document.py),
and are cached for a while; requests for the same page wait for the same work.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import sys
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from ..database.weeks import Week
from ..totals.weekly import RevisionError
from .api_server import ApiServer, ReviewerError

PATH = "/reports/{week}"
FORMATS = {"html": "text/html", "json": "application/json", "csv": "text/csv", "table": "text/plain"}
KEPT_SECONDS = 60.0
MOST_KEPT = 8
MOST_WAITING = 8
"""Most different pages that may wait to be made; beyond it the answer is 429."""
PERMISSION_SECONDS = 30.0
MOST_PERMISSIONS = 1000
MOST_ASKING = 16
"""Most questions to the API server at once."""
_RESOURCE = {"group": "stitchfleet.io", "resource": "savingsreports", "verb": "get"}
HEADERS = {
    "Cache-Control": "private, no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # the page loads nothing and runs nothing
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'",
}

MAKE_SECONDS = 120.0
_REVISION = re.compile(r"[1-9][0-9]{0,5}")
_Key = tuple[Week, str, "int | None"]
"""What a document is of: the week, the format, and the revision, or None for what the database holds now."""


class PageError(Exception):
    """A document could not be made; the text is for the log."""


class NoSuchRevisionError(Exception):
    """The week has no such revision; the text is for the caller."""


MakeReport = Callable[[Week, str, "int | None"], Awaitable[str]]
"""Makes the document of a week in one of FORMATS, as one of its revisions has it or, for None, as it is now. Raises PageError or
NoSuchRevisionError."""


def made_by_process(database_url: str) -> MakeReport:
    """Returns a function that makes documents from that database, each in a process of its own, for at most MAKE_SECONDS. The URL
    is passed in the environment, which no list of processes shows."""

    async def make(week: Week, format: str, revision: int | None) -> str:
        words = [str(week), format, *([] if revision is None else [str(revision)])]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "stitchfleet.telemetry.reports.document", *words),
            env={**os.environ, "STITCHFLEET_DATABASE": database_url},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        work = asyncio.ensure_future(process.communicate())
        try:
            # not wait_for: before Python 3.12 it may swallow the cancel with which the server ends
            done, _ = await asyncio.wait({work}, timeout=MAKE_SECONDS)
            if not done:
                raise PageError(f"a report was not made within {MAKE_SECONDS:.0f} s")
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await asyncio.wait({work})
        text, complaint = work.result()
        if process.returncode:
            said = complaint.decode(errors="replace").strip().splitlines() or [f"it ended with {process.returncode}"]
            if process.returncode == RevisionError.EXIT_STATUS:
                raise NoSuchRevisionError(said[-1][:300])
            raise PageError(f"a report could not be made: {said[-1][:300]}")
        return text.decode()

    return make


class Readers:
    """Decides who may read reports, by the API server. Answers are cached for PERMISSION_SECONDS."""

    def __init__(self, server: ApiServer, clock: Callable[[], float] = time.monotonic) -> None:
        self._server, self._clock = server, clock
        self._known: OrderedDict[tuple[bytes, str], tuple[float, str]] = OrderedDict()
        self._asking = 0

    async def why_not(self, token: str, name: str) -> str:
        """Why the owner of the token may not read the report of that name; "" if they may. Raises ReviewerError."""
        key = (hashlib.sha256(token.encode("utf-8", "replace")).digest(), name)
        until, known = self._known.get(key, (0.0, ""))
        if until > self._clock():
            return known
        if self._asking >= MOST_ASKING:
            raise ReviewerError("too many tokens are being asked about")
        self._asking += 1
        try:
            answer = await self._ask(token, name)
        finally:
            self._asking -= 1
        self._known[key] = (self._clock() + PERMISSION_SECONDS, answer)
        self._known.move_to_end(key)
        while len(self._known) > MOST_PERMISSIONS:
            self._known.popitem(last=False)
        return answer

    async def close(self) -> None:
        """Closes the connections to the API server."""
        await self._server.close()

    async def _ask(self, token: str, name: str) -> str:
        status = await self._server.review("authentication.k8s.io", "TokenReview", {"token": token})
        if not isinstance(status, dict) or not status.get("authenticated"):
            return "the API server does not know the token"
        user: dict[str, Any] = status.get("user") or {}
        spec = {
            "user": user.get("username", ""),
            "groups": user.get("groups") or [],
            "uid": user.get("uid", ""),
            "extra": user.get("extra") or {},
            "resourceAttributes": {**_RESOURCE, "name": name},
        }
        allowed = await self._server.review("authorization.k8s.io", "SubjectAccessReview", spec)
        if isinstance(allowed, dict) and allowed.get("allowed") is True:
            return ""
        return f"{user.get('username') or 'nobody'} may not get savingsreports.stitchfleet.io"


class ReportPages:
    """The handler of report pages. say: writes a line to the log."""

    def __init__(self, readers: Readers, make: MakeReport, say: Callable[[str], None]) -> None:
        self._readers, self._make, self._say = readers, make, say
        self._kept: OrderedDict[_Key, tuple[float, str]] = OrderedDict()
        self._making: dict[_Key, asyncio.Task[str]] = {}
        self._one = asyncio.Lock()

    async def show(self, request: web.Request) -> web.Response:
        """Handles GET PATH with the queries format (one of FORMATS) and revision (a number from 1 on). Answers 200 with the
        document, 400, 401, 403, 404 (no such revision), 429 or 503. Nothing is read from the database for callers who may not see
        it."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return _said(401, "Authorization: Bearer TOKEN is needed, a token of the cluster (kubectl create token)")
        text, format = request.match_info["week"], request.query.get("format", "html")
        try:
            week = Week.parse(text)
        except ValueError as error:
            return _said(400, str(error))
        if format not in FORMATS:
            return _said(400, f"format is one of {', '.join(FORMATS)}")
        number = request.query.get("revision")
        if number is not None and not _REVISION.fullmatch(number):
            return _said(400, "revision is a number from 1 on")
        try:
            if why_not := await self._readers.why_not(token.strip(), str(week).lower()):
                return _said(403, why_not)
            document = await self._document((week, format, None if number is None else int(number)))
        except ReviewerError as error:
            return _said(503, str(error), {"Retry-After": "10"})
        except NoSuchRevisionError as error:
            return _said(404, str(error))
        except PageError as error:
            self._say(str(error))
            return _said(503, "the report cannot be made; the server's log says why", {"Retry-After": "10"})
        if document is None:
            return _said(429, "too many reports are being made", {"Retry-After": "10"})
        return web.Response(text=document, content_type=FORMATS[format], charset="utf-8", headers=HEADERS)

    async def close(self) -> None:
        """Cancels the documents that are being made, and closes the connections to the API server."""
        making = list(self._making.values())
        for task in making:
            task.cancel()
        await asyncio.gather(*making, return_exceptions=True)
        await self._readers.close()

    async def _document(self, key: _Key) -> str | None:
        """The document, from the cache if it is there; None if too many wait. Raises PageError, NoSuchRevisionError."""
        until, kept = self._kept.get(key, (0.0, ""))
        if until > time.monotonic():
            return kept
        making = self._making.get(key)
        if making is None:
            if len(self._making) >= MOST_WAITING:
                return None
            making = self._making[key] = asyncio.create_task(self._in_turn(key))
            making.add_done_callback(lambda task: self._done(key, task))
        return await asyncio.shield(making)

    async def _in_turn(self, key: _Key) -> str:
        async with self._one:
            return await self._make(*key)

    def _done(self, key: _Key, task: asyncio.Task[str]) -> None:
        del self._making[key]
        if task.cancelled() or task.exception() is not None:
            return
        self._kept[key] = (time.monotonic() + KEPT_SECONDS, task.result())
        self._kept.move_to_end(key)
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)


def _said(status: int, text: str, headers: dict[str, str] | None = None) -> web.Response:
    more = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    return web.Response(status=status, text=f"{text}\n", headers={**HEADERS, **more, **(headers or {})})
