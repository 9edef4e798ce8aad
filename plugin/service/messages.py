"""What trainer and compile service say to each other: lines of JSON over one socket, each a dataclass here on either side.

    CompileRequest   a cluster at given shapes        -> Compiled, or Failed
    JudgeRequest     a bundle of a failed comparison  -> Judged, or (where the service is lost) Failed

A request's number comes back with its answer; answers come in any order. Both sides are of one installation, so a line that is no
message is a fault of the program: reading it raises MessageError.
"""

from __future__ import annotations

import base64
import json
import pathlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

from stitchfleet.compiler.kernel.metadata import KernelError, KernelMetadata

from ..graph.to_hlo import Argument


class MessageError(ValueError):
    """A line that is no message; the text says what was given."""


@dataclass(frozen=True)
class Sample:
    """Some of the numbers that the job gave an input: the number of the op's input, and raw bytes of its dtype."""

    input: int
    value: bytes

    @classmethod
    def of(cls, described: Mapping[str, Any]) -> Sample:
        """Of what the op's request for a kernel says."""
        return cls(int(described["input"]), bytes.fromhex(described["value"]))


@dataclass(frozen=True)
class CompileRequest:
    """A cluster to make a kernel of. body: its FunctionDefLibrary. inputs: the op's, in order. changing: the same op has asked for
    other shapes before. device: a GPU's figures (`targets.target_of_device`), None for the processor. samples: of the call's inputs.
    fallback: the job's own operators as a function of values, where `body` is not that, else empty."""

    cluster: str
    body: bytes
    inputs: tuple[Argument, ...]
    changing: bool = False
    device: Mapping[str, int | str] | None = None
    samples: tuple[Sample, ...] = ()
    fallback: bytes = b""

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": "compile",
            "cluster": self.cluster,
            "body": base64.b64encode(self.body).decode(),
            "inputs": [one.to_json() for one in self.inputs],
            "changing": self.changing,
            "device": self.device,
            "samples": [{"input": one.input, "value": one.value.hex()} for one in self.samples],
            "fallback": base64.b64encode(self.fallback).decode(),
        }

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> CompileRequest:
        return cls(
            str(said["cluster"]),
            base64.b64decode(said["body"]),
            tuple(Argument.from_json(one) for one in said["inputs"]),
            bool(said["changing"]),
            said["device"],
            tuple(Sample.of(one) for one in said["samples"]),
            base64.b64decode(said["fallback"]),
        )


@dataclass(frozen=True)
class JudgeRequest:
    """A bundle's folder, for the float64 oracle."""

    bundle: pathlib.Path

    def to_json(self) -> dict[str, Any]:
        return {"kind": "judge", "bundle": str(self.bundle)}

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> JudgeRequest:
        return cls(pathlib.Path(said["bundle"]))


@dataclass(frozen=True)
class Compiled:
    """A checked kernel in the cache. kernel_inputs: which of the op's inputs are the kernel's, in order. hlo: the file of what it was
    compiled from, or ""."""

    library: pathlib.Path
    metadata: KernelMetadata
    kernel_inputs: tuple[int, ...]
    hlo: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": "compiled",
            "library": str(self.library),
            "metadata": asdict(self.metadata),
            "kernel_inputs": self.kernel_inputs,
            "hlo": self.hlo,
        }

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Compiled:
        inputs = tuple(int(number) for number in said["kernel_inputs"])
        return cls(pathlib.Path(said["library"]), KernelMetadata.of(said["metadata"]), inputs, str(said["hlo"]))


@dataclass(frozen=True)
class Failed:
    """No answer of the kind that was asked for: one line, and the TensorFlow operators that cannot be lowered."""

    line: str
    ops: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"kind": "failed", "line": self.line, "ops": self.ops}

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Failed:
        return cls(str(said["line"]), tuple(str(op) for op in said["ops"]))


@dataclass(frozen=True)
class Judged:
    """The oracle's word on a bundle. right: the kernel is within what any correct implementation may do. bounds: the absolute error
    bound of each output that was found too tight, by its number."""

    right: bool
    line: str
    bounds: Mapping[int, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"kind": "judged", "right": self.right, "line": self.line, "bounds": dict(self.bounds)}

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Judged:
        bounds = {int(output): float(bound) for output, bound in said["bounds"].items()}
        return cls(bool(said["right"]), str(said["line"]), bounds)


Request: TypeAlias = CompileRequest | JudgeRequest
Answer: TypeAlias = Compiled | Failed | Judged

_KINDS: dict[str, type[CompileRequest | JudgeRequest | Compiled | Failed | Judged]] = {
    "compile": CompileRequest,
    "judge": JudgeRequest,
    "compiled": Compiled,
    "failed": Failed,
    "judged": Judged,
}


def to_line(number: int, message: Request | Answer) -> bytes:
    """The line of a message, with the number of its request."""
    return json.dumps({"id": number, **message.to_json()}).encode() + b"\n"


def request_of(line: bytes) -> tuple[int, Request]:
    """A request and its number. Raises MessageError."""
    number, message = _message_of(line)
    if not isinstance(message, CompileRequest | JudgeRequest):
        raise MessageError(f"given {type(message).__name__}, expected a request")
    return number, message


def answer_of(line: bytes) -> tuple[int, Answer]:
    """An answer and its request's number. Raises MessageError."""
    number, message = _message_of(line)
    if isinstance(message, CompileRequest | JudgeRequest):
        raise MessageError(f"given {type(message).__name__}, expected an answer")
    return number, message


def _message_of(line: bytes) -> tuple[int, Request | Answer]:
    try:
        said = json.loads(line)
        return int(said["id"]), _KINDS[said["kind"]].of(said)
    except (AttributeError, KeyError, TypeError, ValueError, KernelError) as error:
        raise MessageError(f"given {line[:200]!r}: {type(error).__name__}: {error}") from error
