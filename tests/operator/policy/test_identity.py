"""The variables of a pod: the webhook writes what the job reads, and nothing that a user wrote becomes another's."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from stitchfleet.operator.policy import identity, names
from stitchfleet.operator.policy.identity import environment
from stitchfleet.operator.policy.policy import Admission
from stitchfleet.plugin.base.settings import Settings
from stitchfleet.telemetry.pod import environment as variables
from stitchfleet.telemetry.pod.recording import JobIdentity

from ..pods import POLICY, Object, container, pod

OF_A_CONTROLLER = Admission("vision", "system:serviceaccount:kube-system:job-controller")
ROOT = Path(__file__).resolve().parents[3]


def entries(given: Object, admission: Admission = OF_A_CONTROLLER) -> dict[str, Any]:
    found = environment(given, given["spec"]["containers"][0], POLICY, admission)
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in found}


def test_the_webhook_writes_each_variable_of_the_table_that_is_its_own() -> None:
    assert set(identity.WRITERS) == {variable for variable in variables.VARIABLES if variable.of_webhook}


def test_the_job_reads_every_variable_that_the_webhook_writes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each is set to a value of its own, and turns up in who the job says it is."""
    labels = tmp_path / "labels"
    labels.write_text('team="eyes"\n')
    told = {variable.name: f"of-{variable.name.lower()}" for variable in variables.IDENTITY if variable.of_webhook}
    (tmp_path / "uid").write_text("uid-of-the-file\n")
    told |= {"STITCHFLEET_POD_UID_FILE": str(tmp_path / "uid")}
    told |= {"STITCHFLEET_LABELS_FILE": str(labels), "STITCHFLEET_ATTEMPT": "3", "STITCHFLEET_DEVICE_COUNT": "5"}
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    facts = json.dumps(JobIdentity.from_environment(variables.RUN_ID.read()).to_json())
    uid = told.pop("STITCHFLEET_POD_UID")
    seen = told | {"STITCHFLEET_LABELS_FILE": "eyes", "STITCHFLEET_POD_UID_FILE": uid}
    assert [name for name, value in seen.items() if value not in facts] == []
    monkeypatch.delenv("STITCHFLEET_POD_UID")  # as in a rank that ssh started
    assert JobIdentity.from_environment("run").uid == "uid-of-the-file"


def test_what_else_it_sets_are_settings_of_the_plugin() -> None:
    known = {f"STITCHFLEET_{name.upper()}" for name in Settings.__dataclass_fields__}
    table = {variable.name for variable in variables.VARIABLES}
    assert set(entries(pod())) - table <= known


def test_nobody_reads_a_variable_of_the_table_past_it() -> None:
    """No other module names one of them in its code."""
    quoted = [f'"{variable.name}"' for variable in variables.VARIABLES]
    for folder in ("telemetry", "plugin", "operator"):
        for path in (ROOT / folder).rglob("*.py"):
            if path != ROOT / "telemetry" / "pod" / "environment.py":
                assert [name for name in quoted if name in path.read_text()] == [], path


def test_of_a_job_s_pod_the_owner_gives_name_and_run() -> None:
    given = pod()
    given["metadata"]["ownerReferences"] = [
        {"kind": "Config", "name": "other", "uid": "u-0"},
        {"kind": "Job", "name": "bert", "uid": "u-1", "controller": True},
    ]
    told = entries(given)
    assert (told["STITCHFLEET_JOB_NAME"], told["STITCHFLEET_RUN_ID"]) == ("bert", "u-1")


def test_a_controller_s_label_names_the_job_before_the_owner_does() -> None:
    given = pod()
    given["metadata"]["labels"]["training.kubeflow.org/job-name"] = "horovod"
    given["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "horovod-launcher", "uid": "u", "controller": True}]
    assert entries(given)["STITCHFLEET_JOB_NAME"] == "horovod"


def test_a_controller_is_not_who_submitted_the_job() -> None:
    assert "STITCHFLEET_USER" not in entries(pod())
    assert entries(pod(annotations={names.USER: "ada"}))["STITCHFLEET_USER"] == "ada"
    assert entries(pod(), Admission("vision", "grace"))["STITCHFLEET_USER"] == "grace"


@pytest.mark.parametrize("hostile", ["../../etc", "", "a b", "$(id)", "x" * 200, ".hidden"])
def test_a_run_id_that_is_no_folder_s_name_is_passed_over(hostile: str) -> None:
    told = entries(pod(annotations={names.RUN_ID: hostile}))
    assert told["STITCHFLEET_RUN_ID"] == {"fieldRef": {"fieldPath": "metadata.uid"}}


def test_a_value_is_not_expanded_by_kubernetes() -> None:
    assert entries(pod(annotations={names.USER: "$(HOME)"}))["STITCHFLEET_USER"] == "$$(HOME)"


def test_gpus_are_counted_by_the_limit() -> None:
    given = pod(container(resources={"limits": {"nvidia.com/gpu": "8"}}))
    assert entries(given)["STITCHFLEET_DEVICE_COUNT"] == "8"
    assert "STITCHFLEET_DEVICE_COUNT" not in entries(pod())


def test_the_bootstrap_folder_is_where_the_plugin_takes_it_off_again() -> None:
    """plugin/service/client.py removes it, letter by letter, from the PYTHONPATH of its helpers."""
    from stitchfleet.plugin.base.settings import BOOTSTRAP

    assert os.path.join(names.PACKAGES, *BOOTSTRAP.parts[-3:]) == names.BOOTSTRAP
