"""Which rights the chart's accounts have, and which of them they used: by the API server's audit log."""

from __future__ import annotations

import collections
import json
from dataclasses import dataclass, field
from typing import Any

from .conftest import Release
from .kubernetes import Kubernetes

Right = tuple[str, str, str]
"""API group, resource with its subresource, verb."""


@dataclass
class Rights:
    """Of one account. refused: asked for and never got; a pod may be quicker than the news of its rights, and asks again."""

    granted: set[Right] = field(default_factory=set)
    used: set[Right] = field(default_factory=set)
    refused: set[Right] = field(default_factory=set)


def rights_of(kubernetes: Kubernetes, release: Release) -> dict[str, Rights]:
    """By the account's name without "stitchfleet-": what its roles grant, and what it asked for since the release was installed."""
    found: dict[str, Rights] = collections.defaultdict(Rights)
    prefix = f"system:serviceaccount:{release.namespace}:stitchfleet-"
    allowed = set()
    for event in kubernetes.audit(since=release.installed):
        about, user = event.get("objectRef") or {}, event["user"].get("username", "")
        if user.startswith(prefix) and about.get("resource"):
            resource = "/".join(part for part in (about["resource"], about.get("subresource")) if part)
            right = (about.get("apiGroup", ""), resource, event["verb"])
            account = user.removeprefix(prefix)
            found[account].used.add(right)
            is_refused = (event.get("responseStatus") or {}).get("code") == 403
            found[account].refused |= {right} if is_refused else set()
            allowed |= set() if is_refused else {(account, right)}
    for account, rights in found.items():
        rights.refused = {right for right in rights.refused if (account, right) not in allowed}
    for kind in ("role", "clusterrole"):
        roles = {role["metadata"]["name"]: role for role in _listed(kubernetes, release, f"{kind}s")}
        for binding in _listed(kubernetes, release, f"{kind}bindings"):
            for subject in binding["subjects"]:
                rights = found[subject["name"].removeprefix("stitchfleet-")]
                for rule in roles[binding["roleRef"]["name"]]["rules"]:
                    rights.granted |= {
                        (group, name, verb)
                        for group in rule["apiGroups"]
                        for name in rule["resources"]
                        for verb in rule["verbs"]
                    }
    return found


def _listed(kubernetes: Kubernetes, release: Release, kind: str) -> list[dict[str, Any]]:
    words = ("-n", release.namespace, "get", kind, "-l", "app.kubernetes.io/part-of=stitchfleet", "-o", "json")
    return list(json.loads(kubernetes.kubectl(*words))["items"])
