"""A server's certificate that is renewed on disk while it serves: later handshakes get the new one, and no connection is dropped."""

from __future__ import annotations

import asyncio
import pathlib
import ssl
import tempfile
from collections.abc import Callable

LOOK_SECONDS = 10.0


def load_chain(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Gives a context that serves another chain and key, PEM. Raises OSError for what is none, and changes nothing then: a chain and
    a key that do not fit are refused before the context has half of them, which would end each handshake."""
    with tempfile.TemporaryDirectory() as folder:  # the library reads from files only
        chain, secret = pathlib.Path(folder, "tls.crt"), pathlib.Path(folder, "tls.key")
        chain.write_bytes(certificate)
        secret.touch(mode=0o600)
        secret.write_bytes(key)
        for each in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), context):
            # a key with a passphrase is refused: nobody is there to be asked for it
            each.load_cert_chain(chain, secret, password=lambda: "")


class CertificateFiles:
    """A TLS context for a server, and the files that it is read from."""

    def __init__(self, certificate: pathlib.Path, key: pathlib.Path | None) -> None:
        """certificate, key: PEM; key None: both are in one file. Raises OSError for what cannot be read, or is none."""
        self._certificate, self._key = certificate, key
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._seen = self._times()
        self._load()

    def _load(self) -> None:
        load_chain(self.context, self._certificate.read_bytes(), (self._key or self._certificate).read_bytes())

    def _times(self) -> tuple[int, ...]:
        return tuple(path.stat().st_mtime_ns for path in (self._certificate, self._key) if path is not None)

    async def keep_fresh(self, tell: Callable[[str], None]) -> None:
        """Loads the files anew whenever they have changed; for ever. What cannot be read leaves what is served."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                now = self._times()
                if now != self._seen:
                    self._load()  # a key of another certificate, between two writes, raises: it is tried again
                    self._seen = now
            except OSError as error:
                tell(f"the certificate {self._certificate} cannot be loaded: {error}")
