"""What ingest tells Prometheus, and the rules made of it, read by Prometheus' own programs."""

from __future__ import annotations

import pathlib
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from stitchfleet.operator.controller import metrics as controller
from stitchfleet.operator.controller.loops import ControlLoop
from stitchfleet.operator.webhook import metrics as webhook
from stitchfleet.telemetry import dashboards

from ..ingest.test_ingest import event, iterations, segment
from ..servers import Served, ingest_server, post, request

RULES = pathlib.Path(dashboards.__file__).with_name("rules.yml")
CASES = pathlib.Path(__file__).with_name("rules.test.yml")


@pytest.fixture
def served(tmp_path: pathlib.Path) -> Iterator[Served]:
    with ingest_server(f"sqlite:///{tmp_path}/telemetry.db") as found:
        assert post(found.url, segment(iterations(), event()))[0] == 200
        assert post(found.url, segment(event()), token="wrong")[0] == 401
        yield found


def promtool(*words: object, text: bytes | None = None) -> tuple[int, str]:
    done = subprocess.run(["promtool", *map(str, words)], input=text, capture_output=True, check=False)
    return done.returncode, (done.stdout + done.stderr).decode()


def of_a_controller() -> str:
    """What one exposes that has looked once."""
    metrics = controller.Metrics()
    ControlLoop("reports", lambda: None, 60.0, 300.0, metrics).once()
    return generate_latest(metrics.registry).decode()


def test_promtool_finds_nothing_to_complain_of(served: Served) -> None:
    assert promtool("check", "metrics", text=request(served.url, "GET", "/metrics")[2]) == (0, "")
    assert promtool("check", "metrics", text=webhook.Metrics().exposition()) == (0, "")
    assert promtool("check", "metrics", text=of_a_controller().encode()) == (0, "")


# ---- rules -------------------------------------------------------------------------------------------------------------------


def rules() -> Iterator[dict[str, Any]]:
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        yield from group["rules"]


def test_promtool_takes_the_rules() -> None:
    assert promtool("check", "rules", "--lint=all", "--lint-fatal", RULES)[0] == 0


@pytest.mark.slow  # 8 s of a processor for weeks of made up samples
def test_each_rule_does_what_its_case_says() -> None:
    code, said = promtool("test", "rules", CASES)
    assert code == 0, said


def test_each_alert_fires_in_a_case_and_tells_what_to_do() -> None:
    alerts = [rule for rule in rules() if "alert" in rule]
    fired = CASES.read_text()
    for rule in alerts:
        name = rule["alert"]
        assert f'alertname="{name}", alertstate="firing"' in fired or f"alertname: {name}\n" in fired, name
        assert rule["labels"]["severity"] in ("warning", "critical"), name
        assert {"summary", "description"} == set(rule["annotations"]), name
        assert name.startswith("Stitchfleet")
    assert len(alerts) > 10


def test_no_rule_adds_seconds_of_cpus_to_those_of_gpus() -> None:
    recorded = {rule["record"]: rule["expr"] for rule in rules() if "record" in rule}
    for name, expression in recorded.items():
        level, _, operations = name.split(":")
        assert (level, operations.removeprefix("ratio_")[:4]) == ("unit", "rate")
        assert "sum" not in expression or "sum by (unit)" in expression


def test_the_rules_ask_for_metrics_that_there_are(served: Served) -> None:
    texts = webhook.Metrics().exposition().decode(), of_a_controller()
    exposed = {name.split(".")[0] for name in served.metrics()}
    for text in texts:
        exposed |= {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    asked = {
        word
        for rule in rules()
        for word in rule["expr"].replace("(", " ").replace("{", " ").replace("[", " ").replace(")", " ").split()
        if "stitchfleet_" in word
    }
    assert asked - exposed - recorded == set()


def often(text: str) -> str:
    """The rules, evaluated as often as the tests' Prometheus scrapes."""
    whole = yaml.safe_load(text)
    for group in whole["groups"]:
        group.pop("interval", None)
    return str(yaml.safe_dump(whole, sort_keys=False))
