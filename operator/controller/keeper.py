"""The controller's loop: looks at each SavingsReport, makes this week's, freezes weeks that are over, and drops old iterations.

A pass runs on a thread; a database or an API server that is away costs a pass, and the next one goes on. `progress` is when the
last pass ended, good or not: what hangs makes no progress, and the liveness probe sees it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa
from kubernetes.client.exceptions import ApiException

from stitchfleet.operator.cluster.policies import PolicyStore
from stitchfleet.operator.cluster.reports import ReportStore
from stitchfleet.operator.policy.precedence import in_effect
from stitchfleet.telemetry import database, partitions
from stitchfleet.telemetry.errors import DatabaseError
from stitchfleet.telemetry.freezing import freeze, prune
from stitchfleet.telemetry.recording import DAY_NS
from stitchfleet.telemetry.weeks import Week

from .conditions import condition, with_times
from .weekly import pods_of, status_of, unavailable

IN_EFFECT = "InEffect"
"""Condition of a StitchPolicy."""

HOUSEKEEPING_SECONDS = 3600.0
SETTLE_DAYS = 1
"""A week is frozen so long after its end: spools that were cut off bring its data until then."""
STALL_SECONDS = 300.0
"""A pass that takes longer than this hangs."""


class Keeper:
    """progress: when the last pass ended (time.monotonic). pods: those with the label, as the last look at them found them.
    reports_url: where the ingest server shows reports to people; empty: nowhere."""

    def __init__(
        self,
        engine: sa.Engine,
        reports: ReportStore,
        policies: PolicyStore,
        keep_days: int,
        pods: Callable[[], Sequence[dict[str, Any]]] = tuple,
        now_ns: Callable[[], int] = time.time_ns,
        reports_url: str = "",
    ) -> None:
        self._reports_url = reports_url
        self._engine, self._reports, self._policies = engine, reports, policies
        self._keep_days, self._pods, self._now_ns = keep_days, pods, now_ns
        self._housekept = float("-inf")
        self.progress = time.monotonic()

    def stalled(self) -> bool:
        return time.monotonic() - self.progress > STALL_SECONDS

    def look(self) -> None:
        """One pass. Never raises: what went wrong is told, and stands in the reports' conditions."""
        try:
            for report in self._with_this_weeks(self._reports.all()):
                self._renew(report)
            self._judge_policies()
            self._keep_house()
        except ApiException as error:
            _tell(f"the API server answered {error.status} {error.reason}")
        except Exception as error:  # a lost connection has many names
            _tell(f"{type(error).__name__}: {error}")
        self.progress = time.monotonic()

    def _with_this_weeks(self, reports: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """All reports, those of this week and of the last one made if they are not there."""
        week = Week.at(self._now_ns())
        known = {report["metadata"]["name"] for report in reports}
        missing = [each for each in (Week.of_day(week.first_day - 7), week) if str(each).lower() not in known]
        for each in missing:
            self._reports.create(str(each).lower(), {"week": str(each)})
        return self._reports.all() if missing else reports

    def _renew(self, report: dict[str, Any]) -> None:
        metadata, before = report["metadata"], report.get("status") or {}
        generation = int(metadata.get("generation", 1))
        try:
            with self._engine.connect() as connection:
                database.check(connection)
                status = status_of(connection, report["spec"], generation, before)
                if status["week"] == str(Week.at(self._now_ns())):
                    status |= pods_of(connection, report["spec"], self._pods())
                if self._reports_url and not report["spec"].get("scope"):  # a page is of the whole fleet
                    status["link"] = f"{self._reports_url}/reports/{status['week']}"
        except ValueError as error:
            status = unavailable("InvalidWeek", str(error), generation, before)
        except (DatabaseError, sa.exc.SQLAlchemyError) as error:
            status = unavailable("DatabaseUnavailable", database.reason(error), generation, before)
            _tell(f"the database cannot be read: {database.reason(error)}")
        if {**before, **status} != before:
            self._reports.set_status(metadata["name"], status)

    def _judge_policies(self) -> None:
        """Says of each StitchPolicy whether it is in effect."""
        objects = self._policies.all()
        chosen = in_effect(objects)
        for each in objects:
            metadata, before = each["metadata"], each.get("status") or {}
            generation, winner = int(metadata.get("generation", 1)), chosen[metadata["namespace"]]["metadata"]["name"]
            is_chosen = winner == metadata["name"]
            why = "it holds for pods that are created from now on" if is_chosen else f"{winner} is older"
            found = condition(IN_EFFECT, is_chosen, "Oldest" if is_chosen else "Conflict", why, generation)
            status = {
                "observedGeneration": generation,
                "conditions": with_times([found], before.get("conditions") or ()),
            }
            if status != before:
                self._policies.set_status(metadata["namespace"], metadata["name"], status)

    def _keep_house(self) -> None:
        """Freezes, drops, and makes the next days' partitions; once an hour, as each looks at a whole database."""
        if time.monotonic() - self._housekept < HOUSEKEEPING_SECONDS:
            return
        today = self._now_ns() // DAY_NS
        try:
            with database.writing(self._engine) as connection:
                database.check(connection)
                for frozen in freeze(connection, today - SETTLE_DAYS):
                    _tell(f"{frozen.week}: frozen as revision {frozen.revision}")
                prune(connection, today - self._keep_days)
                partitions.ensure_ahead(connection, today)
        except (DatabaseError, sa.exc.SQLAlchemyError) as error:
            _tell(f"the database cannot be looked after: {database.reason(error)}")
            return
        self._housekept = time.monotonic()


def _tell(text: str) -> None:
    print(f"stitchfleet controller: {text}"[:500], file=sys.stderr, flush=True)
