"""Updates each SavingsReport, creates this week's, freezes weeks that are over, and drops old iterations.

Each pass computes the reports of weeks that may have changed, each week once for all its reports. A frozen week for which no data
came since is computed once in the controller's life, and again if its revision or the report's spec changes. So is a revision that
a report's spec names.
"""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import sqlalchemy as sa

from stitchfleet.telemetry.database import access, partitions
from stitchfleet.telemetry.database.errors import DatabaseError
from stitchfleet.telemetry.database.weeks import Week
from stitchfleet.telemetry.pod.recording import DAY_NS
from stitchfleet.telemetry.totals.freezing import SETTLE_DAYS, freeze, prune
from stitchfleet.telemetry.totals.weekly import RevisionError, settled_revisions, week_report

from ..cluster.policies import PolicyStore
from ..cluster.reports import ReportStore
from ..policy.names import Object
from ..policy.precedence import in_effect
from .conditions import condition, with_times
from .loops import for_each, tell
from .metrics import POD_STATES, Metrics
from .weekly import pods_of, revision_of, status_of, unavailable, week_of

IN_EFFECT = "InEffect"
"""Type of the condition in a StitchPolicy's status."""

HOUSEKEEPING_SECONDS = 3600.0
STALL_SECONDS = 300.0
"""The loop counts as hanging if the reports of one week take longer than this."""


class Keeper:
    """Computes the SavingsReports, judges the StitchPolicies, and maintains the database.

    keep_days: days for which iterations are kept. pods: returns the pods with the label as they are now, so that two controllers
    write the same. reports_url: where the ingest server shows reports to people; empty: nowhere. `made_progress` is called after
    each week's reports.
    """

    def __init__(
        self,
        engine: sa.Engine,
        reports: ReportStore,
        policies: PolicyStore,
        keep_days: int,
        pods: Callable[[], Sequence[Object]] = tuple,
        now_ns: Callable[[], int] = time.time_ns,
        reports_url: str = "",
        metrics: Metrics | None = None,
    ) -> None:
        self._reports_url = reports_url
        self._engine, self._reports, self._policies = engine, reports, policies
        self._keep_days, self._pods, self._now_ns = keep_days, pods, now_ns
        self._metrics = metrics or Metrics()
        self._housekept = float("-inf")
        self._settled: dict[tuple[str, int], int] = {}
        """By a report's uid and generation, the revision from which it was computed."""
        self.made_progress: Callable[[], None] = lambda: None

    def look(self) -> None:
        """Runs one pass. If the database cannot be read, the conditions of the reports say so. A failed step does not stop the
        others; then the first error is raised, such as ApiException."""
        for_each((self._look_at_reports, self._judge_policies, self._keep_house), lambda step: step())

    def _look_at_reports(self) -> None:
        by_week: dict[Week, list[Object]] = defaultdict(list)
        invalid: list[tuple[Object, Object]] = []
        for report in self._with_this_weeks(self._reports.all()):
            try:
                by_week[week_of(report["spec"])].append(report)
            except ValueError as error:
                invalid.append((report, unavailable("InvalidWeek", str(error), *_known(report))))
        steps = functools.partial(self._write_all, invalid), functools.partial(self._look_at_weeks, by_week)
        for_each(steps, lambda step: step())

    def _look_at_weeks(self, by_week: Mapping[Week, Sequence[Object]]) -> None:
        try:
            with self._engine.connect() as connection:
                access.check(connection)
                settled = settled_revisions(connection)
        except (DatabaseError, sa.exc.SQLAlchemyError) as error:  # then no week is tried: each would wait in vain
            self._cannot_read([report for reports in by_week.values() for report in reports], error)
            return

        def look_at(week: Week) -> None:
            due: dict[int | None, list[Object]] = defaultdict(list)
            for report in by_week[week]:
                revision = revision_of(report["spec"])
                if not self._is_settled(report, revision or settled.get(week)):
                    due[revision].append(report)
            for_each(due.items(), lambda entry: self._renew(week, *entry))
            if due:
                self.made_progress()

        for_each(sorted(by_week, reverse=True), look_at)  # this week first

    def _with_this_weeks(self, reports: list[Object]) -> list[Object]:
        """All reports; those of this week and of the last one are created if they do not exist."""
        week = Week.at(self._now_ns())
        known = {report["metadata"]["name"] for report in reports}
        missing = [each for each in (Week.of_day(week.first_day - 7), week) if str(each).lower() not in known]
        for each in missing:
            self._reports.create(str(each).lower(), {"week": str(each)})
        return self._reports.all() if missing else reports

    def _is_settled(self, report: Object, revision: int | None) -> bool:
        """Whether the report shows the figures of its week's last revision, computed by this controller."""
        return revision is not None and self._settled.get(_key(report)) == revision

    def _renew(self, week: Week, revision: int | None, reports: Sequence[Object]) -> None:
        """Computes a week, or one of its revisions, and updates each of its reports."""
        try:
            with self._engine.connect() as connection:
                access.check(connection)
                found = week_report(connection, week, revision)
                is_this_week = week == Week.at(self._now_ns())
                asked = self._pods() if is_this_week else ()
                pods = [pods_of(connection, each["spec"], asked) if is_this_week else {} for each in reports]
        except RevisionError as error:
            self._write_all(
                [(report, unavailable("NoSuchRevision", str(error), *_known(report))) for report in reports]
            )
            return
        except (DatabaseError, sa.exc.SQLAlchemyError) as error:
            self._cannot_read(reports, error)
            return

        def renew(entry: tuple[Object, Object]) -> None:
            report, its_pods = entry
            self._metrics.reports.inc()
            is_of_all = not report["spec"].get("scope")
            status = status_of(found, report["spec"], *_known(report)) | its_pods
            if self._reports_url and is_of_all:  # a page shows the whole fleet
                status["link"] = f"{self._reports_url}/reports/{week}" + (f"?revision={revision}" if revision else "")
            if its_pods and is_of_all:
                self._count(its_pods["pods"])
            is_written = self._write(report, status)
            if is_written and found.revision and not found.has_late_data:
                self._settled[_key(report)] = found.revision

        for_each(zip(reports, pods), renew)

    def _count(self, pods: Object) -> None:
        for state, field in POD_STATES.items():
            self._metrics.pods.labels(state).set(pods[field])

    def _cannot_read(self, reports: Sequence[Object], error: Exception) -> None:
        """Logs the error, and writes it into each of the reports."""
        why = access.reason(error)
        tell(f"the database cannot be read: {why}")
        self._write_all([(report, unavailable("DatabaseUnavailable", why, *_known(report))) for report in reports])

    def _write_all(self, entries: Sequence[tuple[Object, Object]]) -> None:
        for_each(entries, lambda entry: self._write(*entry))

    def _write(self, report: Object, status: Object) -> bool:
        """Returns whether the report has this status now."""
        before = report.get("status") or {}
        return {**before, **status} == before or self._reports.set_status(report, status)

    def _judge_policies(self) -> None:
        """Writes into each StitchPolicy's status whether it is in effect."""
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
        """Freezes weeks, drops iterations and makes the next days' partitions, once an hour, since each reads a whole database."""
        if time.monotonic() - self._housekept < HOUSEKEEPING_SECONDS:
            return
        today = self._now_ns() // DAY_NS
        try:
            with access.writing(self._engine) as connection:
                access.check(connection)
                for frozen in freeze(connection, today - SETTLE_DAYS):
                    tell(f"{frozen.week}: frozen as revision {frozen.revision}")
                prune(connection, today - self._keep_days)
                partitions.ensure_ahead(connection, today)
        except (DatabaseError, sa.exc.SQLAlchemyError) as error:
            tell(f"the database cannot be maintained: {access.reason(error)}")
            return
        self._housekept = time.monotonic()


def _key(report: Object) -> tuple[str, int]:
    metadata = report["metadata"]
    return str(metadata.get("uid") or metadata["name"]), int(metadata.get("generation", 1))


def _known(report: Object) -> tuple[int, Object]:
    """The report's generation, and its status so far."""
    return _key(report)[1], report.get("status") or {}
