"""Lets pods go that our payload's image holds: nothing of ours may keep a pod from starting."""

from __future__ import annotations

import datetime
import sys
import time
from collections.abc import Callable

from kubernetes.client.exceptions import ApiException

from stitchfleet.operator.cluster.pods import PodStore
from stitchfleet.operator.policy.names import NOT_INJECTED
from stitchfleet.operator.policy.release import payload_image, release

LOOK_SECONDS = 10.0
STALL_SECONDS = 120.0


class Releaser:
    """progress: when the last look ended (time.monotonic), good or not."""

    def __init__(self, pods: PodStore, held_by: Callable[[str, str], None]) -> None:
        """held_by: is told of each namespace and image that held a pod. It may raise ApiException."""
        self._pods, self._held_by = pods, held_by
        self.progress = time.monotonic()

    def stalled(self) -> bool:
        return time.monotonic() - self.progress > STALL_SECONDS

    def look(self) -> None:
        """Once. Never raises."""
        try:
            for pod in self._pods.pending():
                patch = release(pod, datetime.datetime.now(datetime.timezone.utc))
                if patch is not None:
                    metadata = pod["metadata"]
                    self._held_by(metadata["namespace"], payload_image(pod))
                    self._pods.patch(metadata["namespace"], metadata["name"], patch)
                    _tell(
                        f"{metadata['namespace']}/{metadata['name']}: {patch['metadata']['annotations'][NOT_INJECTED]}"
                    )
        except ApiException as error:
            _tell(f"pods: the API server answered {error.status} {error.reason}")
        except Exception as error:  # a lost connection has many names
            _tell(f"pods: {type(error).__name__}: {error}")
        self.progress = time.monotonic()


def _tell(text: str) -> None:
    print(f"stitchfleet controller: {text}"[:500], file=sys.stderr, flush=True)
