"""The init container that copies the payload into the pod, and the pod's volumes.

It must not keep a pod from starting: its program always exits with 0; it requests what the target container requests, so that quotas,
LimitRanges and the QoS class see no difference; it runs as that container's user; and its volume has no size limit, because a pod
that exceeds one is evicted.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

from stitchfleet.telemetry.pod.environment import AUDIENCE

from . import starter
from .names import (
    AUTHORITY,
    CACHE,
    CACHE_VOLUME,
    CONTROL,
    CONTROL_FILE,
    COPY,
    IDENTITY_MOUNT,
    IDENTITY_VOLUME,
    INIT_CONTAINER,
    MOUNT,
    POD_UID,
    START_MOUNT,
    START_VOLUME,
    STARTER,
    STARTER_FILE,
    TOKEN_SECONDS,
    VOLUME,
    Object,
)
from .policy import Policy

_RESOURCES = ("cpu", "memory", "ephemeral-storage")
"""Resources copied from the target container. Devices are not: the copy needs none, and huge pages count as devices here too."""
_OF_THE_USER = ("runAsUser", "runAsGroup", "runAsNonRoot", "seLinuxOptions", "seccompProfile")
"""Fields copied from the target container's security context; the pod's own security context holds for both containers."""


def init_container(target: Object, policy: Policy) -> Object:
    """The init container that copies the payload. target: the container to be injected, whose security context and resources it
    takes over. If that container fits the pod security level "restricted", so does this one."""
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
        "command": starter.trying(COPY, MOUNT, START_MOUNT),
        "securityContext": context,
        "volumeMounts": mounts(may_write_starter=True),
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


def volumes(policy: Policy, cache_claim: str = "") -> list[Object]:
    """The pod's volumes: the payload's, the starter's, and one with the job's identity (its token, its labels, the authority to
    trust). cache_claim: name of a PersistentVolumeClaim for kernels, which gets a volume too; "" for none."""
    sources: list[Object] = [
        {"serviceAccountToken": {"path": "token", "audience": AUDIENCE, "expirationSeconds": TOKEN_SECONDS}},
        {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        {"downwardAPI": {"items": [{"path": POD_UID, "fieldRef": {"fieldPath": "metadata.uid"}}]}},
        {"downwardAPI": {"items": [_annotation(CONTROL_FILE.rpartition("/")[2], CONTROL)]}},
        {"downwardAPI": {"items": [{**_annotation(STARTER_FILE.rpartition("/")[2], STARTER), "mode": 0o555}]}},
    ]
    if policy.ingest_authority:
        sources.append({"downwardAPI": {"items": [_annotation("ca.crt", AUTHORITY)]}})
    return [
        {"name": VOLUME, "emptyDir": {}},
        {"name": START_VOLUME, "emptyDir": {"medium": "Memory"}},
        *([{"name": CACHE_VOLUME, "persistentVolumeClaim": {"claimName": cache_claim}}] if cache_claim else ()),
        {"name": IDENTITY_VOLUME, "projected": {"sources": sources}},
    ]


def _annotation(file: str, name: str) -> Object:
    return {"path": file, "fieldRef": {"fieldPath": f"metadata.annotations['{name}']"}}


def mounts(may_write_starter: bool = False, has_cache_claim: bool = False) -> list[Object]:
    """Volume mounts of an injected container or, if may_write_starter is True, of the init container. has_cache_claim: also mount
    the volume of the cache claim."""
    return [
        {"name": VOLUME, "mountPath": MOUNT},
        {"name": START_VOLUME, "mountPath": START_MOUNT, **({} if may_write_starter else {"readOnly": True})},
        {"name": IDENTITY_VOLUME, "mountPath": IDENTITY_MOUNT, "readOnly": True},
        *([{"name": CACHE_VOLUME, "mountPath": CACHE}] if has_cache_claim else ()),
    ]


def pull_secrets(given: Sequence[Object], policy: Policy) -> list[Object]:
    """The pod's imagePullSecrets `given`, followed by those of the policy that are not among them."""
    names = {entry.get("name") for entry in given}
    return [*given, *({"name": name} for name in policy.pull_secrets if name not in names)]
