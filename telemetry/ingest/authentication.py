"""Who the sender is: by a token that Kubernetes vouches for (TokenReview), or by one from a file.

A projected service-account token names its namespace and, because it is bound to a pod, the pod's uid. Its audience is this server,
so that a token for something else is refused here. The API server is asked once per token and CACHE_SECONDS.
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

from ..pod.environment import AUDIENCE
from .api_server import AUTHORITY, OWN_TOKEN, ApiServer, ReviewerError

CACHE_SECONDS = 60.0
REFUSED_CACHE_SECONDS = 5.0
"""A refused token is asked about again sooner: its pod may have been a moment ahead of the API server."""
MAX_CACHED = 20_000
"""Most cached answers, for good tokens and for refused ones separately: a flood of bad tokens does not evict a good one."""
MAX_REVIEWS = 64
"""Most questions to the API server at once; beyond it, a sender with an unknown token is told to try again."""
_USER_PREFIX = "system:serviceaccount:"
_POD_UID = "authentication.kubernetes.io/pod-uid"


@dataclass(frozen=True)
class Caller:
    """The sender, and what it may write; None means any."""

    name: str
    namespace: str | None
    pod_uid: str | None


class RefusedError(Exception):
    """The token is not valid here; the text says why and never holds the token."""


class StaticTokens:
    """Tokens from a file, one per line, each followed by the namespace whose rows it may write; without a namespace it may write
    all. A comment begins with #."""

    def __init__(self, text: str) -> None:
        """text: of the file. Raises ValueError for a line with more than two words."""
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
        """The sender to whom the token belongs; None for an unknown token. The time taken does not depend on the token."""
        wanted = _digest(token)
        found = None
        for digest, caller in self._callers.items():  # all of them, so that the time reveals nothing
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
    """Asks the Kubernetes API server (authentication.k8s.io/v1 TokenReview), and caches its answers."""

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
        """The sender to whom the token belongs. Raises RefusedError if the token is not valid here, and ReviewerError if the API
        server cannot be asked. Used on one event loop."""
        key = _digest(token)
        now = self._clock()
        until, known = self._good.get(key, (0.0, None))
        if known is not None and until > now:
            return known
        until, refused = self._bad.get(key, (0.0, None))
        if refused is not None and until > now:
            raise refused
        # simultaneous requests with one token cause one question
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
            task.exception()  # the requests that asked may be gone

    async def _ask(self, key: bytes, token: str) -> Caller:
        try:
            caller = self._judge(await self._review(token))
        except RefusedError as error:
            _keep(self._bad, key, (self._clock() + REFUSED_CACHE_SECONDS, error))
            raise
        _keep(self._good, key, (self._clock() + CACHE_SECONDS, caller))
        return caller

    async def close(self) -> None:
        """Closes the connections to the API server."""
        await self._server.close()

    async def _review(self, token: str) -> object:
        """The status of the token's review. Raises ReviewerError."""
        spec = {"token": token, "audiences": [self.audience]}
        return await self._server.review("authentication.k8s.io", "TokenReview", spec)

    def _judge(self, status: object) -> Caller:
        if not isinstance(status, dict) or not status.get("authenticated"):
            why = status.get("error") if isinstance(status, dict) else None
            raise RefusedError(f"the API server does not know the token{f': {why}' if why else ''}")
        # an authenticator that knows no audiences returns none: such a token could be meant for any server
        if self.audience not in (status.get("audiences") or ()):
            raise RefusedError(f"the token is not for the audience {self.audience}")
        user = status.get("user") or {}
        name = str(user.get("username", ""))
        parts = name.removeprefix(_USER_PREFIX).split(":")
        if not name.startswith(_USER_PREFIX) or len(parts) != 2:
            raise RefusedError(f"{name or 'nobody'} is not a service account")
        uids = (user.get("extra") or {}).get(_POD_UID) or []
        if len(uids) != 1:
            raise RefusedError(f"the token of {name} is not bound to a pod; a projected token is")
        return Caller(name, parts[0], str(uids[0]))
