"""`stitchfleet webhook`: the admission webhook's server."""

from __future__ import annotations

import argparse
import asyncio
import functools
import pathlib
import signal
import sys
from typing import Any

from kubernetes.config import ConfigException

from ..cluster import client
from ..cluster.authority import CertificateStore
from ..cluster.certificates import AUTHORITY, Server
from ..cluster.nodes import NodeStore
from ..cluster.pauses import PauseStore
from ..cluster.policies import PolicyStore
from ..policy.policy import Policy
from ..policy.refusals import PROCESSOR
from . import selftest
from .policies import Policies
from .server import Webhook
from .serving import Ensure, Serving

DEFAULT_PORT = 8443


class WebhookCommand:
    """`stitchfleet webhook`."""

    help = (
        "Answer the API server for each pod that carries the label stitchfleet.io/enabled: inject stitchfleet into it, or say in\n"
        "an annotation why not. If the webhook fails, the pod is admitted unchanged. It also creates and renews the certificates\n"
        "of the webhook and of the ingest server, in one Secret. Pages: /healthz, /readyz, /metrics (Prometheus)."
    )

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds the options of the command to `parser`."""
        parser.add_argument(
            "--payload-image", required=True, metavar="IMAGE", help="the image that is copied into pods"
        )
        parser.add_argument(
            "--pull-policy", default="IfNotPresent", help="pull policy of that image; default %(default)s"
        )
        parser.add_argument(
            "--pull-secret",
            action="append",
            default=[],
            metavar="NAME",
            help="a Secret of each pod's own namespace for pulling it; may be given several times",
        )
        parser.add_argument(
            "--cluster-name",
            default="kubernetes",
            metavar="NAME",
            help="name of the cluster in reports; default %(default)s",
        )
        parser.add_argument("--ingest-url", default="", metavar="URL", help="URL to which jobs send; default: nowhere")
        parser.add_argument(
            "--service", default="stitchfleet-webhook", help="this server's service; default %(default)s"
        )
        parser.add_argument("--ingest-service", default="stitchfleet-ingest", help="default %(default)s")
        parser.add_argument(
            "--certificates", default="stitchfleet-certificates", metavar="SECRET", help="default %(default)s"
        )
        parser.add_argument(
            "--configuration",
            default="stitchfleet",
            metavar="NAME",
            help="the MutatingWebhookConfiguration whose caBundle it keeps; default %(default)s",
        )
        parser.add_argument(
            "--pauses",
            default="stitchfleet-pauses",
            metavar="NAME",
            help="the controller's ConfigMap; default %(default)s",
        )
        parser.add_argument(
            "--certificates-folder",
            metavar="FOLDER",
            help="read webhook.crt, webhook.key and ca.crt (which jobs trust at the ingest server) from FOLDER, if another program,\n"
            "like cert-manager, renews them; default: create them, and keep them in the Secret",
        )
        parser.add_argument("--host", default="0.0.0.0", help="address to listen on; default %(default)s")
        parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="default %(default)s")
        parser.epilog = "example:\n  stitchfleet webhook --payload-image REGISTRY/stitchfleet-payload:1 --ingest-url https://ingest:8475"

    def run(self, arguments: argparse.Namespace) -> int:
        """Serves until SIGTERM or SIGINT. Returns the exit status: 0, or 2 if the server cannot start."""
        try:
            return asyncio.run(_serve(arguments))
        except (OSError, ConfigException) as error:
            print(f"stitchfleet webhook: {error}", file=sys.stderr)
            return 2


def hosts_of(service: str, namespace: str) -> tuple[str, ...]:
    """The DNS names of a service inside the cluster."""
    return (f"{service}.{namespace}.svc", f"{service}.{namespace}.svc.cluster.local", service, f"{service}.{namespace}")


def _certificates(arguments: argparse.Namespace, api: Any, namespace: str) -> Ensure:
    if arguments.certificates_folder:
        return functools.partial(certificates_in, pathlib.Path(arguments.certificates_folder))
    servers = [
        Server("webhook", hosts_of(arguments.service, namespace)),
        Server("ingest", hosts_of(arguments.ingest_service, namespace)),
    ]
    return CertificateStore(api, namespace, arguments.certificates, arguments.configuration, servers).ensure


def certificates_in(folder: pathlib.Path) -> dict[str, bytes]:
    """Reads webhook.crt, webhook.key and ca.crt from a mounted volume (file name -> PEM). Raises OSError."""
    return {name: (folder / name).read_bytes() for name in ("webhook.crt", "webhook.key", AUTHORITY)}


async def _serve(arguments: argparse.Namespace) -> int:
    namespace = client.own_namespace()
    api = client.connect()
    policy = Policy(
        payload_image=arguments.payload_image,
        cluster=arguments.cluster_name,
        ingest_url=arguments.ingest_url,
        pull_policy=arguments.pull_policy,
        pull_secrets=tuple(arguments.pull_secret),
        cannot_start=selftest.why_not(),
    )
    if policy.cannot_start:
        print(f"stitchfleet webhook: no pod is injected: {policy.cannot_start}", file=sys.stderr, flush=True)
    policies = Policies(
        policy,
        PolicyStore(api).all,
        functools.partial(NodeStore(api).are_of_one_kind, PROCESSOR),
        PauseStore(api, namespace, arguments.pauses).read,
    )
    webhook = Webhook(lambda namespace: policies.of(namespace, serving.authority))
    serving = Serving(webhook, _certificates(arguments, api, namespace))
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)

    def ready(port: int) -> None:
        print(f"stitchfleet webhook: https://{arguments.host}:{port}", file=sys.stderr, flush=True)

    await policies.first(ended)
    keeper = asyncio.create_task(policies.keep())
    try:
        await serving.run(arguments.host, arguments.port, ended, ready)
    finally:
        keeper.cancel()
    return 0
