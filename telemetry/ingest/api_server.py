"""Reviews by the Kubernetes API server: who a token belongs to (TokenReview), what somebody may do (SubjectAccessReview)."""

from __future__ import annotations

import asyncio
import pathlib
import ssl
from typing import Any

import aiohttp

REQUEST_SECONDS = 10.0
_SERVICE_ACCOUNT = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
OWN_TOKEN = _SERVICE_ACCOUNT / "token"
AUTHORITY = _SERVICE_ACCOUNT / "ca.crt"


class ReviewerError(Exception):
    """The API server gave no answer."""


class ApiServer:
    """A client of the Kubernetes API server, used on one event loop.

    own_token: file with the token by which this server authenticates itself; the kubelet renews it. authority: certificate of the
    authority that signed the API server's certificate; None: the system's authorities.
    """

    def __init__(
        self, url: str, own_token: pathlib.Path = OWN_TOKEN, authority: pathlib.Path | None = AUTHORITY
    ) -> None:
        self._url = url.rstrip("/")
        self._own_token, self._authority = own_token, authority
        self._session: aiohttp.ClientSession | None = None

    async def review(self, group: str, kind: str, spec: dict[str, Any]) -> object:
        """Posts a review, an object that the API server answers and does not keep, and returns its status (None if there is
        none). group: API group, whose v1 is used. kind: such as "TokenReview". spec: of the review. Raises ReviewerError."""
        if self._session is None:
            context: ssl.SSLContext | bool = True
            if self._authority is not None and self._url.startswith("https:"):
                context = ssl.create_default_context(cafile=str(self._authority))
            timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS)
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context), timeout=timeout)
        body = {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}
        try:
            headers = {"Authorization": f"Bearer {self._own_token.read_text().strip()}"}
            url = f"{self._url}/apis/{group}/v1/{kind.lower()}s"
            async with self._session.post(url, json=body, headers=headers) as response:
                if response.status not in (200, 201):
                    raise ReviewerError(f"the API server answered a {kind} with {response.status}")
                answer = await response.json(content_type=None)
        except (OSError, aiohttp.ClientError, asyncio.TimeoutError, ValueError) as error:
            raise ReviewerError(f"the API server could not be asked: {type(error).__name__}: {error}") from None
        return answer.get("status") if isinstance(answer, dict) else None

    async def close(self) -> None:
        """Closes the connections."""
        if self._session is not None:
            await self._session.close()
