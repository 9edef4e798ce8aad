"""A SavingsReport's status: telemetry's own figures, conditions in the standard shape, and a schema that names every field."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
import yaml
from kubernetes.client.exceptions import ApiException

from stitchfleet.operator.controller import keeper as keeper_module
from stitchfleet.operator.controller.keeper import Keeper
from stitchfleet.operator.controller.metrics import Metrics
from stitchfleet.operator.controller.weekly import status_of
from stitchfleet.telemetry.database import access, models
from stitchfleet.telemetry.database.weeks import Week
from stitchfleet.telemetry.reports.configuration import Configuration
from stitchfleet.telemetry.reports.fleet import fleet_report
from stitchfleet.telemetry.reports.formats import as_json
from stitchfleet.telemetry.totals.freezing import freeze
from stitchfleet.telemetry.totals.weekly import week_report

from ...telemetry import synthetic
from ..pods import listed

Object = dict[str, Any]
WEEK = Week(2026, 40)
BEFORE = Week(2026, 39)
"""Frozen."""
CRD = pathlib.Path(__file__).resolve().parents[3] / "helm" / "stitchfleet" / "crds" / "savingsreports.yaml"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sa.Engine]:
    made = access.open_engine(f"sqlite:///{tmp_path_factory.mktemp('fleet')}/fleet.db")
    access.upgrade(made)
    synthetic.fill(made, WEEK, weeks=2, jobs=25, frozen=1)
    yield made
    made.dispose()


def status(engine: sa.Engine, week: Week, before: Object | None = None, **scope: str) -> Object:
    spec: Object = {"week": str(week), **({"scope": scope} if scope else {})}
    with engine.connect() as connection:
        return status_of(week_report(connection, week), spec, 3, before or {})


def conditions(of: Object) -> dict[str, tuple[str, str]]:
    return {entry["type"]: (entry["status"], entry["reason"]) for entry in of["conditions"]}


def test_the_totals_are_those_of_the_weekly_report(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        report = json.loads(as_json(fleet_report(connection, WEEK, Configuration(), 0)))
    found = {total["unit"]: total for total in status(engine, WEEK)["totals"]}
    assert set(found) == {total["unit"] for total in report["totals"]} == {"CPU", "GPU"}
    for total in report["totals"]:
        mine = found[total["unit"]]
        assert (mine["savedHours"], mine["savedHoursLow"], mine["savedHoursHigh"]) == (
            total["saved_hours"],
            total["saved_hours_low"],
            total["saved_hours_high"],
        )
        assert (mine["deviceHours"], mine["jobs"]["total"], mine["jobs"]["measured"]) == (
            total["device_hours"],
            total["jobs"],
            total["jobs_measured"],
        )


def test_a_scope_counts_one_namespace_and_the_namespaces_add_up(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        report = fleet_report(connection, WEEK, Configuration(), 0).report
    spaces = {job.namespace for job in report.jobs}
    parts = [total for space in spaces for total in status(engine, WEEK, namespace=space)["totals"]]
    whole = status(engine, WEEK)["totals"]
    assert len(spaces) > 3
    for unit in ("CPU", "GPU"):
        of_parts = sum(each["savedHours"] for each in parts if each["unit"] == unit)
        assert of_parts == pytest.approx(next(each["savedHours"] for each in whole if each["unit"] == unit))
    assert status(engine, WEEK, namespace="nobody")["totals"] == []


def test_conditions_say_whether_a_week_is_closed(engine: sa.Engine) -> None:
    assert conditions(status(engine, WEEK)) == {"Ready": ("True", "Measured"), "Closed": ("False", "Open")}
    frozen = status(engine, BEFORE)
    assert conditions(frozen) == {"Ready": ("True", "Measured"), "Closed": ("True", "Frozen")}
    assert frozen["revision"] == 1
    assert conditions(status(engine, Week(2026, 2)))["Ready"] == ("True", "NoJobs")


def test_a_condition_keeps_its_time_until_its_status_changes(engine: sa.Engine) -> None:
    first = status(engine, WEEK)
    first["conditions"] = [entry | {"lastTransitionTime": "2026-01-01T00:00:00Z"} for entry in first["conditions"]]
    assert status(engine, WEEK, before=first) == first
    closed = status(engine, BEFORE, before=first)
    times = {entry["type"]: entry["lastTransitionTime"] for entry in closed["conditions"]}
    assert times["Ready"] == "2026-01-01T00:00:00Z"
    assert times["Closed"] != "2026-01-01T00:00:00Z"


def test_a_structural_schema_would_drop_no_field_of_the_status(engine: sa.Engine) -> None:
    schema = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert _unknown(status(engine, WEEK), schema["properties"]["status"]) == []


def _unknown(value: Any, schema: Object, path: str = "status") -> list[str]:
    """Paths of fields that the schema does not name: the API server would drop them without a word."""
    if isinstance(value, dict):
        known = schema.get("properties", {})
        inner = [
            _unknown(each, known[key], f"{path}.{key}") if key in known else [f"{path}.{key}"]
            for key, each in value.items()
        ]
        return [found for part in inner for found in part]
    if isinstance(value, list):
        return [found for each in value for found in _unknown(each, schema["items"], f"{path}[]")]
    kinds = {"string": str, "integer": int, "number": (int, float)}
    return [] if isinstance(value, kinds[schema["type"]]) else [f"{path}: {value!r}"]


# ---- the loop ----------------------------------------------------------------------------------------------------------------


class Reports:
    """In the place of the API server's objects."""

    def __init__(self, *weeks: str) -> None:
        self.objects: dict[str, Object] = {}
        self.writes = 0
        for week in weeks:
            self.create(week.lower(), {"week": week})

    def all(self) -> list[Object]:
        return list(self.objects.values())

    def create(self, name: str, spec: Object) -> None:
        about = {"name": name, "generation": 1, "resourceVersion": "1"}
        self.objects.setdefault(name, {"metadata": about, "spec": spec})

    def set_status(self, report: Object, status: Object) -> bool:
        name, version = report["metadata"]["name"], report["metadata"]["resourceVersion"]
        now = self.objects[name]
        if version != now["metadata"]["resourceVersion"]:
            return False
        self.writes += 1
        about = {**now["metadata"], "resourceVersion": f"{int(version) + 1}"}
        self.objects[name] = {**now, "metadata": about, "status": {**now.get("status", {}), **status}}
        return True


class NoPolicies:
    def all(self) -> list[Object]:
        return []


def kept(
    engine: sa.Engine,
    reports: Reports,
    policies: Any = NoPolicies(),  # noqa: B008
    pods: tuple[Object, ...] = (),
) -> Keeper:
    return Keeper(engine, reports, policies, 28, lambda: pods, lambda: WEEK.start_ns + 10**14)  # type: ignore[arg-type]


def test_a_pass_makes_the_current_and_the_last_week_s_report_and_a_second_writes_nothing(engine: sa.Engine) -> None:
    reports = Reports()
    keeper = kept(engine, reports)
    keeper.look()
    assert set(reports.objects) == {"2026-w40", "2026-w39"}
    assert reports.objects["2026-w40"]["status"]["totals"] == status(engine, WEEK)["totals"]
    writes = reports.writes
    keeper.look()
    assert reports.writes == writes


def test_this_week_s_report_says_what_the_pods_that_asked_came_to(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        uid = connection.scalar(sa.select(models.jobs.c.uid).limit(1))
    reports = Reports("2026-W40")
    kept(engine, reports, pods=(listed("a", uid), listed("b", "nobody"), listed("c", "other", reason="why"))).look()
    found = reports.objects["2026-w40"]["status"]["pods"]
    assert {key: found[key] for key in ("asked", "injected", "notInjected", "silent")} == {
        "asked": 3,
        "injected": 2,
        "notInjected": 1,
        "silent": 1,
    }
    assert [(each["name"], each["reason"]) for each in found["examples"]] == [
        ("b", "it was injected, and sent no record"),
        ("c", "why"),
    ]
    assert "pods" not in reports.objects["2026-w39"]["status"]


def test_a_report_of_the_whole_fleet_links_to_its_page_and_a_scoped_one_does_not(engine: sa.Engine) -> None:
    reports = Reports()
    reports.create("mine", {"week": str(WEEK), "scope": {"namespace": "vision"}})
    url = "https://fleet.example.com"
    keeper = Keeper(engine, reports, NoPolicies(), 28, now_ns=lambda: WEEK.start_ns + 10**14, reports_url=url)  # type: ignore[arg-type]
    keeper.look()
    assert reports.objects[str(WEEK).lower()]["status"]["link"] == f"{url}/reports/{WEEK}"
    assert "link" not in reports.objects["mine"]["status"]


def test_a_week_that_somebody_asks_for_is_made_and_one_that_is_none_says_so(engine: sa.Engine) -> None:
    reports = Reports("2026-W02", "2026-W77")
    kept(engine, reports).look()
    assert conditions(reports.objects["2026-w02"]["status"])["Ready"] == ("True", "NoJobs")
    assert conditions(reports.objects["2026-w77"]["status"])["Ready"] == ("False", "InvalidWeek")


def test_a_database_that_is_away_is_a_condition_and_the_figures_stay(engine: sa.Engine, tmp_path: pathlib.Path) -> None:
    reports = Reports()
    kept(engine, reports).look()
    totals = reports.objects["2026-w40"]["status"]["totals"]
    away = kept(access.open_engine(f"sqlite:///{tmp_path}/empty.db"), reports)
    away.look()
    found = reports.objects["2026-w40"]["status"]
    assert conditions(found)["Ready"] == ("False", "DatabaseUnavailable")
    assert found["totals"] == totals
    kept(engine, reports).look()
    assert conditions(reports.objects["2026-w40"]["status"])["Ready"] == ("True", "Measured")


def computed(keeper: Keeper) -> float:
    """Reports worked out from the database by one look."""
    metrics: Metrics = keeper._metrics
    before = metrics.registry.get_sample_value("stitchfleet_controller_reports_computed_total") or 0.0
    keeper.look()
    return (metrics.registry.get_sample_value("stitchfleet_controller_reports_computed_total") or 0.0) - before


def test_a_frozen_week_is_worked_out_once_and_again_when_data_comes(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = Reports("2026-W40", "2026-W39")
    keeper = kept(engine, reports)
    assert computed(keeper) == 2
    assert computed(keeper) == 1  # this week's
    reports.create("mine", {"week": "2026-W39", "scope": {"namespace": "vision"}})
    assert computed(keeper) == 2
    assert reports.objects["mine"]["status"]["totals"] == status(engine, BEFORE, namespace="vision")["totals"]
    reports.objects["mine"]["metadata"]["generation"] = 2
    reports.objects["mine"]["spec"] = {"week": "2026-W39", "scope": {"namespace": "nobody"}}
    assert computed(keeper) == 2
    assert reports.objects["mine"]["status"]["totals"] == []
    monkeypatch.setattr(keeper_module, "settled_revisions", lambda connection: {BEFORE: 2})
    assert computed(keeper) == 3  # another revision
    monkeypatch.setattr(keeper_module, "settled_revisions", lambda connection: {})
    assert computed(keeper) == 3  # late data


def test_a_report_may_ask_for_a_revision(tmp_path: pathlib.Path) -> None:
    """Its figures stay those of that freezing, whatever comes and is frozen afterwards."""
    own = access.open_engine(f"sqlite:///{tmp_path}/fleet.db")
    access.upgrade(own)
    synthetic.fill(own, WEEK, weeks=2, jobs=5, frozen=1)
    reports = Reports("2026-W40", "2026-W39")
    for number in (1, 2):
        reports.create(f"revision-{number}", {"week": "2026-W39", "revision": number})
    url = "https://fleet.example.com"
    keeper = Keeper(own, reports, NoPolicies(), 28, now_ns=lambda: WEEK.start_ns + 10**14, reports_url=url)  # type: ignore[arg-type]
    keeper.look()
    first = reports.objects["revision-1"]["status"]
    assert first["totals"] == reports.objects["2026-w39"]["status"]["totals"]
    assert first["link"] == f"{url}/reports/2026-W39?revision=1"
    assert conditions(first) == {"Ready": ("True", "Measured"), "Closed": ("True", "Frozen")}
    (ready,) = reports.objects["revision-2"]["status"]["conditions"]
    assert (ready["status"], ready["reason"]) == ("False", "NoSuchRevision")
    assert ready["message"] == "2026-W39 has no revision 2: the latest is 1"
    with own.begin() as connection:  # a job's data are gone, and the week is frozen again
        chosen = connection.scalar(
            sa.select(models.weekly_rollups.c.process_id).where(models.weekly_rollups.c.stands_for_job == 1).limit(1)
        )
        for table in (models.iteration_blocks, models.arm_blocks):
            connection.execute(sa.delete(table).where(table.c.process_id == chosen))
        connection.execute(
            sa.update(models.frozen_weeks).where(models.frozen_weeks.c.week == "2026-W39").values(has_late_data=1)
        )
        freeze(connection, WEEK.first_day + 1)
    assert computed(keeper) == 3  # this week's, last week's and its second revision
    second = reports.objects["revision-2"]["status"]
    assert reports.objects["2026-w39"]["status"]["totals"] == second["totals"] != first["totals"]
    assert reports.objects["revision-1"]["status"] == first
    later = Keeper(own, reports, NoPolicies(), 28, now_ns=lambda: WEEK.start_ns + 10**14, reports_url=url)  # type: ignore[arg-type]
    later.look()
    again = reports.objects["revision-1"]["status"]
    assert again["totals"] == first["totals"]
    messages = {entry["type"]: entry["message"] for entry in again["conditions"]}
    assert messages["Closed"] == "revision 1, which is not the latest"


def test_reports_of_one_week_are_made_of_one_reading(engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Week] = []
    monkeypatch.setattr(
        keeper_module,
        "week_report",
        lambda connection, week, revision: read.append(week) or week_report(connection, week, revision),
    )
    reports = Reports("2026-W40", "2026-W39")
    for number in range(3):
        reports.create(f"again-{number}", {"week": "2026-W40"})
    progress: list[int] = []
    keeper = kept(engine, reports)
    keeper.made_progress = lambda: progress.append(len(read))
    keeper.look()
    assert read == [WEEK, BEFORE]
    assert progress == [1, 2]
    assert reports.objects["again-2"]["status"] == reports.objects["2026-w40"]["status"]


def test_a_report_that_cannot_be_written_keeps_no_other_from_it_and_the_house_is_kept(engine: sa.Engine) -> None:
    reports = Reports("2026-W40", "2026-W39")

    def refuse_first(report: Object, status: Object) -> bool:
        if report["metadata"]["name"] == "2026-w40":
            raise ApiException(422, "Invalid")
        report["status"] = status
        return True

    reports.set_status = refuse_first  # type: ignore[method-assign]
    keeper = kept(engine, reports)
    with pytest.raises(ApiException, match="422"):
        keeper.look()
    assert conditions(reports.objects["2026-w39"]["status"])["Closed"] == ("True", "Frozen")
    assert keeper._housekept > 0


def test_of_one_week_too_a_report_that_cannot_be_written_keeps_no_other_from_it(engine: sa.Engine) -> None:
    reports = Reports("2026-W40", "2026-W77")
    reports.create("mine", {"week": "2026-W40"})

    def refuse_some(report: Object, status: Object) -> bool:
        if report["metadata"]["name"] in ("2026-w40", "2026-w77"):
            raise ApiException(422, "Invalid")
        report["status"] = status
        return True

    reports.set_status = refuse_some  # type: ignore[method-assign]
    with pytest.raises(ApiException, match="422"):
        kept(engine, reports).look()
    assert conditions(reports.objects["mine"]["status"])["Ready"] == ("True", "Measured")


def test_what_another_controller_wrote_meanwhile_is_not_overwritten(engine: sa.Engine) -> None:
    """It read later, so that it knows more; the next look writes what is still to be written."""
    reports = Reports("2026-W40")
    newer = (listed("a", "unknown"), listed("b", "other"))

    def seen_before() -> tuple[Object, ...]:
        kept(engine, reports, pods=newer).look()
        return newer[:1]

    slow = Keeper(engine, reports, NoPolicies(), 28, seen_before, lambda: WEEK.start_ns + 10**14)  # type: ignore[arg-type]
    slow.look()
    assert reports.objects["2026-w40"]["status"]["pods"]["asked"] == 2


def test_a_week_that_could_not_be_written_is_not_taken_for_settled(engine: sa.Engine) -> None:
    reports = Reports("2026-W39")
    keeper = kept(engine, reports)
    write, reports.set_status = reports.set_status, lambda report, status: False  # type: ignore[method-assign]
    keeper.look()
    reports.set_status = write  # type: ignore[method-assign]
    keeper.look()
    assert conditions(reports.objects["2026-w39"]["status"])["Closed"] == ("True", "Frozen")


def test_a_database_that_is_away_is_asked_once_a_look(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    reports = Reports(*(f"2026-W{number:02}" for number in range(1, 30)))
    kept(access.open_engine(f"sqlite:///{tmp_path}/empty.db"), reports).look()
    assert capfd.readouterr().err.count("the database cannot be read") == 1
    ready = [conditions(each["status"])["Ready"] for each in reports.all()]
    assert ready == [("False", "DatabaseUnavailable")] * 31


def test_metrics_count_the_pods_of_the_fleet(engine: sa.Engine) -> None:
    reports = Reports("2026-W40")
    reports.create("mine", {"week": "2026-W40", "scope": {"namespace": "nobody"}})
    keeper = kept(engine, reports, pods=(listed("a", "unknown"), listed("b", "other", reason="why")))
    keeper.look()
    found = [
        keeper._metrics.registry.get_sample_value("stitchfleet_controller_pods", {"state": state})
        for state in ("injected", "not_injected", "silent")
    ]
    assert found == [1.0, 1.0, 1.0]
