"""Tenants, jobs, late data, freezing, pruning, deleting and crashes in any order, beside a model that is a dictionary.

Nothing that was acknowledged is missing, nothing counts twice, no tenant sees or changes another's, and what a revision says stays.
"""

from __future__ import annotations

import contextlib
import pathlib
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from scripts.benchmark.postgres import PostgresServer
from stitchfleet.telemetry.database import access, models, partitions
from stitchfleet.telemetry.database.weeks import Week
from stitchfleet.telemetry.ingest.authentication import Caller
from stitchfleet.telemetry.ingest.receiving import ForbiddenError, receive
from stitchfleet.telemetry.pod.recording import DAY_NS
from stitchfleet.telemetry.pod.wire import Outcome
from stitchfleet.telemetry.totals.freezing import delete_namespace, freeze, prune
from stitchfleet.telemetry.totals.weekly import week_report

from ...marks import examples, slow
from .client import NOW_NS, event, loss, segment, steps

TODAY = NOW_NS // DAY_NS
TENANTS = ("a", "b")
RUNS = ("r0",)
"""Of both tenants: they use the same ids. Few, so that what happens meets what happened before."""
PROCESSES = ("p0", "p1")
DAYS_BACK = 33
Process = tuple[str, str, str]
"""Tenant, run, process."""


class Crash(BaseException):
    """The program's end at an unlucky moment."""


class Fleet(RuleBasedStateMachine):
    """The program and its model."""

    url: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.engine = access.open_engine(self.url)
        access.upgrade(self.engine)
        with access.writing(self.engine) as connection:
            for table in reversed(models.metadata.sorted_tables):
                if table.name not in ("schema_facts", "numbers", "float_halves"):
                    connection.execute(sa.delete(table))
            partitions.drop(connection, partitions.existing(connection))
        self.recorded: dict[Process, list[tuple[bytes, int, int]]] = defaultdict(list)
        """Of each process its segments in order: the bytes, the day, how many iterations."""
        self.sent: Counter[Process] = Counter()
        """How many of them were acknowledged: a sender begins with the next one."""
        self.there: dict[Process, dict[int, tuple[int, int]]] = defaultdict(dict)
        """The model: what is in the database, by the number of its segment: the day, and how many iterations."""
        self.published: dict[tuple[str, int], dict[Process, int]] = {}
        """Iterations by process, of each revision of a week."""

    def teardown(self) -> None:
        self.engine.dispose()

    # ---- what happens -----------------------------------------------------------------------------------------------------------

    @rule(
        tenant=st.sampled_from(TENANTS), run=st.sampled_from(RUNS), process=st.sampled_from(PROCESSES),
        back=st.integers(0, DAYS_BACK), count=st.integers(1, 9),
    )  # fmt: skip
    def record(self, tenant: str, run: str, process: str, back: int, count: int) -> None:
        """A process writes a segment, maybe of a day long ago."""
        mine = self.recorded[tenant, run, process]
        number, at = len(mine), NOW_NS - back * DAY_NS
        parts = (
            steps(count, at=at, first=100 * number),
            event("reverted", f"{tenant}/{number}", at=at),
            loss(number, at=at),
        )
        job = {"namespace": tenant, "run_id": run, "process": process, "started": NOW_NS - DAYS_BACK * DAY_NS}
        mine.append((segment(*parts, first=10 * number + 1, **job), at // DAY_NS, count))  # type: ignore[arg-type]

    @rule(
        tenant=st.sampled_from(TENANTS), run=st.sampled_from(RUNS), process=st.sampled_from(PROCESSES),
        most=st.integers(1, 4), crash=st.sampled_from(("", "", "", "before its commit", "after its commit")),
    )  # fmt: skip
    def send(self, tenant: str, run: str, process: str, most: int, crash: str) -> None:
        """Its shipper sends the next ones, in order."""
        key = (tenant, run, process)
        first = self.sent[key]
        if self._receive(key, first, first + most, crash):
            self.sent[key] = min(first + most, len(self.recorded[key]))

    @rule()
    def send_again(self) -> None:
        """All that was acknowledged comes again: shippers that died before they could delete it."""
        for key in list(self.sent):
            self._receive(key, 0, self.sent[key], "")

    @rule(thief=st.sampled_from(TENANTS), run=st.sampled_from(RUNS))
    def forge(self, thief: str, run: str) -> None:
        """One tenant writes in the other's name, beside rows of its own."""
        victim = next(tenant for tenant in TENANTS if tenant != thief)
        own = segment(event("forged"), first=9000, namespace=thief, run_id="forged")
        forged = segment(steps(9, first=9999), event("forged"), first=9001, namespace=victim, run_id=run, process="p0")
        with pytest.raises(ForbiddenError):
            receive(self.engine, [own, forged], Caller(thief, thief, None), lambda _: None, lambda: NOW_NS)

    @rule(
        back=st.sampled_from((0, 1, 14)),
        keep=st.sampled_from((0, 0, 7, 28)),
        prunes=st.booleans(),
        crashes=st.sampled_from((False, False, True)),
    )
    def keep_house(self, back: int, keep: int, prunes: bool, crashes: bool) -> None:
        """The keeper of the database freezes, and maybe prunes; maybe it is killed before it has done."""
        with contextlib.suppress(Crash), access.writing(self.engine) as connection:
            freeze(connection, TODAY - min(back, keep) if prunes else TODAY - back)
            if prunes:
                prune(connection, TODAY - keep)
            if crashes:
                raise Crash
        self._note_revisions()

    @rule(tenant=st.sampled_from(TENANTS), crashes=st.booleans())
    def delete(self, tenant: str, crashes: bool) -> None:
        """All of a tenant's; its jobs may go on."""
        with contextlib.suppress(Crash), access.writing(self.engine) as connection:
            delete_namespace(connection, tenant)
            if crashes:
                raise Crash
        if not crashes:
            for key in [key for key in self.there if key[0] == tenant]:
                del self.there[key]
            for revision in self.published.values():
                for key in [key for key in revision if key[0] == tenant]:
                    del revision[key]

    # ---- what must hold ---------------------------------------------------------------------------------------------------------

    @invariant()
    def each_week_counts_what_is_there_once(self) -> None:
        expected: dict[Week, Counter[Process]] = defaultdict(Counter)
        for key, mine in self.there.items():
            for day, count in mine.values():
                expected[Week.of_day(day)][key] += count
        with self.engine.connect() as connection:
            for week in {Week.of_day(TODAY - back) for back in range(0, DAYS_BACK + 7, 7)} | set(expected):
                report = week_report(connection, week)
                found = Counter({job.key: job.iterations for job in report.jobs if job.iterations})
                named = {(key.namespace, key.run_id, key.process): count for key, count in found.items()}
                assert named == dict(expected.get(week, {})), f"{week}, revision {report.revision}"
                assert report.unreadable == 0

    @invariant()
    def each_event_is_there_once_and_its_tenants(self) -> None:
        with self.engine.connect() as connection:
            rows = connection.execute(
                sa.text(
                    "SELECT j.namespace, j.run_id, j.process, e.message FROM events AS e "
                    "JOIN jobs AS j ON j.process_id = e.process_id WHERE e.kind = 'reverted'"
                )
            ).all()
        found = sorted((tuple(row[:3]), row.message) for row in rows)
        assert found == sorted((key, f"{key[0]}/{number}") for key, mine in self.there.items() for number in mine)

    @invariant()
    def what_was_published_stays(self) -> None:
        assert self._revisions() == self.published

    @invariant()
    def no_row_is_of_no_process(self) -> None:
        with self.engine.connect() as connection:
            for name in ("iteration_blocks", "events", "weekly_rollups"):
                orphans = f"SELECT count(*) FROM {name} WHERE process_id NOT IN (SELECT process_id FROM jobs)"
                assert connection.scalar(sa.text(orphans)) == 0, name

    # ---- the rest ---------------------------------------------------------------------------------------------------------------

    def _receive(self, key: Process, first: int, end: int, crash: str) -> bool:
        """Whether the server acknowledged it."""
        batch = list(enumerate(self.recorded[key]))[first:end]
        if not batch:
            return False

        def book(_written: Any) -> None:
            if crash == "after its commit":
                raise Crash

        with self._crashing(crash == "before its commit"):
            try:
                sent = [data for _, (data, _, _) in batch]
                receipts = receive(self.engine, sent, Caller(key[0], key[0], None), book, lambda: NOW_NS)
            except Crash:
                if crash == "before its commit":
                    return False
                receipts = []
        assert all((one.outcome, one.damaged_records, one.dropped) == (Outcome.STORED, 0, 0) for one in receipts)
        for number, (_, day, count) in batch:
            self.there[key][number] = (day, count)
        return not crash

    @contextlib.contextmanager
    def _crashing(self, really: bool) -> Iterator[None]:
        def crash(_connection: sa.Connection) -> None:
            raise Crash

        if really:
            sa.event.listen(self.engine, "commit", crash)
        try:
            yield
        finally:
            if really:
                sa.event.remove(self.engine, "commit", crash)

    def _revisions(self) -> dict[tuple[str, int], dict[Process, int]]:
        found: dict[tuple[str, int], dict[Process, int]] = {key: {} for key in self.published}
        statement = sa.text(
            "SELECT r.week, r.revision, j.namespace, j.run_id, j.process, r.plain_count FROM weekly_rollups AS r "
            "JOIN jobs AS j ON j.process_id = r.process_id WHERE r.plain_count > 0"
        )
        with self.engine.connect() as connection:
            for week, revision, *key, count in connection.execute(statement):
                found.setdefault((week, revision), {})[tuple(key)] = count  # type: ignore[index]
        return found

    def _note_revisions(self) -> None:
        for revision, counts in self._revisions().items():
            self.published.setdefault(revision, counts)


def play(url: str, examples: int, steps_each: int) -> None:
    machine = type("FleetOn", (Fleet,), {"url": url})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps_each,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("prunes", [True, False])
def test_what_comes_again_after_all_else_is_counted_once(url: str, prunes: bool) -> None:
    """An order that matters, played by itself: late data, a revision, retention, replays, a delete, and replays again."""
    fleet = type("FleetOn", (Fleet,), {"url": url})()

    def check() -> None:
        fleet.each_week_counts_what_is_there_once()
        fleet.each_event_is_there_once_and_its_tenants()
        fleet.what_was_published_stays()
        fleet.no_row_is_of_no_process()

    for back in (20, 20, 13, 20, 0):
        for tenant in TENANTS:
            fleet.record(tenant, "r0", "p0", back, 5)
            fleet.send(tenant, "r0", "p0", 1, "after its commit" if back == 13 else "")
            fleet.send(tenant, "r0", "p0", 9, "before its commit")
            fleet.send(tenant, "r0", "p0", 9, "")
        fleet.forge("a", "r0")
        fleet.keep_house(0, 0, prunes, crashes=False)
        check()
        fleet.send_again()
        check()
    fleet.delete("a", crashes=False)
    check()
    fleet.send_again()
    fleet.keep_house(0, 0, prunes, crashes=False)
    check()
    fleet.teardown()


def test_any_order_of_events_on_sqlite() -> None:
    with tempfile.TemporaryDirectory() as name:
        play(f"sqlite:///{pathlib.Path(name)}/telemetry.db", examples(5, 12), 25)


def test_any_order_of_events_on_postgresql(postgres_server: PostgresServer) -> None:
    play(postgres_server.new_database(), examples(3, 6), 20)


@pytest.mark.parametrize("kind", [slow("sqlite"), slow("postgres")])
def test_many_orders_of_events(kind: str, request: pytest.FixtureRequest) -> None:
    play(request.getfixturevalue(f"{kind}_url"), 50, 40)
