"""SavingsReport objects (stitchfleet.io/v1alpha1, cluster-scoped)."""

from __future__ import annotations

from typing import Any

from kubernetes import client
from kubernetes.client.exceptions import ApiException

from ..policy.names import Object
from .client import REQUEST_SECONDS, status_of

GROUP, VERSION, PLURAL = "stitchfleet.io", "v1alpha1", "savingsreports"
_OF_RESOURCE = (GROUP, VERSION, PLURAL)


class ReportStore:
    """Reads and writes SavingsReport objects. Each method raises ApiException."""

    def __init__(self, api: Any) -> None:
        self._objects: Any = client.CustomObjectsApi(api)

    def all(self) -> list[Object]:
        """All SavingsReport objects."""
        found: Object = self._objects.list_cluster_custom_object(*_OF_RESOURCE, _request_timeout=REQUEST_SECONDS)
        return list(found["items"])

    def create(self, name: str, spec: Object) -> None:
        """Creates a report. Does nothing if one of that name exists."""
        body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "SavingsReport", "metadata": {"name": name}, "spec": spec}
        try:
            self._objects.create_cluster_custom_object(*_OF_RESOURCE, body, _request_timeout=REQUEST_SECONDS)
        except ApiException as error:
            if status_of(error) != 409:
                raise

    def set_status(self, report: Object, status: Object) -> bool:
        """Writes the status of a report as it was read. Returns False if the object was changed or deleted since: then nothing is
        written, as another controller may have written something newer."""
        metadata = report["metadata"]
        change = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": status}
        try:
            self._objects.patch_cluster_custom_object_status(
                *_OF_RESOURCE, metadata["name"], change, _request_timeout=REQUEST_SECONDS
            )
        except ApiException as error:
            if status_of(error) not in (404, 409):
                raise
            return False
        return True
