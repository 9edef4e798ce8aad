"""Where injection pauses: one ConfigMap in our own namespace, which the controller writes and the webhook reads."""

from __future__ import annotations

from typing import Any

from kubernetes import client
from kubernetes.client.exceptions import ApiException

from .client import REQUEST_SECONDS, status_of


class PauseStore:
    """Reads and writes the ConfigMap. Each method raises ApiException."""

    def __init__(self, api: Any, namespace: str, name: str) -> None:
        self._core: Any = client.CoreV1Api(api)
        self._namespace, self._name = namespace, name

    def read(self) -> dict[str, str]:
        """The data of the ConfigMap (policy.pauses.Pauses); empty if there is no ConfigMap."""
        try:
            found = self._core.read_namespaced_config_map(self._name, self._namespace, _request_timeout=REQUEST_SECONDS)
        except ApiException as error:
            if status_of(error) == 404:
                return {}
            raise
        return dict(found.data or {})

    def write(self, pauses: dict[str, str]) -> None:
        """Replaces the data of the ConfigMap, which must exist: the chart creates it. The controller is the only writer."""
        found = self._core.read_namespaced_config_map(self._name, self._namespace, _request_timeout=REQUEST_SECONDS)
        found.data = pauses
        self._core.replace_namespaced_config_map(self._name, self._namespace, found, _request_timeout=REQUEST_SECONDS)
