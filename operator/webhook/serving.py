"""TLS with certificates that change while the server runs: the context uses a new chain for later handshakes, and drops no
request."""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import Callable, Mapping

from aiohttp import web

from stitchfleet.telemetry.ingest.tls import load_chain

from ..cluster.certificates import AUTHORITY, expiry
from .server import Webhook

LOOK_SECONDS = 30.0
"""How often certificates are checked; after a failure, again after RETRY_SECONDS."""
RETRY_SECONDS = 2.0
GRACE_SECONDS = 10.0
"""How long requests in progress may take after SIGTERM; the API server does not wait longer either."""

Ensure = Callable[[], Mapping[str, bytes]]
"""Renews certificates that are due and returns all of them. It may block, and is called on a thread."""


class Serving:
    """Serves a webhook. authority: PEM of the authority that signs, once it is known."""

    def __init__(self, webhook: Webhook, ensure: Ensure, name: str = "webhook") -> None:
        self.webhook, self._ensure, self._name = webhook, ensure, name
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.authority = ""
        self._served = b""

    async def run(self, host: str, port: int, ended: asyncio.Event, ready: Callable[[int], None]) -> None:
        """Serves until `ended` is set. Raises OSError if the address cannot be bound."""
        self.webhook.not_ready = "there is no certificate yet"
        runner = web.AppRunner(self.webhook.application(), access_log=None, shutdown_timeout=GRACE_SECONDS)
        await runner.setup()
        keeper: asyncio.Task[None] | None = None
        try:
            while not await self._renew() and not ended.is_set():
                await _sleep(RETRY_SECONDS, ended)
            keeper = asyncio.create_task(self._keep(ended))
            site = web.TCPSite(runner, host, port, ssl_context=self.context)
            await site.start()
            ready(port)
            await ended.wait()
        finally:
            if keeper is not None:
                keeper.cancel()
            await runner.cleanup()

    async def _keep(self, ended: asyncio.Event) -> None:
        while not ended.is_set():
            good = await self._renew()
            await _sleep(LOOK_SECONDS if good else RETRY_SECONDS, ended)

    async def _renew(self) -> bool:
        """Whether the certificates are as they should be; if not, the reason is logged."""
        try:
            found = await asyncio.get_running_loop().run_in_executor(None, self._ensure)
            certificate, key = found[f"{self._name}.crt"], found[f"{self._name}.key"]
            if certificate != self._served:
                load_chain(self.context, certificate, key)
                self._served = certificate
                self.webhook.metrics.certificate_expiry.set(expiry(certificate).timestamp())
            self.authority = found[AUTHORITY].decode()
            self.webhook.not_ready = ""
            return True
        except Exception as error:  # the API server may be down: the certificate in use stays
            self.webhook.metrics.renewal_failures.inc()
            print(
                f"stitchfleet webhook: certificates: {type(error).__name__}: {error}"[:500], file=sys.stderr, flush=True
            )
            return False


async def _sleep(seconds: float, ended: asyncio.Event) -> None:
    """Waits until `ended` is set, at most `seconds`."""
    waiter = asyncio.ensure_future(ended.wait())
    await asyncio.wait({waiter}, timeout=seconds)
    waiter.cancel()
