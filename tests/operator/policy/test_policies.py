"""StitchPolicy objects: what they change, which of several holds, and that schema, program and plugin know the same fields."""

from __future__ import annotations

import asyncio
import dataclasses
import pathlib
from typing import Any

import pytest
import yaml

from stitchfleet.operator.policy import names, precedence
from stitchfleet.operator.policy.mutate import mutate
from stitchfleet.operator.policy.precedence import applied, in_effect
from stitchfleet.operator.webhook import policies as policies_module
from stitchfleet.operator.webhook.policies import Policies
from stitchfleet.plugin.base.settings import Settings, read_settings

from ..controller.test_reports import Reports, conditions, engine, kept  # noqa: F401
from ..pods import POLICY, Object, pod

CRD = pathlib.Path(__file__).resolve().parents[3] / "helm" / "stitchfleet" / "crds" / "stitchpolicies.yaml"


def stitch_policy(
    name: str = "team", created: str = "2026-11-01T00:00:00Z", namespace: str = "vision", **spec: Any
) -> Object:
    return {
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": created, "generation": 1},
        "spec": spec,
    }


def fields() -> Object:
    schema = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return dict(schema["properties"]["spec"]["properties"])


def example(schema: Object) -> Any:
    """A value that the schema takes and that is not the plugin's default."""
    if "enum" in schema:
        return schema["enum"][-1]
    return {
        "integer": 17,
        "string": "example.org/payload:2",
        "boolean": not schema.get("default"),
        "array": ["gelu_77"],
        "object": {"team": "vision"},
    }[schema["type"]]


def test_every_field_of_the_schema_changes_something_and_there_are_no_others() -> None:
    for name, schema in fields().items():
        assert applied(POLICY, stitch_policy(**{name: example(schema)})) != POLICY, name
    others = {"enabled", "payloadImage", "payloadPullSecrets", "matchLabels", "stopped", "canaryPercent"}
    assert {*precedence._SETTINGS, *others} == set(fields())


def test_the_plugin_reads_every_setting_that_a_policy_writes() -> None:
    spec = {name: example(schema) for name, schema in fields().items()}
    written = applied(POLICY, stitch_policy(**spec)).settings
    complaints: list[str] = []
    changed = read_settings(written, complaints.append)
    assert complaints == []
    assert sum(getattr(changed, name) != getattr(Settings(), name) for name in Settings.__dataclass_fields__) == len(
        written
    )


def test_a_namespace_that_opts_out_is_left_alone_and_the_pod_says_why() -> None:
    policy = applied(POLICY, stitch_policy("quiet", enabled=False))
    annotations = mutate(pod(), policy)["metadata"]["annotations"]
    assert annotations == {names.NOT_INJECTED: "the StitchPolicy quiet of its namespace says so"}


def test_settings_and_the_pinned_payload_reach_the_pod() -> None:
    changed = mutate(pod(), applied(POLICY, stitch_policy(mode="observe", payloadImage="mirror/payload:7")))
    told = {entry["name"]: entry.get("value") for entry in changed["spec"]["containers"][0]["env"]}
    assert told["STITCHFLEET_MODE"] == "observe"
    assert changed["spec"]["initContainers"][0]["image"] == "mirror/payload:7"


def test_a_pod_gets_the_secrets_for_the_payload_beside_its_own() -> None:
    policy = dataclasses.replace(POLICY, pull_secrets=("mirror", "mine"))
    given = pod()
    given["spec"]["imagePullSecrets"] = [{"name": "mine"}]
    assert mutate(given, policy)["spec"]["imagePullSecrets"] == [{"name": "mine"}, {"name": "mirror"}]
    assert "imagePullSecrets" not in mutate(pod(), POLICY)["spec"]
    of_namespace = applied(policy, stitch_policy(payloadPullSecrets=["team"]))
    assert mutate(pod(), of_namespace)["spec"]["imagePullSecrets"] == [{"name": "team"}]


def test_only_pods_with_the_labels_that_a_policy_names_are_injected() -> None:
    policy = applied(POLICY, stitch_policy(matchLabels={"team": "vision", "tier": "batch"}))
    given = pod()
    given["metadata"]["labels"] = {"team": "vision", "tier": "batch", "more": "x"}
    assert names.INJECTED in mutate(given, policy)["metadata"]["annotations"]
    given["metadata"]["labels"]["tier"] = "debug"
    assert mutate(given, policy)["metadata"]["annotations"] == {
        names.NOT_INJECTED: "the StitchPolicy of its namespace is for pods with tier=batch"
    }


def test_kernels_are_kept_on_the_claim_that_the_pod_names() -> None:
    changed = mutate(pod(annotations={names.CACHE_CLAIM: "kernels"}), POLICY)
    assert {"name": names.CACHE_VOLUME, "persistentVolumeClaim": {"claimName": "kernels"}} in changed["spec"]["volumes"]
    (main,) = changed["spec"]["containers"]
    assert {"name": names.CACHE_VOLUME, "mountPath": names.CACHE} in main["volumeMounts"]
    assert {"name": "STITCHFLEET_CACHE", "value": names.CACHE} in main["env"]
    (init,) = changed["spec"]["initContainers"]
    assert names.CACHE_VOLUME not in {mount["name"] for mount in init["volumeMounts"]}
    assert mutate(changed, POLICY) == changed


@pytest.mark.parametrize("claim", ["../other", "A", "a b", "-a", "x" * 254])
def test_a_claim_that_the_api_server_would_refuse_leaves_the_pod_alone(claim: str) -> None:
    annotations = mutate(pod(annotations={names.CACHE_CLAIM: claim}), POLICY)["metadata"]["annotations"]
    assert "not a valid name of a PersistentVolumeClaim" in annotations[names.NOT_INJECTED]


def test_of_several_the_oldest_holds_and_each_namespace_has_its_own() -> None:
    objects = [
        stitch_policy("b", "2026-11-03T00:00:00Z"),
        stitch_policy("c", "2026-11-02T00:00:00Z"),
        stitch_policy("a", "2026-11-02T00:00:00Z", namespace="nlp"),
        stitch_policy("d", "2026-11-02T00:00:00Z"),
    ]
    assert {space: each["metadata"]["name"] for space, each in in_effect(objects).items()} == {
        "vision": "c",
        "nlp": "a",
    }


class StoredPolicies:
    def __init__(self, *objects: Object) -> None:
        self.objects, self.writes = list(objects), 0

    def all(self) -> list[Object]:
        return self.objects

    def set_status(self, namespace: str, name: str, status: Object) -> None:
        self.writes += 1
        (found,) = (
            each
            for each in self.objects
            if (each["metadata"]["namespace"], each["metadata"]["name"]) == (namespace, name)
        )
        found["status"] = status


def test_the_controller_says_which_is_in_effect(engine: Any) -> None:  # noqa: F811
    stored = StoredPolicies(stitch_policy("old"), stitch_policy("new", "2026-11-09T00:00:00Z"))
    keeper = kept(engine, Reports(), stored)
    keeper.look()
    assert [conditions(each["status"])["InEffect"] for each in stored.all()] == [
        ("True", "Oldest"),
        ("False", "Conflict"),
    ]
    keeper.look()
    assert stored.writes == 2


def test_the_webhook_serves_nobody_before_it_knows_and_keeps_what_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies_module, "RETRY_SECONDS", 0.001)
    monkeypatch.setattr(policies_module, "LOOK_SECONDS", 0.001)
    answers: list[Any] = [OSError("away"), [stitch_policy("quiet", enabled=False)], OSError("away again")]

    def list_all() -> list[Object]:
        answer = answers.pop(0) if answers else OSError("away for good")
        if isinstance(answer, Exception):
            raise answer
        return list(answer)

    async def all_of_it() -> None:
        policies = Policies(POLICY, list_all)
        await policies.first(asyncio.Event())
        assert len(answers) == 1
        keeper = asyncio.create_task(policies.keep())
        while answers:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)
        assert policies.of("vision", "").opted_out
        assert not policies.of("nlp", "").opted_out
        keeper.cancel()

    asyncio.run(all_of_it())
