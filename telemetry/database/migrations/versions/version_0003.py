"""A process gets a number, which its rows refer to; a frozen week gets totals, and a mark that data came since.

The five columns of a process's key in each row took more space than the iterations of a short block. All rows are copied: on a large
fleet's database this takes hours and as much space again. Programs of schema 2 and before can no longer work with the database.

Weeks that were frozen before have no totals: they count as having late data, and the next freezing makes a revision with totals.
"""

from __future__ import annotations

import datetime

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

OLDEST_READER = 3
"""The oldest schema version whose programs can read and write this one."""
KEY = ("run_id", "cluster", "attempt", "rank", "process")
OF_PROCESSES = ("job_ends", "iteration_blocks", "arm_blocks", "clusters", "events", "weekly_rollups")
INDEXES = {
    "jobs": ("jobs_by_start", "jobs_by_namespace"),
    "iteration_blocks": ("iteration_blocks_by_day",),
    "events": ("events_by_kind",),
    "weekly_rollups": ("weekly_rollups_by_week",),
}


def of_process() -> sa.Column[int]:
    """The column by which a row refers to its process."""
    return sa.Column("process_id", sa.Integer, primary_key=True, autoincrement=False)


def upgrade() -> None:
    """Brings the schema to this version; the module's docstring says what changes."""
    on_postgresql = op.get_context().dialect.name == "postgresql"
    op.execute("DROP VIEW iterations")
    for table, names in INDEXES.items():
        for name in names:
            op.drop_index(name, table)
    days = _set_aside(on_postgresql)
    _make_tables(on_postgresql)
    _copy(on_postgresql, days)
    for name in ("jobs", *OF_PROCESSES):
        op.drop_table(f"old_{name}")
    op.create_index("jobs_by_key", "jobs", list(KEY), unique=True)
    op.create_index("jobs_by_start", "jobs", ["started_ns"])
    op.create_index("jobs_by_namespace", "jobs", ["namespace"])
    op.create_index("events_by_kind", "events", ["kind"])
    op.create_index("weekly_rollups_by_week", "weekly_rollups", ["week", "revision"])
    if on_postgresql:
        op.execute(ITERATIONS_ON_POSTGRESQL)
    else:
        op.create_index("iteration_blocks_by_day", "iteration_blocks", ["day"])
        op.execute(ITERATIONS_ON_SQLITE)
    week_start = (
        "to_timestamp(86400.0 * f.first_day)" if on_postgresql else "datetime(86400 * f.first_day, 'unixepoch')"
    )
    op.execute(WEEKLY_SAVINGS.format(week_start=week_start))
    op.execute(WEEKLY_JOB_SAVINGS.format(week_start=week_start))
    op.get_bind().execute(
        sa.text("UPDATE schema_facts SET value = :value WHERE name = 'oldest_reader'"), {"value": OLDEST_READER}
    )


def _set_aside(on_postgresql: bool) -> list[int]:
    """Renames the tables to old_*, with everything that has the new tables' names; returns the days that had a partition."""
    tables, days = ["jobs", *OF_PROCESSES], []
    if on_postgresql:
        partitions = op.get_bind().scalars(
            sa.text("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'iteration_blocks'::regclass")
        )
        for name in partitions.all():
            date = datetime.datetime.strptime(name.rpartition("_")[2], "%Y%m%d").date()
            days.append((date - datetime.date(1970, 1, 1)).days)
            tables.append(name)
    for table in tables:
        if on_postgresql:
            # the indexes of constraints are named after their table, and keep that name
            of_table = sa.text(
                "SELECT indexname FROM pg_indexes WHERE tablename = :table AND schemaname = current_schema()"
            )
            for index in op.get_bind().scalars(of_table, {"table": table}).all():
                op.execute(f'ALTER INDEX "{index}" RENAME TO "old_{index}"')
        op.rename_table(table, f"old_{table}")
    return sorted(days)


def _make_tables(on_postgresql: bool) -> None:
    op.create_table(
        "jobs",
        sa.Column("process_id", sa.Integer, sa.Identity(), primary_key=True),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("cluster", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("rank", sa.Integer, nullable=False),
        sa.Column("process", sa.Text, nullable=False),
        sa.Column("uid", sa.Text, nullable=False),
        sa.Column("namespace", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("image", sa.Text, nullable=False),
        sa.Column("framework", sa.Text, nullable=False),
        sa.Column("framework_version", sa.Text, nullable=False),
        sa.Column("plugin_version", sa.Text, nullable=False),
        sa.Column("model_fingerprint", sa.Text, nullable=False),
        sa.Column("device_kind", sa.Text, nullable=False),
        sa.Column("device_count", sa.Integer, nullable=False),
        sa.Column("world_size", sa.Integer, nullable=False),
        sa.Column("labels", sa.Text, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("started_ns", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "job_ends",
        of_process(),
        sa.Column("ended_ns", sa.BigInteger, nullable=False),
        sa.Column("phase", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("overhead_ns", sa.BigInteger, nullable=False),
        sa.Column("facts", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "iteration_blocks",
        # on PostgreSQL each partition has a unique index on (process_id, sequence) instead
        *(
            sa.Column(name, sa.Integer, primary_key=not on_postgresql, autoincrement=False, nullable=False)
            for name in ("process_id", "day", "sequence")
        ),
        sa.Column("ended_ns", sa.BigInteger, nullable=False),
        sa.Column("first_step", sa.BigInteger, nullable=False),
        sa.Column("plain_ns", sa.BigInteger, nullable=False),
        sa.Column("stitched_ns", sa.BigInteger, nullable=False),
        sa.Column("uncounted_ns", sa.BigInteger, nullable=False),
        sa.Column("elapsed_ms", sa.Integer, nullable=False),
        sa.Column("stride", sa.Integer, nullable=False),
        sa.Column("plain_count", sa.Integer, nullable=False),
        sa.Column("stitched_count", sa.Integer, nullable=False),
        sa.Column("uncounted_count", sa.Integer, nullable=False),
        sa.Column("arms", sa.Text, nullable=False),
        sa.Column("durations", sa.ARRAY(sa.REAL) if on_postgresql else sa.LargeBinary, nullable=False),
        postgresql_partition_by="RANGE (day)",
    )
    op.create_table(
        "arm_blocks",
        of_process(),
        sa.Column("pair", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("arm", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("ended_ns", sa.BigInteger, nullable=False),
        sa.Column("first_step", sa.BigInteger, nullable=False),
        sa.Column("count", sa.Integer, nullable=False),
        sa.Column("mean_ns", sa.Float, nullable=False),
        sa.Column("median_ns", sa.Float, nullable=False),
        sa.Column("variance_ns2", sa.Float, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "clusters",
        of_process(),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("facts", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "events",
        of_process(),
        sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("time_ns", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("facts", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "frozen_weeks",
        sa.Column("week", sa.Text, primary_key=True),
        sa.Column("first_day", sa.Integer, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("frozen_ns", sa.BigInteger, nullable=False),
        sa.Column("blocks_dropped", sa.SmallInteger, nullable=False),
        sa.Column("has_late_data", sa.SmallInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "weekly_rollups",
        of_process(),
        sa.Column("week", sa.Text, primary_key=True),
        sa.Column("revision", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("plain_count", sa.BigInteger, nullable=False),
        sa.Column("plain_ns", sa.BigInteger, nullable=False),
        sa.Column("stitched_count", sa.BigInteger, nullable=False),
        sa.Column("stitched_ns", sa.BigInteger, nullable=False),
        sa.Column("uncounted_count", sa.BigInteger, nullable=False),
        sa.Column("uncounted_ns", sa.BigInteger, nullable=False),
        sa.Column("overhead_ns", sa.BigInteger, nullable=False),
        sa.Column("overhead_is_estimate", sa.SmallInteger, nullable=False),
        sa.Column("pairs", sa.Integer, nullable=False),
        sa.Column("saving", sa.Text),
        sa.Column("method", sa.Text, nullable=False),
        sa.Column("stands_for_job", sa.SmallInteger),
        sa.Column("device_hours", sa.Float),
        sa.Column("saved_hours", sa.Float),
        sa.Column("saved_hours_low", sa.Float),
        sa.Column("saved_hours_high", sa.Float),
        sa.Column("ended_ns", sa.BigInteger),
        sa.Column("phase", sa.Text),
        sa.Column("reason", sa.Text),
        sa.Column("fallback", sa.Text),
        sa.Column("reverted", sa.Text),
        sa.Column("lost", sa.BigInteger),
        sa.Column("last_sequence", sa.Integer),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "weekly_totals",
        sa.Column("week", sa.Text, primary_key=True),
        sa.Column("revision", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("unit", sa.Text, primary_key=True),
        sa.Column("dimension", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("saved_hours", sa.Float, nullable=False),
        sa.Column("saved_hours_low", sa.Float, nullable=False),
        sa.Column("saved_hours_high", sa.Float, nullable=False),
        sa.Column("saved_jobs", sa.Integer, nullable=False),
        sa.Column("templates", sa.Integer, nullable=False),
        sa.Column("device_hours", sa.Float, nullable=False),
        sa.Column("overhead_hours", sa.Float, nullable=False),
        sa.Column("unmeasured_device_hours", sa.Float, nullable=False),
        sa.Column("unmeasured_overhead_hours", sa.Float, nullable=False),
        sa.Column("jobs", sa.Integer, nullable=False),
        sa.Column("measured", sa.Integer, nullable=False),
        sa.Column("unmeasured", sa.Integer, nullable=False),
        sa.Column("not_stitched", sa.Integer, nullable=False),
        sa.Column("slower", sa.Integer, nullable=False),
        sa.Column("fell_back", sa.Integer, nullable=False),
        sa.Column("reverted", sa.Integer, nullable=False),
        sqlite_with_rowid=False,
    )
    if on_postgresql:
        # measured durations do not compress: long arrays are stored uncompressed outside of the row
        op.execute("ALTER TABLE iteration_blocks ALTER COLUMN durations SET STORAGE EXTERNAL")


def _copy(on_postgresql: bool, days: list[int]) -> None:
    for day in days:
        date = datetime.date(1970, 1, 1) + datetime.timedelta(days=day)
        op.execute(
            f"CREATE TABLE iteration_blocks_{date:%Y%m%d} PARTITION OF iteration_blocks FOR VALUES FROM ({day}) TO ({day + 1})"
        )
        op.execute(
            f"CREATE UNIQUE INDEX iteration_blocks_{date:%Y%m%d}_key ON iteration_blocks_{date:%Y%m%d} (process_id, sequence)"
        )
    inspector = sa.inspect(op.get_bind())
    of_jobs = ", ".join(f'"{column["name"]}"' for column in inspector.get_columns("old_jobs"))
    op.execute(f"INSERT INTO jobs ({of_jobs}) SELECT {of_jobs} FROM old_jobs ORDER BY started_ns")
    same = " AND ".join(f"j.{name} = o.{name}" for name in KEY)
    for table in OF_PROCESSES:
        there = [column["name"] for column in inspector.get_columns(f"old_{table}")]
        values = {name: f"o.{name}" for name in there if name not in KEY}
        if table == "iteration_blocks":
            del values["started_ns"]
            values["elapsed_ms"] = "(o.ended_ns - o.started_ns) / 1000000"
        op.execute(
            f"INSERT INTO {table} (process_id, {', '.join(values)}) SELECT j.process_id, {', '.join(values.values())} "
            f"FROM old_{table} AS o JOIN jobs AS j ON {same} ORDER BY j.process_id"
        )
    _note_frozen_weeks()


def _note_frozen_weeks() -> None:
    connection = op.get_bind()
    weeks = connection.execute(sa.text("SELECT week, max(revision) FROM weekly_rollups GROUP BY week")).all()
    for name, latest in weeks:
        monday = datetime.date.fromisocalendar(int(name[:4]), int(name[6:]), 1)
        connection.execute(
            sa.text("INSERT INTO frozen_weeks VALUES (:week, :first_day, :revision, 0, 1, 1)"),
            {"week": name, "first_day": (monday - datetime.date(1970, 1, 1)).days, "revision": latest},
        )


# Inner query: each run of an arm, cut into pieces of at most 32 iterations. The GROUP BY keeps SQLite from flattening the inner
# query into the outer one, which would read the whole array again for every iteration; a WHERE on the job still reaches the key.
# saved_ns is relative to the mean of the process's plain blocks: null while there are fewer than two, and for iterations that do
# not count; zero for plain iterations.
ITERATIONS_ON_SQLITE = """
CREATE VIEW iterations AS
SELECT
    p.run_id AS job, p.cluster, p.attempt, p.rank, p.process,
    p.first_step + (p.first + m.n) * p.stride AS step,
    p.arm,
    (h.high + l.low) * h.scale * 1000.0 AS duration_ns,
    CASE p.arm
        WHEN 1 THEN p.baseline_ns - (h.high + l.low) * h.scale * 1000.0
        WHEN 0 THEN 0.0
    END AS saved_ns,
    p.day
FROM (
    SELECT
        j.run_id, j.cluster, j.attempt, j.rank, j.process, b.day, b.first_step, b.stride,
        json_extract(r.value, '$[0]') + 32 * q.n AS first,
        json_extract(r.value, '$[2]') AS arm,
        substr(
            b.durations,
            4 * (json_extract(r.value, '$[0]') + 32 * q.n) + 1,
            4 * min(32, json_extract(r.value, '$[1]') - 32 * q.n)
        ) AS piece,
        (
            SELECT CASE WHEN count(*) >= 2 THEN avg(a.mean_ns) END FROM arm_blocks AS a
            WHERE a.process_id = b.process_id AND a.arm = 0
        ) AS baseline_ns
    FROM jobs AS j
    JOIN iteration_blocks AS b ON b.process_id = j.process_id
    CROSS JOIN json_each(b.arms) AS r
    CROSS JOIN numbers AS q
    WHERE q.n < (json_extract(r.value, '$[1]') + 31) / 32
    GROUP BY j.run_id, j.cluster, j.attempt, j.rank, j.process, b.day, b.sequence, r.id, q.n
) AS p
CROSS JOIN numbers AS m
CROSS JOIN float_halves AS l ON l.half = substr(p.piece, 4 * m.n + 1, 2)
CROSS JOIN float_halves AS h ON h.half = substr(p.piece, 4 * m.n + 3, 2)
WHERE m.n < length(p.piece) / 4
"""

# The runs of a block are consecutive in its array, so that each run is a slice. saved_ns: see above.
ITERATIONS_ON_POSTGRESQL = """
CREATE VIEW iterations AS
SELECT
    j.run_id AS job, j.cluster, j.attempt, j.rank, j.process,
    b.first_step + (r.first + d.n - 1) * b.stride AS step,
    r.arm,
    d.value::float8 * 1000.0 AS duration_ns,
    CASE r.arm
        WHEN 1 THEN p.baseline_ns - d.value::float8 * 1000.0
        WHEN 0 THEN 0.0
    END AS saved_ns,
    b.day
FROM jobs AS j
JOIN iteration_blocks AS b ON b.process_id = j.process_id
CROSS JOIN LATERAL (
    SELECT CASE WHEN count(*) >= 2 THEN avg(a.mean_ns) END AS baseline_ns FROM arm_blocks AS a
    WHERE a.process_id = b.process_id AND a.arm = 0
) AS p
CROSS JOIN LATERAL (
    SELECT (run->>0)::int AS first, (run->>1)::int AS count, (run->>2)::int AS arm
    FROM jsonb_array_elements(b.arms::jsonb) AS run
) AS r
CROSS JOIN LATERAL unnest(b.durations[r.first + 1 : r.first + r.count]) WITH ORDINALITY AS d (value, n)
"""

WEEKLY_SAVINGS = """
CREATE VIEW weekly_savings AS
SELECT
    t.week, {week_start} AS week_start, t.revision, t.unit, t.dimension, t.name,
    t.saved_hours, t.saved_hours_low, t.saved_hours_high, t.device_hours, t.overhead_hours, t.unmeasured_device_hours,
    t.jobs, t.measured, t.unmeasured, t.not_stitched, t.slower, t.fell_back, t.reverted
FROM weekly_totals AS t JOIN frozen_weeks AS f ON f.week = t.week AND f.revision = t.revision
"""

WEEKLY_JOB_SAVINGS = """
CREATE VIEW weekly_job_savings AS
SELECT
    r.week, {week_start} AS week_start, r.revision,
    j.run_id AS job, j.cluster, j.attempt, j.namespace, j.name, j."user", j.model_fingerprint, j.device_kind, j.device_count,
    CASE j.device_kind WHEN 'cpu' THEN 'CPU' ELSE 'GPU' END AS unit,
    r.device_hours, r.stitched_count, r.saved_hours, r.saved_hours_low, r.saved_hours_high,
    j.device_count * r.overhead_ns / 3600e9 AS overhead_hours
FROM weekly_rollups AS r
JOIN frozen_weeks AS f ON f.week = r.week AND f.revision = r.revision
JOIN jobs AS j ON j.process_id = r.process_id
WHERE r.stands_for_job = 1
"""
