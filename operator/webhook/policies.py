"""What the webhook knows of the cluster, in memory: requests read it, and a task renews it independently of them."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import sys
import time
from collections.abc import Callable, Mapping

from ..policy.names import Object
from ..policy.pauses import why_paused
from ..policy.policy import Policy
from ..policy.precedence import applied, in_effect

LOOK_SECONDS = 5.0
RETRY_SECONDS = 1.0
NODES_SECONDS = 60.0
"""Seconds between checks of the nodes' processors; ten times as long after a node with another processor was found, since such
nodes rarely go away."""


class Policies:
    """Holds what the last check of the cluster found. A check that fails changes nothing.

    of_cluster: the policy of the chart. list_all: returns the StitchPolicies of all namespaces. is_of_one_kind: returns whether
    all nodes have the payload's processor. read_pauses: returns where injection pauses (policy/pauses.py). The three functions
    may block and raise; they are called on a thread.
    """

    def __init__(
        self,
        of_cluster: Policy,
        list_all: Callable[[], list[Object]],
        is_of_one_kind: Callable[[], bool] = lambda: True,
        read_pauses: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._of_cluster = of_cluster
        self._list_all, self._is_of_one_kind, self._read_pauses = list_all, is_of_one_kind, read_pauses
        self._pauses: Mapping[str, str] = {}
        self._by_namespace: dict[str, Object] = {}
        self._nodes_due = float("-inf")

    def of(self, namespace: str, authority: str) -> Policy:
        """The policy of a namespace, from memory. authority: PEM of the authority that currently signs the ingest server's
        certificate."""
        policy = dataclasses.replace(
            self._of_cluster, ingest_authority=authority if self._of_cluster.ingest_url else ""
        )
        found = applied(policy, self._by_namespace.get(namespace))
        paused = why_paused(self._pauses, namespace, found.payload_image, datetime.datetime.now(datetime.timezone.utc))
        return dataclasses.replace(found, opted_out=found.opted_out or paused)

    async def first(self, ended: asyncio.Event) -> None:
        """Repeats the check until it succeeds or `ended` is set. No request may be served before, since it is not known which
        namespaces refuse injection."""
        while not await self._look() and not ended.is_set():
            await asyncio.sleep(RETRY_SECONDS)

    async def keep(self) -> None:
        """Repeats the check every LOOK_SECONDS until the task is cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self._look()

    async def _look(self) -> bool:
        """One check; returns whether it succeeded."""
        try:
            await asyncio.get_running_loop().run_in_executor(None, self._look_at_once)
            return True
        except Exception as error:  # the API server may be down: what is known stays valid
            print(f"stitchfleet webhook: policies: {type(error).__name__}: {error}"[:500], file=sys.stderr, flush=True)
            return False

    def _look_at_once(self) -> None:
        self._by_namespace = in_effect(self._list_all())
        self._pauses = self._read_pauses()
        if time.monotonic() >= self._nodes_due:
            is_mixed = not self._is_of_one_kind()
            self._of_cluster = dataclasses.replace(self._of_cluster, has_other_processors=is_mixed)
            self._nodes_due = time.monotonic() + NODES_SECONDS * (10 if is_mixed else 1)
