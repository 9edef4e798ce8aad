"""The first schema: jobs, their iterations, pairs of blocks, clusters and events, and the weeks' frozen figures.

Written out rather than taken from the models: what version 1 was must not change when the models do.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

OLDEST_READER = 1
"""The oldest schema version whose programs can read and write this one."""


def process_columns() -> list[sa.Column[str] | sa.Column[int]]:
    """The columns by which a row refers to its process."""
    return [
        sa.Column("run_id", sa.Text, primary_key=True),
        sa.Column("cluster", sa.Text, primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("rank", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("process", sa.Text, primary_key=True),
    ]


def upgrade() -> None:
    """Brings the schema to this version; the module's docstring says what changes."""
    on_postgresql = op.get_context().dialect.name == "postgresql"
    op.create_table(
        "jobs",
        *process_columns(),
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
        sqlite_with_rowid=False,
    )
    op.create_table(
        "job_ends",
        *process_columns(),
        sa.Column("ended_ns", sa.BigInteger, nullable=False),
        sa.Column("phase", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("overhead_ns", sa.BigInteger, nullable=False),
        sa.Column("facts", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "iteration_blocks",
        *process_columns(),
        sa.Column("day", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("started_ns", sa.BigInteger, nullable=False),
        sa.Column("ended_ns", sa.BigInteger, nullable=False),
        sa.Column("first_step", sa.BigInteger, nullable=False),
        sa.Column("stride", sa.BigInteger, nullable=False),
        # sums by arm, so that a week's totals need no arrays
        sa.Column("plain_count", sa.Integer, nullable=False),
        sa.Column("plain_ns", sa.BigInteger, nullable=False),
        sa.Column("stitched_count", sa.Integer, nullable=False),
        sa.Column("stitched_ns", sa.BigInteger, nullable=False),
        sa.Column("uncounted_count", sa.Integer, nullable=False),
        sa.Column("uncounted_ns", sa.BigInteger, nullable=False),
        sa.Column("arms", sa.Text, nullable=False),
        sa.Column("durations", sa.ARRAY(sa.REAL) if on_postgresql else sa.LargeBinary, nullable=False),
        sqlite_with_rowid=False,
        postgresql_partition_by="RANGE (day)",
    )
    op.create_table(
        "arm_blocks",
        *process_columns(),
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
        *process_columns(),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("facts", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "events",
        *process_columns(),
        sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("time_ns", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("facts", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "weekly_rollups",
        *process_columns(),
        sa.Column("week", sa.Text, primary_key=True),
        sa.Column("revision", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("plain_count", sa.BigInteger, nullable=False),
        sa.Column("plain_ns", sa.BigInteger, nullable=False),
        sa.Column("stitched_count", sa.BigInteger, nullable=False),
        sa.Column("stitched_ns", sa.BigInteger, nullable=False),
        sa.Column("uncounted_count", sa.BigInteger, nullable=False),
        sa.Column("uncounted_ns", sa.BigInteger, nullable=False),
        sa.Column("overhead_ns", sa.BigInteger, nullable=False),
        sa.Column("overhead_is_estimate", sa.Integer, nullable=False),
        sa.Column("pairs", sa.Integer, nullable=False),
        sa.Column("saving", sa.Text),
        sa.Column("method", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "schema_facts",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("value", sa.Integer, nullable=False),
    )
    op.create_index("jobs_by_start", "jobs", ["started_ns"])
    op.create_index("iteration_blocks_by_day", "iteration_blocks", ["day"])
    op.create_index("weekly_rollups_by_week", "weekly_rollups", ["week"])
    op.get_bind().execute(
        sa.text("INSERT INTO schema_facts (name, value) VALUES ('oldest_reader', :value)"), {"value": OLDEST_READER}
    )
    if on_postgresql:
        # measured durations do not compress: long arrays are stored uncompressed outside of the row
        op.execute("ALTER TABLE iteration_blocks ALTER COLUMN durations SET STORAGE EXTERNAL")
        op.execute(ITERATIONS_ON_POSTGRESQL)
    else:
        _make_constants()
        op.execute(ITERATIONS_ON_SQLITE)


def _make_constants() -> None:
    """The tables by which SQLite's view reads floats."""
    op.create_table(
        "float_halves",
        sa.Column("half", sa.LargeBinary, primary_key=True),
        sa.Column("low", sa.Integer, nullable=False),
        sa.Column("high", sa.Float, nullable=False),
        sa.Column("scale", sa.Float, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table("numbers", sa.Column("n", sa.Integer, primary_key=True, autoincrement=False))
    connection = op.get_bind()
    connection.execute(sa.text("INSERT INTO numbers (n) VALUES (:n)"), [{"n": n} for n in range(128)])
    # as tuples in the order of the columns: what SQLAlchemy does for each of 65,536 dictionaries takes a second
    connection.exec_driver_sql(
        "INSERT INTO float_halves (half, low, high, scale) VALUES (?, ?, ?, ?)",
        [_half(upper << 8 | lower) for lower in range(256) for upper in range(256)],
    )


def _half(bits: int) -> tuple[bytes, int, float, float]:
    """16 bits as either half of a non-negative float32 (IEEE 754: 8 bits of exponent, 23 of mantissa): the bytes, and low, high and
    scale of models.float_halves."""
    exponent, mantissa = bits >> 7 & 255, bits & 127
    normal = exponent > 0
    high = float(((128 if normal else 0) + mantissa) << 16)
    return bits.to_bytes(2, "little"), bits, high, 2.0 ** ((exponent if normal else 1) - 150)


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
        b.run_id, b.cluster, b.attempt, b.rank, b.process, b.day, b.first_step, b.stride,
        json_extract(r.value, '$[0]') + 32 * q.n AS first,
        json_extract(r.value, '$[2]') AS arm,
        substr(
            b.durations,
            4 * (json_extract(r.value, '$[0]') + 32 * q.n) + 1,
            4 * min(32, json_extract(r.value, '$[1]') - 32 * q.n)
        ) AS piece,
        (
            SELECT CASE WHEN count(*) >= 2 THEN avg(a.mean_ns) END FROM arm_blocks AS a
            WHERE a.run_id = b.run_id AND a.cluster = b.cluster AND a.attempt = b.attempt
            AND a.rank = b.rank AND a.process = b.process AND a.arm = 0
        ) AS baseline_ns
    FROM iteration_blocks AS b
    CROSS JOIN json_each(b.arms) AS r
    CROSS JOIN numbers AS q
    WHERE q.n < (json_extract(r.value, '$[1]') + 31) / 32
    GROUP BY b.run_id, b.cluster, b.attempt, b.rank, b.process, b.day, b.sequence, r.id, q.n
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
    b.run_id AS job, b.cluster, b.attempt, b.rank, b.process,
    b.first_step + (r.first + d.n - 1) * b.stride AS step,
    r.arm,
    d.value::float8 * 1000.0 AS duration_ns,
    CASE r.arm
        WHEN 1 THEN p.baseline_ns - d.value::float8 * 1000.0
        WHEN 0 THEN 0.0
    END AS saved_ns,
    b.day
FROM iteration_blocks AS b
CROSS JOIN LATERAL (
    SELECT CASE WHEN count(*) >= 2 THEN avg(a.mean_ns) END AS baseline_ns FROM arm_blocks AS a
    WHERE a.run_id = b.run_id AND a.cluster = b.cluster AND a.attempt = b.attempt
    AND a.rank = b.rank AND a.process = b.process AND a.arm = 0
) AS p
CROSS JOIN LATERAL (
    SELECT (run->>0)::int AS first, (run->>1)::int AS count, (run->>2)::int AS arm
    FROM jsonb_array_elements(b.arms::jsonb) AS run
) AS r
CROSS JOIN LATERAL unnest(b.durations[r.first + 1 : r.first + r.count]) WITH ORDINALITY AS d (value, n)
"""
