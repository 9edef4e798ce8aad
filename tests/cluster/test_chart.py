"""The chart in each of its modes: linted, and every object taken by the real API server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import CHART
from .kubernetes import Kubernetes

pytestmark = pytest.mark.slow

MODES = sorted((CHART / "ci").glob("*-values.yaml"))


def rendered(kubernetes: Kubernetes, mode: Path) -> list[dict[str, Any]]:
    text = kubernetes.helm(
        "template", "fleet", str(CHART), "--namespace", "chart", "--values", str(mode), "--include-crds"
    )
    return [each for each in yaml.safe_load_all(text) if each]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: str(mode.stem))
def test_the_api_server_takes_every_object(kubernetes: Kubernetes, mode: Path) -> None:
    kubernetes.helm("lint", "--strict", str(CHART), "--values", str(mode))
    kubernetes.namespace("chart")
    objects = rendered(kubernetes, mode)
    for each in objects:
        # unknown fields are errors: a mistyped one would be dropped without a word
        kubernetes.kubectl(
            "-n", "chart", "create", "--dry-run=server", "--validate=strict", "-f", "-", stdin=json.dumps(each)
        ) if each["kind"] != "CustomResourceDefinition" else None
    assert {"MutatingWebhookConfiguration", "Deployment", "Service", "ClusterRole"} <= {
        each["kind"] for each in objects
    }


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: str(mode.stem))
def test_a_second_rendering_is_the_same(kubernetes: Kubernetes, mode: Path) -> None:
    """No random value and no certificate is rendered: Argo CD would find a difference each time."""
    first, second = (rendered(kubernetes, mode) for _ in range(2))
    assert first == second
    assert "caBundle" not in json.dumps(first)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: str(mode.stem))
def test_every_container_is_restricted(kubernetes: Kubernetes, mode: Path) -> None:
    templates = [
        each["spec"]["template"]["spec"] for each in rendered(kubernetes, mode) if each["kind"] in ("Deployment", "Job")
    ]
    assert templates
    for spec in templates:
        assert spec["securityContext"]["runAsNonRoot"] is True
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert "memory" in container["resources"]["limits"]


def test_values_that_are_none_are_refused(kubernetes: Kubernetes) -> None:
    with pytest.raises(AssertionError, match="replica"):
        kubernetes.helm("template", str(CHART), "--set", "webhook.replicaCount=2")
    with pytest.raises(AssertionError, match="timeoutSeconds"):
        kubernetes.helm("template", str(CHART), "--set", "webhook.timeoutSeconds=60")


def test_only_labelled_pods_outside_our_own_namespaces_are_asked_about(kubernetes: Kubernetes) -> None:
    (configuration,) = (
        each for each in rendered(kubernetes, MODES[0]) if each["kind"] == "MutatingWebhookConfiguration"
    )
    (webhook,) = configuration["webhooks"]
    assert webhook["objectSelector"] == {"matchLabels": {"stitchfleet.io/enabled": "true"}}
    (excluded,) = webhook["namespaceSelector"]["matchExpressions"]
    assert (excluded["operator"], excluded["values"]) == ("NotIn", ["kube-system", "chart"])
    assert (webhook["failurePolicy"], webhook["sideEffects"]) == ("Ignore", "None")
