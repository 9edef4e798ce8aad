"""The tables. The natural key of a process leads each of them, so that whoever sends a row can make its key, and twice is once.

A *process* (one row of `jobs`) is one training process: rank `rank` of attempt `attempt` of the job `run_id` in cluster `cluster`;
`process` tells apart several of the same rank (a child that trains too). Times are wall clock, nanoseconds since 1970, UTC; days
are days since 1970, UTC. Texts that hold JSON say so. No foreign keys: rows may come out of order.
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

REAL_ARRAY_OID = 1021
"""PostgreSQL's real[]."""
_REAL_OID = 700


class PackedReals(bytes):
    """A real[] as PostgreSQL's binary format has it; database.open_engine tells psycopg how to send it."""

    @classmethod
    def of(cls, little_endian: bytes) -> PackedReals:
        """From float32s, little-endian."""
        words = array("I", little_endian)
        if sys.byteorder == "little":
            words.byteswap()
        # dimensions, flags (0: no nulls), type of an element, then of the one dimension its length and its first index
        head = array("I", [1, 0, _REAL_OID, len(words), 1])
        pairs = array("I", bytes(8 * len(words)))
        pairs[0::2] = array("I", [4]) * len(words)
        if sys.byteorder == "little":
            head.byteswap()
            pairs.byteswap()
        pairs[1::2] = words
        return cls(head.tobytes() + pairs.tobytes())


class Durations(TypeDecorator[bytes]):
    """float32 microseconds, little-endian, to Python. A blob on SQLite; on PostgreSQL real[], which its SQL can read."""

    impl = LargeBinary
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(ARRAY(REAL) if dialect.name == "postgresql" else LargeBinary())

    def bind_processor(self, dialect: Dialect) -> Any:
        return PackedReals.of if dialect.name == "postgresql" else None

    def process_result_value(self, value: Any, dialect: Dialect) -> bytes | None:
        if dialect.name != "postgresql" or value is None:
            return value  # type: ignore[no-any-return]
        values = array("f", value)
        if sys.byteorder == "big":
            values.byteswap()
        return values.tobytes()


PROCESS_KEY = ("run_id", "cluster", "attempt", "rank", "process")
"""Names of the columns that say which process a row is of."""


def process_columns() -> list[Column[str] | Column[int]]:
    """Fresh columns of PROCESS_KEY for a table; run_id first, which is what people look for."""
    return [
        Column("run_id", Text, primary_key=True),
        Column("cluster", Text, primary_key=True),
        Column("attempt", Integer, primary_key=True, autoincrement=False),
        Column("rank", Integer, primary_key=True, autoincrement=False),
        Column("process", Text, primary_key=True),
    ]


jobs = Table(
    "jobs",
    metadata,
    *process_columns(),
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
    Index("jobs_by_start", "started_ns"),
    Index("jobs_by_namespace", "namespace"),
    sqlite_with_rowid=False,
)

job_ends = Table(
    "job_ends",
    metadata,
    *process_columns(),
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
    *process_columns(),
    Column(
        "day", Integer, primary_key=True, autoincrement=False
    ),  # of every iteration's end: no block crosses midnight
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("started_ns", BigInteger, nullable=False),
    Column("ended_ns", BigInteger, nullable=False),
    Column("first_step", BigInteger, nullable=False),
    Column("stride", BigInteger, nullable=False),
    # sums by arm, so that a week's totals need no arrays
    Column("plain_count", Integer, nullable=False),
    Column("plain_ns", BigInteger, nullable=False),
    Column("stitched_count", Integer, nullable=False),
    Column("stitched_ns", BigInteger, nullable=False),
    Column("uncounted_count", Integer, nullable=False),
    Column("uncounted_ns", BigInteger, nullable=False),
    Column("arms", Text, nullable=False),  # JSON: [[first index, count, arm], ...]
    Column("durations", Durations, nullable=False),
    Index("iteration_blocks_by_day", "day"),
    sqlite_with_rowid=False,
    postgresql_partition_by="RANGE (day)",
)

arm_blocks = Table(
    "arm_blocks",
    metadata,
    *process_columns(),
    Column("pair", Integer, primary_key=True, autoincrement=False),
    Column("arm", SmallInteger, primary_key=True, autoincrement=False),
    Column("ended_ns", BigInteger, nullable=False),
    Column("first_step", BigInteger, nullable=False),
    Column("count", Integer, nullable=False),
    Column("mean_ns", Float, nullable=False),
    Column("median_ns", Float, nullable=False),
    Column("variance_ns2", Float, nullable=False),  # of the block's iterations; 0 for one
    sqlite_with_rowid=False,
)

clusters = Table(
    "clusters",
    metadata,
    *process_columns(),
    Column("name", Text, primary_key=True),
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),  # the highest of a name is what holds
    Column("state", Text, nullable=False),
    Column("facts", Text, nullable=False),  # JSON object
    sqlite_with_rowid=False,
)

events = Table(
    "events",
    metadata,
    *process_columns(),
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("time_ns", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("facts", Text, nullable=False),  # JSON object
    Index("events_by_kind", "kind"),
    sqlite_with_rowid=False,
)

weekly_rollups = Table(
    "weekly_rollups",
    metadata,
    *process_columns(),
    Column("week", Text, primary_key=True),  # YYYY-Www
    Column("revision", Integer, primary_key=True, autoincrement=False),
    Column("plain_count", BigInteger, nullable=False),
    Column("plain_ns", BigInteger, nullable=False),
    Column("stitched_count", BigInteger, nullable=False),
    Column("stitched_ns", BigInteger, nullable=False),
    Column("uncounted_count", BigInteger, nullable=False),
    Column("uncounted_ns", BigInteger, nullable=False),
    Column("overhead_ns", BigInteger, nullable=False),
    Column("overhead_is_estimate", Integer, nullable=False),
    Column("pairs", Integer, nullable=False),
    Column("saving", Text),  # JSON object of savings.Saving; null: unmeasured
    Column("method", Text, nullable=False),
    Index("weekly_rollups_by_week", "week"),
    sqlite_with_rowid=False,
)

schema_facts = Table(
    "schema_facts",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Integer, nullable=False),
)

ONLY_SQLITE = {"dialect": "sqlite"}
"""`info` of a table that PostgreSQL does not have."""

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
