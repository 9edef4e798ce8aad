"""The server's connections: bounded in number, and none is kept open without a request.

A token is known only after a request's head has arrived, so a connection without a request costs little and is closed first: after
IDLE_SECONDS, or, if there are too many connections, the one that has waited longest makes room for the next.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web

IDLE_SECONDS = 20.0
"""How long a connection may be without a request: before the first head is complete, and between the start of an answer and the next
head."""
HANDSHAKE_SECONDS = 10.0
"""Time limit of a TLS handshake."""
LOOK_SECONDS = 1.0
SPARE_FILES = 192
"""File descriptors kept free of connections: for the database, certificates, connections that are being refused, and other files."""
BACKLOG = 64
"""Connections that the kernel queues until they are accepted."""


@dataclass(eq=False)
class _Connection:
    since: float
    """When it was accepted, or when its last request ended."""
    active: int = 0
    is_made: bool = False
    """It has passed its handshake; if it has no transport any more, it is gone."""


class _Refusal(asyncio.Protocol):
    """The protocol of a connection for which there is no room: closes it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


class Connections:
    """Counts the open connections, and closes idle ones."""

    def __init__(self, most: int, on_close: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        """most: connections at once; fewer if the process may open fewer files. on_close: called with the reason, "idle" or "full",
        if a connection is closed or refused. clock: in seconds."""
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.most = max(1, min(most, files - SPARE_FILES) if files > 0 else most)
        self._on_close, self._clock = on_close, clock
        self._known: dict[web.RequestHandler, _Connection] = {}

    def __len__(self) -> int:
        return len(self._known)

    def factory(self, server: web.Server) -> Callable[[], asyncio.Protocol]:
        """Returns a function that makes the protocol of each accepted connection."""

        def accept() -> asyncio.Protocol:
            if len(self._known) >= self.most and not self._makes_room():
                self._on_close("full")
                return _Refusal()
            made = server()
            self._known[made] = _Connection(self._clock())
            return made

        return accept

    @web.middleware
    async def middleware(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """The aiohttp middleware by which it knows which connections have a request."""
        known = self._known.get(request.protocol)
        if known is None:
            return await handler(request)
        known.active += 1
        known.is_made = True
        try:
            return await handler(request)
        finally:
            known.active -= 1
            known.since = self._clock()

    async def watch(self) -> None:
        """Closes idle connections every LOOK_SECONDS, until the task is cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.close_idle()

    def close_idle(self) -> None:
        """Closes the connections that have been without a request for IDLE_SECONDS."""
        self._forget_gone()
        now = self._clock()
        for protocol, known in list(self._known.items()):
            if protocol.transport is not None and not known.active and now - known.since > IDLE_SECONDS:
                self._close(protocol, "idle")

    def _forget_gone(self) -> None:
        now = self._clock()
        for protocol, known in list(self._known.items()):
            if protocol.transport is not None:
                known.is_made = True
            elif known.is_made or now - known.since > HANDSHAKE_SECONDS:
                del self._known[protocol]

    def _makes_room(self) -> bool:
        """Closes the connections that have waited longest, and returns whether there is room for one more.

        Connections of one burst can be closed only a moment later, so the number may exceed the bound by BACKLOG.
        """
        self._forget_gone()
        idle = sorted(
            (known.since, place, protocol)
            for place, (protocol, known) in enumerate(self._known.items())
            if not known.active and protocol.transport is not None
        )
        for _, _, protocol in idle[: max(0, len(self._known) - self.most + 1)]:
            self._close(protocol, "full")
        return len(self._known) < self.most + BACKLOG

    def _close(self, protocol: web.RequestHandler, why: str) -> None:
        del self._known[protocol]
        protocol.force_close()
        self._on_close(why)
