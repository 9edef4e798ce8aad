"""The schema itself: from many threads at once, and for whatever bytes there are."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stitchfleet.telemetry.database import schema
from stitchfleet.telemetry.database.rows import rows_of_segment
from stitchfleet.telemetry.database.schema import InvalidRecordError
from stitchfleet.telemetry.pod.spool import MAGIC, Kind, Record, encode

from .client import identified

AT_ONCE = """
import sys, threading
from stitchfleet.telemetry.database import schema
from stitchfleet.telemetry.database.schema import InvalidRecordError
kinds = [kind for kind in vars(schema).values() if isinstance(kind, type) and issubclass(kind, schema.Struct)]
kinds.remove(schema.Struct)
started = threading.Barrier(8)
def use():
    started.wait()
    for kind in kinds:
        for read in (lambda: schema.decoded(b'{}', kind), lambda: schema.checked({}, kind)):
            try:
                read()
            except (InvalidRecordError, KeyError):
                pass
sys.setswitchinterval(1e-6)
threads = [threading.Thread(target=use) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(kinds))
"""


def test_its_first_use_on_many_threads_at_once_is_like_any_other() -> None:
    """Found by the benchmark: the server's process died of the first batches that came at once."""
    for _ in range(4):
        done = subprocess.run([sys.executable, "-c", AT_ONCE], capture_output=True, text=True)
        assert done.returncode == 0, (done.returncode, done.stderr)
        assert int(done.stdout) >= 15


def test_each_kind_that_is_read_from_json_has_its_decoder() -> None:
    for kind in schema._DECODERS:
        with pytest.raises(InvalidRecordError):
            schema.decoded(b"[]", kind)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)
FIELDS = (
    *(
        "time_ns",
        "kind",
        "message",
        "facts",
        "lost",
        "reason",
        "pair",
        "arm",
        "first_step",
        "durations_ns",
        "name",
        "function",
    ),
    *("fingerprint", "format", "job", "process", "pid", "host", "started_ns", "after_death", "overhead_ns", "cluster"),
)


@given(st.sampled_from(list(Kind)), st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=8) | json_values)
def test_whatever_json_a_record_holds_it_is_a_row_or_refused(kind: Kind, value: object) -> None:
    body = json.dumps(value).encode()
    data = MAGIC + encode(Record(Kind.IDENTITY, 0, identified())) + encode(Record(kind, 1, body))
    rows, _ = rows_of_segment(data)
    assert len(rows.damaged) + sum(len(found) for name, found in rows.tables.items() if name != "jobs") <= 1
    for found in rows.tables.values():
        for row in found:
            for cell in row.values():
                if isinstance(cell, str):
                    assert "\0" not in cell
                    cell.encode("utf-8")
                if isinstance(cell, int):
                    assert -(1 << 63) <= cell < 1 << 63


@given(st.binary(max_size=400))
def test_whatever_bytes_a_record_holds_it_is_a_row_or_refused(body: bytes) -> None:
    for kind in Kind:
        data = MAGIC + encode(Record(Kind.IDENTITY, 0, identified())) + encode(Record(kind, 1, body))
        rows_of_segment(data)
