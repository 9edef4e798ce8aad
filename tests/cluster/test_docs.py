"""docs/pods.md shows a pod as it was really admitted: the page's own text is what the cluster's answer is compared with
(STITCHFLEET_UPDATE_GOLDEN=1 writes the page anew). The commands of all pages do what the pages say.
"""

from __future__ import annotations

import copy
import os
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from ..pages import ROOT, type_in
from .conftest import Images, Release, Releases
from .kubernetes import Kubernetes
from .load import dry_run, is_injected
from .page_commands import INSTALLING, ON_A_CLUSTER
from .programs import cache_folder
from .test_pods import pod

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "pods.md"
BLOCK = re.compile(r"```yaml\n(.*?)```", re.DOTALL)


def by_itself(found: Any, written: Any, twin: Any) -> Any:
    """`found` without what the API server gave the unlabelled twin as well, unless the researcher wrote it."""
    if isinstance(found, dict):
        kept = {}
        for key, value in found.items():
            mine, theirs = (each.get(key) if isinstance(each, dict) else None for each in (written, twin))
            if mine is not None or value != theirs:
                kept[key] = by_itself(value, mine, theirs)
        return kept
    if isinstance(found, list):
        named = (
            [{each["name"]: each for each in some or () if "name" in each} for some in (written, twin)]
            if is_named(found)
            else None
        )
        if named is not None:
            mine, theirs = named
            pairs = [(each, mine.get(each["name"]), theirs.get(each["name"])) for each in found]
            return [by_itself(*pair) for pair in pairs if pair[1] is not None or pair[0] != pair[2]]
    return found


def is_named(found: list[Any]) -> bool:
    return all(isinstance(each, dict) and "name" in each for each in found)


def normalized(pod: dict[str, Any], images: Images) -> dict[str, Any]:
    """Without what differs from one cluster, build or moment to another."""
    pod = copy.deepcopy(pod)
    for key in ("uid", "creationTimestamp", "managedFields", "resourceVersion", "generation"):
        pod["metadata"].pop(key, None)
    pod.pop("status", None)
    text = yaml.safe_dump(pod)
    text = re.sub(r"kube-api-access-[a-z0-9]{5}", "kube-api-access-xxxxx", text)
    pod = yaml.safe_load(text.replace(images.payload.reference, "stitchfleet/payload:0.1.0"))
    annotations = pod["metadata"].get("annotations") or {}
    if "stitchfleet.io/ingest-authority" in annotations:
        annotations["stitchfleet.io/ingest-authority"] = "-----BEGIN CERTIFICATE-----\n...\n-----END CERTIFICATE-----\n"
    return dict(pod)


def test_the_page_shows_a_pod_as_it_is_admitted(kubernetes: Kubernetes, images: Images, release: Release) -> None:
    page = PAGE.read_text(encoding="utf-8")
    before, after = BLOCK.findall(page)
    written = yaml.safe_load(before)
    kubernetes.namespace(written["metadata"]["namespace"])
    unlabelled = copy.deepcopy(written)
    del unlabelled["metadata"]["labels"]["stitchfleet.io/enabled"]
    # a policy of a test before, which went with the namespace, is in force until the webhook looks again
    kubernetes.wait(lambda: is_injected(dry_run(kubernetes, written)), 20, "it is not injected")
    found, twin = (normalized(dry_run(kubernetes, each), images) for each in (written, unlabelled))
    shown = by_itself(found, written, twin)
    if os.environ.get("STITCHFLEET_UPDATE_GOLDEN"):
        PAGE.write_text(
            page.replace(
                f"```yaml\n{after}```", f"```yaml\n{yaml.dump(shown, Dumper=Readable, sort_keys=False, width=120)}```"
            )
        )
    else:
        assert shown == yaml.safe_load(after), "STITCHFLEET_UPDATE_GOLDEN=1 writes it anew"
    named = set(re.findall(r"`_([A-Z_]+)`|`STITCHFLEET_([A-Z_]+)`", page.partition("## Each change")[2]))
    ours = {each["name"].removeprefix("STITCHFLEET_") for each in shown["spec"]["containers"][0]["env"]} - {"DATA"}
    assert ours == {first or second for first, second in named}, "the table explains each variable"


class Readable(yaml.SafeDumper):  # type: ignore[misc]  # PyYAML has no types
    """Texts of several lines as they are."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


Readable.add_representer(str, _text)


@pytest.fixture
def typed(kubernetes: Kubernetes, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """typed(command, expected): as somebody types it in a checkout, with the cluster's KUBECONFIG set, and what it has to print."""
    monkeypatch.setenv("KUBECONFIG", str(kubernetes.node.kubeconfig))
    monkeypatch.setenv("PATH", f"{ROOT}/.venv/bin:{os.environ['PATH']}:{kubernetes.node.helm.parent}")

    return lambda command, expected: type_in(command, expected, ROOT, seconds=600)


def week() -> str:
    return time.strftime("%G-w%V", time.gmtime())


def test_the_commands_of_the_runbook_run(
    kubernetes: Kubernetes, external: Release, typed: Callable[[str, str], None]
) -> None:
    kubernetes.wait(lambda: week() in kubernetes.kubectl("get", "savingsreports"), 60, "there is no report")
    for command, expected in ON_A_CLUSTER.items():
        typed(command.replace("2026-w48", week()), expected)
    for part in ("ingest", "controller"):  # restarted by one of them
        kubernetes.kubectl("-n", external.namespace, "rollout", "status", f"deploy/stitchfleet-{part}", "--timeout=90s")


def test_a_release_is_installed_used_and_removed_by_the_words_of_the_pages(
    kubernetes: Kubernetes, releases: Releases, images: Images, registry: str, typed: Callable[[str, str], None]
) -> None:
    """The images come from a registry, which the node pulls from. Added to the pages' words are what a node without storage needs
    (the page of the laptop says so), and where the tests keep images."""
    releases.uninstall()
    job = pod(images.demo.reference, command=["python", "/app/train.py", "--steps", "1000000"])
    job["metadata"]["namespace"] = "default"
    more = {
        "scripts.images.build": f" --folder {cache_folder()}/images",
        "helm install": """ --set-json 'database.embedded.volume={"emptyDir":{}}'""",
    }
    try:
        for command, expected in INSTALLING.items():
            if command.startswith("kubectl get pod"):
                kubernetes.create(job)
                kubernetes.train_for_a_measurement("train", "default", "main", 240)
                kubernetes.finished("train", "default", 60)
            added = "".join(text for part, text in more.items() if part in command)
            typed(command.replace("REGISTRY", registry).replace(" REVISION", " 1") + added, expected)
    finally:
        kubernetes.kubectl("-n", "default", "delete", "pod", "train", "--ignore-not-found", "--wait=false")
        kubernetes.helm("uninstall", "stitchfleet", "--namespace", "stitchfleet", "--ignore-not-found", "--wait")
