"""Writers beside each other and beside the keeper of the database: what is acknowledged is there, once, and is whose it says."""

from __future__ import annotations

import concurrent.futures
import itertools
import pathlib
import threading
from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa

from stitchfleet.telemetry.database import access, partitions
from stitchfleet.telemetry.database.rows import rows_of_segment
from stitchfleet.telemetry.database.store import TABLES_OF_PROCESSES, insert_rows, register
from stitchfleet.telemetry.pod.recording import DAY_NS
from stitchfleet.telemetry.shipping import shipper
from stitchfleet.telemetry.totals.freezing import delete_namespace, freeze, prune

from ..conftest import query
from ..servers import Served, ingest_server, post
from .client import NOW_NS, event, segment, steps, whole_job

pytestmark = pytest.mark.usefixtures("shipper_here")
TODAY = NOW_NS // DAY_NS


@pytest.fixture
def served(url: str) -> Iterator[Served]:
    with ingest_server(url, tokens="a team-a\nb team-b\n") as found:
        yield found


def beside(work: Callable[[], object], done: threading.Event) -> threading.Thread:
    """Runs the work over and over until `done`."""

    def repeat() -> None:
        while not done.wait(0.02):  # SQLite's one writer lets others in by chance only
            work()

    thread = threading.Thread(target=repeat)
    thread.start()
    return thread


def keeper(engine: sa.Engine) -> None:
    with access.writing(engine) as connection:
        freeze(connection, TODAY - 28)
        prune(connection, TODAY - 28)


def test_late_blocks_beside_prune_are_all_there(served: Served, url: str) -> None:
    """Number 1. Partitions of late days come and go while writers need them."""
    numbers, acknowledged = itertools.count(), list[int]()
    finished = threading.Event()

    def write(writer: int) -> None:
        for _ in range(12):
            number = next(numbers)
            late = NOW_NS - (29 + number % 5) * DAY_NS
            sent = segment(steps(at=late), run_id=f"run-{number}", process=f"p{writer}", namespace="team-a")
            status, answer = post(served.url, sent, token="a")
            assert status in (200, 503), answer
            if status == 200:
                (receipt,) = answer["segments"]
                assert (receipt["outcome"], receipt["damaged"]) == ("stored", []), receipt
                acknowledged.append(number)

    thread = beside(lambda: keeper(served.ingest.engine), finished)
    try:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(write, range(8)))
    finally:
        finished.set()
        thread.join()
    kept = query(url, "SELECT run_id FROM jobs AS j JOIN iteration_blocks AS b ON b.process_id = j.process_id")
    rolled_up = query(
        url,
        "SELECT j.run_id FROM jobs AS j JOIN weekly_rollups AS r ON r.process_id = j.process_id WHERE r.plain_count = 10",
    )
    assert {f"run-{number}" for number in acknowledged} <= {str(name) for (name,) in (*kept, *rolled_up)}
    assert len(acknowledged) > 48


def test_a_partition_that_goes_between_look_and_lock_is_made_again(postgres_url: str) -> None:
    """Number 1, in its narrowest place: the partition is there when it is looked for, and gone when it is held."""
    engine = access.open_engine(postgres_url)
    access.upgrade(engine)
    day = TODAY - 30
    with access.writing(engine) as connection:
        partitions.ensure(connection, [day])
    real, looks = partitions.existing, itertools.count()

    def existing(connection: sa.Connection) -> list[int]:
        found = real(connection)
        if next(looks) == 0:
            with access.writing(engine) as other:
                partitions.hold_writers(other)
                partitions.drop(other, [day])
        return found

    with pytest.MonkeyPatch.context() as patched, access.writing(engine) as connection:
        patched.setattr(partitions, "existing", existing)
        assert partitions.ensure(connection, [day]) == [day]
        locks = {str(mode) for (mode,) in query(postgres_url, "SELECT mode FROM pg_locks WHERE locktype = 'advisory'")}
        assert locks == {"ExclusiveLock"}, "it was made by one who makes them alone"
    assert next(looks) >= 2
    engine.dispose()


@pytest.mark.parametrize(
    ("statement", "number"),
    [("INSERT", "23505"), ("INSERT", "40P01"), ("INSERT", "42501"), ("INSERT", "53100"), ("CREATE TABLE", "23505")],
)
def test_an_error_that_is_not_about_a_record_is_never_damaged(
    postgres_url: str, tmp_path: pathlib.Path, statement: str, number: str
) -> None:
    """Number 1. Neither for the server nor for a shipper that writes by itself."""
    import psycopg.errors

    from ..shipping.test_shipper import record_job

    with ingest_server(postgres_url, tokens="a team-a") as served:

        def fail(_connection: object, _cursor: object, text: str, *_rest: object) -> None:
            if text.startswith(statement):
                raise psycopg.errors.lookup(number)("somebody was faster")

        sa.event.listen(sa.engine.Engine, "before_cursor_execute", fail)
        try:
            late = segment(steps(at=NOW_NS - 20 * DAY_NS), namespace="team-a")
            status, answer = post(served.url, late, token="a")
            assert status == 503, answer
            if statement == "INSERT":
                record_job(tmp_path / "spool")
                assert shipper.main([str(tmp_path / "spool"), "--database", postgres_url]) == 1
                assert not list((tmp_path / "spool").glob("*.damaged"))
        finally:
            sa.event.remove(sa.engine.Engine, "before_cursor_execute", fail)
        assert post(served.url, late, token="a")[0] == 200


def test_two_tenants_with_one_run_id_have_two_jobs(served: Served, url: str) -> None:
    """Number 2. At once and one after the other; neither shuts the other out, and each keeps what it wrote."""
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for turn in range(4):
            both = [
                (tenant, segment(event(tenant, message=tenant), run_id=f"shared-{turn}", namespace=f"team-{tenant}"))
                for tenant in "ab" * 4
            ]
            statuses = list(pool.map(lambda one: post(served.url, one[1], token=one[0])[0], both))
            assert statuses == [200] * 8
    for tenant in "ab":
        squat = segment(
            event(tenant, message=f"{tenant} again"), first=5, run_id="shared-0", namespace=f"team-{tenant}"
        )
        assert post(served.url, squat, token=tenant)[0] == 200
    found = query(
        url, "SELECT j.run_id, j.namespace, e.kind FROM jobs AS j JOIN events AS e ON e.process_id = j.process_id"
    )
    assert {(namespace, kind) for _, namespace, kind in found} == {("team-a", "a"), ("team-b", "b")}
    assert len(found) == 2 * 4 + 2


def test_a_delete_beside_running_jobs_leaves_no_row_without_a_job(served: Served, url: str) -> None:
    """Number 5. A second delete finds all that came after the first."""
    finished, numbers = threading.Event(), itertools.count()
    engine = served.ingest.engine

    def delete() -> None:
        with access.writing(engine) as connection:
            delete_namespace(connection, "team-a")

    def write(_: int) -> None:
        number = next(numbers)
        sent = segment(steps(first=100 * number), event(), first=10 * number + 1, run_id="r", namespace="team-a")
        assert post(served.url, sent, token="a")[0] in (200, 503)

    thread = beside(delete, finished)
    try:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(write, range(60)))
    finally:
        finished.set()
        thread.join()
    delete()
    for table in TABLES_OF_PROCESSES:
        assert query(url, f"SELECT count(*) FROM {table.name}") == [(0,)], table.name


def test_a_process_found_before_a_delete_is_registered_after_it(postgres_url: str) -> None:
    """Number 5, in its narrowest place: a writer holds off the delete before it asks for its process."""
    engine = access.open_engine(postgres_url)
    access.upgrade(engine)
    rows, _ = rows_of_segment(whole_job(namespace="team-a"))
    with access.writing(engine) as connection:
        insert_rows(connection, rows)
    with access.writing(engine) as writer, concurrent.futures.ThreadPoolExecutor(1) as pool:
        insert_rows(writer, rows)
        register(writer, rows.tables["jobs"][0])

        def delete() -> dict[str, int]:
            with access.writing(engine) as connection:
                return delete_namespace(connection, "team-a")

        deleting = pool.submit(delete)
        with pytest.raises(concurrent.futures.TimeoutError):
            deleting.result(0.3)
        writer.commit()
        assert deleting.result(60)["jobs"] == 1
    engine.dispose()
