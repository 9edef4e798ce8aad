"""Pods that are left alone, and why. An annotation of the pod holds the reason, so that its owner learns why the job is not
faster."""

from __future__ import annotations

import re
import urllib.parse

from .names import (
    CACHE_CLAIM,
    CACHE_VOLUME,
    IDENTITY_MOUNT,
    IDENTITY_VOLUME,
    INIT_CONTAINER,
    MOUNT,
    SKIP,
    START_MOUNT,
    START_VOLUME,
    VOLUME,
    Object,
)
from .policy import Policy

NEEDED_STORAGE_BYTES = 1 << 30
"""Least ephemeral-storage limit of a pod: payload, kernels and spool count against it, and a pod that exceeds it is evicted."""
_MIRROR = "kubernetes.io/config.mirror"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
"""A valid name of an object; the API server refuses a pod that refers to any other."""
_UNITS = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 1 << 10,
    "Mi": 1 << 20,
    "Gi": 1 << 30,
    "Ti": 1 << 40,
}


class LeftAloneError(Exception):
    """The pod or the container is not injected; the text is the reason, for the pod's owner."""


def check_pod(pod: Object, policy: Policy) -> None:
    """Raises LeftAloneError if the pod must not be injected."""
    spec, metadata = pod["spec"], pod.get("metadata") or {}
    selector = spec.get("nodeSelector") or {}
    if policy.opted_out or policy.cannot_start:
        raise LeftAloneError(policy.opted_out or policy.cannot_start)
    annotations = metadata.get("annotations") or {}
    if SKIP in annotations:
        raise LeftAloneError(str(annotations[SKIP]) or f"its annotation {SKIP} says so")
    labels = metadata.get("labels") or {}
    lacking = [f"{name}={value}" for name, value in policy.match_labels.items() if labels.get(name) != value]
    if lacking:
        raise LeftAloneError(f"the StitchPolicy of its namespace is for pods with {', '.join(lacking)}"[:500])
    claim = annotations.get(CACHE_CLAIM)
    if claim and not _NAME.fullmatch(str(claim)):
        raise LeftAloneError(f"its annotation {CACHE_CLAIM} is not a valid name of a PersistentVolumeClaim")
    if _MIRROR in annotations:
        raise LeftAloneError("a static pod cannot be changed")
    system = (spec.get("os") or {}).get("name") or selector.get("kubernetes.io/os") or "linux"
    if system != "linux":
        raise LeftAloneError(f"the pod is for {system}; there is a payload for Linux only")
    _check_processor(spec, policy)
    _check_names(spec, policy)
    taken = {volume.get("name") for volume in spec.get("volumes") or ()} & {
        VOLUME,
        START_VOLUME,
        CACHE_VOLUME,
        IDENTITY_VOLUME,
    }
    if taken:
        raise LeftAloneError(f"the pod has a volume {min(taken)} of its own")
    containers = [*spec["containers"], *(spec.get("initContainers") or ())]
    if any(container.get("name") == INIT_CONTAINER for container in containers):
        raise LeftAloneError(f"the pod has a container {INIT_CONTAINER} of its own")
    limit = _storage_limit(spec["containers"])
    if limit is not None and limit < NEEDED_STORAGE_BYTES:
        raise LeftAloneError(
            f"the pod's limit of ephemeral storage is {limit >> 20} MiB; with less than {NEEDED_STORAGE_BYTES >> 20} MiB the payload "
            "could get it evicted"
        )


def check_container(container: Object) -> None:
    """Raises LeftAloneError if the container must not be injected."""
    for mount in container.get("volumeMounts") or ():
        path = str(mount.get("mountPath", "")).rstrip("/")
        if any(path == ours or path.startswith(f"{ours}/") for ours in (MOUNT, START_MOUNT, IDENTITY_MOUNT)):
            raise LeftAloneError(f"{container.get('name')}: it mounts a volume at {path}")


_LABEL = "kubernetes.io/arch"
PROCESSOR = "amd64"
"""The processor for which payload and starter are built."""


def _check_processor(spec: Object, policy: Policy) -> None:
    """Raises LeftAloneError if the pod may run where the starter cannot."""
    named = (spec.get("nodeSelector") or {}).get(_LABEL)
    if named not in (None, PROCESSOR):
        raise LeftAloneError(f"the pod is for {named}; there is a payload for {PROCESSOR} only")
    if named == PROCESSOR or not policy.has_other_processors:
        return
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or ()
    if not terms or not all(any(_is_for_ours(each) for each in term.get("matchExpressions") or ()) for term in terms):
        raise LeftAloneError(
            f"the cluster has nodes of other processors too, and the pod does not say that it is for {PROCESSOR} (nodeSelector "
            f"{_LABEL})"
        )


_OF_THE_CLUSTER = re.compile(r"[^.]+\.[^.]+\.svc(\..*)?")
"""A Service's name, which the cluster's own DNS server knows and no other."""


def _check_names(spec: Object, policy: Policy) -> None:
    """Raises LeftAloneError if the pod would resolve names as its node does, which finds no Service: its job could send no record.

    Kubernetes treats `ClusterFirst`, the default, as `Default` for a pod with hostNetwork.
    """
    server = urllib.parse.urlsplit(policy.ingest_url).hostname or ""
    if not _OF_THE_CLUSTER.fullmatch(server):
        return
    is_of_host = bool(spec.get("hostNetwork"))
    given = spec.get("dnsPolicy") or "ClusterFirst"
    if given == "Default" or (is_of_host and given == "ClusterFirst"):
        needed = "ClusterFirstWithHostNet" if is_of_host else "ClusterFirst"
        why = "hostNetwork" if is_of_host else f"dnsPolicy: {given}"
        raise LeftAloneError(
            f"with {why} the pod resolves names as its node does and cannot find the ingest server {server}; set dnsPolicy: {needed}"
        )


def _is_for_ours(expression: Object) -> bool:
    wanted = (expression.get("key"), expression.get("operator"), expression.get("values"))
    return wanted == (_LABEL, "In", [PROCESSOR])


def _storage_limit(containers: list[Object]) -> int | None:
    """The pod's limit in bytes: the sum of its containers' limits; None if none has one."""
    texts = [
        ((container.get("resources") or {}).get("limits") or {}).get("ephemeral-storage") for container in containers
    ]
    found = [bytes_of(str(text)) for text in texts if text is not None]
    return sum(found) if found else None


def bytes_of(quantity: str) -> int:
    """The bytes of a Kubernetes quantity. A quantity in any other form counts as 0, so that the pod is left alone."""
    number = quantity.rstrip("KMGTik")
    try:
        return int(float(number) * _UNITS[quantity[len(number) :]])
    except (ValueError, KeyError, OverflowError):
        return 0
