"""Pods that ask for stitchfleet."""

from __future__ import annotations

import json
from typing import Any

from kubernetes import client
from kubernetes.client.exceptions import ApiException

from ..policy.names import ENABLED, Object
from .client import REQUEST_SECONDS, status_of


class PodStore:
    """Reads and changes pods with the label. Each method raises ApiException."""

    def __init__(self, api: Any) -> None:
        self._api = api
        self._core: Any = client.CoreV1Api(api)

    def pending(self) -> list[Object]:
        """Pods with the label that have not started. They are few: a pod is Pending for seconds, or it has a problem."""
        return self._listed(field_selector="status.phase=Pending")

    def asked(self) -> list[Object]:
        """All pods with the label."""
        return self._listed()

    def _listed(self, **selectors: str) -> list[Object]:
        """Pods as the API server's JSON, from its cache: the client's typed models take six times the processor time, and more
        memory. managedFields, a large part of an object, is left out."""
        answer = self._core.list_pod_for_all_namespaces(
            label_selector=f"{ENABLED}=true",
            resource_version="0",
            _request_timeout=REQUEST_SECONDS,
            _preload_content=False,
            **selectors,
        )
        found = list(json.loads(answer.data)["items"])
        for pod in found:
            pod["metadata"].pop("managedFields", None)
        return found

    def dry_run(self, namespace: str, pod: Object) -> Object:
        """What the API server and its webhooks would make of the pod, which is not created."""
        found = self._core.create_namespaced_pod(namespace, pod, dry_run="All", _request_timeout=REQUEST_SECONDS)
        return dict(self._api.sanitize_for_serialization(found))

    def patch(self, namespace: str, name: str, change: Object) -> None:
        """Applies a strategic merge patch. Does nothing if the pod is gone."""
        try:
            self._core.patch_namespaced_pod(name, namespace, change, _request_timeout=REQUEST_SECONDS)
        except ApiException as error:
            if status_of(error) != 404:
                raise
