"""`stitchfleet jobs`, `stitchfleet report` and `stitchfleet db`. A user's mistake prints one line and exits with status 2."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import pathlib
import sys
import time
from collections.abc import Iterator

import sqlalchemy as sa

from ..database import access, partitions, places
from ..database.errors import DatabaseError
from ..database.weeks import Week
from ..pod.garbage import not_collected
from ..pod.recording import DAY_NS
from ..reports.configuration import VARIABLE, ConfigurationError, load
from ..reports.document import FORMATS, document
from ..reports.fleet import DEFAULT_TREND_WEEKS, fleet_report
from ..reports.formats import CSV_LINES, job_facts, jobs_text, unreadable_words
from ..reports.printable import printable, write_out
from ..shipping import shipper
from ..totals.freezing import SETTLE_DAYS, Frozen, delete_namespace, freeze, prune
from ..totals.weekly import RevisionError, processes, standing

MAX_TREND_WEEKS = 520


def _complain(command: str, text: object) -> int:
    print(f"stitchfleet {command}: {text}", file=sys.stderr)
    return 2


@contextlib.contextmanager
def _reading(given: str | None) -> Iterator[sa.Connection]:
    """A connection to the database, after the records in spools on this machine have been moved there.

    Without an explicit name the default SQLite file is created if it is missing. Raises DatabaseError.
    """
    url = places.database_url(given)
    file = access.file_of(url)
    if given is not None and file is not None and not file.exists():
        raise DatabaseError(f"there is no database {file}")
    is_fixed = file is not None and file.exists() and access.is_on_read_only_disk(file)
    engine = access.open_to_read(url)
    try:
        if given is None and is_fixed:
            print(f"stitchfleet: {file} cannot be written to; records in spools stay there", file=sys.stderr)
        elif given is None:
            access.prepare(engine)
            _drain(engine)
        with engine.connect() as connection:
            access.check(connection)
            yield connection
    except sa.exc.SQLAlchemyError as error:
        where = file or access.shown(engine.url)
        raise DatabaseError(f"the database {where} cannot be used: {access.reason(error)}") from None
    finally:
        engine.dispose()


def _drain(engine: sa.Engine) -> None:
    done = shipper.ship_all(places.records_folder(), engine)
    for reason in sorted(set(done.kept)):
        print(f"stitchfleet: some records stay in their spool: {printable(reason)}", file=sys.stderr)
    if done.damaged:
        print(f"stitchfleet: {len(done.damaged)} damaged records were skipped", file=sys.stderr)


class JobsCommand:
    """`stitchfleet jobs`."""

    help = (
        "List the training jobs that were recorded, newest first: when they ran, how many iterations were stitched, what an\n"
        "iteration saved with its 95% interval, and the device-time that the whole job saved. Records that are still in spools\n"
        "on this machine are moved into the database first (unless --database names another one)."
    )

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds the options of the command to `parser`."""
        parser.add_argument("--database", metavar="URL", help=places.DATABASE_HELP)
        parser.add_argument("--json", action="store_true", help="a JSON array, one object per job")
        parser.epilog = "examples:\n  stitchfleet jobs\n  stitchfleet jobs --json --database fleet.db"

    def run(self, arguments: argparse.Namespace) -> int:
        """Prints the jobs. Returns the exit status: 0, or 2 if the database cannot be read."""
        try:
            with _reading(arguments.database) as connection:
                read = processes(connection, None)
                found = standing(read.jobs)
        except DatabaseError as error:
            return _complain("jobs", error)
        if arguments.json:
            print(json.dumps([job_facts(job) for job in found], indent=2))
        elif found:
            write_out(jobs_text(found))
        else:
            print("no job has been recorded yet; `stitchfleet run -- python train.py` records one")
        if read.unreadable:
            print(f"stitchfleet: {unreadable_words(read.unreadable)}", file=sys.stderr)
        return 0


class ReportCommand:
    """`stitchfleet report`."""

    help = (
        "Print the device-hours that stitching saved in a week (Monday to Sunday, UTC), as an estimate with its 95% interval: in\n"
        "total, by namespace, team, model, device kind and cost centre, job by job, and for the weeks before. Jobs without a\n"
        "measurement are listed as unmeasured and are in no total. The report says what its figures mean and how they are measured."
    )

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds the options of the command to `parser`."""
        parser.add_argument("--week", metavar="YYYY-Www", help="ISO week, like 2026-W07; default: the current one")
        parser.add_argument(
            "--revision",
            metavar="N",
            type=int,
            help="the week's figures as `stitchfleet db freeze` stored them the Nth time; default: with all data that came since",
        )
        parser.add_argument("--database", metavar="URL", help=places.DATABASE_HELP)
        parser.add_argument("--format", choices=FORMATS, default="table", help="html is one page with charts")
        parser.add_argument(
            "--lines", choices=CSV_LINES, default="jobs", help="for csv: what each line is about; default jobs"
        )
        parser.add_argument(
            "--configuration",
            metavar="FILE",
            type=pathlib.Path,
            help="JSON: team_label, model_label, cost_centre_label, cost_centres (by the label's value), currency, prices (of one "
            f"device-hour, by device kind); default: ${VARIABLE}, else teams by the label `team` and no prices",
        )
        parser.add_argument(
            "--trend-weeks",
            metavar="N",
            type=int,
            default=DEFAULT_TREND_WEEKS,
            help=f"how many weeks before this one to show; default {DEFAULT_TREND_WEEKS}",
        )
        parser.add_argument("--output", metavar="FILE", type=pathlib.Path, help="write to FILE instead of printing")
        parser.epilog = (
            "examples:\n  stitchfleet report\n  stitchfleet report --week 2026-W07 --format html --output week.html\n"
            "  stitchfleet report --configuration fleet.json --format csv --lines groups"
        )

    def run(self, arguments: argparse.Namespace) -> int:
        """Prints the report or writes it to a file. Returns the exit status: 0, or 2 for a user's mistake or a database that
        cannot be read."""
        try:
            week = Week.parse(arguments.week) if arguments.week else Week.at(time.time_ns())
            if not 0 <= arguments.trend_weeks <= MAX_TREND_WEEKS:
                raise ValueError(f"--trend-weeks is {arguments.trend_weeks}; it is from 0 to {MAX_TREND_WEEKS}")
            configuration = load(arguments.configuration)
        except (ValueError, ConfigurationError) as error:
            return _complain("report", error)
        if arguments.format == "html":
            # it logs where it keeps its list of fonts, which readers of the report need not know
            logging.getLogger("matplotlib").setLevel(logging.ERROR)
            from ..reports import page  # noqa: F401  # matplotlib loads faster before a fleet's jobs are in memory
        try:
            with not_collected(), _reading(arguments.database) as connection:
                fleet = fleet_report(connection, week, configuration, arguments.trend_weeks, arguments.revision)
                text = document(connection, fleet, arguments.format, arguments.lines)
        except (DatabaseError, RevisionError) as error:
            return _complain("report", error)
        if arguments.output is None:
            write_out(text, is_document=arguments.format != "table")
            return 0
        try:
            arguments.output.write_text(text, encoding="utf-8")
        except OSError as error:
            return _complain("report", f"{arguments.output} cannot be written: {error.strerror}")
        return 0


class DatabaseCommand:
    """`stitchfleet db`."""

    help = (
        "Manage the database (SQLite, or PostgreSQL 15 and later).\n\n"
        "  upgrade   create the tables, or upgrade those of an older version (nothing is lost, and older programs still work)\n"
        "  check     tell whether this program can work with the database; exit status 1 if it cannot\n"
        "  freeze    store the figures of weeks that ended more than --settle-days ago as a numbered revision, from which reports\n"
        "            are made from then on; a frozen week that got data since is frozen again, as its next revision\n"
        "  prune     freeze, and drop the iterations of weeks that ended more than --keep-days ago: reports on them do not\n"
        "            change; on PostgreSQL, also create the next days' partitions. Run it every day\n"
        "  delete    delete everything about the jobs in --namespace, including the weeks' figures; requires --yes"
    )

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds the action and the options of the command to `parser`."""
        parser.add_argument("action", choices=("upgrade", "check", "freeze", "prune", "delete"))
        parser.add_argument("--database", metavar="URL", help=places.DATABASE_HELP)
        parser.add_argument(
            "--settle-days",
            type=int,
            default=SETTLE_DAYS,
            metavar="N",
            help=f"for freeze and prune: how long spools without a connection may still deliver a week's data; default {SETTLE_DAYS}",
        )
        parser.add_argument("--keep-days", type=int, default=28, metavar="N", help="for prune; default 28")
        parser.add_argument("--namespace", metavar="NAME", help="for delete")
        parser.add_argument(
            "--yes", action="store_true", help="for delete: really do it; without it, list what would be deleted"
        )

    def run(self, arguments: argparse.Namespace) -> int:
        """Carries out the action. Returns the exit status: 0, 1 if `check` finds a database that this program cannot work with,
        or 2 for a user's mistake or a database that cannot be used."""
        try:
            url = places.database_url(arguments.database)
            if arguments.action == "upgrade":
                return self._upgrade(url)
            file = access.file_of(url)
            if file is not None and not file.exists():
                raise DatabaseError(f"there is no database {file}; `stitchfleet db upgrade` makes it")
            if arguments.action == "check":
                return self._check(url)
            if arguments.action == "delete":
                if not arguments.namespace:
                    raise DatabaseError("delete needs --namespace NAME")
                return self._delete(url, arguments.namespace, arguments.yes)
            for name in ("keep_days", "settle_days"):
                if (days := getattr(arguments, name)) < 0:
                    raise DatabaseError(f"--{name.replace('_', '-')} is {days}; it cannot be negative")
            if arguments.action == "freeze":
                return self._freeze(url, arguments.settle_days)
            return self._prune(url, arguments.settle_days, arguments.keep_days)
        except DatabaseError as error:
            return _complain("db", error)
        except sa.exc.SQLAlchemyError as error:
            return _complain("db", f"the database cannot be used: {access.reason(error)}")

    def _upgrade(self, url: str) -> int:
        engine = access.open_engine(url)
        before, after = access.upgrade(engine)
        where = access.file_of(url) or access.shown(engine.url)
        print(f"{where}: schema {after}" + (" already" if before == after else f", before {before or 'none'}"))
        return 0

    def _check(self, url: str) -> int:
        with access.open_to_read(url).connect() as connection:
            try:
                found = access.check_whole(connection)
                partitions.check_rights(connection)
            except DatabaseError as error:
                print(error)
                return 1
        print(f"schema {found}; this program is written for {access.SCHEMA}: good")
        return 0

    def _freeze(self, url: str, settle_days: int) -> int:
        with access.writing(access.open_engine(url)) as connection:
            access.check(connection)
            done = freeze(connection, time.time_ns() // DAY_NS - settle_days)
        self._tell_frozen(done)
        if not done:
            print(f"no week that ended more than {settle_days} days ago has figures that are not frozen")
        return 0

    def _prune(self, url: str, settle_days: int, keep_days: int) -> int:
        today = time.time_ns() // DAY_NS
        with access.writing(access.open_engine(url)) as connection:
            access.check(connection)
            frozen = freeze(connection, today - min(settle_days, keep_days))
            pruned = prune(connection, today - keep_days)
            partitions.ensure_ahead(connection, today)
        self._tell_frozen(frozen)
        for entry in pruned:
            print(f"{entry.week}: {entry.blocks} blocks of iterations dropped")
        if not pruned:
            print(f"nothing ended more than {keep_days} days ago")
        return 0

    def _tell_frozen(self, done: list[Frozen]) -> None:
        for entry in done:
            print(f"{entry.week}: figures of {entry.processes} processes kept as revision {entry.revision}")
            if entry.unreadable:
                print(f"{entry.week}: {unreadable_words(entry.unreadable)}")

    def _delete(self, url: str, namespace: str, really: bool) -> int:
        with access.writing(access.open_engine(url)) as connection:
            access.check(connection)
            with connection.begin_nested() as attempt:
                deleted = delete_namespace(connection, namespace)
                if not really:
                    attempt.rollback()
        if not any(deleted.values()):
            print(f"the database has no rows of namespace {namespace}")
            return 0
        what = ", ".join(f"{count} {table}" for table, count in sorted(deleted.items()) if count)
        print(f"{'deleted' if really else 'with --yes, these are deleted'}: {what} of namespace {namespace}")
        return 0
