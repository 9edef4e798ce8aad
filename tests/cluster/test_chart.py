"""The chart in each of its modes: linted, and every object taken by the real API server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import CHART
from .foreign import ForeignError, definitions
from .kubernetes import Kubernetes

pytestmark = pytest.mark.slow

MODES = sorted((CHART / "ci").glob("*-values.yaml"))
EVERYTHING = CHART / "ci" / "everything-values.yaml"


def rendered(kubernetes: Kubernetes, mode: Path) -> list[dict[str, Any]]:
    text = kubernetes.helm(
        "template", "fleet", str(CHART), "--namespace", "chart", "--values", str(mode), "--include-crds"
    )
    return [each for each in yaml.safe_load_all(text) if each]


@pytest.fixture(scope="module")
def foreign_resources(kubernetes: Kubernetes) -> Iterator[None]:
    """Those of Prometheus' operator and of cert-manager. They are gone afterwards."""
    try:
        texts = definitions()
    except ForeignError as error:
        pytest.skip(str(error))
    everything = "\n---\n".join(texts)
    kubernetes.kubectl("apply", "--server-side", "-f", "-", stdin=everything)
    kubernetes.kubectl("wait", "--for=condition=Established", "--timeout=60s", "-f", "-", stdin=everything)
    yield
    kubernetes.kubectl("delete", "--wait=false", "-f", "-", stdin=everything)


@pytest.mark.usefixtures("foreign_resources")
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: str(mode.stem))
def test_the_api_server_takes_every_object(kubernetes: Kubernetes, mode: Path) -> None:
    kubernetes.helm("lint", "--strict", str(CHART), "--values", str(mode))
    kubernetes.namespace("chart")
    objects = rendered(kubernetes, mode)
    for space in (each["metadata"]["name"] for each in objects if each["kind"] == "Namespace"):
        kubernetes.namespace(space)  # what lies in it is refused without it; the same holds for a pod's account, below
    for each in objects:
        if each["kind"] in ("CustomResourceDefinition", "Namespace"):
            continue
        # unknown fields are errors: a mistyped one would be dropped without a word
        space = each["metadata"].get("namespace", "chart")
        kubernetes.kubectl(
            "-n", space, "create", "--dry-run=server", "--validate=strict", "-f", "-", stdin=json.dumps(each)
        )
        if each["kind"] == "ServiceAccount":
            kubernetes.create(each) if "namespace" in each["metadata"] else None
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
    objects = rendered(kubernetes, mode)
    templates = [each["spec"]["template"]["spec"] for each in objects if each["kind"] in ("Deployment", "Job")]
    templates += [each["spec"] for each in objects if each["kind"] == "Pod"]
    assert len(templates) >= 3
    for spec in templates:
        assert spec["securityContext"]["runAsNonRoot"] is True
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert "memory" in container["resources"]["limits"]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: str(mode.stem))
def test_webhook_and_controller_share_the_pauses(kubernetes: Kubernetes, mode: Path) -> None:
    """A webhook that may not read its ConfigMap never becomes Ready."""
    objects = rendered(kubernetes, mode)
    (pauses,) = (each["metadata"]["name"] for each in objects if each["kind"] == "ConfigMap" and "pauses" in str(each))
    deployments = [each["spec"]["template"]["spec"] for each in objects if each["kind"] == "Deployment"]
    containers = {container["args"][0]: container for spec in deployments for container in spec["containers"]}
    for part in ("webhook", "controller"):
        assert f"--pauses={pauses}" in containers[part]["args"], part


def test_values_that_are_none_are_refused(kubernetes: Kubernetes) -> None:
    with pytest.raises(AssertionError, match="replica"):
        kubernetes.helm("template", str(CHART), "--set", "webhook.replicaCount=2")
    with pytest.raises(AssertionError, match="timeoutSeconds"):
        kubernetes.helm("template", str(CHART), "--set", "webhook.timeoutSeconds=60")


def test_only_labelled_pods_outside_our_own_namespaces_are_asked_about(kubernetes: Kubernetes) -> None:
    (configuration,) = (
        each for each in rendered(kubernetes, MODES[0]) if each["kind"] == "MutatingWebhookConfiguration"
    )
    asked = [each["rules"][0]["resources"] for each in configuration["webhooks"]]
    assert asked == [["pods"], ["mpijobs"], ["trainjobs"], ["jobsets"]]
    for webhook in configuration["webhooks"]:
        assert webhook["objectSelector"] == {"matchLabels": {"stitchfleet.io/enabled": "true"}}
        (excluded,) = webhook["namespaceSelector"]["matchExpressions"]
        assert (excluded["operator"], excluded["values"]) == ("NotIn", ["kube-system", "chart"])
        assert (webhook["failurePolicy"], webhook["sideEffects"]) == ("Ignore", "None")


def test_a_webhook_pod_is_there_whenever_one_may_be(kubernetes: Kubernetes) -> None:
    """On another node than the others if there is one, through a drain of its node, and through an upgrade."""
    objects = {(each["kind"], each["metadata"]["name"]): each for each in rendered(kubernetes, MODES[0])}
    (name,) = (name for kind, name in objects if kind == "Deployment" and name.endswith("-webhook"))
    spec = objects["Deployment", name]["spec"]
    labels = spec["template"]["metadata"]["labels"].items()
    budget = objects["PodDisruptionBudget", name]["spec"]
    assert budget["maxUnavailable"] == 1
    assert spec["replicas"] >= 2
    assert budget["selector"]["matchLabels"].items() <= labels
    rules = spec["template"]["spec"]["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    (term,) = (each["podAffinityTerm"] for each in rules)
    assert term["topologyKey"] == "kubernetes.io/hostname"
    assert term["labelSelector"]["matchLabels"].items() <= labels
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}


FOREIGN = {"NetworkPolicy", "ServiceMonitor", "PodMonitor", "PrometheusRule", "Certificate", "Issuer"}


def test_what_other_operators_look_after_is_there_only_if_it_is_asked_for(kubernetes: Kubernetes) -> None:
    text = kubernetes.helm("template", "fleet", str(CHART), "--namespace", "chart")
    default = [each for each in yaml.safe_load_all(text) if each]
    assert not FOREIGN & {each["kind"] for each in default}
    assert "grafana_dashboard" not in text
    everything = rendered(kubernetes, EVERYTHING)
    assert {each["kind"] for each in everything} >= FOREIGN
    assert "grafana_dashboard" in json.dumps(everything)


def test_a_mirror_holds_every_image(kubernetes: Kubernetes) -> None:
    text = json.dumps(rendered(kubernetes, EVERYTHING))
    assert text.count("mirror.example.com/ai/stitchfleet/") == text.count("stitchfleet/operator:") + text.count(
        "stitchfleet/payload:"
    )
    assert "mirror.example.com/ai/stitchfleet/payload" in text


def test_each_alert_of_the_rules_links_to_its_place_in_the_runbook(kubernetes: Kubernetes) -> None:
    (rules,) = (each for each in rendered(kubernetes, EVERYTHING) if each["kind"] == "PrometheusRule")
    shipped = yaml.safe_load((CHART / "files" / "rules.yml").read_text())
    alerts = {}
    for group, theirs in zip(rules["spec"]["groups"], shipped["groups"], strict=True):
        for rule, ours in zip(group["rules"], theirs["rules"], strict=True):
            if "alert" in rule:
                alerts[rule["alert"]] = rule["annotations"].pop("runbook_url")
            assert rule == ours
    assert len(alerts) > 10
    for name, link in alerts.items():
        assert link == f"https://docs.example.com/stitchfleet/runbook#{name.lower()}"
