"""A job's iterations are those of all its training functions, each of which has pairs of blocks of its own.

Iterations and blocks refer to their function by a number, 0 for all existing rows. Programs of schema 3 would mix up the blocks of
different functions, and are refused.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

OLDEST_READER = 4
"""The oldest schema version whose programs can read and write this one."""


def upgrade() -> None:
    """Brings the schema to this version; the module's docstring says what changes."""
    for table in ("iteration_blocks", "arm_blocks"):
        op.add_column(table, sa.Column("function", sa.SmallInteger, nullable=False, server_default="0"))
    op.add_column("weekly_rollups", sa.Column("functions", sa.Text))
    op.create_table(
        "functions",
        sa.Column("process_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("function", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("name", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.execute("DROP VIEW iterations")
    op.execute(ITERATIONS_ON_POSTGRESQL if op.get_context().dialect.name == "postgresql" else ITERATIONS_ON_SQLITE)
    op.get_bind().execute(
        sa.text("UPDATE schema_facts SET value = :value WHERE name = 'oldest_reader'"), {"value": OLDEST_READER}
    )


# As in version 3 (which says how they work), with the function: saved_ns is relative to that function's plain blocks.
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
    p.day, p.function
FROM (
    SELECT
        j.run_id, j.cluster, j.attempt, j.rank, j.process, b.day, b.function, b.first_step, b.stride,
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
    GROUP BY j.run_id, j.cluster, j.attempt, j.rank, j.process, b.day, b.sequence, r.id, q.n
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
    b.day, b.function
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
