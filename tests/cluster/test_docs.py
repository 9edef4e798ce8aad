"""docs/pods.md shows a pod as it was really admitted: the page's own text is what the cluster's answer is compared with
(STITCHFLEET_UPDATE_GOLDEN=1 writes the page anew). The commands of all pages do what the pages say.
"""

from __future__ import annotations

import copy
import os
import re
import time
from collections.abc import Callable

import pytest
import yaml

from scripts.images.build import TRAINED_WITH

from ..pages import ROOT, type_in
from .conftest import Images, Release, Releases
from .golden import IS_UPDATED, as_text, by_itself, normalized
from .kubernetes import Kubernetes
from .load import dry_run, is_injected
from .page_commands import INSTALLING, ON_A_CLUSTER
from .programs import cache_folder
from .test_pods import pod

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "pods.md"
BLOCK = re.compile(r"```yaml\n(.*?)```", re.DOTALL)


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
    if IS_UPDATED:
        PAGE.write_text(page.replace(f"```yaml\n{after}```", f"```yaml\n{as_text(shown)}```"))
    else:
        assert shown == yaml.safe_load(after), "STITCHFLEET_UPDATE_GOLDEN=1 writes it anew"
    named = set(re.findall(r"`_([A-Z_]+)`|`STITCHFLEET_([A-Z_]+)`", page.partition("## Each change")[2]))
    ours = {each["name"].removeprefix("STITCHFLEET_") for each in shown["spec"]["containers"][0]["env"]} - {"DATA"}
    assert ours == {first or second for first, second in named}, "the table explains each variable"


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
        "scripts.images.build": f" --folder {cache_folder()}/images --tensorflow {TRAINED_WITH}",
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
