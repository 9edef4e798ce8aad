"""Pods with the label: what their owners are told, how jobs are stopped, where injection pauses, and whose turn it is."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stitchfleet.operator.controller.roster import NOT_INJECTED_REASON, STOPPED_REASON, Roster
from stitchfleet.operator.policy import names, roster
from stitchfleet.operator.policy.mutate import mutate
from stitchfleet.operator.policy.pauses import FIRST, FORGOTTEN, LONGEST, after_failure, after_success, why_paused
from stitchfleet.operator.policy.policy import Admission
from stitchfleet.operator.policy.precedence import applied
from stitchfleet.operator.webhook.policies import Policies

from ..pods import POLICY, Object, listed, pod
from ..policy.test_policies import stitch_policy

NOW = datetime.datetime(2026, 11, 24, 12, 0, tzinfo=datetime.timezone.utc)
IMAGE = "example.org/payload:1"


# ---- what was asked for and what came of it ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "silent"),
    [
        (listed("a", "u"), 1),
        (listed("a", "known"), 0),
        (listed("a", "u", phase="Running"), 1),
        (listed("a", "u", phase="Running") | {"status": {"phase": "Running", "startTime": "2026-11-24T11:50:00Z"}}, 0),
        (listed("a", "u", phase="Pending"), 0),
        (listed("a", "u", labels={"training.kubeflow.org/job-role": "launcher"}), 0),
        (listed("a", "u", reason="it is for windows"), 0),
    ],
)
def test_who_is_silent(given: Object, silent: int) -> None:
    assert roster.asked([given], {"known"}, NOW).silent == silent


def test_a_pod_that_the_webhook_never_saw_is_told_so() -> None:
    given = listed("a", "u", annotations={})
    assert "webhook did not see it" in roster.why_not_injected(given)
    assert roster.asked([given], set(), NOW).not_injected == 1
    assert roster.asked([given], set(), NOW, namespace="nlp").total == 0


# ---- the controller's look ---------------------------------------------------------------------------------------------------


class Api:
    """In the place of the stores."""

    def __init__(self, pods: list[Object], *policies: Object) -> None:
        self.pods, self.policies = pods, list(policies)
        self.told: list[tuple[str, str, str]] = []
        self.pauses: dict[str, str] = {}
        self.patches = 0
        self.fails = False

    def asked(self) -> list[Object]:
        if self.fails:
            raise OSError("away")
        return self.pods

    def all(self) -> list[Object]:
        return self.policies

    def patch(self, namespace: str, name: str, change: Object) -> None:
        (found,) = (each for each in self.pods if each["metadata"]["name"] == name)
        found["metadata"]["annotations"] |= change["metadata"]["annotations"]
        self.patches += 1

    def about_pod(self, found: Object, reason: str, message: str) -> None:
        self.told.append((found["metadata"]["name"], reason, message))

    def read(self) -> dict[str, str]:
        return dict(self.pauses)

    def write(self, pauses: dict[str, str]) -> None:
        self.pauses = pauses


def looking(api: Any) -> Roster:
    return Roster(api, api, api, api)


def test_an_owner_is_told_once() -> None:
    api = Api([listed("a", "u", reason="it is for windows"), listed("b", "v")])
    found = looking(api)
    found.look()
    found.look()
    assert api.told == [("a", NOT_INJECTED_REASON, "it is for windows")]


def test_jobs_that_run_are_stopped_and_may_go_on_again() -> None:
    running, ended = listed("a", "u", phase="Running"), listed("b", "v")
    api = Api([running, ended, listed("c", "w", reason="why", phase="Running")], stitch_policy(stopped=True))
    found = looking(api)
    found.look()
    found.look()
    assert running["metadata"]["annotations"][names.CONTROL] == "off"
    assert [each for each in api.told if each[1] == STOPPED_REASON] == [
        ("a", STOPPED_REASON, "the StitchPolicy of its namespace stops it: the job goes on plain")
    ]
    assert names.CONTROL not in ended["metadata"]["annotations"]
    assert api.patches == 1
    api.policies = []
    found.look()
    assert running["metadata"]["annotations"][names.CONTROL] == "on"


def test_one_pod_that_cannot_be_told_of_keeps_no_other_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api([listed("a", "u", reason="why"), listed("b", "v", reason="why")])

    def about_pod(pod: Object, reason: str, message: str) -> None:
        if pod["metadata"]["name"] == "a":
            raise OSError("away")
        api.told.append((pod["metadata"]["name"], reason, message))

    monkeypatch.setattr(api, "about_pod", about_pod)
    with pytest.raises(OSError, match="away"):
        looking(api).look()
    assert api.told == [("b", NOT_INJECTED_REASON, "why")]


def test_a_pod_whose_payload_came_ends_a_pause() -> None:
    pulled = listed("a", "u", phase="Running")
    pulled["spec"]["initContainers"] = [{"name": names.INIT_CONTAINER, "image": IMAGE}]
    api = Api([])
    found = looking(api)
    found.held_by("vision", IMAGE)
    assert why_paused(api.pauses, "vision", IMAGE, datetime.datetime.now(datetime.timezone.utc))
    found = looking(api)  # another controller, which knows of no pause yet
    api.pods = [pulled]
    pulled["status"]["initContainerStatuses"] = [{"name": names.INIT_CONTAINER, "state": {"waiting": {"reason": "x"}}}]
    found.look()
    assert api.pauses
    assert found._metrics.registry.get_sample_value("stitchfleet_controller_paused_namespaces") == 1.0
    pulled["status"]["initContainerStatuses"] = [{"name": names.INIT_CONTAINER, "state": {"terminated": {}}}]
    found.look()
    assert api.pauses == {}


# ---- pauses ------------------------------------------------------------------------------------------------------------------


def test_a_pause_is_of_one_namespace_and_one_image_and_ends() -> None:
    known = after_failure({}, "vision", IMAGE, NOW)
    assert "pauses until 2026-11-24T12:05:00Z" in why_paused(known, "vision", IMAGE, NOW)
    assert not why_paused(known, "nlp", IMAGE, NOW)
    assert not why_paused(known, "vision", "another:1", NOW)
    assert not why_paused(known, "vision", IMAGE, NOW + FIRST)


def test_each_further_failure_doubles_it_up_to_a_bound_and_a_success_forgets() -> None:
    known, now, lengths = dict[str, str](), NOW, []
    for _ in range(7):
        known = after_failure(known, "vision", IMAGE, now)
        assert after_failure(known, "vision", IMAGE, now) == known  # pods that were created before it
        length = datetime.timedelta()
        while why_paused(known, "vision", IMAGE, now + length):
            length += datetime.timedelta(minutes=5)
        lengths.append(length)
        now += length
    assert lengths[:4] == [FIRST, 2 * FIRST, 4 * FIRST, 8 * FIRST]
    assert lengths[4:] == [LONGEST] * 3
    assert after_success(known, "vision", IMAGE) == {}
    assert after_success(known, "vision", "another:1") == known
    assert why_paused(after_failure(known, "vision", IMAGE, now + FORGOTTEN), "vision", IMAGE, now + FORGOTTEN)


@given(st.dictionaries(st.just("vision"), st.text(max_size=30) | st.just('{"until": 5}') | st.just("[]")))
def test_what_cannot_be_read_is_no_pause(pauses: dict[str, str]) -> None:
    assert not why_paused(pauses, "vision", IMAGE, NOW)
    assert "vision" in after_failure(pauses, "vision", IMAGE, NOW)


def test_the_webhook_obeys_a_pause() -> None:
    now = datetime.datetime.now(datetime.timezone.utc)
    pauses = after_failure({}, "vision", POLICY.payload_image, now)
    policies = Policies(POLICY, list, lambda: True, lambda: pauses)
    policies._look_at_once()
    assert "could not be pulled" in policies.of("vision", "").opted_out
    assert not policies.of("nlp", "").opted_out


# ---- a share of the jobs -----------------------------------------------------------------------------------------------------


def share(percent: int, number: int, made: str = "u") -> bool:
    """Whether a pod of the numbered job is injected."""
    given = pod()
    given["metadata"]["ownerReferences"] = [{"controller": True, "uid": f"job-{number}", "name": "x", "kind": "Job"}]
    policy = dataclasses.replace(applied(POLICY, stitch_policy(canaryPercent=percent)))
    return names.INJECTED in mutate(given, policy, Admission("vision", "", made))["metadata"]["annotations"]


def test_a_share_of_the_jobs_is_injected_and_grows_with_the_percentage() -> None:
    chosen = {percent: {job for job in range(400) if share(percent, job)} for percent in (0, 10, 50, 100)}
    assert chosen[0] == set()
    assert chosen[0] < chosen[10] < chosen[50] < chosen[100]
    assert 20 < len(chosen[10]) < 65
    assert len(chosen[100]) == 400


def test_all_pods_of_a_job_are_treated_alike() -> None:
    for job in range(50):
        assert len({share(50, job, made) for made in ("a", "b", "c")}) == 1
