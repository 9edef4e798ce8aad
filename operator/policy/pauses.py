"""Injection pauses in a namespace while the payload's image cannot be pulled there. The controller records it, and the webhook obeys.

Whether an image can be pulled is known only by pulling it. So a pause ends after a while, and the next pod tries; if that fails
too, the next pause is twice as long. A pod that got the payload ends the pause at once.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping

Moment = datetime.datetime

FIRST = datetime.timedelta(minutes=5)
LONGEST = datetime.timedelta(hours=1)
FORGOTTEN = datetime.timedelta(hours=3)
"""A pause that ended longer ago does not make the next one longer."""

Pauses = Mapping[str, str]
"""Data of a ConfigMap: by namespace, a JSON object with image, until and failures."""


def why_paused(pauses: Pauses, namespace: str, image: str, now: Moment) -> str:
    """Why no pod is injected; "" if pods are. Entries that cannot be read count as no pause."""
    found = _read(pauses.get(namespace))
    if found is None or found[0] != image or now >= found[1]:
        return ""
    return f"the payload's image {image} could not be pulled in this namespace; injection pauses until {_written(found[1])}"


def paused(pauses: Pauses, now: Moment) -> list[str]:
    """The namespaces in which injection pauses at `now`, sorted."""
    return sorted(name for name, text in pauses.items() if (found := _read(text)) and now < found[1])


def after_failure(pauses: Pauses, namespace: str, image: str, now: Moment) -> dict[str, str]:
    """The pauses after a pod could not pull the image. A failure during a pause changes nothing, since that pod was created
    before the pause."""
    found = _read(pauses.get(namespace))
    if found is not None and found[0] == image and now < found[1]:
        return dict(pauses)
    failures = found[2] + 1 if found is not None and found[0] == image and now < found[1] + FORGOTTEN else 1
    until = now + min(FIRST * 2 ** min(failures - 1, 20), LONGEST)
    kept = {name: text for name, text in pauses.items() if (old := _read(text)) and now < old[1] + FORGOTTEN}
    return {**kept, namespace: json.dumps({"image": image, "until": _written(until), "failures": failures})}


def after_success(pauses: Pauses, namespace: str, image: str) -> dict[str, str]:
    """The pauses after the image was pulled for a pod of the namespace: without the namespace's pause for that image."""
    found = _read(pauses.get(namespace))
    over = found is not None and found[0] == image
    return {name: text for name, text in pauses.items() if not (over and name == namespace)}


def _read(text: str | None) -> tuple[str, Moment, int] | None:
    """(image, until, failures); None if it cannot be read."""
    try:
        found = json.loads(text or "")
        until = datetime.datetime.fromisoformat(str(found["until"]).replace("Z", "+00:00"))
        return str(found["image"]), until.astimezone(datetime.timezone.utc), int(found["failures"])
    except (ValueError, KeyError, TypeError):
        return None


def _written(moment: Moment) -> str:
    return moment.astimezone(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
