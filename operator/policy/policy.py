"""What the webhook brings into pods, and what it knows of a pod besides the object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Policy:
    """The policy for the pods of one namespace.

    payload_image: name and tag. cluster: its name in records and reports. ingest_url: where jobs send to; empty: nowhere.
    ingest_authority: PEM of the authority that signed that server's certificate; empty: one that the system trusts. pull_policy:
    imagePullPolicy of the payload's image. settings: of the plugin, by variable. opted_out: why no pod is injected; empty if pods
    are. has_other_processors: the cluster has nodes that are not amd64. cannot_start: why the starter does not run in this
    cluster; empty if it does. canary_percent: the percentage of a namespace's jobs that are injected. pull_secrets: names of
    Secrets that pods get for the payload's image. match_labels: only pods that have these labels are injected.
    """

    payload_image: str
    cluster: str
    ingest_url: str = ""
    ingest_authority: str = ""
    pull_policy: str = "IfNotPresent"
    settings: Mapping[str, str] = field(default_factory=dict)
    opted_out: str = ""
    has_other_processors: bool = False
    cannot_start: str = ""
    canary_percent: int = 100
    pull_secrets: tuple[str, ...] = ()
    match_labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Admission:
    """What an admission request says and its object does not: the namespace, the user who makes the request (a controller, for a
    Job's pod), and the request's unique id."""

    namespace: str = ""
    user: str = ""
    uid: str = ""


UNKNOWN = Admission()
