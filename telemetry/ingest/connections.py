"""The server's connections: bounded in number, and none is held open for nothing.

Who has a token is known only once a request's head is there, so that a connection without one costs little and gives way first: it is
closed after IDLE_SECONDS, and where there are too many, the one that has waited longest makes room for the next.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web

IDLE_SECONDS = 20.0
"""How long a connection may be without a request: before the first head is whole, and between an answer's beginning and the next
one."""
HANDSHAKE_SECONDS = 10.0
"""Of TLS."""
LOOK_SECONDS = 1.0
SPARE_FILES = 192
"""Of the limit of open files: for the database, certificates, connections that are just refused, and what else is none."""
BACKLOG = 64
"""Connections that the kernel holds until they are accepted, all at once."""


@dataclass(eq=False)
class _Connection:
    since: float
    """When it was made, or its last request was done with."""
    active: int = 0
    is_made: bool = False
    """It was seen beyond its handshake; without a transport it is gone, then."""


class _Refusal(asyncio.Protocol):
    """Of a connection for which there is no room."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


class Connections:
    """Counts and closes them."""

    def __init__(self, most: int, told: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        """most: at once; fewer where the process may open fewer files. told: is told why one is closed: "idle" or "full"."""
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.most = max(1, min(most, files - SPARE_FILES) if files > 0 else most)
        self._told, self._clock = told, clock
        self._known: dict[web.RequestHandler, _Connection] = {}

    def __len__(self) -> int:
        return len(self._known)

    def factory(self, server: web.Server) -> Callable[[], asyncio.Protocol]:
        """Makes the protocol of each connection that is accepted."""

        def accept() -> asyncio.Protocol:
            if len(self._known) >= self.most and not self._makes_room():
                self._told("full")
                return _Refusal()
            made = server()
            self._known[made] = _Connection(self._clock())
            return made

        return accept

    @web.middleware
    async def middleware(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Knows which connections have a request."""
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
        """Closes idle ones, for ever."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.close_idle()

    def close_idle(self) -> None:
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
        """Whether there is room for one more, once those that have waited longest have gone.

        Connections of one burst can be closed a moment later only: so many as the kernel holds at most may be there above the bound.
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
        self._told(why)
