"""A run belongs to its namespace: two namespaces that use the same run id have two jobs, and neither shuts the other out.

Programs of schema 4 would add up the two, and are refused. Rows without a process, left behind by the running jobs of a deleted
namespace, are deleted.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

OLDEST_READER = 5
"""The oldest schema version whose programs can read and write this one."""
KEY = ("run_id", "cluster", "namespace", "attempt", "rank", "process")
OF_PROCESSES = ("job_ends", "iteration_blocks", "arm_blocks", "functions", "clusters", "events", "weekly_rollups")


def upgrade() -> None:
    """Brings the schema to this version; the module's docstring says what changes."""
    on_postgresql = op.get_context().dialect.name == "postgresql"
    op.drop_index("jobs_by_key", "jobs")
    op.create_index("jobs_by_key", "jobs", list(KEY), unique=True)
    op.add_column("frozen_weeks", sa.Column("unreadable_rows", sa.Integer, nullable=False, server_default="0"))
    for table in OF_PROCESSES:
        op.execute(f"DELETE FROM {table} WHERE process_id NOT IN (SELECT process_id FROM jobs)")
    op.execute("DROP VIEW iterations")
    op.execute(ITERATIONS_ON_POSTGRESQL if on_postgresql else ITERATIONS_ON_SQLITE)
    week_start = (
        "to_timestamp(86400.0 * f.first_day)" if on_postgresql else "datetime(86400 * f.first_day, 'unixepoch')"
    )
    op.execute("DROP VIEW weekly_job_savings")
    op.execute(WEEKLY_JOB_SAVINGS.format(week_start=week_start))
    op.get_bind().execute(
        sa.text("UPDATE schema_facts SET value = :value WHERE name = 'oldest_reader'"), {"value": OLDEST_READER}
    )


# As in version 4, with the namespace.
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
    p.day, p.function, p.namespace
FROM (
    SELECT
        j.run_id, j.cluster, j.namespace, j.attempt, j.rank, j.process, b.day, b.function, b.first_step, b.stride,
        json_extract(r.value, '$[0]') + 32 * q.n AS first,
        json_extract(r.value, '$[2]') AS arm,
        substr(
            b.durations,
            4 * (json_extract(r.value, '$[0]') + 32 * q.n) + 1,
            4 * min(32, json_extract(r.value, '$[1]') - 32 * q.n)
        ) AS piece,
        (
            SELECT CASE WHEN count(*) >= 2 THEN avg(a.mean_ns) END FROM arm_blocks AS a
            WHERE a.process_id = b.process_id AND a.function = b.function AND a.arm = 0
        ) AS baseline_ns
    FROM jobs AS j
    JOIN iteration_blocks AS b ON b.process_id = j.process_id
    CROSS JOIN json_each(b.arms) AS r
    CROSS JOIN numbers AS q
    WHERE q.n < (json_extract(r.value, '$[1]') + 31) / 32
    GROUP BY j.run_id, j.cluster, j.namespace, j.attempt, j.rank, j.process, b.day, b.sequence, r.id, q.n
) AS p
CROSS JOIN numbers AS m
CROSS JOIN float_halves AS l ON l.half = substr(p.piece, 4 * m.n + 1, 2)
CROSS JOIN float_halves AS h ON h.half = substr(p.piece, 4 * m.n + 3, 2)
WHERE m.n < length(p.piece) / 4
"""

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
    b.day, b.function, j.namespace
FROM jobs AS j
JOIN iteration_blocks AS b ON b.process_id = j.process_id
CROSS JOIN LATERAL (
    SELECT CASE WHEN count(*) >= 2 THEN avg(a.mean_ns) END AS baseline_ns FROM arm_blocks AS a
    WHERE a.process_id = b.process_id AND a.function = b.function AND a.arm = 0
) AS p
CROSS JOIN LATERAL (
    SELECT (run->>0)::int AS first, (run->>1)::int AS count, (run->>2)::int AS arm
    FROM jsonb_array_elements(b.arms::jsonb) AS run
) AS r
CROSS JOIN LATERAL unnest(b.durations[r.first + 1 : r.first + r.count]) WITH ORDINALITY AS d (value, n)
"""

# One row for each process that stands for its job. The device kind may have CPU in any case.
WEEKLY_JOB_SAVINGS = """
CREATE VIEW weekly_job_savings AS
SELECT
    r.week, {week_start} AS week_start, r.revision,
    j.run_id AS job, j.cluster, j.attempt, j.namespace, j.name, j."user", j.model_fingerprint, j.device_kind, j.device_count,
    CASE lower(trim(j.device_kind)) WHEN 'cpu' THEN 'CPU' ELSE 'GPU' END AS unit,
    r.device_hours, r.stitched_count, r.saved_hours, r.saved_hours_low, r.saved_hours_high,
    j.device_count * r.overhead_ns / 3600e9 AS overhead_hours, j.rank, j.process
FROM weekly_rollups AS r
JOIN frozen_weeks AS f ON f.week = r.week AND f.revision = r.revision
JOIN jobs AS j ON j.process_id = r.process_id
WHERE r.stands_for_job = 1
"""
