"""A certificate that is renewed on disk, as the kubelet does with a Secret's."""

from __future__ import annotations

import asyncio
import datetime
import os
import ssl
from pathlib import Path

import pytest

from stitchfleet.operator.cluster.certificates import Server, renewed
from stitchfleet.telemetry.ingest import tls
from stitchfleet.telemetry.ingest.tls import CertificateFiles


def write(folder: Path, age_ns: int, key_of: Path | None = None) -> bytes:
    """A new certificate and its key; returns the certificate."""
    made = renewed({}, [Server("ingest", ("localhost",))], datetime.datetime.now(datetime.timezone.utc))
    for name in ("ingest.crt", "ingest.key"):
        content = made[name] if key_of is None or name == "ingest.crt" else (key_of / name).read_bytes()
        (folder / name).write_bytes(content)
        os.utime(folder / name, ns=(age_ns, age_ns))
    return made["ingest.crt"]


async def until_closed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


async def shown(port: int) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return ssl.DER_cert_to_PEM_cert(found).encode()


def test_later_connections_see_the_new_one_and_a_broken_one_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "LOOK_SECONDS", 0.01)
    told: list[str] = []

    async def all_of_it() -> None:
        first = write(tmp_path, 1)
        files = CertificateFiles(tmp_path / "ingest.crt", tmp_path / "ingest.key")
        server = await asyncio.start_server(until_closed, "127.0.0.1", 0, ssl=files.context)
        port = server.sockets[0].getsockname()[1]
        keeper = asyncio.create_task(files.keep_fresh(told.append))
        assert await shown(port) == first
        second = write(tmp_path, 2)
        while await shown(port) == first:
            await asyncio.sleep(0.01)
        assert await shown(port) == second
        told.clear()  # between two writes the key is another's, which is tried again
        write(tmp_path, 3, key_of=tmp_path)  # the key of another certificate
        while not told:
            await asyncio.sleep(0.01)
        assert await shown(port) == second
        keeper.cancel()
        server.close()

    asyncio.run(asyncio.wait_for(all_of_it(), 60))
    assert "cannot be loaded" in told[0]
