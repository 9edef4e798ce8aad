"""Horovod's rendezvous store: a map from (scope, key) to bytes, kept by `horovodrun` for as long as the job runs, spoken to by HTTP.

horovod/runner/http/http_server.py, 0.28.1: GET /SCOPE/KEY answers 200 with the value, or 404; PUT /SCOPE/KEY stores the body. A
scope that Horovod does not know is the client's own. Nothing is authenticated: what is read here may come from anybody on the
network, and readers take no more of it than numbers, a few words and digests.

A PUT whose connection breaks may be stored later, in part, or not at all. Who writes a key gives it one value for ever, and repeats
that until it is acknowledged; who reads it takes an incomplete value for an absent one.
"""

from __future__ import annotations

import http.client
import urllib.parse

TIMEOUT_S = 1.0
"""Of one request: the store is on the same network and answers within milliseconds."""
MAX_VALUE_BYTES = 16 << 20


class StoreError(OSError):
    """The store did not answer in time, or not as a store does."""


class Store:
    """One scope of the store. Each request has a connection of its own: nothing is kept between threads."""

    def __init__(self, host: str, port: int, scope: str, timeout_s: float = TIMEOUT_S) -> None:
        self._host, self._port, self._timeout_s = host, port, timeout_s
        self._scope = urllib.parse.quote(scope, safe="")  # a run's id may be anything that its user named it

    def get(self, key: str) -> bytes | None:
        """The value of a key, None where there is none. Raises StoreError."""
        status, body = self._ask("GET", key, None)
        if status == 404:
            return None
        if status != 200:
            raise StoreError(f"the rendezvous store answered {status}")
        return body

    def put(self, key: str, value: bytes) -> None:
        """Stores the value. Raises StoreError: it may be there all the same."""
        status, _ = self._ask("PUT", key, value)
        if status != 200:
            raise StoreError(f"the rendezvous store answered {status}")

    def _ask(self, method: str, key: str, body: bytes | None) -> tuple[int, bytes]:
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
