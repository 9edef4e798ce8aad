"""A pod that waits for our payload's image is let go, and no other pod is touched."""

from __future__ import annotations

import datetime

import pytest
from kubernetes.client.exceptions import ApiException

from stitchfleet.operator.controller.metrics import Metrics
from stitchfleet.operator.controller.releaser import Releaser
from stitchfleet.operator.policy import names
from stitchfleet.operator.policy.mutate import mutate
from stitchfleet.operator.policy.release import release

from ..pods import POLICY, Object, container, pod

NOW = datetime.datetime(2026, 11, 24, 12, tzinfo=datetime.timezone.utc)


def held(reason: str = "ImagePullBackOff", seconds: int = 90, name: str = names.INIT_CONTAINER) -> Object:
    """An injected pod whose container waits for its image, so long after its creation."""
    found = mutate(
        pod(container("proxy", image="example.org/proxy:1"), container(), annotations={names.CONTAINERS: "main"}),
        POLICY,
    )
    created = NOW - datetime.timedelta(seconds=seconds)
    found["metadata"]["creationTimestamp"] = created.strftime("%Y-%m-%dT%H:%M:%SZ")
    found["status"] = {
        "phase": "Pending",
        "initContainerStatuses": [{"name": name, "state": {"waiting": {"reason": reason}}}],
    }
    return found


def test_the_init_container_gets_the_training_container_s_image() -> None:
    patch = release(held(), NOW)
    assert patch is not None
    assert patch["spec"] == {"initContainers": [{"name": names.INIT_CONTAINER, "image": "example.org/training:3"}]}
    assert patch["metadata"]["annotations"][names.INJECTED] is None
    assert "example.org/payload:1 could not be pulled" in patch["metadata"]["annotations"][names.NOT_INJECTED]


@pytest.mark.parametrize(
    "other",
    [
        held(seconds=30),
        held("PodInitializing"),
        held("CreateContainerConfigError"),
        held(name="setup"),
        pod() | {"status": {}},
    ],
    ids=["young", "starting", "another trouble", "another container", "no status"],
)
def test_any_other_pod_is_left_as_it_is(other: Object) -> None:
    assert release(other, NOW) is None


def test_a_pod_that_was_let_go_and_waits_for_the_user_s_image_is_left_to_the_user() -> None:
    found = held()
    found["spec"]["initContainers"][0]["image"] = "example.org/training:3"
    assert release(found, NOW) is None


class Pods:
    def __init__(self, *pods: Object) -> None:
        self.pods, self.patched = pods, dict[str, Object]()

    def pending(self) -> list[Object]:
        return list(self.pods)

    def patch(self, namespace: str, name: str, change: Object) -> None:
        self.patched[f"{namespace}/{name}"] = change


def test_a_look_lets_go_what_waits_and_one_bad_pod_keeps_no_other_from_it() -> None:
    pods = Pods({"metadata": {}, "status": {"initContainerStatuses": 5}}, held())
    told: list[tuple[str, str]] = []
    metrics = Metrics()
    releaser = Releaser(pods, lambda *which: told.append(which), metrics)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        releaser.look()
    assert told == [("vision", POLICY.payload_image)]
    assert set(pods.patched) == {"vision/train"}
    assert metrics.registry.get_sample_value("stitchfleet_controller_released_pods_total") == 1.0


def test_a_pod_is_let_go_although_the_pause_cannot_be_written() -> None:
    def held_by(namespace: str, image: str) -> None:
        raise ApiException(500, "away")

    pods = Pods(held())
    with pytest.raises(ApiException):
        Releaser(pods, held_by).look()  # type: ignore[arg-type]
    assert set(pods.patched) == {"vision/train"}
