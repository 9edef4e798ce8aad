"""The namespaces' policies in memory: requests read them, and a task renews them beside the requests."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from collections.abc import Callable
from typing import Any

from stitchfleet.operator.policy.policy import Policy
from stitchfleet.operator.policy.precedence import applied, in_effect

LOOK_SECONDS = 5.0
RETRY_SECONDS = 1.0


class Policies:
    """What the last look found; one that fails changes nothing. list_all: the StitchPolicies of all namespaces; it may block."""

    def __init__(self, of_cluster: Policy, list_all: Callable[[], list[dict[str, Any]]]) -> None:
        self._of_cluster, self._list_all = of_cluster, list_all
        self._by_namespace: dict[str, dict[str, Any]] = {}

    def of(self, namespace: str, authority: str) -> Policy:
        """authority: PEM of who signs the ingest server's certificate just now."""
        policy = dataclasses.replace(
            self._of_cluster, ingest_authority=authority if self._of_cluster.ingest_url else ""
        )
        return applied(policy, self._by_namespace.get(namespace))

    async def first(self, ended: asyncio.Event) -> None:
        """Until it is known which namespaces want no injection, or `ended` is set: nobody is to be served before that."""
        while not await self._look() and not ended.is_set():
            await asyncio.sleep(RETRY_SECONDS)

    async def keep(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self._look()

    async def _look(self) -> bool:
        """Whether it found out."""
        try:
            found = await asyncio.get_running_loop().run_in_executor(None, self._list_all)
            self._by_namespace = in_effect(found)
            return True
        except Exception as error:  # the API server may be away: what is known holds
            print(f"stitchfleet webhook: policies: {type(error).__name__}: {error}"[:500], file=sys.stderr, flush=True)
            return False
