"""`stitchfleet check-injection`: asks the API server what it would make of a labelled pod, without creating it."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from kubernetes.client.exceptions import ApiException
from kubernetes.config import ConfigException

from ..cluster import client
from ..cluster.pods import PodStore
from ..policy.names import ENABLED, INIT_CONTAINER, INJECTED, NOT_INJECTED

RETRY_SECONDS = 1.0


class CheckInjectionCommand:
    """`stitchfleet check-injection`."""

    help = (
        "Ask the API server what it would make of a pod with the label (a server-side dry run: no pod is created), and print\n"
        "whether the webhook injected it. Exit code 0: it was injected; 1: it was not; 2: the API server could not be asked."
    )

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds the options of the command to `parser`."""
        parser.add_argument(
            "--namespace", metavar="NAME", help="namespace of the pod; default: this pod's own, or default"
        )
        parser.add_argument(
            "--payload-image", metavar="IMAGE", help="payload image that the pod must get; default: any"
        )
        parser.add_argument(
            "--seconds",
            type=float,
            default=30.0,
            metavar="S",
            help="seconds to keep trying, since a new webhook takes a while; default %(default)s",
        )
        parser.epilog = "example:\n  stitchfleet check-injection --namespace research"

    def run(self, arguments: argparse.Namespace) -> int:
        """Tries until the pod is injected or the time is over. Returns the exit status: 0 injected, 1 not injected, 2 the API
        server could not be asked."""
        namespace = arguments.namespace or client.own_namespace()
        until = time.monotonic() + arguments.seconds
        try:
            pods = PodStore(client.connect())
            while True:
                why_not = missing(pods.dry_run(namespace, labelled_pod()), arguments.payload_image)
                if not why_not:
                    print(f"stitchfleet check-injection: a labelled pod in {namespace} is injected")
                    return 0
                if time.monotonic() >= until:
                    print(f"stitchfleet check-injection: a labelled pod in {namespace}: {why_not}", file=sys.stderr)
                    return 1
                time.sleep(RETRY_SECONDS)
        except (ApiException, ConfigException, OSError) as error:
            said = f"{error.status} {error.reason}" if isinstance(error, ApiException) else str(error)
            print(f"stitchfleet check-injection: {said}"[:500], file=sys.stderr)
            return 2


def labelled_pod() -> dict[str, Any]:
    """The manifest of a pod as a researcher would write it. It meets the pod security level "restricted"."""
    security = {
        "allowPrivilegeEscalation": False,
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    resources = {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"cpu": "10m", "memory": "16Mi"}}
    container = {"name": "train", "image": "train", "command": ["python", "train.py"], "securityContext": security}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "stitchfleet-check-", "labels": {ENABLED: "true"}},
        "spec": {"restartPolicy": "Never", "containers": [{**container, "resources": resources}]},
    }


def missing(pod: dict[str, Any], payload_image: str | None = None) -> str:
    """Says why an admitted pod is not injected as expected; "" if it is. payload_image: the image that the init container must
    have; None: any image."""
    annotations = pod["metadata"].get("annotations") or {}
    if reason := annotations.get(NOT_INJECTED):
        return f"not injected: {reason}"
    if INJECTED not in annotations:
        return "the webhook was not asked, or did not answer in time"
    images = [each["image"] for each in pod["spec"].get("initContainers", ()) if each["name"] == INIT_CONTAINER]
    if not images:
        return f"there is no init container {INIT_CONTAINER}"
    if payload_image is not None and images != [payload_image]:
        return f"the payload is {images[0]}, not {payload_image}"
    return ""
