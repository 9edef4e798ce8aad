"""Client of Horovod's rendezvous store: a map from (scope, key) to bytes over HTTP, kept by `horovodrun` while the job runs.

The protocol (horovod/runner/http/http_server.py, 0.28.1): GET /SCOPE/KEY answers 200 with the value, or 404; PUT /SCOPE/KEY stores
the body. Clients may use scopes that Horovod does not know. Nothing is authenticated: a value may come from anybody on the network,
so readers accept only numbers, a few words and digests.

A PUT whose connection breaks may be stored later, in part, or not at all. So a writer gives a key one value only and repeats the
write until it is acknowledged, and a reader treats an incomplete value as absent.
"""

from __future__ import annotations

import urllib.parse
from typing import Protocol

TIMEOUT_S = 1.0
"""Time-out of one request. The store is on the same network and answers within milliseconds."""
MAX_VALUE_BYTES = 16 << 20


class StoreError(OSError):
    """The store did not answer in time, or its answer was invalid."""


class Finder(Protocol):
    """How a rank finds the store in which its world agrees."""

    def store(self) -> ScopedStore | None:
        """The store; None as long as this rank does not know it. Call it again and again, also if it is known: rank 0 may have to
        tell the others. Raises StoreError."""

    def close(self) -> None:
        """Called when the world ends, on another thread than `store`."""


class Known:
    """A store that is known from the start."""

    def __init__(self, store: ScopedStore) -> None:
        self._store = store

    def store(self) -> ScopedStore:
        """The store."""
        return self._store

    def close(self) -> None:
        """Does nothing: the launcher keeps the store."""


class ScopedStore:
    """One scope of the store. Each request opens its own connection, so threads share no state."""

    def __init__(self, host: str, port: int, scope: str, timeout_s: float = TIMEOUT_S) -> None:
        self._host, self._port, self._timeout_s = host, port, timeout_s
        self._scope = urllib.parse.quote(scope, safe="")  # users may choose any text as a run id

    def get(self, key: str) -> bytes | None:
        """The value of a key, or None if it has none. Raises StoreError."""
        status, body = self._ask("GET", key, None)
        if status == 404:
            return None
        if status != 200:
            raise StoreError(f"the rendezvous store answered {status}")
        return body

    def put(self, key: str, value: bytes) -> None:
        """Stores the value. Raises StoreError; the value may have been stored even then."""
        status, _ = self._ask("PUT", key, value)
        if status != 200:
            raise StoreError(f"the rendezvous store answered {status}")

    def _ask(self, method: str, key: str, body: bytes | None) -> tuple[int, bytes]:
        import http.client  # takes 13 ms, which jobs of one process need not spend

        connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        try:
            connection.request(method, f"/{self._scope}/{urllib.parse.quote(key, safe='')}", body)
            answer = connection.getresponse()
            found = answer.read(MAX_VALUE_BYTES + 1)
            if len(found) > MAX_VALUE_BYTES:
                raise StoreError("the rendezvous store holds a value that nobody of us has put there")
            return answer.status, found
        except (OSError, http.client.HTTPException) as error:
            raise StoreError(
                f"the rendezvous store at {self._host}:{self._port}: {error or type(error).__name__}"
            ) from error
        finally:
            connection.close()
