"""The API server goes away, or its connections go silent: pods are admitted or refused as without us, and nobody of ours restarts."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from .conftest import Release
from .kubernetes import Kubernetes
from .load import dry_run, is_injected, processes_of, under_load
from .node import ADDRESS
from .test_pods import pod
from .test_product import savings_report

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("release")]

SPACE = "pods"
IMAGE = "example.org/training:3"


def restarts(kubernetes: Kubernetes, release: Release) -> dict[str, int]:
    """Of each of our containers."""
    found = json.loads(kubernetes.kubectl("-n", release.namespace, "get", "pods", "-o", "json"))["items"]
    return {
        f"{each['metadata']['name']} {status['name']}": status["restartCount"]
        for each in found
        for status in each["status"].get("containerStatuses", ())
    }


def has_status(kubernetes: Kubernetes, name: str) -> bool:
    return bool(kubernetes.get("savingsreport", name).get("status"))


def test_the_api_server_restarts_under_admissions(kubernetes: Kubernetes, release: Release) -> None:
    """Whatever it answers is injected, before and after; webhook and controller go on with the new one."""
    kubernetes.namespace(SPACE)
    before = restarts(kubernetes, release)
    with under_load(*[lambda: is_injected(dry_run(kubernetes, pod(IMAGE)))] * 4) as load:
        kubernetes.wait(lambda: load.injected > 50, 60, "no admissions")
        kubernetes.node.restart_api_server()
        answered = load.injected
        kubernetes.wait(lambda: load.injected > answered + 100, 60, lambda: f"{load.injected}: {load.failed[-1:]}")
    print(f"{load.injected} admitted, {len(load.failed)} not asked")
    assert load.failed, "the API server was never away"
    assert load.plain == 0
    assert not [each for each in load.failed if each.startswith("AssertionError")]
    kubernetes.create(savings_report("restarted", {"namespace": SPACE}))
    kubernetes.wait(lambda: has_status(kubernetes, "restarted"), 60, "the controller does not go on")
    kubernetes.kubectl("delete", "savingsreport", "restarted")
    assert restarts(kubernetes, release) == before


@contextlib.contextmanager
def silent(processes: list[int]) -> Iterator[int]:
    """Drops all that goes over the connections that these processes have to the API server just now, without a word to either side.
    Yields how many connections that are."""
    rules = []
    for process in processes:
        listed = subprocess.run(
            ["nsenter", "-t", str(process), "-n", "ss", "-Htn", "state", "established"],
            capture_output=True,
            text=True,
            check=True,
        )
        for line in listed.stdout.splitlines():
            here, there = line.split()[2:4]
            if there.endswith(":443") and there.startswith("10.96.0.1"):
                address, _, port = here.rpartition(":")
                rules.append(["INPUT", "-p", "tcp", "-s", address, "--sport", port, "-d", ADDRESS, "-j", "DROP"])
    for rule in rules:
        subprocess.run(["iptables", "-I", *rule], check=True)
    try:
        yield len(rules)
    finally:
        for rule in rules:
            subprocess.run(["iptables", "-D", *rule], check=False)


def test_connections_that_go_silent_do_not_stop_the_controller(kubernetes: Kubernetes, release: Release) -> None:
    """Its watch says nothing any more and no connection answers, as when a firewall forgets them: it goes on over new ones."""
    kubernetes.namespace(SPACE)
    before = restarts(kubernetes, release)
    with silent(processes_of("stitchfleet controller")) as count:
        assert count >= 2  # the watch, and the loops' own
        started = time.monotonic()
        kubernetes.create(savings_report("silent", {"namespace": SPACE}))
        kubernetes.wait(lambda: has_status(kubernetes, "silent"), 120, "the controller waits for ever")
        print(f"{count} connections went silent; the controller went on after {time.monotonic() - started:.0f} s")
        # a second one, which the watch does not tell of either, is found by the next look
        kubernetes.create(savings_report("silent-too", {"namespace": SPACE}))
        kubernetes.wait(lambda: has_status(kubernetes, "silent-too"), 20, "the loop does not look")
    kubernetes.kubectl("delete", "savingsreport", "silent", "silent-too")
    assert restarts(kubernetes, release) == before


def test_a_webhook_whose_connections_go_silent_still_injects(kubernetes: Kubernetes, release: Release) -> None:
    kubernetes.namespace(SPACE)
    before = restarts(kubernetes, release)
    about: dict[str, Any] = {"apiVersion": "stitchfleet.io/v1alpha1", "kind": "StitchPolicy"}
    with silent(processes_of("stitchfleet webhook")) as count:
        assert count >= 1
        assert is_injected(dry_run(kubernetes, pod(IMAGE)))
        kubernetes.create({**about, "metadata": {"name": "no", "namespace": SPACE}, "spec": {"enabled": False}})
        kubernetes.wait(
            lambda: not is_injected(dry_run(kubernetes, pod(IMAGE))), 120, "it learns of no policy any more"
        )
    assert restarts(kubernetes, release) == before
