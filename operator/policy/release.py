"""Releases pods that wait for our payload's image, which cannot be pulled.

Of an existing pod only the images of its containers can be changed. The init container gets the user's own image, which the pod pulls
anyway; its command does nothing there, and the job runs plain.
"""

from __future__ import annotations

import datetime

from .names import INIT_CONTAINER, INJECTED, NOT_INJECTED, Object

WAIT_SECONDS = 60.0
"""Seconds from the pod's creation before it is released: a registry may be slow, and a second pull may succeed."""
_CANNOT_PULL = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
)


def release(pod: Object, now: datetime.datetime) -> Object | None:
    """The patch (a strategic merge) for a pod that waits for the payload's image; None for any other pod."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    ours = next(
        (each for each in status.get("initContainerStatuses") or () if each.get("name") == INIT_CONTAINER), None
    )
    waiting = ((ours or {}).get("state") or {}).get("waiting") or {}
    if waiting.get("reason") not in _CANNOT_PULL or _age(metadata, now) < WAIT_SECONDS:
        return None
    target = str((metadata.get("annotations") or {}).get(INJECTED, "")).split(",")[0]
    images = {each["name"]: each["image"] for each in pod["spec"]["containers"]}
    image = images.get(target)
    held = payload_image(pod)
    if image is None or not held or image == held:  # it already waits for the user's own image
        return None
    reason = f"the payload's image {held} could not be pulled ({waiting['reason']}); the job runs plain"
    return {
        "metadata": {"annotations": {INJECTED: None, NOT_INJECTED: reason}},
        "spec": {"initContainers": [{"name": INIT_CONTAINER, "image": image}]},
    }


def payload_image(pod: Object) -> str:
    """The image of the init container; "" if there is none."""
    named = (each["image"] for each in pod["spec"].get("initContainers") or () if each["name"] == INIT_CONTAINER)
    return str(next(named, ""))


def _age(metadata: Object, now: datetime.datetime) -> float:
    created = datetime.datetime.fromisoformat(str(metadata["creationTimestamp"]).replace("Z", "+00:00"))
    return (now - created).total_seconds()
