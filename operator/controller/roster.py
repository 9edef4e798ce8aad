"""Examines all pods that carry the label: tells the owner of a pod why it was not injected, and tells jobs to stop
stitching."""

from __future__ import annotations

import datetime
import threading
from typing import Any

from ..cluster.events import EventStore
from ..cluster.pauses import PauseStore
from ..cluster.pods import PodStore
from ..cluster.policies import PolicyStore
from ..policy.names import Object
from ..policy.pauses import after_failure, after_success, paused
from ..policy.precedence import in_effect, is_stopped
from ..policy.roster import control_change, pulled_image, why_not_injected
from .loops import for_each
from .metrics import Metrics

LOOK_SECONDS = 15.0
STALL_SECONDS = 180.0
NOT_INJECTED_REASON = "StitchfleetNotInjected"
STOPPED_REASON = "StitchfleetStopped"


class Roster:
    """Handles the pods with the label."""

    def __init__(
        self,
        pods: PodStore,
        policies: PolicyStore,
        events: EventStore,
        pauses: PauseStore,
        metrics: Metrics | None = None,
    ) -> None:
        self._metrics = metrics or Metrics()
        self._pods, self._policies, self._events, self._pauses = pods, policies, events, pauses
        self._reported: set[tuple[str, str]] = set()
        self._one_writer = threading.Lock()
        self._known_pauses: dict[str, str] = {}

    def look(self) -> None:
        """Runs one pass over the pods with the label. Raises ApiException, after the last pod."""
        stopped = {name for name, policy in in_effect(self._policies.all()).items() if is_stopped(policy)}
        self._known_pauses = self._pauses.read()
        self._metrics.paused.set(len(paused(self._known_pauses, datetime.datetime.now(datetime.timezone.utc))))
        pods = self._pods.asked()
        for_each(pods, lambda pod: self._look_at(pod, pod["metadata"]["namespace"] in stopped))
        there = {pod["metadata"]["uid"] for pod in pods}
        self._reported = {each for each in self._reported if each[0] in there}

    def _look_at(self, pod: Object, is_stopped: bool) -> None:
        metadata = pod["metadata"]
        self._tell_owner(pod, NOT_INJECTED_REASON, why_not_injected(pod))
        change = control_change(pod, is_stopped)
        if change is not None:
            self._pods.patch(metadata["namespace"], metadata["name"], change)
        if is_stopped and change is not None:
            self._tell_owner(pod, STOPPED_REASON, "the StitchPolicy of its namespace stops it: the job goes on plain")
        image = pulled_image(pod)
        if image is not None and metadata["namespace"] in self._known_pauses:
            self._change_pauses(lambda known: after_success(known, metadata["namespace"], image))

    def _tell_owner(self, pod: Object, reason: str, message: str) -> None:
        key = (pod["metadata"]["uid"], f"{reason} {message}")
        if message and key not in self._reported:
            self._events.about_pod(pod, reason, message)
            self._reported.add(key)

    def held_by(self, namespace: str, image: str) -> None:
        """Records that a pod of the namespace could not pull the payload's image, so that injection pauses there. Any thread may
        call it. Raises ApiException."""
        now = datetime.datetime.now(datetime.timezone.utc)
        self._change_pauses(lambda known: after_failure(known, namespace, image, now))

    def _change_pauses(self, change: Any) -> None:
        with self._one_writer:
            known = self._pauses.read()
            wanted = change(known)
            if wanted != known:
                self._pauses.write(wanted)
            self._known_pauses = wanted
