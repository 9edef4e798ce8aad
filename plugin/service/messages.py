"""The messages between trainer and compile service: lines of JSON over one socket, each of them a dataclass here.

    CompileRequest   a cluster at given shapes        -> Compiled, or Failed
    JudgeRequest     a bundle of a failed comparison  -> Judged, or (if the service is lost) Failed

An answer has the number of its request; answers come in any order. Both sides are from one installation, so a line that is not a
message is a bug: reading it raises MessageError.
"""

from __future__ import annotations

import base64
import json
import pathlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from stitchfleet.compiler.kernel.metadata import KernelError, KernelMetadata

from ..graph.to_hlo import Argument

if TYPE_CHECKING:
    from typing import TypeAlias


class MessageError(ValueError):
    """A line is not a message. The text says what was given."""


@dataclass(frozen=True)
class Sample:
    """Some elements of one input in the job's call. input: number of the op's input. value: their raw bytes, in the input's dtype."""

    input: int
    value: bytes

    @classmethod
    def of(cls, described: Mapping[str, Any]) -> Sample:
        """The sample in an entry of the op's request for a kernel. Raises KeyError, TypeError or ValueError for another form."""
        return cls(int(described["input"]), bytes.fromhex(described["value"]))


@dataclass(frozen=True)
class CompileRequest:
    """A request for a cluster's kernel.

    body: its function, a serialized FunctionDefLibrary. inputs: the op's, in order. changing: whether the same op has requested other
    shapes before. device: a GPU's figures (`targets.target_of_device`), None for the CPU. samples: elements of the call's inputs.
    fallback: the job's own operators as a function of values, if that differs from `body`, else empty.
    """

    cluster: str
    body: bytes
    inputs: tuple[Argument, ...]
    changing: bool = False
    device: Mapping[str, int | str] | None = None
    samples: tuple[Sample, ...] = ()
    fallback: bytes = b""

    def to_json(self) -> dict[str, Any]:
        """The message as a JSON object, which `of` reads."""
        return {
            "kind": "compile",
            "cluster": self.cluster,
            "body": base64.b64encode(self.body).decode(),
            "inputs": [argument.to_json() for argument in self.inputs],
            "changing": self.changing,
            "device": self.device,
            "samples": [{"input": sample.input, "value": sample.value.hex()} for sample in self.samples],
            "fallback": base64.b64encode(self.fallback).decode(),
        }

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> CompileRequest:
        """The message in the JSON object `said`. For another form it raises an error, which `request_of` and `answer_of` report
        as MessageError."""
        return cls(
            str(said["cluster"]),
            base64.b64decode(said["body"]),
            tuple(Argument.from_json(described) for described in said["inputs"]),
            bool(said["changing"]),
            said["device"],
            tuple(Sample.of(described) for described in said["samples"]),
            base64.b64decode(said["fallback"]),
        )


@dataclass(frozen=True)
class JudgeRequest:
    """A request for the float64 oracle's verdict. bundle: its folder."""

    bundle: pathlib.Path

    def to_json(self) -> dict[str, Any]:
        """The message as a JSON object, which `of` reads."""
        return {"kind": "judge", "bundle": str(self.bundle)}

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> JudgeRequest:
        """The message in the JSON object `said`. For another form it raises an error, which `request_of` and `answer_of` report
        as MessageError."""
        return cls(pathlib.Path(said["bundle"]))


@dataclass(frozen=True)
class Compiled:
    """A checked kernel in the cache. kernel_inputs: numbers of the op's inputs that the kernel takes, in its order. hlo: file of the
    HLO that it was compiled from, or ""."""

    library: pathlib.Path
    metadata: KernelMetadata
    kernel_inputs: tuple[int, ...]
    hlo: str = ""

    def to_json(self) -> dict[str, Any]:
        """The message as a JSON object, which `of` reads."""
        return {
            "kind": "compiled",
            "library": str(self.library),
            "metadata": asdict(self.metadata),
            "kernel_inputs": self.kernel_inputs,
            "hlo": self.hlo,
        }

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Compiled:
        """The message in the JSON object `said`. For another form it raises an error, which `request_of` and `answer_of` report
        as MessageError."""
        inputs = tuple(int(number) for number in said["kernel_inputs"])
        return cls(pathlib.Path(said["library"]), KernelMetadata.of(said["metadata"]), inputs, str(said["hlo"]))


@dataclass(frozen=True)
class Failed:
    """The request failed. line: the reason. ops: TensorFlow operators that cannot be lowered, if they are the reason."""

    line: str
    ops: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The message as a JSON object, which `of` reads."""
        return {"kind": "failed", "line": self.line, "ops": self.ops}

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Failed:
        """The message in the JSON object `said`. For another form it raises an error, which `request_of` and `answer_of` report
        as MessageError."""
        return cls(str(said["line"]), tuple(str(op) for op in said["ops"]))


@dataclass(frozen=True)
class Judged:
    """The oracle's verdict on a bundle. right: whether the kernel's error is within the bounds of a correct implementation. bounds:
    number of a float output -> how far apart two right results may be (absolute; bundle.judge_bundle). line: the verdict in words."""

    right: bool
    line: str
    bounds: Mapping[int, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The message as a JSON object, which `of` reads."""
        return {"kind": "judged", "right": self.right, "line": self.line, "bounds": dict(self.bounds)}

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Judged:
        """The message in the JSON object `said`. For another form it raises an error, which `request_of` and `answer_of` report
        as MessageError."""
        bounds = {int(output): float(bound) for output, bound in said["bounds"].items()}
        return cls(bool(said["right"]), str(said["line"]), bounds)


Request: TypeAlias = "CompileRequest | JudgeRequest"
Answer: TypeAlias = "Compiled | Failed | Judged"

_KINDS: dict[str, type[CompileRequest | JudgeRequest | Compiled | Failed | Judged]] = {
    "compile": CompileRequest,
    "judge": JudgeRequest,
    "compiled": Compiled,
    "failed": Failed,
    "judged": Judged,
}


def to_line(number: int, message: Request | Answer) -> bytes:
    """A message as a line of JSON. number: that of the request."""
    return json.dumps({"id": number, **message.to_json()}).encode() + b"\n"


def request_of(line: bytes) -> tuple[int, Request]:
    """Parses a line: (number, request). Raises MessageError."""
    number, message = _message_of(line)
    if not isinstance(message, (CompileRequest, JudgeRequest)):
        raise MessageError(f"given {type(message).__name__}, expected a request")
    return number, message


def answer_of(line: bytes) -> tuple[int, Answer]:
    """Parses a line: (number of the request, answer). Raises MessageError."""
    number, message = _message_of(line)
    if isinstance(message, (CompileRequest, JudgeRequest)):
        raise MessageError(f"given {type(message).__name__}, expected an answer")
    return number, message


def _message_of(line: bytes) -> tuple[int, Request | Answer]:
    try:
        said = json.loads(line)
        return int(said["id"]), _KINDS[said["kind"]].of(said)
    except (AttributeError, KeyError, TypeError, ValueError, KernelError) as error:
        raise MessageError(f"given {line[:200]!r}: {type(error).__name__}: {error}") from error
