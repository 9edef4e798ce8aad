"""A week's report as one document: text, JSON, CSV, or a page with charts.

    python -m stitchfleet.telemetry.reports.document 2026-W07 html [REVISION]

prints the report from the database that STITCHFLEET_DATABASE names. Exit status 3: the week has no such revision.

The ingest server makes documents in a process of their own: for a large fleet they take seconds of processor time and some hundred
megabytes, and batches must not wait for them.
"""

from __future__ import annotations

import logging
import sys

import sqlalchemy as sa

from ..database import access, places
from ..database.errors import DatabaseError
from ..database.weeks import Week
from ..pod.garbage import not_collected
from ..totals.weekly import RevisionError
from .configuration import ConfigurationError, load
from .details import detail
from .fleet import DEFAULT_TREND_WEEKS, FleetReport, fleet_report
from .formats import as_csv, as_json, as_text

FORMATS = ("table", "json", "csv", "html")


def document(connection: sa.Connection, fleet: FleetReport, format: str, lines: str = "jobs") -> str:
    """The report as text in one of FORMATS. lines: what a line of CSV is about ("jobs", "groups" or "weeks"). connection: for the
    details of jobs that a page (format "html") shows besides."""
    if format == "csv":
        return as_csv(fleet, lines)
    if format == "html":
        from .page import as_html, detailed_jobs  # it brings the plotting library, which takes a second

        chosen = detailed_jobs(fleet.report)
        return as_html(fleet, {job.key: detail(connection, job.process_id, fleet.report.week) for job in chosen})
    return as_json(fleet) if format == "json" else as_text(fleet)


def main(words: list[str]) -> int:
    """The command. words: the week, the format and, if one is asked for, the revision. Prints the document. Returns the exit
    status: 0, 1 for an error, or RevisionError.EXIT_STATUS."""
    week, format, *more = words
    revision = int(more[0]) if more else None
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    try:
        configuration = load(None)
        with not_collected(), access.open_to_read(places.database_url(None)).connect() as connection:
            access.check(connection)
            fleet = fleet_report(connection, Week.parse(week), configuration, DEFAULT_TREND_WEEKS, revision)
            sys.stdout.write(document(connection, fleet, format))
    except RevisionError as error:
        print(error, file=sys.stderr)
        return error.EXIT_STATUS
    except (ValueError, DatabaseError, ConfigurationError) as error:
        print(error, file=sys.stderr)
        return 1
    except sa.exc.SQLAlchemyError as error:
        print(access.reason(error), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
