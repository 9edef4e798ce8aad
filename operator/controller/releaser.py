"""Releases pods that wait for our payload's image: stitchfleet must never keep a pod from starting."""

from __future__ import annotations

import datetime
from collections.abc import Callable

from ..cluster.pods import PodStore
from ..policy.names import NOT_INJECTED, Object
from ..policy.release import payload_image, release
from .loops import for_each, tell
from .metrics import Metrics

LOOK_SECONDS = 10.0
STALL_SECONDS = 120.0


class Releaser:
    """Releases pods that wait for the payload's image, which cannot be pulled (policy/release.py)."""

    def __init__(self, pods: PodStore, held_by: Callable[[str, str], None], metrics: Metrics | None = None) -> None:
        """held_by: called with each namespace and image that held a pod. It may raise ApiException."""
        self._pods, self._held_by, self._metrics = pods, held_by, metrics or Metrics()

    def look(self) -> None:
        """Runs one pass over the pods that have not started. Raises ApiException, after the last pod."""
        for_each(self._pods.pending(), self._look_at)

    def _look_at(self, pod: Object) -> None:
        patch = release(pod, datetime.datetime.now(datetime.timezone.utc))
        if patch is None:
            return
        metadata = pod["metadata"]
        self._pods.patch(metadata["namespace"], metadata["name"], patch)
        self._metrics.released.inc()
        tell(f"{metadata['namespace']}/{metadata['name']}: {patch['metadata']['annotations'][NOT_INJECTED]}")
        self._held_by(metadata["namespace"], payload_image(pod))
