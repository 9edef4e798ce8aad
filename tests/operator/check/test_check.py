"""What `stitchfleet check-injection` makes of the API server's answer."""

from __future__ import annotations

import dataclasses

from stitchfleet.operator.check.command import labelled_pod, missing
from stitchfleet.operator.policy.mutate import mutate
from stitchfleet.operator.policy.policy import Admission

from ..pods import POLICY

ADMISSION = Admission("research", "alice")


def test_an_injected_pod_lacks_nothing() -> None:
    assert missing(mutate(labelled_pod(), POLICY, ADMISSION)) == ""
    assert missing(mutate(labelled_pod(), POLICY, ADMISSION), POLICY.payload_image) == ""


def test_a_pod_that_came_back_as_it_was_tells_of_a_webhook_that_is_away() -> None:
    assert "not asked" in missing(labelled_pod())


def test_a_pod_that_was_left_alone_tells_why() -> None:
    left = mutate(labelled_pod(), dataclasses.replace(POLICY, opted_out="its StitchPolicy says so"), ADMISSION)
    assert missing(left).startswith("not injected: ")
    assert left["metadata"]["annotations"]["stitchfleet.io/not-injected"] in missing(left)


def test_another_payload_than_the_chart_has_is_told() -> None:
    assert "mirror/payload:2" in missing(mutate(labelled_pod(), POLICY, ADMISSION), "mirror/payload:2")


def test_an_annotation_alone_is_no_injection() -> None:
    pod = labelled_pod()
    pod["metadata"]["annotations"] = {"stitchfleet.io/injected": "train"}
    assert "init container" in missing(pod)
