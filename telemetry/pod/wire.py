"""The body that a shipper posts to the ingest server: segments of one spool, unchanged, one after the other.

    body  = MAGIC, then segments; compressed by gzip if Content-Encoding says so
    segment = length u32, little-endian | bytes

A body's MAGIC is its version; records in a segment carry checksums of their own. The answer is JSON: for each segment, in order, its
outcome. Standard library only: the sending side runs in the training pod.
"""

from __future__ import annotations

import enum
import gzip
import struct
import zlib
from collections.abc import Iterable

MAGIC = b"STITCHBATCH1\n"
PATH = "/v1/segments"
CONTENT_TYPE = "application/vnd.stitchfleet.segments"
MAX_BODY_BYTES = 32 << 20
"""The longest body that a server accepts, before and after decompression, in bytes."""
MAX_SEGMENTS = 1 << 14
"""Most segments of one batch."""
MAX_SEGMENT_BYTES = 4 << 20
"""Most bytes of a segment. A spool's writer seals one at 1 MiB, so a longer one is damaged."""
MAX_ANSWER_BYTES = 4 << 20
"""Most bytes that a sender reads of an answer."""
WORTH_COMPRESSING = 0.9
"""A body is sent compressed if compression leaves at most this share of it. That holds for durations that differ little, not for
noise."""
_LENGTH = struct.Struct("<I")


class WireError(ValueError):
    """The body is not valid; the text says why."""


class Outcome(str, enum.Enum):
    """What the server did with a segment."""

    STORED = "stored"
    """Its rows are committed, now or earlier."""
    DAMAGED = "damaged"
    """Nothing in it could be read; sending it again is useless."""
    FUTURE = "future"
    """It is in a format that the server does not know yet; keep it for a newer server."""


def encode(segments: Iterable[bytes]) -> bytes:
    """The body that holds these segments."""
    return MAGIC + b"".join(_LENGTH.pack(len(segment)) + segment for segment in segments)


def decode(body: bytes | bytearray | memoryview) -> list[memoryview]:
    """The segments of a body, as views of its memory. Raises WireError."""
    body = memoryview(body)
    if body[: len(MAGIC)] != MAGIC:
        if body[: len(MAGIC) - 2] == MAGIC[:-2]:
            version = bytes(body[len(MAGIC) - 2 :][:1]).decode("ascii", "replace")
            raise WireError(f"the body is of version {version}; this server reads version 1")
        raise WireError("the body is not a batch of segments")
    found: list[memoryview] = []
    position = len(MAGIC)
    while position < len(body):
        if position + _LENGTH.size > len(body):
            raise WireError("the body ends within a length")
        (length,) = _LENGTH.unpack_from(body, position)
        position += _LENGTH.size
        if position + length > len(body):
            raise WireError(f"the body ends within a segment of {length} bytes")
        if len(found) == MAX_SEGMENTS:
            raise WireError(f"the body has more than {MAX_SEGMENTS} segments")
        found.append(body[position : position + length])
        position += length
    return found


class TooLargeError(WireError):
    """The body is longer than is accepted after decompression."""


def decompressed(body: bytes | bytearray, most: int = MAX_BODY_BYTES) -> bytes:
    """The body, decompressed from gzip. most: bytes of the result; no more memory is taken. Raises TooLargeError if there would
    be more, and WireError if the body is not one complete gzip stream."""
    unpacker = zlib.decompressobj(wbits=31)
    try:
        found = unpacker.decompress(body, most)
        if not unpacker.eof and unpacker.decompress(unpacker.unconsumed_tail, 1):
            raise TooLargeError(f"the body is too large: more than {most} bytes, decompressed")
    except zlib.error as error:
        raise WireError(f"the body is not valid gzip: {error}") from None
    if not unpacker.eof:
        raise WireError("the body ends within its gzip")
    if unpacker.unused_data:
        raise WireError("something follows the body's gzip")
    return found


def compressed(body: bytes) -> bytes | None:
    """The body compressed by gzip at its fastest level; None if that does not pay."""
    found = gzip.compress(body, compresslevel=1, mtime=0)
    return found if len(found) <= WORTH_COMPRESSING * len(body) else None
