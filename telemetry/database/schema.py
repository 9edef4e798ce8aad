"""What a record may hold: a type, a bound and a length for every field. One table, read by msgspec, for all code that makes rows.

Records come from processes that cannot be trusted. Every record goes through `decoded`: one that is not of its kind's type is
refused, with the reason. Later code never sees a number out of range, a text of unbounded length or unbounded nesting.

Text that PostgreSQL refuses (a NUL, an unpaired surrogate) is repaired, and text that only people read (FREE_TEXT) is cut to its
maximum length: a job with a long name, or with labels that are not UTF-8, keeps its measurements. Text that is part of a key is
refused.

docs/limits.md lists the bounds for people; a test holds the two equal. This runs beside the database only, never in a training pod.
"""

from __future__ import annotations

import contextlib
import json
import math
import typing
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from ..pod.recording import (
    MAX_ATTEMPT,
    MAX_BLOCK,
    MAX_DEVICES,
    MAX_DURATION_NS,
    MAX_FUNCTIONS,
    MAX_LABEL_KEY,
    MAX_LABEL_TEXT,
    MAX_LABELS,
    MAX_RANKS,
)

MAX_RECORD_BYTES = 1 << 18
"""Bytes of one record's JSON. The plugin's longest, a cluster with many executables, has some tens of kilobytes. Parsed without a
type, for repair, it takes at most a hundred times as much memory."""
MAX_ITERATIONS_BYTES = 44 + 4 + 5 * MAX_BLOCK + 4 * MAX_BLOCK
"""Bytes of a record of iterations: its head, the number of its function, a run for each iteration, the durations."""
MAX_SEQUENCE = (1 << 31) - 1
MAX_PAIR = (1 << 31) - 1
MAX_STEP = 1 << 62
MAX_STRIDE = (1 << 31) - 1
MAX_TIME_NS = (1 << 63) - 1
"""The year 2262."""
MAX_LOST = 10**12
MAX_COUNT = 10**9
MAX_DEPTH = 8
"""Depth of lists and objects in a record's free content."""
MAX_ENTRIES = 4096
"""Entries of one such list or object."""
MAX_FACT_TEXT = 8192
LOSS_EVENT = "records-lost"
"""Kind of the event whose facts say how many records a process had lost so far, or were dropped from its spool after its end. Only
a LOSS record makes it; an EVENT record of that kind is refused."""

_FREE = {"cut": True}

# Key text: part of an index's entry, which PostgreSQL bounds at 2,704 bytes; four bytes a sign.
KeyText = Annotated[str, Meta(max_length=128)]
NamedKey = Annotated[str, Meta(min_length=1, max_length=128)]
ProcessName = Annotated[str, Meta(min_length=1, max_length=64)]
ClusterName = Annotated[str, Meta(min_length=1, max_length=256)]
Uid = Annotated[str, Meta(max_length=128)]
# Free text: what only people read.
ShortText = Annotated[str, Meta(max_length=64, extra=_FREE)]
NameText = Annotated[str, Meta(max_length=253, extra=_FREE)]
DeviceText = Annotated[str, Meta(max_length=128, extra=_FREE)]
ImageText = Annotated[str, Meta(max_length=1024, extra=_FREE)]
Message = Annotated[str, Meta(max_length=4096, extra=_FREE)]
LabelKey = Annotated[str, Meta(max_length=MAX_LABEL_KEY)]
LabelText = Annotated[str, Meta(max_length=MAX_LABEL_TEXT)]

Time = Annotated[int, Meta(ge=0, le=MAX_TIME_NS)]
Duration = Annotated[int, Meta(ge=0, le=MAX_DURATION_NS)]
StepNumber = Annotated[int, Meta(ge=-MAX_STEP, le=MAX_STEP)]
FunctionNumber = Annotated[int, Meta(ge=0, lt=MAX_FUNCTIONS)]
Sequence = Annotated[int, Meta(ge=0, le=MAX_SEQUENCE)]
ArmNumber = Annotated[int, Meta(ge=0, le=1)]
"""Of a block: PLAIN or STITCHED."""
Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]

# What a record says freely, MAX_DEPTH deep.
_Number = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)] | float
_FactText = Annotated[str, Meta(max_length=MAX_FACT_TEXT)]
_Fact: Any = _Number | _FactText | bool | None
for _ in range(MAX_DEPTH - 1):
    _Fact = (
        _Number
        | _FactText
        | bool
        | None
        | Annotated[list[_Fact], Meta(max_length=MAX_ENTRIES)]
        | Annotated[dict[LabelKey, _Fact], Meta(max_length=MAX_ENTRIES)]
    )
Facts: Any = Annotated[dict[LabelKey, _Fact], Meta(max_length=MAX_ENTRIES)]


class Job(Struct):
    """A recording.JobIdentity."""

    cluster: KeyText
    run_id: NamedKey
    uid: Uid
    attempt: Annotated[int, Meta(ge=0, le=MAX_ATTEMPT)]
    namespace: KeyText
    name: NameText
    user: NameText
    image: ImageText
    framework: ShortText
    framework_version: ShortText
    plugin_version: ShortText
    model_fingerprint: NameText
    device_kind: DeviceText
    device_count: Annotated[int, Meta(ge=1, le=MAX_DEVICES)]
    rank: Annotated[int, Meta(ge=0, lt=MAX_RANKS)]
    world_size: Annotated[int, Meta(ge=1, le=MAX_RANKS)]
    labels: Annotated[dict[LabelKey, LabelText], Meta(max_length=MAX_LABELS)] | None = None


class Format(Struct):
    """The part of an identity that is read first: the format of the rest."""

    format: int


class Identity(Struct):
    """The record that begins each segment."""

    process: ProcessName
    pid: Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
    host: NameText
    started_ns: Time
    job: Job


class Block(Struct):
    """The head of a record of iterations, and what follows from its durations."""

    sequence: Sequence
    function: FunctionNumber
    first_step: StepNumber
    last_step: StepNumber
    stride: Annotated[int, Meta(ge=1, le=MAX_STRIDE)]
    started_ns: Annotated[int, Meta(ge=-MAX_TIME_NS, le=MAX_TIME_NS)]
    """The end minus the first duration: before 1970 if the clock was never set."""
    ended_ns: Time
    count: Annotated[int, Meta(ge=1, le=MAX_BLOCK)]
    arms: list[tuple[int, Annotated[int, Meta(ge=1)], Annotated[int, Meta(ge=0, le=2)]]]
    shortest_us: Annotated[float, Meta(ge=0)]
    total_us: Annotated[float, Meta(ge=0, le=MAX_DURATION_NS / 1e3)]
    """Sum of all durations: 115 days at most, so that a week's sum fits 64 bits for up to a thousand such blocks of a process."""


class ArmBlock(Struct):
    """A block of a pair."""

    time_ns: Time
    pair: Annotated[int, Meta(ge=0, le=MAX_PAIR)]
    arm: ArmNumber
    first_step: StepNumber
    durations_ns: Annotated[list[Duration], Meta(min_length=1, max_length=MAX_BLOCK)]
    function: FunctionNumber = 0


class Function(Struct):
    """A training function's name."""

    function: FunctionNumber
    name: NameText


class Model(Struct):
    """The model that the job trains."""

    fingerprint: NameText


_Error = float | Annotated[str, Meta(pattern=r"^(-?inf|nan|-?Infinity|NaN)$")] | None
"""A number in JSON; numbers that were not finite are strings."""


class ExecutableFacts(Struct):
    """The fields that are read of a cluster's executable."""

    kernel: NameText | None = None
    largest_error: _Error = None
    error_over_tolerance: _Error = None


class ClusterFacts(Struct):
    """The fields that are read of a cluster's facts."""

    state: ShortText | None = ""
    instances: Count | None = 1
    ops: Annotated[dict[NameText, Count], Meta(max_length=MAX_ENTRIES)] | None = None
    scopes: Annotated[list[_FactText], Meta(max_length=MAX_ENTRIES)] | None = None
    executables: Annotated[list[ExecutableFacts], Meta(max_length=MAX_ENTRIES)] | None = None
    kernel: NameText | None = None
    largest_error: _Error = None
    error_over_tolerance: _Error = None


class Cluster(Struct):
    """A cluster. Its facts are a ClusterFacts and any other fields that the plugin writes."""

    name: ClusterName
    facts: Facts


class Event(Struct):
    """An event of the job."""

    time_ns: Time
    kind: Annotated[str, Meta(min_length=1, max_length=64, pattern=f"^(?!{LOSS_EVENT}$)")]
    message: Message
    facts: Facts


class RevertFacts(Struct):
    """The fields that are read of the facts of an event that reverted a cluster."""

    cluster: Annotated[str, Meta(max_length=MAX_FACT_TEXT)] | None = None


class Loss(Struct):
    """How many records a process, or its spool after its end, lost."""

    time_ns: Time
    lost: Annotated[int, Meta(ge=0, le=MAX_LOST)]
    reason: Message | None = None
    after_death: bool = False


class LossFacts(Struct):
    """The facts of a LOSS_EVENT."""

    lost: Annotated[int, Meta(ge=0, le=MAX_LOST)] = 0
    after_death: bool = False


class EndFacts(Struct):
    """The fields that are read of a job's end."""

    overhead_ns: Duration = 0
    phase: ShortText | None = ""
    reason: Message | None = ""


class JobEnd(Struct):
    """A process's end. Its facts are an EndFacts and any other fields that the plugin writes."""

    time_ns: Time
    facts: Facts


# Made here, on the thread that imports this module: msgspec 0.22 builds what it knows of a type at its first use, and if two
# threads first use a type at the same time, the process crashes (seen; tests/telemetry/hostile/test_schema.py).
_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {}
for _each in (
    Format,
    Identity,
    ArmBlock,
    Function,
    Model,
    ClusterFacts,
    Cluster,
    Event,
    RevertFacts,
    Loss,
    LossFacts,
    JobEnd,
):
    _DECODERS[_each] = msgspec.json.Decoder(_each)
for _each in (*_DECODERS, Block, Job, ExecutableFacts, EndFacts):
    with contextlib.suppress(msgspec.ValidationError):
        msgspec.convert({}, _each)

_T = TypeVar("_T")


class InvalidRecordError(ValueError):
    """The record is not of its type; the text says where and why, and repeats nothing of the record."""


def decoded(body: bytes, wanted: type[_T]) -> _T:
    """The JSON in a record's body as an instance of `wanted`, one of this module's structs. Text that PostgreSQL refuses or that
    is too long is repaired if the field allows it. Raises InvalidRecordError."""
    if len(body) > MAX_RECORD_BYTES:
        raise InvalidRecordError(f"{len(body)} bytes; a record has at most {MAX_RECORD_BYTES}")
    if b"\\u0000" not in body:
        try:
            return _DECODERS[wanted].decode(body)  # type: ignore[no-any-return]
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass  # it may contain text that can be repaired
    try:
        loose = _mended(json.loads(body.decode("utf-8", "replace"), parse_constant=str, parse_float=_finite))
    except (ValueError, RecursionError) as error:
        raise InvalidRecordError(f"no JSON: {type(error).__name__}") from None
    return checked(_cut(loose, wanted), wanted)


def checked(value: object, wanted: type[_T]) -> _T:
    """`value`, made of JSON's types, as an instance of `wanted`. Raises InvalidRecordError."""
    try:
        return msgspec.convert(value, wanted)
    except (msgspec.ValidationError, RecursionError) as error:
        raise InvalidRecordError(str(error)) from None


def text_of(facts: object) -> str:
    """JSON text of facts that `decoded` has accepted."""
    return msgspec.json.encode(facts).decode()


def mended_text(text: str) -> str:
    """The text with each NUL and unpaired surrogate, which PostgreSQL refuses, replaced by U+FFFD."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _finite(text: str) -> float:
    found = float(text)
    if not math.isfinite(found):
        raise ValueError("a number beyond all")
    return found


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return mended_text(value)
    if isinstance(value, dict):
        return {mended_text(key): _mended(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_mended(entry) for entry in value]
    return value


def _free_lengths(wanted: Any) -> dict[str, int]:
    """The maximum lengths of a struct's free texts, by field."""
    found = {}
    for name, hint in typing.get_type_hints(wanted, include_extras=True).items():
        for each in (hint, *typing.get_args(hint)):
            for meta in getattr(each, "__metadata__", ()):
                if meta.extra == _FREE:
                    found[name] = meta.max_length
    return found


FREE_TEXT: dict[Any, dict[str, int]] = {
    each: _free_lengths(each) for each in (Job, Identity, Function, Model, Event, Loss, EndFacts, ClusterFacts)
}


def _cut(value: Any, wanted: Any) -> Any:
    """The record with its free texts, the texts in its facts, and its labels cut to their maximum lengths."""
    if not isinstance(value, dict):
        return value
    for name, length in FREE_TEXT.get(wanted, {}).items():
        if isinstance(value.get(name), str):
            value[name] = _shortened(value[name], length)
    if wanted is Identity and isinstance(value.get("job"), dict):
        job = value["job"] = _cut(value["job"], Job)
        if isinstance(job.get("labels"), dict):
            job["labels"] = {
                _shortened(key, MAX_LABEL_KEY): _shortened(text, MAX_LABEL_TEXT) if isinstance(text, str) else text
                for key, text in list(job["labels"].items())[:MAX_LABELS]
            }
    inner = {JobEnd: EndFacts, Cluster: ClusterFacts}.get(wanted)
    if isinstance(value.get("facts"), dict):
        value["facts"] = _cut_facts(value["facts"])
        if inner is not None:
            value["facts"] = _cut(value["facts"], inner)
    return value


def _cut_facts(value: Any) -> Any:
    if isinstance(value, str):
        return _shortened(value, MAX_FACT_TEXT)
    if isinstance(value, dict):
        return {key: _cut_facts(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_cut_facts(entry) for entry in value]
    return value


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
