"""The Grafana dashboards: each query of each is run on what it will be run on, and a panel says what it shows."""

from __future__ import annotations

import datetime
import decimal
import itertools
import json
import math
import pathlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import sqlalchemy as sa

from scripts.benchmark.postgres import PostgresServer
from stitchfleet.telemetry import dashboards
from stitchfleet.telemetry.database import access
from stitchfleet.telemetry.database.weeks import Week
from stitchfleet.telemetry.pod.recording import DAY_NS, PLAIN, STITCHED
from stitchfleet.telemetry.pod.spool import Kind
from stitchfleet.telemetry.totals.weekly import week_report

from .. import synthetic
from ..ingest.test_ingest import event, iterations, segment
from ..servers import Prometheus, ingest_server, post, prometheus
from . import grafana
from .grafana import PROMETHEUS, Query, View
from .test_prometheus import RULES, often

FOLDER = pathlib.Path(dashboards.__file__).parent
FILES = sorted(FOLDER.glob("*.json"))
BOARDS = {path.stem: grafana.read(path) for path in FILES}
QUERIES = {name: list(grafana.queries(board)) for name, board in BOARDS.items()}
VALUES = {"instance": [".*"], "namespace": ["nlp-prod", "ads", "o'brien"], "job": ["run"]}


def asked(source: str) -> list[tuple[str, Query]]:
    found = [(name, query) for name, queries in QUERIES.items() for query in queries if query.source == source]
    assert len(found) >= 20
    return found


# ---- Prometheus --------------------------------------------------------------------------------------------------------------


def send_something(url: str, number: int) -> None:
    """A GPU and a CPU job with a saving, a batch with a wrong token, a damaged record, a lost one, and a block of long ago."""
    said: dict[str, Any] = {"arm": PLAIN, "first_step": 0, "durations_ns": [1_000_000], "time_ns": 1}
    pairs = [(Kind.ARM_BLOCK, json.dumps({"pair": pair, **said}).encode()) for pair in range(2)]
    odd = [
        (Kind.LOSS, json.dumps({"time_ns": 1, "lost": number, "reason": "full"}).encode()),
        (Kind.EVENT, b"["),
        iterations(at=1),
    ]
    for job in ({}, {"run_id": "gpu", "device_kind": "NVIDIA A100", "device_count": 8}):
        steps = iterations(STITCHED, 100, 800.0, at=time.time_ns(), step=1000 * number)
        ended = (Kind.JOB_END, b'{"time_ns": 7, "facts": {"overhead_ns": 1000000}}')
        assert post(url, segment(*pairs, steps, event(), *odd, ended, first=100 * number, **job))[0] == 200
    assert post(url, segment(event()), token="wrong")[0] == 401


@dataclass
class Scraped:
    """An ingest server's Prometheus, which has the rules."""

    server: Prometheus
    empty_at_first: list[str]
    """The panels of the server's health that showed nothing before anything was sent to it."""


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    """One for all tests: it takes a Prometheus five seconds to look for its first server."""
    folder = tmp_path_factory.mktemp("scraped")
    with (
        ingest_server(f"sqlite:///{folder}/telemetry.db") as served,
        prometheus(folder / "prometheus", served.url, often(RULES.read_text())) as found,
    ):
        found.wait_for("unit:stitchfleet_saved_device_seconds:rate1d", lambda rows: len(rows) == 2)
        empty = [query.where for query in QUERIES["health"] if not values(found, query)]
        assert found.ask("ALERTS") == []
        for number in range(1, 4):
            send_something(served.url, number)
            found.wait_for(f"sum(stitchfleet_ingest_iterations_total) == {200 * number}", bool)
        saved = "unit:stitchfleet_saved_per_baseline_equivalent_device_seconds:ratio_rate1d"
        found.wait_for(saved, lambda rows: len(rows) == 2)
        yield Scraped(found, empty)


def values(server: Prometheus, query: Query) -> list[float]:
    """The last value of each series that a panel would show; for a variable, a number for each of its values."""
    now = time.time()
    view = View(now - 600, now, VALUES)
    text = view.promql(query.text)
    if query.where.startswith("variable"):
        metric, label = text.removeprefix("label_values(").removesuffix(")").split(", ")
        return [0.0 for _ in server.get(f"label/{label}/values", **{"match[]": metric})]
    if query.instant:
        return [value for _, value in server.ask(text)]
    found = server.get("query_range", query=text, start=str(now - 60), end=str(now), step="1")["result"]
    return [float(series["values"][-1][1]) for series in found]


# One test for all queries of the server: as tests of their own, the test runner's processes would each start such a server.


def test_each_promql_query_has_figures_of_a_fleet_at_work(scraped: Scraped) -> None:
    assert scraped.empty_at_first == [], "a server that has just begun: a zero, not an empty panel"
    of = {f"{board}, {query.where}: {query.text}": values(scraped.server, query) for board, query in asked(PROMETHEUS)}
    assert {name: figures for name, figures in of.items() if not figures or not all(map(math.isfinite, figures))} == {}


def test_figures_are_the_ones_that_were_sent(scraped: Scraped) -> None:
    def shown(board: str, title: str) -> list[float]:
        queries = [query for query in QUERIES[board] if f"({title})" in query.where]
        return [value for query in queries for value in values(scraped.server, query)]

    refused = scraped.server.ask("stitchfleet_ingest_rejections_total > 0")
    assert [(metric["reason"], value) for metric, value in refused] == [("token_refused", 3.0)]
    saved = scraped.server.ask("unit:stitchfleet_saved_device_seconds:rate5m")
    assert {metric["unit"] for metric, _ in saved} == {"cpu", "gpu"}
    fired = {metric["alertname"] for metric, _ in scraped.server.ask('ALERTS{alertstate="firing"}')}
    assert fired == {"StitchfleetBlocksDropped", "StitchfleetRecordsDamaged", "StitchfleetRecordsLost"}

    assert shown("health", "Servers") == [1.0]
    assert shown("health", "Database") == [1.0]
    assert shown("health", "Damaged")[0] > 0
    assert shown("health", "Lost")[0] > 0
    assert shown("fleet_savings", "Share of GPU time saved") == [pytest.approx(0.19, abs=0.02)], (
        "a fifth, less overhead"
    )
    live = (
        shown("fleet_savings", "GPU-hours saved in the time shown"),
        shown("fleet_savings", "CPU-hours saved in the time shown"),
    )
    assert live[0][0] == pytest.approx(8 * live[1][0], rel=0.01), "eight devices and one"


# ---- panels ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("board", BOARDS)
def test_panels_lie_beside_each_other(board: str) -> None:
    found = BOARDS[board]["panels"]
    for name in ("id", "title"):
        assert len({panel[name] for panel in found}) == len(found)
    taken: set[tuple[int, int]] = set()
    for panel in found:
        place = panel["gridPos"]
        assert 0 <= place["x"] < place["x"] + place["w"] <= 24, panel["title"]
        cells = set(
            itertools.product(range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"]))
        )
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.mark.parametrize("board", BOARDS)
def test_each_panel_says_what_its_figure_is_and_in_what_unit(board: str) -> None:
    for panel in grafana.panels(BOARDS[board]):
        assert len(panel["description"]) > 30, panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["targets"], panel["title"]
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references), panel["title"]
        assert grafana.source_of(BOARDS[board], panel["datasource"])


@pytest.mark.parametrize("board", BOARDS)
def test_a_dashboard_is_of_the_current_model_and_asks_which_data_sources_to_use(board: str) -> None:
    found = BOARDS[board]
    assert (found["schemaVersion"], found.get("id"), found["timezone"]) == (42, None, "utc")
    text = json.dumps(found)
    kinds = {variable["query"] for variable in found["templating"]["list"] if variable["type"] == "datasource"}
    assert kinds == {kind for kind in (PROMETHEUS, grafana.POSTGRESQL) if f'"type": "{kind}"' in text}
    assert "__inputs" not in found


def test_dashboards_are_told_apart() -> None:
    for name in ("uid", "title"):
        assert len({board[name] for board in BOARDS.values()}) == len(BOARDS) == 2


def test_no_panel_of_hours_or_devices_mixes_cpus_and_gpus() -> None:
    seen = 0
    for panel in grafana.panels(BOARDS["fleet_savings"]):
        unit = panel["fieldConfig"]["defaults"]["unit"]
        texts = [target.get("expr") or target["rawSql"] for target in panel["targets"]]
        named = {
            kind for kind in ("cpu", "gpu") for text in texts if f"'{kind.upper()}'" in text or f'"{kind}"' in text
        }
        if any("stitchfleet_" in text or "weekly_" in text for text in texts):
            assert len(named) == 1, panel["title"]
            (kind,) = named
            assert kind.upper() in panel["title"], panel["title"]
            assert {"cpu": "GPU", "gpu": "CPU"}[kind] not in unit + panel["title"] + " ".join(texts).upper()
            seen += 1
    assert seen > 20


# ---- PostgreSQL --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fleet(postgres_server: PostgresServer) -> Iterator[sa.Connection]:
    """Six weeks of a made-up fleet, four of them frozen, as a user who may only read sees them."""
    url = postgres_server.new_database()
    engine = access.open_engine(url)
    access.upgrade(engine)
    synthetic.fill(engine, Week.at(time.time_ns() - 7 * DAY_NS), 6, 25, 4)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE ROLE grafana")
        connection.exec_driver_sql("GRANT SELECT ON jobs, iterations, weekly_savings, weekly_job_savings TO grafana")
    with engine.connect() as connection:
        connection.exec_driver_sql("SET ROLE grafana")
        yield connection
    engine.dispose()


def of_fleet(fleet: sa.Connection, text: str, **values: list[str]) -> list[sa.Row[Any]]:
    """What a query gives of the last twelve weeks, all values of the dashboard's variables chosen."""
    now = time.time()
    view = View(now - 12 * 7 * 86_400, now, values)
    return list(fleet.exec_driver_sql(view.sql(text).replace("%", "%%")))


@pytest.fixture(scope="module")
def chosen(fleet: sa.Connection) -> dict[str, list[str]]:
    """The values that Grafana finds for the variables, in their order, as one can be part of the next one's query."""
    found: dict[str, list[str]] = {}
    for query in QUERIES["fleet_savings"]:
        if query.where.startswith("variable"):
            values = [str(row[0]) for row in of_fleet(fleet, query.text, **found)]
            assert values, query.text
            found[query.where.removeprefix("variable ")] = values
    assert "nlp-prod" in found["namespace"]
    return {**found, "job": found["job"][:1]}


def test_each_sql_query_has_rows_of_a_fleet(fleet: sa.Connection, chosen: dict[str, list[str]]) -> None:
    for _, query in asked(grafana.POSTGRESQL):
        rows = of_fleet(fleet, query.text, **chosen)
        assert rows, f"{query.where}: {query.text}"
        has_figure = any(isinstance(value, (int, float, decimal.Decimal)) for value in rows[0])
        assert has_figure or "variable" in query.where, query.where


def test_a_time_series_has_times_in_order(fleet: sa.Connection, chosen: dict[str, list[str]]) -> None:
    for panel in grafana.panels(BOARDS["fleet_savings"]):
        for target in panel["targets"]:
            if target.get("format") == "time_series":
                times = [row._mapping["time"] for row in of_fleet(fleet, target["rawSql"], **chosen)]
                assert times == sorted(times), panel["title"]
                assert all(isinstance(each, datetime.datetime) for each in times), panel["title"]


def test_fields_that_a_panel_sets_apart_are_there(fleet: sa.Connection, chosen: dict[str, list[str]]) -> None:
    seen = 0
    for panel in grafana.panels(BOARDS["fleet_savings"]):
        named = {entry["matcher"]["options"] for entry in panel["fieldConfig"]["overrides"]}
        named |= {panel["options"]["xField"]} if "xField" in panel["options"] else set()
        if named:
            (target,) = panel["targets"]
            (first, *_) = of_fleet(fleet, target["rawSql"], **chosen)
            assert named <= set(first._mapping), panel["title"]
            seen += 1
    assert seen > 2


def test_a_week_of_the_dashboard_is_that_of_the_report(fleet: sa.Connection, chosen: dict[str, list[str]]) -> None:
    (panel,) = (p for p in grafana.panels(BOARDS["fleet_savings"]) if p["title"] == "GPU-hours saved a week")
    rows = of_fleet(fleet, panel["targets"][0]["rawSql"], **chosen)
    assert len(rows) == 4, "frozen weeks"
    week = Week.of_day((rows[-1].time - datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)).days)
    engine = fleet.engine
    with engine.connect() as connection:
        (gpu,) = (total for total in week_report(connection, week).totals() if total.unit == "GPU")
    assert rows[-1].saved == pytest.approx(gpu.saved.value)
    assert rows[-1][2:] == pytest.approx((gpu.saved.low, gpu.saved.high))


def test_a_namespace_with_a_quote_in_its_name_stays_a_namespace(fleet: sa.Connection) -> None:
    (panel,) = (p for p in grafana.panels(BOARDS["fleet_savings"]) if p["title"] == "GPU jobs that saved most")
    assert of_fleet(fleet, panel["targets"][0]["rawSql"], namespace=["x') OR ('1' = '1"]) == []
