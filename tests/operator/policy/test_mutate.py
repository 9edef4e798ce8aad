"""What the webhook does to a pod: rule by rule, and what holds for every pod."""

from __future__ import annotations

import copy
import dataclasses
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from stitchfleet.operator.policy import names
from stitchfleet.operator.policy.mutate import mutate
from stitchfleet.operator.policy.policy import Admission, Policy

from ..pods import POLICY, Object, container, pod, pods


def environment(changed: Object, number: int = 0) -> dict[str, Any]:
    return {
        entry["name"]: entry.get("value", entry.get("valueFrom"))
        for entry in changed["spec"]["containers"][number]["env"]
    }


def reason(changed: Object) -> str:
    annotations = changed["metadata"]["annotations"]
    assert names.INJECTED not in annotations
    assert "initContainers" not in changed["spec"]
    return str(annotations[names.NOT_INJECTED])


# ---- for every pod -----------------------------------------------------------------------------------------------------------


@given(pods())
def test_a_second_time_changes_nothing(given: Object) -> None:
    once = mutate(given, POLICY)
    assert mutate(once, POLICY) == once


@given(pods())
def test_what_was_there_stays_and_the_pod_given_is_not_changed(given: Object) -> None:
    before = copy.deepcopy(given)
    changed = mutate(given, POLICY)
    assert given == before
    assert _holds(changed, given)


def _holds(changed: Any, given: Any, path: str = "") -> bool:
    """Whether all that is in `given` is in `changed`: fields by name, lists as a part in their order. What we change, we extend."""
    field = path.rpartition(".")[2]
    if isinstance(given, dict):
        ours = (names.INJECTED, names.NOT_INJECTED)
        if field == "env" and given.get("name") == "PYTHONPATH" and changed != given:
            return str(given.get("value") or "") in str(changed["value"])
        return isinstance(changed, dict) and all(
            key in ours or (key in changed and _holds(changed[key], value, f"{path}.{key}"))
            for key, value in given.items()
        )
    if isinstance(given, list) and field in (
        "env",
        "volumeMounts",
        "volumes",
        "initContainers",
        "containers",
        "command",
    ):
        rest = list(changed)
        for value in given:
            while rest and not _holds(rest[0], value, path):
                rest.pop(0)
            if not rest:
                return False
            rest.pop(0)
        return True
    return (given is None and field in ("annotations", "initContainers")) or bool(changed == given)


@given(pods())
def test_a_pod_that_is_left_alone_has_only_the_reason_more(given: Object) -> None:
    changed = mutate(given, POLICY)
    if names.INJECTED in changed["metadata"]["annotations"]:
        return
    assert changed["spec"] == given["spec"]
    assert changed["metadata"]["annotations"][names.NOT_INJECTED]


# ---- the plain case ----------------------------------------------------------------------------------------------------------


def test_a_training_pod() -> None:
    changed = mutate(pod(), POLICY, Admission("vision", "ada"))
    (init,) = changed["spec"]["initContainers"]
    assert (init["name"], init["image"]) == (names.INIT_CONTAINER, POLICY.payload_image)
    assert init["command"] == [names.STARTER_FILE, "try", names.COPY, names.MOUNT, names.START_MOUNT]
    assert {volume["name"]: volume.get("emptyDir") for volume in changed["spec"]["volumes"]} == {
        names.VOLUME: {},  # no limit of size, beyond which the pod would be evicted
        names.START_VOLUME: {"medium": "Memory"},  # a full disk keeps nothing from starting
        names.IDENTITY_VOLUME: None,
    }
    told = environment(changed)
    assert (told["STITCHFLEET_ENABLED"], told["STITCHFLEET_CLUSTER"], told["STITCHFLEET_USER"]) == (
        "1",
        "prod-7",
        "ada",
    )
    assert told["STITCHFLEET_RUN_ID"] == {"fieldRef": {"fieldPath": "metadata.uid"}}
    assert changed["metadata"]["annotations"][names.INJECTED] == "main"
    assert changed["metadata"]["annotations"][names.AUTHORITY] == POLICY.ingest_authority


def test_the_token_is_for_the_ingest_server_alone() -> None:
    changed = mutate(pod(), POLICY)
    (volume,) = (each for each in changed["spec"]["volumes"] if each["name"] == names.IDENTITY_VOLUME)
    (token,) = (
        source["serviceAccountToken"] for source in volume["projected"]["sources"] if "serviceAccountToken" in source
    )
    assert token["audience"] == "stitchfleet-ingest"
    assert environment(changed)["STITCHFLEET_INGEST_TOKEN_FILE"] == f"{names.IDENTITY_MOUNT}/{token['path']}"


def test_without_an_authority_the_system_s_own_are_trusted() -> None:
    changed = mutate(pod(), Policy("image", "c", ingest_url="https://public.example.org"))
    assert "STITCHFLEET_INGEST_CA_FILE" not in environment(changed)
    assert names.AUTHORITY not in changed["metadata"]["annotations"]


def test_what_the_user_set_wins() -> None:
    mine = [{"name": "STITCHFLEET_ENABLED", "value": "0"}, {"name": "STITCHFLEET_INGEST", "value": "https://mine"}]
    told = environment(mutate(pod(container(env=mine)), POLICY))
    assert (told["STITCHFLEET_ENABLED"], told["STITCHFLEET_INGEST"]) == ("0", "https://mine")


def test_ours_comes_before_the_pods_own_init_containers() -> None:
    changed = mutate(pod(initContainers=[container("setup", restartPolicy="Always")]), POLICY)
    assert [each["name"] for each in changed["spec"]["initContainers"]] == [names.INIT_CONTAINER, "setup"]
    assert changed["spec"]["initContainers"][1]["restartPolicy"] == "Always"


# ---- the init container is nobody's burden -----------------------------------------------------------------------------------


def test_it_asks_for_what_the_target_asks_for_but_no_device() -> None:
    resources = {
        "requests": {"cpu": "2", "memory": "8Gi"},
        "limits": {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "1", "hugepages-2Mi": "4Mi"},
        "claims": [{"name": "gpu"}],
    }
    (init,) = mutate(pod(container(resources=resources)), POLICY)["spec"]["initContainers"]
    assert init["resources"] == {"requests": {"cpu": "2", "memory": "8Gi"}, "limits": {"cpu": "4", "memory": "8Gi"}}


def test_without_resources_it_asks_for_none() -> None:
    assert "resources" not in mutate(pod(), POLICY)["spec"]["initContainers"][0]


def test_it_runs_as_the_target_s_user_and_fits_the_restricted_level() -> None:
    theirs = {
        "runAsUser": 1000,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
        "privileged": False,
    }
    (init,) = mutate(pod(container(securityContext=theirs)), POLICY)["spec"]["initContainers"]
    context = init["securityContext"]
    assert (context["runAsUser"], context["runAsNonRoot"], context["seccompProfile"]) == (
        1000,
        True,
        {"type": "RuntimeDefault"},
    )
    assert context["allowPrivilegeEscalation"] is False
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert "privileged" not in context


def test_in_a_root_pod_it_does_not_ask_to_be_another() -> None:
    (init,) = mutate(pod(container(securityContext={"runAsUser": 0})), POLICY)["spec"]["initContainers"]
    assert init["securityContext"]["runAsUser"] == 0
    assert "runAsNonRoot" not in init["securityContext"]


# ---- PYTHONPATH --------------------------------------------------------------------------------------------------------------


def test_a_literal_path_is_extended_on_both_sides() -> None:
    told = environment(mutate(pod(container(env=[{"name": "PYTHONPATH", "value": "/app:/lib"}])), POLICY))
    assert told["PYTHONPATH"] == f"{names.BOOTSTRAP}:/app:/lib:{names.PACKAGES}"


@pytest.mark.parametrize(("from_image", "between"), [("", ":"), ("/app/modules", ":/app/modules:")])
def test_a_command_is_started_by_the_starter_which_keeps_what_the_image_sets(
    from_image: str, between: str, tmp_path: Path
) -> None:
    shown = ["printenv", "PYTHONPATH"]
    whole = mutate(pod(container(command=shown)), POLICY)
    changed = whole["spec"]["containers"][0]
    assert changed["command"][-2:] == shown
    assert "PYTHONPATH" not in {entry["name"] for entry in changed["env"]}
    image = {"PATH": "/usr/bin:/bin"} | ({"PYTHONPATH": from_image} if from_image else {})
    init = whole["spec"]["initContainers"][0]["command"]
    program, mode = mounted(whole, init[0])
    (tmp_path / "script").write_text(program)
    (tmp_path / "script").chmod(mode)
    here = {init[0]: str(tmp_path / "script"), names.START_MOUNT: str(tmp_path), names.START: str(tmp_path / "start")}
    subprocess.run([here.get(word, word) for word in init], env=image, check=True)
    words = [here.get(word, word) for word in changed["command"]]
    done = subprocess.run(words, env=image, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{names.BOOTSTRAP}{between}{names.PACKAGES}"


def test_a_variable_that_a_shell_would_drop_leaves_the_pod_alone_unless_it_has_no_shell() -> None:
    given = pod(container(env=[{"name": "spring.config", "value": "x"}]))
    assert "spring.config" in reason(mutate(given, POLICY))
    given["metadata"]["annotations"] = {names.SHELL: names.NO_SHELL}
    assert names.INJECTED in mutate(given, POLICY)["metadata"]["annotations"]


def test_the_starter_is_a_script_unless_the_image_has_no_shell() -> None:
    assert mutate(pod(), POLICY)["metadata"]["annotations"][names.STARTER].startswith("#!/bin/sh\n")
    bare = mutate(pod(container(command=["train"]), annotations={names.SHELL: names.NO_SHELL}), POLICY)
    assert bare["spec"]["containers"][0]["command"][0] == names.STARTER_FILE
    assert bare["metadata"]["annotations"][names.STARTER].startswith("\x7fELF")


def mounted(changed: Object, path: str) -> tuple[str, int]:
    """(text, mode) of a file that the downward API writes into each of our containers."""
    for each in (*changed["spec"]["initContainers"], changed["spec"]["containers"][0]):
        (mount,) = (at for at in each["volumeMounts"] if path.startswith(f"{at['mountPath']}/"))
    (volume,) = (each for each in changed["spec"]["volumes"] if each["name"] == mount["name"])
    for source in volume["projected"]["sources"]:
        for item in source.get("downwardAPI", {}).get("items", ()):
            if path == f"{mount['mountPath']}/{item['path']}":
                name = item["fieldRef"]["fieldPath"].removeprefix("metadata.annotations['").removesuffix("']")
                return changed["metadata"]["annotations"][name], item["mode"]
    raise AssertionError(path)


def test_without_a_command_it_is_left_alone_until_an_annotation_asks() -> None:
    bare = container()
    del bare["command"]
    assert "has no command" in reason(mutate(pod(bare), POLICY))
    told = environment(mutate(pod(bare, annotations={names.PYTHON_PATH: "/app"}), POLICY))
    assert told["PYTHONPATH"] == f"{names.BOOTSTRAP}:/app:{names.PACKAGES}"
    told = environment(mutate(pod(bare, annotations={names.PYTHON_PATH: ""}), POLICY))
    assert told["PYTHONPATH"] == f"{names.BOOTSTRAP}:{names.PACKAGES}"


def test_a_path_from_elsewhere_is_left_alone() -> None:
    entry = {"name": "PYTHONPATH", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}
    assert "valueFrom" in reason(mutate(pod(container(env=[entry])), POLICY))


# ---- which containers --------------------------------------------------------------------------------------------------------


def test_the_annotation_chooses() -> None:
    changed = mutate(pod(container("proxy"), container("main"), annotations={names.CONTAINERS: "main"}), POLICY)
    assert "env" not in changed["spec"]["containers"][0]
    assert changed["metadata"]["annotations"][names.INJECTED] == "main"


def test_without_an_annotation_it_is_the_first_alone() -> None:
    changed = mutate(pod(container("main"), container("sidecar")), POLICY)
    assert changed["metadata"]["annotations"][names.INJECTED] == "main"
    assert "env" not in changed["spec"]["containers"][1]


def test_a_name_that_is_none_is_told() -> None:
    assert "names mian; the pod has main" in reason(mutate(pod(annotations={names.CONTAINERS: "mian"}), POLICY))


def test_of_two_chosen_the_one_that_can_be_is_injected() -> None:
    bare = container("other")
    del bare["command"]
    changed = mutate(pod(container("main"), bare, annotations={names.CONTAINERS: "other,main"}), POLICY)
    assert changed["metadata"]["annotations"][names.INJECTED] == "main"
    assert changed["metadata"]["annotations"][names.NOT_INJECTED].startswith("other: ")


# ---- pods that are left alone ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (pod(os={"name": "windows"}), "windows"),
        (pod(nodeSelector={"kubernetes.io/arch": "arm64"}), "arm64"),
        (pod(volumes=[{"name": names.VOLUME, "emptyDir": {}}]), "a volume stitchfleet of its own"),
        (pod(container(names.INIT_CONTAINER)), "a container stitchfleet-payload of its own"),
        (
            pod(container(volumeMounts=[{"name": "d", "mountPath": "/opt/stitchfleet/"}])),
            "mounts a volume at /opt/stitchfleet",
        ),
        (
            pod(container(volumeMounts=[{"name": "d", "mountPath": names.IDENTITY_MOUNT}])),
            f"mounts a volume at {names.IDENTITY_MOUNT}",
        ),
        (pod(annotations={"a": "x" * 257_000}), "annotations are too long"),
        (pod(container(resources={"limits": {"ephemeral-storage": "100Mi"}})), "limit of ephemeral storage is 100 MiB"),
        (pod(annotations={"kubernetes.io/config.mirror": "x"}), "static pod"),
        (pod(hostNetwork=True), "set dnsPolicy: ClusterFirstWithHostNet"),
        (pod(hostNetwork=True, dnsPolicy="ClusterFirst"), "cannot find the ingest server ingest.stitchfleet.svc"),
        (pod(hostNetwork=True, dnsPolicy="Default"), "set dnsPolicy: ClusterFirstWithHostNet"),
        (pod(dnsPolicy="Default"), "set dnsPolicy: ClusterFirst"),
    ],
)
def test_why_a_pod_is_left_alone(given: Object, why: str) -> None:
    assert why in reason(mutate(given, POLICY))


@pytest.mark.parametrize(
    ("given", "url"),
    [
        (pod(hostNetwork=True, dnsPolicy="ClusterFirstWithHostNet"), POLICY.ingest_url),
        (pod(dnsPolicy="None", dnsConfig={"nameservers": ["192.0.2.1"]}), POLICY.ingest_url),
        (pod(dnsPolicy="ClusterFirst"), POLICY.ingest_url),
        (pod(hostNetwork=True), "https://stitchfleet.example.com"),
        (pod(hostNetwork=True), "https://192.0.2.7:8475"),
        (pod(hostNetwork=True), ""),
    ],
)
def test_a_pod_that_can_find_the_ingest_server_is_injected(given: Object, url: str) -> None:
    changed = mutate(given, dataclasses.replace(POLICY, ingest_url=url))
    assert names.INJECTED in changed["metadata"]["annotations"]


MIXED = dataclasses.replace(POLICY, has_other_processors=True)


def for_processors(*terms: list[str]) -> Object:
    """A pod that has to run on one of these, term by term."""
    wanted = [
        {"matchExpressions": [{"key": "kubernetes.io/arch", "operator": "In", "values": values}]} for values in terms
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": wanted}}
    return pod(affinity={"nodeAffinity": required})


@pytest.mark.parametrize(
    ("given", "is_injected"),
    [
        (pod(), False),
        (pod(nodeSelector={"kubernetes.io/arch": "amd64"}), True),
        (for_processors(["amd64"]), True),
        (for_processors(["amd64"], ["amd64", "arm64"]), False),
        (for_processors(["arm64"]), False),
    ],
)
def test_where_nodes_differ_a_pod_has_to_say_that_it_is_for_ours(given: Object, is_injected: bool) -> None:
    assert (names.INJECTED in mutate(given, MIXED)["metadata"]["annotations"]) is is_injected


def test_where_the_starter_does_not_run_no_pod_is_injected() -> None:
    assert reason(mutate(pod(), dataclasses.replace(POLICY, cannot_start="it does not run"))) == "it does not run"


def test_annotations_never_grow_beyond_what_the_api_server_takes() -> None:
    full = mutate(pod(annotations={"a": "x" * (256 * 1024 - 2)}), POLICY)
    assert full["metadata"]["annotations"].keys() == {"a"}
    assert "initContainers" not in full["spec"]


def test_a_namespace_may_opt_out() -> None:
    policy = Policy("image", "c", opted_out="the StitchPolicy vision/off says so")
    assert reason(mutate(pod(), policy)) == "the StitchPolicy vision/off says so"
