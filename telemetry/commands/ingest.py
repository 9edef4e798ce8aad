"""`stitchfleet ingest`: the server to which the fleet's jobs send what they measured."""

from __future__ import annotations

import argparse
import asyncio
import pathlib
import signal
import sys

import sqlalchemy as sa

from ..database import access, partitions, places
from ..database.errors import DatabaseError
from ..ingest.api_server import ApiServer
from ..ingest.authentication import StaticTokens, TokenReviewer
from ..ingest.report_pages import Readers, ReportPages, made_by_process
from ..ingest.serving import Ingest, Limits, serve
from ..ingest.tls import CertificateFiles
from ..pod import wire
from ..pod.environment import AUDIENCE

DEFAULT_PORT = 8475
KUBERNETES = "https://kubernetes.default.svc"


class IngestCommand:
    """`stitchfleet ingest`."""

    help = (
        "Receive over HTTP what training jobs recorded, check it and write it to the database. A job may only write rows of its\n"
        "own namespace and pod: Kubernetes vouches for its service-account token (TokenReview), or the token is listed in a file.\n"
        "A batch is answered after it is committed, and a batch that arrives twice changes nothing. On SIGTERM, work in progress\n"
        "is finished first. Pages: /healthz, /readyz, /metrics (Prometheus), /openapi.json; with --kubernetes the weekly report\n"
        "at /reports/2026-W07, for tokens whose owner may get savingsreports.stitchfleet.io."
    )

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds the options of the command to `parser`."""
        parser.add_argument("--database", metavar="URL", help=places.DATABASE_HELP)
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on; default 127.0.0.1")
        parser.add_argument(
            "--port", type=int, default=DEFAULT_PORT, help=f"port; default {DEFAULT_PORT}; 0: any free port"
        )
        parser.add_argument(
            "--tokens", type=pathlib.Path, metavar="FILE", help="static tokens, one per line: TOKEN, or TOKEN NAMESPACE"
        )
        parser.add_argument(
            "--kubernetes",
            nargs="?",
            const=KUBERNETES,
            metavar="URL",
            help=f"ask this API server; default URL {KUBERNETES}",
        )
        parser.add_argument("--audience", default=AUDIENCE, help=f"audience of the jobs' tokens; default {AUDIENCE}")
        parser.add_argument(
            "--tls-certificate", type=pathlib.Path, metavar="FILE", help="PEM file; serve HTTPS with it"
        )
        parser.add_argument("--tls-key", type=pathlib.Path, metavar="FILE", help="PEM")
        parser.add_argument(
            "--pending-bytes",
            type=int,
            default=Limits.pending_bytes,
            metavar="N",
            help="beyond it the answer is 429; default %(default)s",
        )
        parser.epilog = (
            "examples:\n  stitchfleet ingest --kubernetes --host 0.0.0.0 --database postgresql://stitchfleet@db/stitchfleet\n"
            "  stitchfleet ingest --tokens tokens.txt"
        )

    def run(self, arguments: argparse.Namespace) -> int:
        """Serves until SIGTERM or SIGINT. Returns the exit status: 0, or 2 if the server cannot start."""
        try:
            return asyncio.run(_serve(arguments))
        except (DatabaseError, ValueError, OSError) as error:
            print(f"stitchfleet ingest: {error}", file=sys.stderr)
            return 2


async def _serve(arguments: argparse.Namespace) -> int:
    if arguments.tokens is None and arguments.kubernetes is None:
        raise ValueError("who may write? --kubernetes asks the API server, --tokens FILE names static tokens")
    tokens = StaticTokens(arguments.tokens.read_text()) if arguments.tokens is not None else None
    if tokens is not None and not len(tokens):
        raise ValueError(f"{arguments.tokens} does not hold a token")
    reviewer = TokenReviewer(arguments.kubernetes, arguments.audience) if arguments.kubernetes is not None else None
    if not 0 <= arguments.port < 1 << 16:
        raise ValueError(f"--port is {arguments.port}; it is from 0 to 65535")
    if arguments.pending_bytes < wire.MAX_BODY_BYTES:
        raise ValueError(f"--pending-bytes is {arguments.pending_bytes}; one body may have {wire.MAX_BODY_BYTES}")
    tls = None
    if arguments.tls_certificate is not None:
        tls = CertificateFiles(arguments.tls_certificate, arguments.tls_key)
    elif arguments.tls_key is not None:
        raise ValueError("--tls-key without --tls-certificate: nothing would be encrypted")
    engine = access.open_engine(places.database_url(arguments.database))
    try:
        with engine.connect() as connection:
            access.check(connection)
            partitions.check_rights(connection)
    except sa.exc.SQLAlchemyError as error:
        # it may come back: until then /readyz fails and batches are refused
        print(f"stitchfleet ingest: the database cannot be used yet: {access.reason(error)}", file=sys.stderr)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)

    def ready(port: int) -> None:
        scheme = "http" if tls is None else "https"
        print(f"stitchfleet ingest: {scheme}://{arguments.host}:{port}", file=sys.stderr, flush=True)

    limits = Limits(pending_bytes=arguments.pending_bytes)
    ingest = Ingest(engine, tokens, reviewer, limits)
    if arguments.kubernetes is not None:
        make = made_by_process(places.database_url(arguments.database))
        ingest.pages = ReportPages(Readers(ApiServer(arguments.kubernetes)), make, ingest.say_once)
    fresh = asyncio.create_task(tls.keep_fresh(ingest.say_once)) if tls is not None else None
    try:
        await serve(ingest, arguments.host, arguments.port, tls.context if tls is not None else None, ended, ready)
    finally:
        if fresh is not None:
            fresh.cancel()
    return 0
