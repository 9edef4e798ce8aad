"""How the API server is reached: as the pod's service account, or by a person's kubeconfig."""

from __future__ import annotations

import pathlib
from typing import Any

from kubernetes import client, config
from kubernetes.config import ConfigException

REQUEST_SECONDS = (5.0, 30.0)
"""Timeouts to connect and to read, in seconds. Without them the client would wait forever."""
_NAMESPACE = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def connect() -> Any:
    """An ApiClient. Raises ConfigException if there is neither a pod's nor a person's configuration."""
    try:
        config.load_incluster_config()  # type: ignore[no-untyped-call]
    except ConfigException:
        config.load_kube_config()  # type: ignore[no-untyped-call]
    return client.ApiClient()


def own_namespace(default: str = "default") -> str:
    """The namespace of this pod; `default` outside of a pod."""
    try:
        return _NAMESPACE.read_text().strip()
    except OSError:
        return default


def status_of(error: Any) -> int:
    """The HTTP status of an API error; 0 if there is none."""
    return int(getattr(error, "status", 0) or 0)
