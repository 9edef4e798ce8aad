"""The processors of nodes."""

from __future__ import annotations

from typing import Any

from kubernetes import client

from .client import REQUEST_SECONDS


class NodeStore:
    """Reads nodes. Each method raises ApiException."""

    def __init__(self, api: Any) -> None:
        self._core: Any = client.CoreV1Api(api)

    def are_of_one_kind(self, processor: str) -> bool:
        """Whether all nodes have this processor, a value of the label kubernetes.io/arch such as "amd64". Lists only the nodes
        with another value, from the API server's cache, because a list of all nodes may be megabytes."""
        found = self._core.list_node(
            label_selector=f"kubernetes.io/arch!={processor}", resource_version="0", _request_timeout=REQUEST_SECONDS
        )
        return not found.items
