"""MPIJobs: what goes to both templates, and what the ranks are started with."""

from __future__ import annotations

import copy
import shlex
import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stitchfleet.operator.policy import launcher, names
from stitchfleet.operator.policy.mpijob import mutate_mpijob
from stitchfleet.operator.policy.mutate import mutate
from stitchfleet.operator.policy.policy import Admission

from ..pods import POLICY, Object, container, pod, pods

ADA = Admission("vision", "ada", "request-1")
MPIRUN = ["mpirun", "-np", "2", "-x", "PATH", "python", "train.py"]


def mpijob(
    launcher_spec: Object | None = None, annotations: Object | None = None, label: str | None = "true", **template: Any
) -> Object:
    run = {"containers": [container("launcher", command=MPIRUN)]} if launcher_spec is None else launcher_spec
    replicas = {
        "Launcher": {"replicas": 1, "template": {"spec": run, **template}},
        "Worker": {"replicas": 2, "template": {"spec": {"containers": [{"name": "worker", "image": "i"}]}}},
    }
    metadata: Object = {"name": "horovod", "labels": {} if label is None else {names.ENABLED: label}}
    if annotations:
        metadata["annotations"] = annotations
    kind = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": metadata}
    return {**kind, "spec": {"slotsPerWorker": 1, "mpiReplicaSpecs": replicas}}


def templates(job: Object) -> list[Object]:
    return [job["spec"]["mpiReplicaSpecs"][role]["template"]["metadata"] for role in ("Launcher", "Worker")]


def launcher_pod(entries: list[Object] | None = None, **fields: Any) -> Object:
    """As the MPI operator makes it of the template."""
    env = [*(entries or []), {"name": "K_MPI_JOB_ROLE", "value": "launcher"}]
    given = pod(container(env=env, **({"command": MPIRUN} | fields)), annotations={names.RUN_ID: "run-7"})
    given["metadata"]["labels"]["training.kubeflow.org/job-role"] = "launcher"
    return given


def agents(changed: Object) -> dict[str, str]:
    entries = changed["spec"]["containers"][0]["env"]
    return {entry["name"]: entry["value"] for entry in entries if entry["name"] in launcher.AGENTS}


def test_label_run_and_person_go_to_both_templates() -> None:
    both = templates(mutate_mpijob(mpijob(), POLICY, ADA))
    assert [each["labels"][names.ENABLED] for each in both] == ["true", "true"]
    assert [each["annotations"] for each in both] == [{names.RUN_ID: "request-1", names.USER: "ada"}] * 2


def test_what_the_user_set_wins() -> None:
    given = mpijob(
        annotations={names.RUN_ID: "mine", names.CONTAINERS: "launcher"},
        metadata={"labels": {names.ENABLED: "false"}, "annotations": {names.USER: "grace"}},
    )
    first, second = templates(mutate_mpijob(given, POLICY, ADA))
    assert first["labels"][names.ENABLED] == "false"
    assert first["annotations"] == {names.RUN_ID: "mine", names.CONTAINERS: "launcher", names.USER: "grace"}
    assert second["annotations"] == {names.RUN_ID: "mine", names.CONTAINERS: "launcher", names.USER: "ada"}


def test_one_template_s_run_is_the_other_s_too() -> None:
    both = templates(mutate_mpijob(mpijob(metadata={"annotations": {names.RUN_ID: "mine"}}), POLICY, ADA))
    assert [each["annotations"][names.RUN_ID] for each in both] == ["mine", "mine"]


@pytest.mark.parametrize("label", [None, "false"])
def test_a_job_without_the_label_is_left_as_it_is(label: str | None) -> None:
    assert mutate_mpijob(mpijob(label=label), POLICY, ADA) == mpijob(label=label)


def test_a_second_time_changes_nothing_and_what_was_given_stays() -> None:
    given = mpijob(annotations={"a": "b"}, fieldOfTomorrow={"x": 1})
    before = copy.deepcopy(given)
    once = mutate_mpijob(given, POLICY, ADA)
    assert given == before
    assert mutate_mpijob(once, POLICY, Admission("vision", "other", "request-2")) == once
    assert once["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["fieldOfTomorrow"] == {"x": 1}


@pytest.mark.parametrize(
    "words",
    [
        ["mpirun", "--launch-agent", "/opt/orted"],
        ["mpirun", "-launch-agent", "x"],
        ["mpirun", "--mca", "orte_launch_agent", "x"],
        ["sh", "-c", "exec mpirun --prtemca prte_launch_agent x python train.py"],
    ],
)
def test_an_agent_on_the_command_line_is_left_and_told(words: list[str]) -> None:
    given = mpijob({"containers": [container("launcher", command=words)]})
    changed = mutate_mpijob(given, POLICY, ADA)
    assert "names a launch agent" in changed["metadata"]["annotations"][names.NOT_INJECTED]
    for template in templates(changed):
        made = pod(annotations=template["annotations"])
        assert "names a launch agent" in mutate(made, POLICY)["metadata"]["annotations"][names.NOT_INJECTED]
    # a launcher whose job had no label tells it itself
    assert not agents(alone := mutate(launcher_pod(command=words), POLICY))
    assert "names a launch agent" in alone["metadata"]["annotations"][names.NOT_INJECTED]


def test_a_program_whose_name_only_looks_so_is_no_agent() -> None:
    assert not launcher.agent_on_command_line(container(command=["mpirun", "python", "my--launch-agents.py"]))


# ---- the launch agent --------------------------------------------------------------------------------------------------------


def rank_environment(agent: str, **shell: str) -> dict[str, str]:
    """What a rank has: mpirun splits the agent at blanks, and the ssh server's shell reads the words again."""
    words = agent.split(" ")
    assert words[-1] == "orted"
    done = subprocess.run(
        ["/bin/sh", "-c", " ".join([*words[:-1], "/usr/bin/env"])],
        env={"PATH": "/usr/bin:/bin", **shell},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


def test_the_ranks_have_path_and_identity_but_not_the_launcher_s_own() -> None:
    changed = mutate(launcher_pod(), POLICY, ADA)
    assert agents(changed).keys() == {"OMPI_MCA_orte_launch_agent", "PRTE_MCA_prte_launch_agent"}
    assert agents(changed)["PRTE_MCA_prte_launch_agent"].endswith(" prted")
    found = rank_environment(agents(changed)["OMPI_MCA_orte_launch_agent"])
    assert found["PYTHONPATH"] == f"{names.BOOTSTRAP}:{names.PACKAGES}"
    assert (found["STITCHFLEET_RUN_ID"], found["STITCHFLEET_ENABLED"]) == ("run-7", "1")
    assert found["STITCHFLEET_NAMESPACE"] == "vision"
    assert found["STITCHFLEET_INGEST_TOKEN_FILE"] == f"{names.IDENTITY_MOUNT}/token"
    assert found["STITCHFLEET_POD_UID_FILE"] == f"{names.IDENTITY_MOUNT}/pod-uid"
    assert "STITCHFLEET_POD_UID" not in found
    own = {entry["name"] for entry in changed["spec"]["containers"][0]["env"]}
    assert "STITCHFLEET_POD_UID" not in own  # horovodrun exports all it has
    assert "OMPI_MCA_mca_base_env_list" not in own


def test_what_the_workers_profile_sets_stays_in_the_middle() -> None:
    agent = agents(mutate(launcher_pod(), POLICY))["OMPI_MCA_orte_launch_agent"]
    assert rank_environment(agent, PYTHONPATH="/mine")["PYTHONPATH"] == f"{names.BOOTSTRAP}:/mine:{names.PACKAGES}"


def test_an_agent_of_the_user_s_own_is_kept() -> None:
    mine = [{"name": "OMPI_MCA_orte_launch_agent", "value": "/opt/valgrind --tool=x orted"}]
    found = agents(mutate(launcher_pod(mine), POLICY))
    assert found["OMPI_MCA_orte_launch_agent"].endswith(" /opt/valgrind --tool=x orted")
    assert found["OMPI_MCA_orte_launch_agent"].startswith("env PYTHONPATH=")


def test_an_agent_from_elsewhere_leaves_the_launcher_alone() -> None:
    mine = [{"name": "OMPI_MCA_orte_launch_agent", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]
    changed = mutate(launcher_pod(mine), POLICY)
    assert "valueFrom" in changed["metadata"]["annotations"][names.NOT_INJECTED]
    assert changed["spec"] == launcher_pod(mine)["spec"]


@pytest.mark.parametrize(
    "hostile", ["$(touch /tmp/x)", "a b", "`id`", "a;id", "a'b", 'a"b', "a\nb", "é", "a&b", "a|b", "*"]
)
def test_a_value_that_a_shell_would_take_for_more_is_not_brought(hostile: str) -> None:
    changed = mutate(launcher_pod(), POLICY, Admission("vision", hostile, "r"))
    agent = agents(changed)["OMPI_MCA_orte_launch_agent"]
    assert "STITCHFLEET_USER" not in agent
    assert hostile not in agent
    told = rank_environment(agents(mutate(launcher_pod(), POLICY, ADA))["OMPI_MCA_orte_launch_agent"])
    assert told["STITCHFLEET_USER"] == "ada"


@given(st.text(max_size=20))
def test_whatever_somebody_is_called_the_agent_is_the_same_words(user: str) -> None:
    agent = agents(mutate(launcher_pod(), POLICY, Admission("vision", user, "r")))["OMPI_MCA_orte_launch_agent"]
    words = shlex.split(agent)
    assert words[0] == "env"
    assert words[-1] == "orted"
    assert all("=" in word for word in words[1:-1])


@given(pods())
def test_no_pod_but_a_launcher_has_an_agent(given: Object) -> None:
    for each in mutate(given, POLICY)["spec"]["containers"]:
        assert not {entry.get("name") for entry in each.get("env") or ()} & set(launcher.AGENTS)


def test_a_worker_is_no_launcher_whatever_its_environment() -> None:
    given = launcher_pod([{"name": "OMPI_MCA_orte_default_hostfile", "value": "/etc/mpi/hostfile"}])
    given["metadata"]["labels"]["training.kubeflow.org/job-role"] = "worker"
    assert not agents(mutate(given, POLICY))


def test_a_launcher_of_the_trainer_is_known_by_its_host_file() -> None:
    given = pod(container(env=[{"name": "OMPI_MCA_orte_default_hostfile", "value": "/etc/mpi/hostfile"}]))
    assert agents(mutate(given, POLICY))
