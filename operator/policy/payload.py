"""The init container that copies the payload into the pod, and the pod's volumes.

It must not keep a pod from starting: its program always ends with 0; it asks for what the target container asks for, so that quotas,
LimitRanges and the QoS class see no difference; it runs as that container's user; and its volume has no size limit, beyond which the
pod would be evicted.
"""

from __future__ import annotations

import copy

from .names import (
    AUDIENCE,
    AUTHORITY,
    COPY,
    IDENTITY_MOUNT,
    IDENTITY_VOLUME,
    INIT_CONTAINER,
    MOUNT,
    TOKEN_SECONDS,
    VOLUME,
    Object,
)
from .policy import Policy

_RESOURCES = ("cpu", "memory", "ephemeral-storage")
"""Of the target container's. Not its devices: the copy needs none, and huge pages are devices here too."""
_OF_THE_USER = ("runAsUser", "runAsGroup", "runAsNonRoot", "seLinuxOptions", "seccompProfile")
"""Of the target container's security context; what the pod's own says holds for both."""


def init_container(target: Object, policy: Policy) -> Object:
    """For the pod of the target container. Fits the "restricted" pod security level if that container does."""
    theirs = target.get("securityContext") or {}
    context = {name: copy.deepcopy(theirs[name]) for name in _OF_THE_USER if name in theirs}
    context |= {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    found: Object = {
        "name": INIT_CONTAINER,
        "image": policy.payload_image,
        "imagePullPolicy": policy.pull_policy,
        "command": ["/bin/sh", "-c", COPY],
        "securityContext": context,
        "volumeMounts": [{"name": VOLUME, "mountPath": MOUNT}],
    }
    resources = {
        kind: wanted
        for kind in ("requests", "limits")
        if (wanted := _without_devices((target.get("resources") or {}).get(kind) or {}))
    }
    if resources:
        found["resources"] = resources
    return found


def _without_devices(amounts: Object) -> Object:
    return {name: amounts[name] for name in _RESOURCES if name in amounts}


def volumes(policy: Policy) -> list[Object]:
    """The payload's, and one with what says who the job is: its token, its labels, and whose certificate it may trust."""
    sources: list[Object] = [
        {"serviceAccountToken": {"path": "token", "audience": AUDIENCE, "expirationSeconds": TOKEN_SECONDS}},
        {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
    ]
    if policy.ingest_authority:
        field = {"fieldPath": f"metadata.annotations['{AUTHORITY}']"}
        sources.append({"downwardAPI": {"items": [{"path": "ca.crt", "fieldRef": field}]}})
    return [{"name": VOLUME, "emptyDir": {}}, {"name": IDENTITY_VOLUME, "projected": {"sources": sources}}]


def mounts() -> list[Object]:
    """Of a container that is injected."""
    return [
        {"name": VOLUME, "mountPath": MOUNT},
        {"name": IDENTITY_VOLUME, "mountPath": IDENTITY_MOUNT, "readOnly": True},
    ]
