"""Where injection pauses: one ConfigMap in our own namespace, which the controller writes and the webhook reads."""

from __future__ import annotations

from typing import Any

from kubernetes import client
from kubernetes.client.exceptions import ApiException

from .client import REQUEST_SECONDS, status_of


class PauseStore:
    """Each method raises ApiException."""

    def __init__(self, api: Any, namespace: str, name: str) -> None:
        self._core: Any = client.CoreV1Api(api)
        self._namespace, self._name = namespace, name

    def read(self) -> dict[str, str]:
        """By namespace; none if there is no ConfigMap."""
        try:
            found = self._core.read_namespaced_config_map(self._name, self._namespace, _request_timeout=REQUEST_SECONDS)
        except ApiException as error:
            if status_of(error) == 404:
                return {}
            raise
        return dict(found.data or {})

    def write(self, pauses: dict[str, str]) -> None:
        """In the place of what it held. There is one writer, the controller; the ConfigMap is the chart's."""
        found = self._core.read_namespaced_config_map(self._name, self._namespace, _request_timeout=REQUEST_SECONDS)
        found.data = pauses
        self._core.replace_namespaced_config_map(self._name, self._namespace, found, _request_timeout=REQUEST_SECONDS)
