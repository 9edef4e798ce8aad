"""What to do with, and what to report about, the pods that carry the label, as the API server lists them. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Set
from dataclasses import dataclass, field

from .names import CONTROL, INIT_CONTAINER, INJECTED, NOT_INJECTED, OFF, ON, Object
from .release import payload_image

SILENT_AFTER = datetime.timedelta(minutes=15)
"""An injected pod that has run this long, or has ended, and of which no record has arrived, is silent."""
MOST_EXAMPLES = 20
NEVER_ASKED = "the webhook did not see it: it was away when the pod was created, or the label came later"


def why_not_injected(pod: Object) -> str:
    """Why the pod is not injected; "" if it is."""
    annotations = pod["metadata"].get("annotations") or {}
    if annotations.get(NOT_INJECTED):
        return str(annotations[NOT_INJECTED])
    return "" if INJECTED in annotations else NEVER_ASKED


def is_injected(pod: Object) -> bool:
    """Whether the pod carries the annotation of an injected pod."""
    return INJECTED in (pod["metadata"].get("annotations") or {})


def control_change(pod: Object, is_stopped: bool) -> Object | None:
    """The patch of annotations that tells a pod's job to stop stitching, or that it may continue; None if nothing changes, for a
    pod that has ended, or for one that is not injected."""
    given = (pod["metadata"].get("annotations") or {}).get(CONTROL)
    has_ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    if not is_injected(pod) or has_ended or (given == OFF) == is_stopped:
        return None
    return {"metadata": {"annotations": {CONTROL: OFF if is_stopped else ON}}}


def pulled_image(pod: Object) -> str | None:
    """The payload's image if the pod's init container has started, so that it was pulled; else None."""
    for each in (pod.get("status") or {}).get("initContainerStatuses") or ():
        if each.get("name") == INIT_CONTAINER and (each.get("state") or {}).keys() & {"running", "terminated"}:
            return payload_image(pod) or None
    return None


@dataclass
class Asked:
    """Counts of the pods with the label that exist now. silent: injected, and no record of them has arrived."""

    total: int = 0
    injected: int = 0
    not_injected: int = 0
    silent: int = 0
    examples: list[Object] = field(default_factory=list)


def asked(pods: Iterable[Object], reported: Set[str], now: datetime.datetime, namespace: str | None = None) -> Asked:
    """Counts the pods. reported: uids of pods that sent records. namespace: only its pods are counted; None: all pods."""
    found = Asked()
    for pod in pods:
        metadata = pod["metadata"]
        if namespace is not None and metadata["namespace"] != namespace:
            continue
        found.total += 1
        reason = why_not_injected(pod)
        if is_injected(pod):
            found.injected += 1
            if not reason and _is_silent(pod, reported, now):
                found.silent += 1
                reason = "it was injected, and sent no record"
        else:
            found.not_injected += 1
        if reason and len(found.examples) < MOST_EXAMPLES:
            found.examples.append(
                {"namespace": metadata["namespace"], "name": metadata["name"], "reason": reason[:500]}
            )
    return found


_ROLE = "training.kubeflow.org/job-role"


def _is_silent(pod: Object, reported: Set[str], now: datetime.datetime) -> bool:
    metadata, status = pod["metadata"], pod.get("status") or {}
    if metadata["uid"] in reported or (metadata.get("labels") or {}).get(_ROLE) == "launcher":
        return False  # a launcher trains nothing itself
    if status.get("phase") in ("Succeeded", "Failed"):
        return True
    started = status.get("startTime")
    if status.get("phase") != "Running" or not started:
        return False
    return now - datetime.datetime.fromisoformat(str(started).replace("Z", "+00:00")) > SILENT_AFTER
