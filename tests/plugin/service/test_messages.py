"""The messages between trainer and compile service: what goes out on one side comes in on the other."""

from __future__ import annotations

import json
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stitchfleet.compiler.kernel.metadata import CheckReport, GpuLaunch, KernelMetadata, TensorType
from stitchfleet.plugin.graph.to_hlo import Argument
from stitchfleet.plugin.service.messages import (
    Answer,
    Compiled,
    CompileRequest,
    Failed,
    Judged,
    JudgeRequest,
    MessageError,
    Request,
    Sample,
    answer_of,
    request_of,
    to_line,
)

NUMBERS = st.integers(0, 1 << 40)
SHAPES = st.lists(st.integers(0, 1 << 33), max_size=4).map(tuple)
WORDS = st.text(max_size=20)
PAIRS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=3).map(tuple)
FLOATS = st.floats(allow_nan=False)
TENSORS = st.lists(st.builds(TensorType, st.sampled_from(["f32", "s64", "bf16"]), SHAPES), max_size=3).map(tuple)
LAUNCHES = st.builds(
    GpuLaunch,
    WORDS,
    NUMBERS,
    NUMBERS,
    NUMBERS,
    st.booleans(),
    st.booleans(),
    st.lists(st.tuples(st.sampled_from(["input", "output", "scratch"]), st.integers(0, 9)), max_size=3).map(tuple),
)
METADATA = st.builds(
    KernelMetadata,
    symbol=WORDS,
    inputs=TENSORS,
    outputs=TENSORS,
    scratch_bytes=NUMBERS,
    aliases=PAIRS,
    bytes_read=NUMBERS,
    bytes_written=NUMBERS,
    intermediate_bytes=NUMBERS,
    op_count=NUMBERS,
    phases=NUMBERS,
    parallel_phases=NUMBERS,
    estimated_ns=FLOATS,
    tolerances=st.lists(st.tuples(FLOATS, FLOATS), max_size=3).map(tuple),
    graph_digest=WORDS,
    generator=WORDS,
    compiler=WORDS,
    vector_symbols=st.lists(WORDS, max_size=2).map(tuple),
    check=st.builds(CheckReport, st.booleans(), st.lists(WORDS, max_size=2).map(tuple), FLOATS, st.booleans()),
    parameters=st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=3).map(tuple),
    launch=st.none() | LAUNCHES,
)
ARGUMENTS = st.builds(Argument, st.integers(1, 30), SHAPES, st.none() | st.binary(max_size=9))
PATHS = WORDS.filter(lambda text: "\0" not in text).map(pathlib.Path)
REQUESTS = st.builds(
    CompileRequest,
    WORDS,
    st.binary(max_size=40),
    st.lists(ARGUMENTS, max_size=3).map(tuple),
    st.booleans(),
    st.none() | st.dictionaries(WORDS, NUMBERS | WORDS, max_size=3),
    st.lists(st.builds(Sample, st.integers(0, 9), st.binary(max_size=9)), max_size=3).map(tuple),
    st.binary(max_size=9),
) | st.builds(JudgeRequest, PATHS)
ANSWERS = (
    st.builds(Compiled, PATHS, METADATA, st.lists(st.integers(0, 9), max_size=3).map(tuple), WORDS)
    | st.builds(Failed, WORDS, st.lists(WORDS, max_size=2).map(tuple))
    | st.builds(Judged, st.booleans(), WORDS, st.dictionaries(st.integers(0, 9), FLOATS, max_size=2))
)


@given(NUMBERS, REQUESTS)
def test_a_request_comes_in_as_it_went_out(number: int, request: Request) -> None:
    line = to_line(number, request)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert request_of(line) == (number, request)


@given(NUMBERS, ANSWERS)
def test_an_answer_comes_in_as_it_went_out(number: int, answer: Answer) -> None:
    line = to_line(number, answer)
    assert line.count(b"\n") == 1
    assert answer_of(line) == (number, answer)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"id": 7}',
        b'{"id": "seven", "kind": "judge", "bundle": "x"}',
        b'{"id": 7, "kind": "dance"}',
        b'{"id": 7, "kind": "compile", "cluster": "c"}',
        b'{"id": 7, "kind": "compiled", "library": "x", "metadata": {}, "kernel_inputs": [], "hlo": ""}',
        b'{"id": 7, "kind": "compiled", "library": "x", "metadata": 3, "kernel_inputs": [], "hlo": ""}',
    ],
)
def test_what_is_no_message_is_said_to_be_none(line: bytes) -> None:
    for read in (request_of, answer_of):
        with pytest.raises(MessageError) as raised:
            read(line)
        assert len(str(raised.value).splitlines()) == 1


def test_a_request_is_no_answer_nor_an_answer_a_request() -> None:
    with pytest.raises(MessageError, match="given JudgeRequest, expected an answer"):
        answer_of(to_line(1, JudgeRequest(pathlib.Path("x"))))
    with pytest.raises(MessageError, match="given Failed, expected a request"):
        request_of(to_line(1, Failed("so")))


@given(REQUESTS | ANSWERS)
def test_a_field_that_is_missing_is_a_fault_and_not_a_default(message: Request | Answer) -> None:
    said = json.loads(to_line(1, message))
    for key in said:
        line = json.dumps({name: value for name, value in said.items() if name != key}).encode()
        with pytest.raises(MessageError):
            (request_of if isinstance(message, CompileRequest | JudgeRequest) else answer_of)(line)
