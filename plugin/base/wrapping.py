"""Wraps methods of TensorFlow's and Keras' classes, so that the wrapper appears in no traceback and in no operator's stack.

TensorFlow removes the frames of its own files from tracebacks (traceback_utils.filter_traceback) and from the stacks that it shows
for an operator ("Detected at node ..."). A wrapper would remain there as a frame of ours. So its code object names the file and the
first line of the method that it wraps, and TensorFlow's filter removes it as it removes the method.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import CodeType, ModuleType
from typing import Any


def wrap(owner: type[Any] | ModuleType, name: str, make: Callable[[Any], Any]) -> bool:
    """Replaces the method (or function of a module) `name` of `owner` by `make(method)`, which must be a Python function. Returns
    False if it is wrapped already."""
    outer = getattr(owner, name)
    if getattr(outer, "_stitchfleet", False):
        return False
    refilter = _traceback_filter(outer)
    method = outer if refilter is None else outer.__wrapped__
    ours = make(method)
    ours.__code__ = _placed_in(ours.__code__, method)
    functools.update_wrapper(ours, method)
    replacement = ours if refilter is None else refilter(ours)
    replacement._stitchfleet = True
    setattr(owner, name, replacement)
    return True


def _traceback_filter(method: Any) -> Callable[[Any], Any] | None:
    """The decorator filter_traceback (TensorFlow's, or Keras' of the same name), if it is the outermost one of `method`; else
    None."""
    inner = getattr(method, "__wrapped__", None)
    code = getattr(method, "__code__", None)
    if inner is None or code is None or code.co_name != "error_handler":
        return None
    found: Callable[[Any], Any] | None = method.__globals__.get("filter_traceback")
    return found


def _placed_in(code: CodeType, method: Any) -> CodeType:
    """A copy of `code` that claims the file, name and first line of `method`; `code` itself if `method` is not a Python function."""
    original: CodeType | None = getattr(method, "__code__", None)
    if original is None:
        return code
    changes: dict[str, Any] = {_LINE_TABLE: _one_line(len(code.co_code))}
    if sys.version_info >= (3, 11):
        changes["co_qualname"] = original.co_qualname
    return code.replace(
        co_filename=original.co_filename, co_name=original.co_name, co_firstlineno=original.co_firstlineno, **changes
    )


_LINE_TABLE: str = "co_linetable" if sys.version_info >= (3, 10) else "co_lnotab"


def _one_line(code_bytes: int) -> bytes:
    """A line table (_LINE_TABLE) that places all instructions of a code object in its first line.

    code_bytes: length of its bytecode. The formats are CPython's: Objects/locations.md since 3.11 (one entry for up to eight
    instructions of two bytes: kind 13, no column, a line delta of 0), Objects/lnotab_notes.txt before: pairs of byte
    count and line delta in 3.10; in 3.9 each pair begins a new line, and without one all is the first line.
    """
    if sys.version_info >= (3, 11):
        units = code_bytes // 2
        entries = [min(8, units - start) for start in range(0, units, 8)]
        return b"".join(bytes([0x80 | 13 << 3 | count - 1, 0]) for count in entries)
    if _LINE_TABLE == "co_linetable":
        return b"".join(bytes([min(254, code_bytes - start), 0]) for start in range(0, code_bytes, 254))
    return b""
