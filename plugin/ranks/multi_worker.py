"""The workers of `tf.distribute.MultiWorkerMirroredStrategy`: their places, and a board on which one of them posts a text for all.

TF_CONFIG names the cluster's members and which of them a process is (tf.distribute.cluster_resolver.TFConfigClusterResolver). The
chief, or the first worker, is rank 0. The board is TensorFlow's coordination service, which the strategy starts there, and which
keeps values by name (tensorflow/python/eager/context.py, set_config_key_value).
"""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from .resets import Place
from .store import StoreError

_CONTEXT = "tensorflow.python.eager.context"
_KEY = "stitchfleet/store"
_READ_MS = 20
"""How long the service may wait for a value before it says that there is none. Zero would be for ever."""


class Member(NamedTuple):
    """A process of a cluster. cluster: a digest, equal for all members."""

    place: Place
    cluster: str


def member(environment: Mapping[str, str]) -> Member | None:
    """This process's place by TF_CONFIG; None without several chiefs and workers, with parameter servers, or for an evaluator, which
    takes no part in training."""
    try:
        found = json.loads(environment.get("TF_CONFIG", ""))
        cluster, task = dict(found["cluster"]), found["task"]
        jobs = [("chief", index) for index in range(len(cluster.get("chief", ())))]
        jobs += [("worker", index) for index in range(len(cluster.get("worker", ())))]
        addresses = [str(cluster[job][index]) for job, index in jobs]
        rank = jobs.index((str(task["type"]), int(task["index"])))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return None
    if len(jobs) < 2 or cluster.get("ps"):
        return None
    hosts = [address.rpartition(":")[0] for address in addresses]
    digest = hashlib.sha256(json.dumps(addresses).encode()).hexdigest()[:32]
    return Member(Place(rank, len(jobs), hosts[:rank].count(hosts[rank]), hosts.count(hosts[rank])), digest)


class Board:
    """The coordination service of this process's TensorFlow. Its methods may be called on any thread."""

    def __init__(self, context: Any) -> None:
        self._context = context

    @classmethod
    def present(cls) -> Board | None:
        """The board; None as long as no strategy has set it up."""
        context: Any = getattr(sys.modules.get(_CONTEXT), "_context", None)
        if getattr(context, "coordination_service", None) is None or not getattr(context, "_initialized", False):
            return None
        return cls(context)

    @property
    def why_unusable(self) -> str:
        """Why nothing can be read from it; empty if it can."""
        read = getattr(self._context, "get_config_key_value", None)
        if read is None or "timeout_in_ms" not in inspect.signature(read).parameters:
            return "this version of TensorFlow would wait for ever for what is not there"
        return ""

    def post(self, text: bytes) -> None:
        """Posts the text. Raises StoreError; a second text is refused."""
        try:
            self._context.set_config_key_value(_KEY, text.hex())
        except Exception as error:  # TensorFlow raises whatever the service answers
            raise StoreError(f"TensorFlow's coordination service refuses a value: {error}") from error

    def read(self) -> bytes | None:
        """The text; None if none has been posted. Raises StoreError if it is none of ours."""
        try:
            found = self._context.get_config_key_value(_KEY, _READ_MS)
        except Exception:  # it is not there yet, or the service is not
            return None
        try:
            return bytes.fromhex(found)
        except (ValueError, TypeError) as error:
            raise StoreError("TensorFlow's coordination service holds a value that is not ours") from error
