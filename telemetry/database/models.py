"""The tables. The sender of a row makes its key, so that a row sent twice is stored once.

A *process* (one row of `jobs`) is one training process: rank `rank` of attempt `attempt` of the job `run_id` of a namespace in
cluster `cluster`; `process` distinguishes several of the same rank (a child that trains too, a script's second training). These six
columns, PROCESS_KEY, are how a sender identifies it: two namespaces with the same run id have two jobs. The database gives a process
a number, `process_id`, which is the first column of every other table's key: the six would take more space than a short block's
iterations.

Times are wall clock, nanoseconds since 1970, UTC; days are days since 1970, UTC; weeks are YYYY-Www. Text columns that hold JSON
say so. The order of the columns of `iteration_blocks` is that of PostgreSQL's partitions (partitions.py), in which padding costs
nothing.
"""

from __future__ import annotations

import sys
from array import array
from typing import Any

from sqlalchemy import (
    ARRAY,
    REAL,
    BigInteger,
    Column,
    Float,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
)
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine

metadata = MetaData()

MAX_ASKED = 500
"""Most bound values in one statement: SQLite accepts some hundreds of variables."""

REAL_ARRAY_OID = 1021
"""OID of PostgreSQL's real[]."""
_REAL_OID = 700


class PackedReals(bytes):
    """A real[] in PostgreSQL's binary format; access.open_engine tells psycopg how to send it."""

    @classmethod
    def of(cls, little_endian: bytes) -> PackedReals:
        """The array of the float32 values in `little_endian`, 4 bytes each."""
        words = array("I", little_endian)
        if sys.byteorder == "little":
            words.byteswap()
        # dimensions, flags (0: no nulls), type of an element; then, for the one dimension, its length and its first index
        head = array("I", [1, 0, _REAL_OID, len(words), 1])
        pairs = array("I", bytes(8 * len(words)))
        pairs[0::2] = array("I", [4]) * len(words)
        if sys.byteorder == "little":
            head.byteswap()
            pairs.byteswap()
        pairs[1::2] = words
        return cls(head.tobytes() + pairs.tobytes())


class Durations(TypeDecorator[bytes]):
    """Durations: in Python float32 microseconds, little-endian bytes. A blob on SQLite; real[] on PostgreSQL, readable in SQL."""

    impl = LargeBinary
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """The column's type on the database in use."""
        return dialect.type_descriptor(ARRAY(REAL) if dialect.name == "postgresql" else LargeBinary())

    def bind_processor(self, dialect: Dialect) -> Any:
        """Turns bytes into what psycopg sends as real[]; SQLite takes them as they are."""
        return PackedReals.of if dialect.name == "postgresql" else None

    def process_result_value(self, value: Any, dialect: Dialect) -> bytes | None:
        """The bytes of what was read."""
        if dialect.name != "postgresql" or value is None:
            return value  # type: ignore[no-any-return]
        values = array("f", value)
        if sys.byteorder == "big":
            values.byteswap()
        return values.tobytes()


ONLY_SQLITE = {"dialect": "sqlite"}
"""`info` of a table or index that PostgreSQL does not have."""

PROCESS_KEY = ("run_id", "cluster", "namespace", "attempt", "rank", "process")
"""Columns of `jobs` that identify the process of a row. run_id is first, because people look for it."""
JOB_KEY = PROCESS_KEY[:4]
"""The columns that identify the job: all its ranks, and all their processes."""


def of_process() -> Column[int]:
    """A new column process_id, the first of the key of a table whose rows belong to a process."""
    return Column("process_id", Integer, primary_key=True, autoincrement=False)


jobs = Table(
    "jobs",
    metadata,
    Column("process_id", Integer, Identity(), primary_key=True),
    Column("run_id", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("rank", Integer, nullable=False),
    Column("process", Text, nullable=False),
    Column("uid", Text, nullable=False),
    Column("namespace", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("image", Text, nullable=False),
    Column("framework", Text, nullable=False),
    Column("framework_version", Text, nullable=False),
    Column("plugin_version", Text, nullable=False),
    Column("model_fingerprint", Text, nullable=False),
    Column("device_kind", Text, nullable=False),
    Column("device_count", Integer, nullable=False),
    Column("world_size", Integer, nullable=False),
    Column("labels", Text, nullable=False),  # JSON object
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("started_ns", BigInteger, nullable=False),
    Index("jobs_by_key", *PROCESS_KEY, unique=True),
    Index("jobs_by_start", "started_ns"),
    Index("jobs_by_namespace", "namespace"),
)

job_ends = Table(
    "job_ends",
    metadata,
    of_process(),
    Column("ended_ns", BigInteger, nullable=False),
    Column("phase", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("overhead_ns", BigInteger, nullable=False),
    Column("facts", Text, nullable=False),  # JSON object: all that the process said
    sqlite_with_rowid=False,
)

iteration_blocks = Table(
    "iteration_blocks",
    metadata,
    of_process(),
    Column(
        "day", Integer, primary_key=True, autoincrement=False
    ),  # the day on which every iteration of the block ended: no block crosses midnight
    Column("sequence", Integer, primary_key=True, autoincrement=False),
    # the training function; steps are counted per function. Here the column fits into the padding before ended_ns
    Column("function", SmallInteger, nullable=False, server_default="0"),
    Column("ended_ns", BigInteger, nullable=False),
    Column("first_step", BigInteger, nullable=False),
    # these and the counts: sums by arm, so that a week's totals need no arrays
    Column("plain_ns", BigInteger, nullable=False),
    Column("stitched_ns", BigInteger, nullable=False),
    Column("uncounted_ns", BigInteger, nullable=False),
    Column("elapsed_ms", Integer, nullable=False),  # wall clock, from the start of the first to the end of the last
    Column("stride", Integer, nullable=False),
    Column("plain_count", Integer, nullable=False),
    Column("stitched_count", Integer, nullable=False),
    Column("uncounted_count", Integer, nullable=False),
    Column("arms", Text, nullable=False),  # JSON: [[first index, count, arm], ...]
    Column("durations", Durations, nullable=False),
    # PostgreSQL finds a day by its partition, and has the key (process_id, sequence) there
    Index("iteration_blocks_by_day", "day", info=ONLY_SQLITE).ddl_if(dialect="sqlite"),
    postgresql_partition_by="RANGE (day)",
)

arm_blocks = Table(
    "arm_blocks",
    metadata,
    of_process(),
    Column("pair", Integer, primary_key=True, autoincrement=False),
    Column("arm", SmallInteger, primary_key=True, autoincrement=False),
    Column("ended_ns", BigInteger, nullable=False),
    Column("first_step", BigInteger, nullable=False),
    Column("count", Integer, nullable=False),
    Column("mean_ns", Float, nullable=False),
    Column("median_ns", Float, nullable=False),
    Column("variance_ns2", Float, nullable=False),  # of the block's iterations; 0 if there is one
    Column("function", SmallInteger, nullable=False, server_default="0"),
    sqlite_with_rowid=False,
)

functions = Table(
    "functions",
    metadata,
    of_process(),
    Column("function", SmallInteger, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
    sqlite_with_rowid=False,
)
"""Names of a process's training functions. Numbers count from 0. A process without rows is from schema 3 and has one function."""

clusters = Table(
    "clusters",
    metadata,
    of_process(),
    Column("name", Text, primary_key=True),
    Column(
        "sequence", BigInteger, primary_key=True, autoincrement=False
    ),  # for each name, the row with the highest is valid
    Column("state", Text, nullable=False),
    Column("facts", Text, nullable=False),  # JSON object
    sqlite_with_rowid=False,
)

events = Table(
    "events",
    metadata,
    of_process(),
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("time_ns", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("facts", Text, nullable=False),  # JSON object
    Index("events_by_kind", "kind"),
    sqlite_with_rowid=False,
)

frozen_weeks = Table(
    "frozen_weeks",
    metadata,
    Column("week", Text, primary_key=True),
    Column("first_day", Integer, nullable=False),
    Column("revision", Integer, nullable=False),  # the latest; rows of earlier revisions stay in the next two tables
    Column("frozen_ns", BigInteger, nullable=False),
    Column("blocks_dropped", SmallInteger, nullable=False),  # 1: its iterations are in weekly_rollups only
    Column("has_late_data", SmallInteger, nullable=False),  # 1: data came since that no revision contains
    Column("unreadable_rows", Integer, nullable=False, server_default="0"),  # left out of the latest revision
    sqlite_with_rowid=False,
)

weekly_rollups = Table(
    "weekly_rollups",
    metadata,
    of_process(),
    Column("week", Text, primary_key=True),
    Column("revision", Integer, primary_key=True, autoincrement=False),
    Column("plain_count", BigInteger, nullable=False),
    Column("plain_ns", BigInteger, nullable=False),
    Column("stitched_count", BigInteger, nullable=False),
    Column("stitched_ns", BigInteger, nullable=False),
    Column("uncounted_count", BigInteger, nullable=False),
    Column("uncounted_ns", BigInteger, nullable=False),
    Column("overhead_ns", BigInteger, nullable=False),
    Column("overhead_is_estimate", SmallInteger, nullable=False),
    Column("pairs", Integer, nullable=False),
    Column("saving", Text),  # JSON object of savings.Saving; null: unmeasured
    Column("method", Text, nullable=False),
    # the following are null in what was frozen by schema 2 and before
    Column("stands_for_job", SmallInteger),  # 1: the report shows this process's figures; docs/counting.md
    Column("device_hours", Float),  # of all the job's devices, as the following
    Column("saved_hours", Float),  # null: unmeasured
    Column("saved_hours_low", Float),
    Column("saved_hours_high", Float),
    Column("ended_ns", BigInteger),
    Column("phase", Text),
    Column("reason", Text),
    Column("fallback", Text),
    Column("reverted", Text),  # JSON: names of clusters
    Column("lost", BigInteger),
    Column(
        "last_sequence", Integer
    ),  # of the week's blocks: after these are dropped, it tells new blocks from repeated ones
    Column("functions", Text),  # JSON: [[function, stitched_count, stitched_ns], ...]; null if there is one function
    Index("weekly_rollups_by_week", "week", "revision"),
    sqlite_with_rowid=False,
)

weekly_totals = Table(
    "weekly_totals",
    metadata,
    Column("week", Text, primary_key=True),
    Column("revision", Integer, primary_key=True, autoincrement=False),
    Column("unit", Text, primary_key=True),  # CPU or GPU
    Column("dimension", Text, primary_key=True),  # fleet, namespace or device kind
    Column("name", Text, primary_key=True),
    Column("saved_hours", Float, nullable=False),
    Column("saved_hours_low", Float, nullable=False),
    Column("saved_hours_high", Float, nullable=False),
    Column("saved_jobs", Integer, nullable=False),
    Column("templates", Integer, nullable=False),
    Column("device_hours", Float, nullable=False),
    Column("overhead_hours", Float, nullable=False),
    Column("unmeasured_device_hours", Float, nullable=False),
    Column("unmeasured_overhead_hours", Float, nullable=False),
    Column("jobs", Integer, nullable=False),
    Column("measured", Integer, nullable=False),
    Column("unmeasured", Integer, nullable=False),
    Column("not_stitched", Integer, nullable=False),
    Column("slower", Integer, nullable=False),
    Column("fell_back", Integer, nullable=False),
    Column("reverted", Integer, nullable=False),
    sqlite_with_rowid=False,
)

VIEWS = ("iterations", "weekly_savings", "weekly_job_savings")

schema_facts = Table(
    "schema_facts",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Integer, nullable=False),
)

numbers = Table("numbers", metadata, Column("n", Integer, primary_key=True, autoincrement=False), info=ONLY_SQLITE)
"""0 to 127, for the view `iterations`."""

float_halves = Table(
    "float_halves",
    metadata,
    Column("half", LargeBinary, primary_key=True),
    Column("low", Integer, nullable=False),
    Column("high", Float, nullable=False),
    Column("scale", Float, nullable=False),
    sqlite_with_rowid=False,
    info=ONLY_SQLITE,
)
"""All 2-byte halves of a float32, for the view `iterations`: the float of lower half l and upper half h is
(h.high + l.low) * h.scale. SQLite has no function that reads a float out of a blob, and two look-ups are ten times faster than
arithmetic on hexadecimal digits (measured: 0.65 and 0.06 million values a second)."""
