"""What ingest tells Prometheus, read by Prometheus' own programs."""

from __future__ import annotations

import json
import pathlib
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator

import pytest

from .servers import Served, ingest_server, post, request
from .test_ingest import event, iterations, segment


@pytest.fixture
def served(tmp_path: pathlib.Path) -> Iterator[Served]:
    with ingest_server(f"sqlite:///{tmp_path}/telemetry.db") as found:
        assert post(found.url, segment(iterations(), event()))[0] == 200
        assert post(found.url, segment(event()), token="wrong")[0] == 401
        yield found


def test_promtool_finds_nothing_to_complain_of(served: Served) -> None:
    text = request(served.url, "GET", "/metrics")[2]
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


def test_a_prometheus_scrapes_it(served: Served, tmp_path: pathlib.Path) -> None:
    target = urllib.parse.urlsplit(served.url).netloc
    (tmp_path / "prometheus.yml").write_text(
        f"scrape_configs: [{{job_name: ingest, scrape_interval: 1s, static_configs: [{{targets: ['{target}']}}]}}]"
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    words = [f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(
            ["prometheus", *words, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log, cwd=tmp_path
        )

    def ask(expression: str) -> list[tuple[dict[str, str], str]]:
        url = f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            found = json.load(answer)["data"]["result"]
        return [(series["metric"], series["value"][1]) for series in found]

    try:
        for _ in range(300):
            assert process.poll() is None, (tmp_path / "log").read_text()
            try:
                if ask("up{job='ingest'} == 1"):
                    break
            except OSError:
                pass
            time.sleep(0.2)
        assert ask("sum(stitchfleet_ingest_iterations_total)") == [({}, "10")]
        refused = ask("stitchfleet_ingest_rejections_total > 0")
        assert [(metric["reason"], value) for metric, value in refused] == [("token_refused", "1")]
        saved = (
            "sum by (unit) (stitchfleet_baseline_equivalent_device_seconds_total"
            " - stitchfleet_actual_device_seconds_total - stitchfleet_overhead_device_seconds_total)"
        )
        assert sorted(metric["unit"] for metric, _ in ask(saved)) == ["cpu", "gpu"]
    finally:
        process.terminate()
        process.wait()
