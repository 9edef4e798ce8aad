"""StitchPolicy objects (stitchfleet.io/v1alpha1, namespaced).

They are listed every few seconds, from the API server's own cache. A watch would report changes a little sooner, but may stall.
"""

from __future__ import annotations

from typing import Any

from kubernetes import client
from kubernetes.client.exceptions import ApiException

from ..policy.names import Object
from .client import REQUEST_SECONDS, status_of
from .reports import GROUP, VERSION

PLURAL = "stitchpolicies"


class PolicyStore:
    """Reads StitchPolicy objects, and writes their status. Each method raises ApiException."""

    def __init__(self, api: Any) -> None:
        self._objects: Any = client.CustomObjectsApi(api)

    def all(self) -> list[Object]:
        """The StitchPolicy objects of all namespaces."""
        found = self._objects.list_cluster_custom_object(
            GROUP, VERSION, PLURAL, resource_version="0", _request_timeout=REQUEST_SECONDS
        )
        return list(found["items"])

    def set_status(self, namespace: str, name: str, status: Object) -> None:
        """Writes the status. Does nothing if the object was deleted meanwhile."""
        try:
            self._objects.patch_namespaced_custom_object_status(
                GROUP, VERSION, namespace, PLURAL, name, {"status": status}, _request_timeout=REQUEST_SECONDS
            )
        except ApiException as error:
            if status_of(error) != 404:
                raise
