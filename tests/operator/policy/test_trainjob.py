"""TrainJobs and JobSets: what reaches the pods' templates, in the two steps that it takes."""

from __future__ import annotations

import copy

import pytest

from stitchfleet.operator.policy import names
from stitchfleet.operator.policy.policy import Admission, Policy
from stitchfleet.operator.policy.trainjob import mutate_jobset, mutate_trainjob

from ..pods import POLICY, Object, container

ADA = Admission("vision", "ada", "request-1")
TRAINER = Admission("vision", "system:serviceaccount:kubeflow-system:kubeflow-trainer-controller-manager", "request-2")
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"


def trainjob(label: str | None = "true", annotations: Object | None = None, **spec: object) -> Object:
    metadata: Object = {"name": "bert", "labels": {} if label is None else {names.ENABLED: label}}
    if annotations:
        metadata["annotations"] = annotations
    kind = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": metadata}
    return {**kind, "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": 2}, **spec}}


def replicated(name: str, step: str, *words: str, **fields: object) -> Object:
    template = {"spec": {"containers": [container(name, command=list(words), **fields)]}}
    return {"name": name, "template": {"metadata": {"labels": {STEP: step}}, "spec": {"template": template}}}


def jobset(job: Object, *replicated_jobs: Object) -> Object:
    """As the Trainer's controller makes it of the TrainJob and its runtime: with what stands in the TrainJob's spec."""
    given = {key: dict(job["spec"][key]) for key in ("labels", "annotations") if job["spec"].get(key)}
    kind = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "bert", **given}}
    return {**kind, "spec": {"replicatedJobs": list(replicated_jobs)}}


def pods_of(changed: Object) -> dict[str, Object]:
    """Metadata of the pods of each replicated job."""
    jobs = changed["spec"]["replicatedJobs"]
    return {each["name"]: each["template"]["spec"]["template"].get("metadata") or {} for each in jobs}


def test_the_label_reaches_the_trainer_s_pods_and_no_initializer() -> None:
    job = mutate_trainjob(trainjob(), POLICY, ADA)
    made = jobset(job, replicated("data", "dataset-initializer"), replicated("node", "trainer", "python", "train.py"))
    pods = pods_of(mutate_jobset(made, POLICY, TRAINER))
    assert pods["node"]["labels"] == {names.ENABLED: "true"}
    assert pods["node"]["annotations"] == {names.RUN_ID: "request-1", names.USER: "ada"}
    assert pods["data"] == {}


def test_all_that_a_person_may_say_of_pods_goes_along() -> None:
    said = {
        names.CONTAINERS: "node",
        names.PYTHON_PATH: "/a",
        names.RUN_ID: "mine",
        names.SHELL: "none",
        names.USER: "grace",
    }
    job = mutate_trainjob(trainjob(annotations={**said, "other": "x"}), POLICY, ADA)
    pods = pods_of(mutate_jobset(jobset(job, replicated("node", "trainer")), POLICY, TRAINER))
    assert pods["node"]["annotations"] == said


def test_what_the_spec_says_already_wins() -> None:
    job = mutate_trainjob(trainjob(labels={names.ENABLED: "false", "team": "eyes"}, annotations={}), POLICY, ADA)
    assert job["spec"]["labels"] == {names.ENABLED: "false", "team": "eyes"}
    made = jobset(job, replicated("node", "trainer"))
    assert mutate_jobset(made, POLICY, TRAINER) == made


def test_a_jobset_that_a_person_labels_is_one_run() -> None:
    given = jobset({"spec": {"labels": {names.ENABLED: "true"}}}, replicated("driver", ""), replicated("worker", ""))
    pods = pods_of(mutate_jobset(given, POLICY, ADA))
    assert [each["annotations"] for each in pods.values()] == [{names.RUN_ID: "request-1", names.USER: "ada"}] * 2


@pytest.mark.parametrize("label", [None, "false"])
def test_what_has_no_label_is_left_as_it_is(label: str | None) -> None:
    assert mutate_trainjob(trainjob(label), POLICY, ADA) == trainjob(label)
    plain = jobset(trainjob(), replicated("node", "trainer"))
    assert mutate_jobset(plain, POLICY, ADA) == plain


def test_a_namespace_that_wants_none_gets_none() -> None:
    out = Policy("payload:1", "paris", opted_out="the policy says so")
    assert mutate_trainjob(trainjob(), out, ADA) == trainjob()


def test_a_second_time_changes_nothing_and_what_was_given_stays() -> None:
    given = trainjob(fieldOfTomorrow={"x": 1})
    before = copy.deepcopy(given)
    once = mutate_trainjob(given, POLICY, ADA)
    assert given == before
    assert once["spec"]["fieldOfTomorrow"] == {"x": 1}
    assert mutate_trainjob(once, POLICY, TRAINER) == once
    made = mutate_jobset(jobset(once, replicated("node", "trainer")), POLICY, TRAINER)
    assert mutate_jobset(made, POLICY, ADA) == made


def test_a_launch_agent_on_the_command_line_leaves_launcher_and_workers_alone() -> None:
    environment = [
        {"name": "OMPI_MCA_orte_default_hostfile", "value": "/etc/mpi/hostfile"}
    ]  # as the Trainer's launcher has
    launcher = replicated("launcher", "trainer", "mpirun", "--launch-agent", "x", "python", env=environment)
    job = mutate_trainjob(trainjob(), POLICY, ADA)
    changed = mutate_jobset(jobset(job, launcher, replicated("node", "")), POLICY, TRAINER)
    assert "names a launch agent" in changed["metadata"]["annotations"][names.NOT_INJECTED]
    assert ["names a launch agent" in each["annotations"][names.SKIP] for each in pods_of(changed).values()] == [
        True,
        True,
    ]
    # a program of another kind may have an option of that name
    other = jobset(job, replicated("node", "trainer", "python", "train.py", "--launch-agent", "x"))
    assert names.SKIP not in pods_of(mutate_jobset(other, POLICY, TRAINER))["node"]["annotations"]
