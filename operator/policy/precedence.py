"""StitchPolicy objects: which one of a namespace is in effect, and what it changes in the cluster's policy."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .names import Object
from .policy import Policy

_SETTINGS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "mode": ("STITCHFLEET_MODE", str),
    "baselineSteps": ("STITCHFLEET_BASELINE_STEPS", str),
    "verifySteps": ("STITCHFLEET_VERIFY_STEPS", str),
    "sampleStride": ("STITCHFLEET_SAMPLE_STRIDE", str),
    "plainSharePercent": ("STITCHFLEET_PLAIN_SHARE", lambda percent: f"{percent / 100:g}"),
    "compileNice": ("STITCHFLEET_COMPILE_NICE", str),
    "cacheMegabytes": ("STITCHFLEET_CACHE_BYTES", lambda megabytes: str(megabytes << 20)),
    "disableClusters": ("STITCHFLEET_DISABLE_CLUSTERS", ",".join),
}
"""By field of a spec: the plugin's variable, and how the value is written. The CRD's schema has checked types and bounds."""


def in_effect(objects: Iterable[Object]) -> dict[str, Object]:
    """The StitchPolicy in effect, by namespace: the oldest one or, among those of one second, the first by name."""
    found: dict[str, Object] = {}
    for each in sorted(objects, key=_age):
        found.setdefault(str(each["metadata"]["namespace"]), each)
    return found


def _age(policy: Object) -> tuple[str, str]:
    metadata = policy["metadata"]
    return str(metadata.get("creationTimestamp", "")), str(metadata["name"])


def applied(policy: Policy, stitch_policy: Object | None) -> Policy:
    """The cluster's policy with the changes of a namespace's StitchPolicy (None: unchanged)."""
    if stitch_policy is None:
        return policy
    spec: Mapping[str, Any] = stitch_policy.get("spec") or {}
    settings = {name: write(spec[field]) for field, (name, write) in _SETTINGS.items() if spec.get(field) is not None}
    metadata = stitch_policy["metadata"]
    return dataclasses.replace(
        policy,
        payload_image=str(spec.get("payloadImage") or policy.payload_image),
        settings={**policy.settings, **settings},
        canary_percent=int(spec.get("canaryPercent", 100)),
        pull_secrets=tuple(spec.get("payloadPullSecrets") or policy.pull_secrets),
        match_labels=spec.get("matchLabels") or {},
        opted_out=_why_not(spec, f"the StitchPolicy {metadata['name']} of its namespace"),
    )


def _why_not(spec: Mapping[str, Any], who: str) -> str:
    if not spec.get("enabled", True):
        return f"{who} says so"
    return f"{who} has stopped stitching" if spec.get("stopped") else ""


def is_stopped(stitch_policy: Object) -> bool:
    """Whether running jobs must stop stitching too."""
    return bool((stitch_policy.get("spec") or {}).get("stopped"))
