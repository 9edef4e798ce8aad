"""`stitchfleet controller`: kopf's loop with handlers of a line each; all calls of the API are the official client's."""

from __future__ import annotations

import argparse
import asyncio
import platform
import sys
from collections.abc import Callable
from typing import Any

import kopf
from kubernetes.config import ConfigException

from stitchfleet.operator.cluster import client
from stitchfleet.operator.cluster.events import EventStore
from stitchfleet.operator.cluster.pauses import PauseStore
from stitchfleet.operator.cluster.pods import PodStore
from stitchfleet.operator.cluster.policies import PolicyStore
from stitchfleet.operator.cluster.reports import GROUP, PLURAL, VERSION, ReportStore
from stitchfleet.telemetry import database, places
from stitchfleet.telemetry.errors import DatabaseError

from . import releaser as releaser_module
from . import roster as roster_module
from .keeper import Keeper
from .releaser import Releaser
from .roster import Roster

LOOK_SECONDS = 60.0
DEFAULT_PORT = 8080


class ControllerCommand:
    """`stitchfleet controller`."""

    help = (
        "Makes a SavingsReport for each week from the database, and looks after that: freezes weeks that are over, drops old\n"
        "iterations, makes the next days' partitions. One replica. /healthz says no if it makes no progress."
    )

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--database", metavar="URL", help=places.DATABASE_HELP)
        parser.add_argument("--keep-days", type=int, default=28, metavar="N", help="of iterations; default %(default)s")
        parser.add_argument(
            "--look-seconds", type=float, default=LOOK_SECONDS, metavar="S", help="between looks; default %(default)s"
        )
        parser.add_argument(
            "--pauses",
            default="stitchfleet-pauses",
            metavar="NAME",
            help="ConfigMap for the webhook; default %(default)s",
        )
        parser.add_argument(
            "--reports-url",
            default="",
            metavar="URL",
            help="where people reach the ingest server, for the link in each report; default: no link",
        )
        parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="of /healthz; default %(default)s")
        parser.epilog = "example:\n  stitchfleet controller --database postgresql://stitchfleet@db/stitchfleet"

    def run(self, arguments: argparse.Namespace) -> int:
        try:
            engine = database.open_engine(places.database_url(arguments.database))
            api = client.connect()
            pods, policies = PodStore(api), PolicyStore(api)
            pauses = PauseStore(api, client.own_namespace(), arguments.pauses)
            roster = Roster(pods, policies, EventStore(api), pauses)
            keeper = Keeper(
                engine,
                ReportStore(api),
                policies,
                arguments.keep_days,
                lambda: roster.seen,
                reports_url=arguments.reports_url.rstrip("/"),
            )
            releaser = Releaser(pods, roster.held_by)
        except (DatabaseError, ConfigException) as error:
            print(f"stitchfleet controller: {error}", file=sys.stderr)
            return 2
        kopf.run(
            registry=handlers(keeper, releaser, roster, arguments.look_seconds),
            clusterwide=True,
            standalone=True,
            identity=f"stitchfleet@{platform.node()}",  # type: ignore[arg-type]  # by default the user's name, which has none in a pod
            liveness_endpoint=f"http://0.0.0.0:{arguments.port}/healthz",
        )
        return 0


def handlers(keeper: Keeper, releaser: Releaser, roster: Roster, look_seconds: float) -> kopf.OperatorRegistry:
    """kopf's registry. No handler of create, delete or timers: they would put a finalizer on objects, which then cannot be deleted
    while the controller is away."""
    registry = kopf.OperatorRegistry()
    wake = asyncio.Event()
    tasks: list[asyncio.Task[None]] = []

    async def keep() -> None:
        loop = asyncio.get_running_loop()
        while True:
            wake.clear()
            await loop.run_in_executor(None, keeper.look)
            # no wait_for: before Python 3.12 it may swallow the cancel with which this ends
            waiter = asyncio.ensure_future(wake.wait())
            await asyncio.wait({waiter}, timeout=look_seconds)
            waiter.cancel()

    async def often(look: Callable[[], None], seconds: float) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await loop.run_in_executor(None, look)
            await asyncio.sleep(seconds)

    @kopf.on.login(registry=registry)
    async def login(**known: Any) -> Any:
        return kopf.login_with_service_account(**known) or kopf.login_with_kubeconfig(**known)

    @kopf.on.startup(registry=registry)
    async def start(settings: kopf.OperatorSettings, **_: Any) -> None:
        # a watch that stalls is ended and begun anew; without these it would be waited for for ever
        settings.watching.server_timeout = 300
        settings.watching.client_timeout = 310
        settings.watching.connect_timeout = 30
        settings.watching.reconnect_backoff = 2.0
        settings.posting.enabled = False
        settings.scanning.disabled = True  # the resources are known: no right to read all CRDs is needed
        tasks.append(asyncio.create_task(keep()))
        tasks.append(asyncio.create_task(often(releaser.look, releaser_module.LOOK_SECONDS)))
        tasks.append(asyncio.create_task(often(roster.look, roster_module.LOOK_SECONDS)))

    @kopf.on.cleanup(registry=registry)
    async def stop(**_: Any) -> None:
        for task in tasks:
            task.cancel()

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)
    async def changed(event: Any, **_: Any) -> None:
        # a report that somebody asks for has no status yet; our own changes of a status need no look
        if event["type"] == "ADDED" and not event["object"].get("status"):
            wake.set()

    @kopf.on.probe(id="progress", registry=registry)
    async def progress(**_: Any) -> str:
        if keeper.stalled() or releaser.stalled() or roster.stalled():
            raise kopf.PermanentError("the loop makes no progress")
        return "ok"

    return registry
