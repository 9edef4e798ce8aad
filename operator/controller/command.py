"""`stitchfleet controller`: kopf's loop with one-line handlers; all calls of the API go through the official client."""

from __future__ import annotations

import argparse
import asyncio
import platform
import sys
from collections.abc import Sequence
from typing import Any

import kopf
import sqlalchemy as sa
from kubernetes.config import ConfigException

from stitchfleet.telemetry.database import access, places
from stitchfleet.telemetry.database.errors import DatabaseError

from ..cluster import client
from ..cluster.events import EventStore
from ..cluster.pauses import PauseStore
from ..cluster.pods import PodStore
from ..cluster.policies import PolicyStore
from ..cluster.reports import GROUP, PLURAL, VERSION, ReportStore
from . import keeper as keeper_module
from . import releaser as releaser_module
from . import roster as roster_module
from .keeper import Keeper
from .loops import ControlLoop
from .metrics import Metrics
from .releaser import Releaser
from .roster import Roster

LOOK_SECONDS = 60.0
DEFAULT_PORT, DEFAULT_METRICS_PORT = 8080, 8081


class ControllerCommand:
    """`stitchfleet controller`."""

    help = (
        "Make a SavingsReport for each week from the database, and maintain the database: freeze weeks that are over, drop old\n"
        "iterations, create the next days' partitions. Run one replica. /healthz fails if the controller makes no progress."
    )

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds the options of the command to `parser`."""
        parser.add_argument("--database", metavar="URL", help=places.DATABASE_HELP)
        parser.add_argument(
            "--keep-days", type=int, default=28, metavar="N", help="days to keep iterations; default %(default)s"
        )
        parser.add_argument(
            "--look-seconds",
            type=float,
            default=LOOK_SECONDS,
            metavar="S",
            help="seconds between passes; default %(default)s",
        )
        parser.add_argument(
            "--pauses",
            default="stitchfleet-pauses",
            metavar="NAME",
            help="ConfigMap with the pauses, for the webhook; default %(default)s",
        )
        parser.add_argument(
            "--reports-url",
            default="",
            metavar="URL",
            help="URL at which people reach the ingest server, for the link in each report; default: no link",
        )
        parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="port of /healthz; default %(default)s")
        parser.add_argument(
            "--metrics-port", type=int, default=DEFAULT_METRICS_PORT, help="port of /metrics; default %(default)s"
        )
        parser.epilog = "example:\n  stitchfleet controller --database postgresql://stitchfleet@db/stitchfleet"

    def run(self, arguments: argparse.Namespace) -> int:
        """Runs the controller until it is stopped by a signal. Returns the exit status: 0, or 2 if it cannot start."""
        try:
            engine = access.open_engine(places.database_url(arguments.database))
            api = client.connect()
            parts = Parts(engine, api, arguments)
            parts.metrics.serve(arguments.metrics_port)
        except (DatabaseError, ConfigException, OSError) as error:
            print(f"stitchfleet controller: {error}", file=sys.stderr)
            return 2
        kopf.run(
            registry=handlers(parts.loops),
            clusterwide=True,
            standalone=True,
            identity=f"stitchfleet@{platform.node()}",  # type: ignore[arg-type]  # default: the login name, which a pod lacks
            liveness_endpoint=f"http://0.0.0.0:{arguments.port}/healthz",
        )
        return 0


class Parts:
    """The controller's loops and what they share. The first loop makes the reports."""

    def __init__(self, engine: sa.Engine, api: Any, arguments: argparse.Namespace) -> None:
        self.metrics = Metrics()
        pods, policies = PodStore(api), PolicyStore(api)
        pauses = PauseStore(api, client.own_namespace(), arguments.pauses)
        roster = Roster(pods, policies, EventStore(api), pauses, self.metrics)
        keeper = Keeper(
            engine,
            ReportStore(api),
            policies,
            arguments.keep_days,
            pods.asked,
            reports_url=arguments.reports_url.rstrip("/"),
            metrics=self.metrics,
        )
        releaser = Releaser(pods, roster.held_by, self.metrics)
        reports = ControlLoop("reports", keeper.look, arguments.look_seconds, keeper_module.STALL_SECONDS, self.metrics)
        keeper.made_progress = reports.made_progress
        self.loops = (
            reports,
            ControlLoop("roster", roster.look, roster_module.LOOK_SECONDS, roster_module.STALL_SECONDS, self.metrics),
            ControlLoop(
                "releaser", releaser.look, releaser_module.LOOK_SECONDS, releaser_module.STALL_SECONDS, self.metrics
            ),
        )


def handlers(loops: Sequence[ControlLoop]) -> kopf.OperatorRegistry:
    """kopf's registry. loops: the first one makes the reports. There are no handlers of create or delete and no timers: these would
    put a finalizer on objects, which then could not be deleted while the controller is down.

    The handlers raise nothing, except the probe `progress`: it raises kopf.PermanentError if a loop is stalled, by which the liveness
    endpoint fails, and the kubelet restarts the controller.
    """
    registry = kopf.OperatorRegistry()
    tasks: list[asyncio.Task[None]] = []

    @kopf.on.login(registry=registry)
    async def login(**known: Any) -> Any:
        return kopf.login_with_service_account(**known) or kopf.login_with_kubeconfig(**known)

    @kopf.on.startup(registry=registry)
    async def start(settings: kopf.OperatorSettings, **_: Any) -> None:
        # a watch that stalls is ended and restarted; without these limits kopf would wait for it forever
        settings.watching.server_timeout = 300
        settings.watching.client_timeout = 310
        settings.watching.connect_timeout = 30
        settings.watching.reconnect_backoff = 2.0
        settings.posting.enabled = False
        settings.scanning.disabled = True  # the resources are known, so no right to read all CRDs is needed
        looks = ", ".join(f"{loop.name} every {loop.rest:g} s" for loop in loops)
        print(f"stitchfleet controller: looks after {looks}", file=sys.stderr, flush=True)
        tasks.extend(asyncio.create_task(loop.run()) for loop in loops)

    @kopf.on.cleanup(registry=registry)
    async def stop(**_: Any) -> None:
        for task in tasks:
            task.cancel()

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)
    async def changed(event: Any, **_: Any) -> None:
        # a report that somebody just created has no status; our own changes of a status need no pass
        if event["type"] == "ADDED" and not event["object"].get("status"):
            loops[0].look_now()

    @kopf.on.probe(id="progress", registry=registry)
    async def progress(**_: Any) -> str:
        stalled = [loop.name for loop in loops if loop.stalled()]
        if stalled:
            raise kopf.PermanentError(f"no progress: {', '.join(stalled)}")
        return "ok"

    return registry
