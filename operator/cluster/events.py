"""Kubernetes Events about pods."""

from __future__ import annotations

import datetime
import hashlib
from typing import Any

from kubernetes import client
from kubernetes.client.exceptions import ApiException

from ..policy.names import Object
from .client import REQUEST_SECONDS, status_of

COMPONENT = "stitchfleet-controller"
MOST_MESSAGE = 1000


class EventStore:
    """Writes Events. Each method raises ApiException."""

    def __init__(self, api: Any) -> None:
        self._core: Any = client.CoreV1Api(api)

    def about_pod(self, pod: Object, reason: str, message: str) -> None:
        """Writes a Warning event into the pod's namespace, once per message: the event's name is a hash of pod, reason and
        message. The message is cut to MOST_MESSAGE characters. Statuses 403 (the namespace is terminating), 404 and 409 are
        ignored."""
        metadata = pod["metadata"]
        digest = hashlib.sha256(f"{metadata['uid']} {reason} {message}".encode()).hexdigest()[:16]
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        about = {"apiVersion": "v1", "kind": "Pod"} | {key: metadata[key] for key in ("name", "namespace", "uid")}
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{metadata['name'][:200]}.{digest}", "namespace": metadata["namespace"]},
            "involvedObject": about,
            "type": "Warning",
            "reason": reason,
            "message": message[:MOST_MESSAGE],
            "source": {"component": COMPONENT},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            self._core.create_namespaced_event(metadata["namespace"], body, _request_timeout=REQUEST_SECONDS)
        except ApiException as error:
            if status_of(error) not in (403, 404, 409):  # forbidden: the namespace is terminating
                raise
