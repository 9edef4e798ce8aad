"""A server's certificate that is renewed on disk while it serves: new handshakes use the new one, and no connection is dropped."""

from __future__ import annotations

import asyncio
import pathlib
import ssl
import tempfile
from collections.abc import Callable

LOOK_SECONDS = 10.0


def load_chain(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Loads another certificate chain and key (PEM) into a context that is in use. If they are invalid or do not belong together,
    raises OSError and leaves the context unchanged; a context with half of them would fail every handshake."""
    with tempfile.TemporaryDirectory() as folder:  # the ssl module reads them from files only
        chain, secret = pathlib.Path(folder, "tls.crt"), pathlib.Path(folder, "tls.key")
        chain.write_bytes(certificate)
        secret.touch(mode=0o600)
        secret.write_bytes(key)
        for each in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), context):
            # a key with a passphrase is refused, because nobody can be asked for it
            each.load_cert_chain(chain, secret, password=lambda: "")


class CertificateFiles:
    """A TLS context for a server, and the files from which it is loaded."""

    def __init__(self, certificate: pathlib.Path, key: pathlib.Path | None) -> None:
        """certificate, key: PEM files; key None: both are in one file. Raises OSError if they cannot be read or are invalid."""
        self._certificate, self._key = certificate, key
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._seen = self._times()
        self._load()

    def _load(self) -> None:
        load_chain(self.context, self._certificate.read_bytes(), (self._key or self._certificate).read_bytes())

    def _times(self) -> tuple[int, ...]:
        return tuple(path.stat().st_mtime_ns for path in (self._certificate, self._key) if path is not None)

    async def keep_fresh(self, tell: Callable[[str], None]) -> None:
        """Reloads the files after they have changed, until the task is cancelled. If that fails, the old certificate stays in
        use, and `tell` gets a line."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                now = self._times()
                if now != self._seen:
                    self._load()  # raises if the key belongs to another certificate, between two writes; then it is tried again
                    self._seen = now
            except OSError as error:
                tell(f"the certificate {self._certificate} cannot be loaded: {error}")
