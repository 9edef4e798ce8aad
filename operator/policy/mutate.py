"""`mutate(pod, policy, admission)`: the pod as it must be created. A pure function on plain dictionaries.

    mutate(mutate(pod)) == mutate(pod); unknown fields are kept; what the user set takes precedence.

A pod that is left alone carries the reason in an annotation, and nothing else of ours. Other kinds of objects have modules of their
own.
"""

from __future__ import annotations

import copy

from . import canary, identity, launcher, payload, python_path, starter
from .names import (
    AUTHORITY,
    CACHE_CLAIM,
    CONTAINERS,
    CONTROL,
    INIT_CONTAINER,
    INJECTED,
    NO_SHELL,
    NOT_INJECTED,
    ON,
    SHELL,
    STARTER,
    Object,
)
from .policy import UNKNOWN, Admission, Policy
from .refusals import LeftAloneError, check_container, check_pod

MOST_ANNOTATION_BYTES = 256 * 1024
"""The API server refuses a pod with more."""
MOST_REASON = 1000
ROOM_FOR_REASONS = 4 * MOST_REASON + 1000
"""Bytes reserved for the annotations that say what was done: a character has up to four bytes, and container names may be long
too."""


def mutate(pod: Object, policy: Policy, admission: Admission = UNKNOWN) -> Object:
    """A changed copy of the pod: injected, or with the reason why not in an annotation. A pod that was injected before is copied
    unchanged. Raises KeyError or TypeError if it has no spec with containers, as pods from the API server do."""
    changed = copy.deepcopy(pod)
    if is_injected(changed):
        return changed
    annotations = changed.setdefault("metadata", {}).setdefault("annotations", {}) or {}
    changed["metadata"]["annotations"] = annotations
    annotations.pop(INJECTED, None)
    annotations.pop(NOT_INJECTED, None)
    try:
        check_pod(changed, policy)
        if not canary.is_chosen(changed, policy, admission):
            raise LeftAloneError(
                f"{policy.canary_percent}% of its namespace's jobs are stitched, and it is not among them"
            )
        ours = _annotations(policy, annotations)
        if _size(annotations) + _size(ours) + ROOM_FOR_REASONS > MOST_ANNOTATION_BYTES:
            raise LeftAloneError("its annotations are too long for ours to be added")
        injected, reasons = _inject_containers(changed, policy, admission)
    except LeftAloneError as error:
        if _size(annotations) + ROOM_FOR_REASONS <= MOST_ANNOTATION_BYTES:
            annotations[NOT_INJECTED] = str(error)[:MOST_REASON]
        return changed
    spec = changed["spec"]
    annotations.update(ours)
    spec["initContainers"] = [payload.init_container(injected[0], policy), *(spec.get("initContainers") or ())]
    spec["volumes"] = [*(spec.get("volumes") or ()), *payload.volumes(policy, str(annotations.get(CACHE_CLAIM) or ""))]
    if policy.pull_secrets:
        spec["imagePullSecrets"] = payload.pull_secrets(spec.get("imagePullSecrets") or (), policy)
    annotations[INJECTED] = ",".join(container["name"] for container in injected)
    if reasons:
        annotations[NOT_INJECTED] = "; ".join(reasons)[:MOST_REASON]
    return changed


def _annotations(policy: Policy, given: Object) -> Object:
    """The annotations from which files in the pod are made."""
    return {
        STARTER: starter.BINARY if given.get(SHELL) == NO_SHELL else starter.SCRIPT,
        CONTROL: ON,
        **({AUTHORITY: policy.ingest_authority} if policy.ingest_authority else {}),
    }


def _size(annotations: Object) -> int:
    """Bytes of all annotations, as the API server counts them."""
    return sum(len(str(name).encode()) + len(str(value).encode()) for name, value in annotations.items())


def is_injected(pod: Object) -> bool:
    """Whether the pod was injected before: the API server may ask twice, and pods are made from copies of pods."""
    containers = pod["spec"].get("initContainers") or ()
    named = any(container.get("name") == INIT_CONTAINER for container in containers)
    return named and INJECTED in ((pod.get("metadata") or {}).get("annotations") or {})


def chosen(pod: Object) -> list[Object]:
    """The containers to inject: those that the annotation names, else the first. Raises LeftAloneError for an unknown name."""
    containers: list[Object] = pod["spec"]["containers"]
    wanted = ((pod.get("metadata") or {}).get("annotations") or {}).get(CONTAINERS)
    if wanted is None:
        return containers[:1]
    names = [name.strip() for name in str(wanted).split(",") if name.strip()]
    by_name = {container.get("name"): container for container in containers}
    unknown = [name for name in names if name not in by_name]
    if unknown or not names:
        known = ", ".join(sorted(str(name) for name in by_name))
        raise LeftAloneError(
            f"the annotation {CONTAINERS} names {unknown[0] if unknown else 'nothing'}; the pod has {known}"[:500]
        )
    return [by_name[name] for name in dict.fromkeys(names)]


def _inject_containers(pod: Object, policy: Policy, admission: Admission) -> tuple[list[Object], list[str]]:
    """(the containers that were changed, the reasons why others were not). Raises LeftAloneError if none was changed."""
    injected, reasons = [], []
    annotations = pod["metadata"]["annotations"]
    has_claim = bool(annotations.get(CACHE_CLAIM))
    for container in chosen(pod):
        try:
            check_container(container)
            is_launcher = launcher.is_launcher(pod, container)
            if is_launcher:
                launcher.check(container)
            python_path.extend(container, annotations)
        except LeftAloneError as error:
            reasons.append(str(error))
            continue
        given = {entry.get("name") for entry in container.get("env") or ()}
        ours = identity.environment(pod, container, policy, admission)
        container["env"] = [*(container.get("env") or ()), *(entry for entry in ours if entry["name"] not in given)]
        if is_launcher:
            launcher.bring_to_ranks(container)
        container["volumeMounts"] = [*(container.get("volumeMounts") or ()), *payload.mounts(has_cache_claim=has_claim)]
        injected.append(container)
    if not injected:
        raise LeftAloneError("; ".join(reasons))
    return injected, reasons
