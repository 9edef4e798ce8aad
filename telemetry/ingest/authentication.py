"""Who sends: a token that Kubernetes vouches for (TokenReview), or one from a file.

A projected service-account token names its namespace and, because it is bound to a pod, the pod's uid; its audience is bound to this
server, so that a token for something else opens nothing here. The API server is asked once for each token and CACHE_SECONDS.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import pathlib
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from .api_server import AUTHORITY, OWN_TOKEN, ApiServer, ReviewerError

AUDIENCE = "stitchfleet-ingest"
CACHE_SECONDS = 60.0
REFUSED_CACHE_SECONDS = 5.0
"""A refused token is asked for again sooner: its pod may have been a moment ahead of the API server."""
MAX_CACHED = 20_000
"""Answers that are kept, of good tokens and of others each: a flood of bad ones makes nobody's good one forgotten."""
MAX_REVIEWS = 64
"""Questions to the API server at once; beyond it who comes with an unknown token is told to come again."""
_USER_PREFIX = "system:serviceaccount:"
_POD_UID = "authentication.kubernetes.io/pod-uid"


@dataclass(frozen=True)
class Caller:
    """Who sends, and what it may write: None means any."""

    name: str
    namespace: str | None
    pod_uid: str | None


class RefusedError(Exception):
    """A token that is good for nothing here; the text says why and never holds the token."""


class StaticTokens:
    """Tokens in a file, one a line, each followed by the namespace for whose rows it is good; without one, it is for all."""

    def __init__(self, text: str) -> None:
        """Raises ValueError for a line that is neither."""
        self._callers: dict[bytes, Caller] = {}
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split("#")[0].split()
            if len(words) > 2:
                raise ValueError(f"line {number} of the tokens has {len(words)} words; it is TOKEN, or TOKEN NAMESPACE")
            if words:
                namespace = words[1] if len(words) == 2 else None
                self._callers[_digest(words[0])] = Caller(f"the static token of line {number}", namespace, None)

    def __len__(self) -> int:
        return len(self._callers)

    def caller(self, token: str) -> Caller | None:
        wanted = _digest(token)
        found = None
        for digest, caller in self._callers.items():  # all of them: how long it takes says nothing
            if hmac.compare_digest(digest, wanted):
                found = caller
        return found


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


_T = TypeVar("_T")


def _keep(cache: OrderedDict[bytes, _T], key: bytes, value: _T) -> None:
    cache[key] = value
    cache.move_to_end(key)
    while len(cache) > MAX_CACHED:
        cache.popitem(last=False)


class TokenReviewer:
    """Asks the Kubernetes API server (authentication.k8s.io/v1 TokenReview)."""

    def __init__(
        self,
        url: str,
        audience: str = AUDIENCE,
        own_token: pathlib.Path = OWN_TOKEN,
        authority: pathlib.Path | None = AUTHORITY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.audience, self._clock = audience, clock
        self._server = ApiServer(url, own_token, authority)
        self._good: OrderedDict[bytes, tuple[float, Caller]] = OrderedDict()
        self._bad: OrderedDict[bytes, tuple[float, RefusedError]] = OrderedDict()
        self._asking: dict[bytes, asyncio.Task[Caller]] = {}

    async def caller(self, token: str) -> Caller:
        """Raises RefusedError and ReviewerError."""
        key = _digest(token)
        now = self._clock()
        until, known = self._good.get(key, (0.0, None))
        if known is not None and until > now:
            return known
        until, refused = self._bad.get(key, (0.0, None))
        if refused is not None and until > now:
            raise refused
        # many requests of one token ask once
        asking = self._asking.get(key)
        if asking is None:
            if len(self._asking) >= MAX_REVIEWS:
                raise ReviewerError("too many tokens are being asked about")
            asking = self._asking[key] = asyncio.create_task(self._ask(key, token))
            asking.add_done_callback(lambda task: self._asked(key, task))
        return await asyncio.shield(asking)

    def _asked(self, key: bytes, task: asyncio.Task[Caller]) -> None:
        del self._asking[key]
        if not task.cancelled():
            task.exception()  # whoever asked may be gone

    async def _ask(self, key: bytes, token: str) -> Caller:
        try:
            caller = self._judge(await self._review(token))
        except RefusedError as error:
            _keep(self._bad, key, (self._clock() + REFUSED_CACHE_SECONDS, error))
            raise
        _keep(self._good, key, (self._clock() + CACHE_SECONDS, caller))
        return caller

    async def close(self) -> None:
        await self._server.close()

    async def _review(self, token: str) -> object:
        """The review's status."""
        spec = {"token": token, "audiences": [self.audience]}
        return await self._server.review("authentication.k8s.io", "TokenReview", spec)

    def _judge(self, status: object) -> Caller:
        if not isinstance(status, dict) or not status.get("authenticated"):
            why = status.get("error") if isinstance(status, dict) else None
            raise RefusedError(f"the API server does not know the token{f': {why}' if why else ''}")
        # an authenticator that knows no audiences names none: such a token could be meant for anybody
        if self.audience not in (status.get("audiences") or ()):
            raise RefusedError(f"the token is not for the audience {self.audience}")
        user = status.get("user") or {}
        name = str(user.get("username", ""))
        parts = name.removeprefix(_USER_PREFIX).split(":")
        if not name.startswith(_USER_PREFIX) or len(parts) != 2:
            raise RefusedError(f"{name or 'nobody'} is no service account")
        uids = (user.get("extra") or {}).get(_POD_UID) or []
        if len(uids) != 1:
            raise RefusedError(f"the token of {name} is bound to no pod; a projected one is")
        return Caller(name, parts[0], str(uids[0]))
