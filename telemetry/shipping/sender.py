"""Posts segments to the ingest server (see `wire`). It runs in the training pod: standard library only.

The variables of `environment.SENDING` say where to send, with which token, and which authority is trusted.
"""

from __future__ import annotations

import http.client
import json
import os
import pathlib
import ssl
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..pod import environment as variables
from ..pod import wire

TOKEN_FILE = pathlib.Path("/var/run/secrets/stitchfleet.io/ingest/token")
MAX_TOKEN = 7000
"""Most characters of a token; a server accepts about 8,000 in a header."""
POST_SECONDS = 30.0
"""Timeout in seconds: the longest wait for the server without receiving anything."""
MAX_RETRY_AFTER_SECONDS = 600.0


class SendError(Exception):
    """A batch was not sent, or was refused: no part of it may be treated as accepted. retry_after_s: seconds after which the
    server wants to be asked again, or None. too_large: the server refused the batch for its size."""

    def __init__(self, text: str, retry_after_s: float | None = None, too_large: bool = False) -> None:
        super().__init__(text)
        self.retry_after_s, self.too_large = retry_after_s, too_large


@dataclass(frozen=True)
class Answer:
    """What the server did with one segment. damaged_records: records that could not be used. reasons: why they, or the whole
    segment, could not be used."""

    outcome: wire.Outcome
    rows: int
    damaged_records: int
    reasons: list[str]


class Sender:
    """One connection to the server, opened when it is needed and reopened after a failure. Not for several threads at once."""

    def __init__(self, url: str, environment: Mapping[str, str] = os.environ) -> None:
        """url: of the ingest server. Raises ValueError if it is not valid; the text does not repeat it, since it may hold a
        password."""
        try:
            parts = urllib.parse.urlsplit(url)
            self._port = parts.port
        except ValueError:
            parts = urllib.parse.urlsplit("")
        if parts.scheme not in ("http", "https") or not parts.hostname or not url.isprintable() or " " in url:
            raise ValueError("that is no URL of an ingest server; one looks like https://stitchfleet-ingest:8475")
        self._scheme, self._host = parts.scheme, parts.hostname
        self._path = parts.path.rstrip("/") + wire.PATH
        self._environment = environment
        self._connection: http.client.HTTPConnection | None = None

    def post(self, segments: Sequence[bytes]) -> list[Answer]:
        """Sends a batch, waits for its commit and returns one answer per segment. Raises SendError."""
        body = wire.encode(segments)
        headers = {"Content-Type": wire.CONTENT_TYPE, "Authorization": f"Bearer {self._token()}"}
        packed = wire.compressed(body)
        if packed is not None:
            headers["Content-Encoding"] = "gzip"
            body = packed
        try:
            if self._connection is None:
                self._connection = self._connect()
            self._connection.request("POST", self._path, body, headers)
            response = self._connection.getresponse()
            status, wanted, text = response.status, response.headers, response.read(wire.MAX_ANSWER_BYTES)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise SendError(f"the ingest server cannot be reached: {type(error).__name__}: {error}") from None
        if status != 200:
            self.close()
            raise SendError(_refusal(status, text), _retry_after(wanted.get("Retry-After")), status == 413)
        return self._answers(text, len(segments))

    def close(self) -> None:
        """Closes the connection; the next `post` opens another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> http.client.HTTPConnection:
        if self._scheme == "http":
            return http.client.HTTPConnection(self._host, self._port, timeout=POST_SECONDS)
        context = ssl.create_default_context(cafile=variables.INGEST_CA_FILE.read(self._environment) or None)
        return http.client.HTTPSConnection(self._host, self._port, timeout=POST_SECONDS, context=context)

    def _token(self) -> str:
        path = pathlib.Path(variables.INGEST_TOKEN_FILE.read(self._environment) or TOKEN_FILE)
        source = f"the file {path}"
        try:
            found = path.read_text().strip()
        except FileNotFoundError:
            source = variables.INGEST_TOKEN.name
            found = variables.INGEST_TOKEN.read(self._environment).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise SendError(f"the token cannot be read: {type(error).__name__}") from None
        # http.client's error for an invalid header would contain the token
        if not (found.isascii() and found.isprintable()) or " " in found or len(found) > MAX_TOKEN:
            raise SendError(f"{source} does not hold one token, on one line")
        return found

    @staticmethod
    def _answers(text: bytes, count: int) -> list[Answer]:
        try:
            found = [
                Answer(
                    wire.Outcome(entry["outcome"]),
                    int(entry["rows"]),
                    int(entry["damaged_records"]),
                    [str(why) for why in (*entry["damaged"], entry["reason"]) if why],
                )
                for entry in json.loads(text)["segments"]
            ]
        except (ValueError, KeyError, TypeError) as error:
            raise SendError(f"the ingest server's answer cannot be read: {type(error).__name__}: {error}") from None
        if len(found) != count:
            raise SendError(f"the ingest server answered for {len(found)} segments of {count}")
        return found


def _refusal(status: int, text: bytes) -> str:
    try:
        why = str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        why = http.client.responses.get(status, "")
    return f"the ingest server answered {status}: {why}"


def _retry_after(text: str | None) -> float | None:
    """Seconds from a Retry-After header; None for a date, which the server never sends."""
    try:
        return min(max(0.0, float(text)), MAX_RETRY_AFTER_SECONDS) if text else None
    except ValueError:
        return None
