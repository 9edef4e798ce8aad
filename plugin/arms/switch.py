"""The switch between a job's two arms: its own graph, and the graph with Stitch ops beside it.

Each of TensorFlow's executors belongs to one arm. For `tf.function` and Keras the calling thread's FunctionCallOptions select it: the
plain arm uses the user's own options, unchanged; the stitched arm uses a copy with one harmless difference, so that TensorFlow keeps
a second executor beside the first. In a session a constant added to the fetches does the same. TensorFlow offers the graph of each
new executor on the calling thread, where `Stitcher.offered` asks for the arm of that thread.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import threading
from typing import Any

from ..base.wrapping import wrap
from ..versions.places import TraceCall
from .owner import Owner
from .passes import passes_of


class Arm(enum.IntEnum):
    """Which graph a step runs. The numbers are those of the records (telemetry)."""

    PLAIN = 0
    STITCHED = 1

    __hash__ = int.__hash__  # Enum's own is written in Python


class _Thread(threading.local):
    program: Owner | None = None
    arm: Arm = Arm.PLAIN
    options: Any = None
    """The user's own FunctionCallOptions, if the step runs with the stitched arm's copy."""
    call: tuple[TraceCall, Any, Any] | None = None
    """The traced function that this thread is passing to the runtime: (its TraceCall, the first two arguments of that method),
    from which TraceCall.name derives its name."""


_thread = _Thread()

SESSION_MARK = "stitchfleet_stitched_arm"
"""Name of the constants whose fetch puts a session's step into the stitched arm; a number follows for each generation."""

# RewriterConfig.meta_optimizer_timeout_ms is 0 by default: no time-out. An hour and some milliseconds is as good as none, and gives
# the function's executor a different key; the milliseconds count the generations of the stitched graph.
_TIMEOUT_MS = 3_600_000


def current() -> tuple[Owner | None, Arm]:
    """The program and arm of the step that this thread is running; (None, PLAIN) outside steps."""
    return _thread.program, _thread.arm


def passes() -> int:
    """In how many passes TensorFlow optimizes the program's own graph that is being offered on this thread (passes.py)."""
    if _thread.program is not None and _thread.program.kind == "session":
        return _thread.program.passes
    return _passes_of(_function_options().config_proto_serialized or b"")


def executor_name() -> str:
    """A name of the executor that TensorFlow builds on this thread: unique in the process, equal in both arms; "" if no traced
    function is being called.

    An executor belongs to one trace of a function, a device scope and the user's options (TensorFlow's key for a function's kernel).
    """
    if _thread.call is None:
        return ""
    trace_call, *arguments = _thread.call
    from tensorflow.python.eager import context

    options = _function_options()
    text = repr((context.context().device_name, options.executor_type, options.config_proto_serialized))
    return f"{trace_call.name(*arguments)}/{hashlib.sha256(text.encode()).hexdigest()[:16]}"


@functools.lru_cache(maxsize=16)
def _passes_of(serialized: bytes) -> int:
    from tensorflow.core.protobuf import config_pb2

    return passes_of(config_pb2.ConfigProto.FromString(serialized))


def _function_options() -> Any:
    """The user's own FunctionCallOptions on this thread."""
    from tensorflow.python.eager import context

    return context.context().function_call_options if _thread.options is None else _thread.options


class RunningStep:
    """`with RunningStep(program, arm)`: the calling thread runs a step of `program` in `arm`. It is a class because a
    generator-based context manager takes three times as long.

    options: the user's FunctionCallOptions, if the arm replaces them.
    """

    __slots__ = ("arm", "options", "program")

    def __init__(self, program: Owner, arm: Arm, options: Any = None) -> None:
        self.program, self.arm, self.options = program, arm, options

    def __enter__(self) -> None:
        _thread.program, _thread.arm, _thread.options = self.program, self.arm, self.options

    def __exit__(self, *error: object) -> None:
        _thread.program, _thread.arm, _thread.options = None, Arm.PLAIN, None


def install(trace_call: TraceCall) -> None:
    """Wraps TensorFlow's `trace_call`, so that each thread notes which traced function it calls, for `executor_name`. Call it
    once per process."""

    def make(original: Any) -> Any:
        def call_function(self: Any, first: Any, *args: Any, **kwargs: Any) -> Any:
            outer, _thread.call = _thread.call, (trace_call, self, first)
            try:
                return original(self, first, *args, **kwargs)
            finally:
                _thread.call = outer

        return call_function

    wrap(trace_call.owner, trace_call.method, make)


class FunctionOptions:
    """The stitched arm's FunctionCallOptions, derived from the user's and cached until those change."""

    def __init__(self) -> None:
        self._cached: dict[tuple[bytes | str, str | None, int], Any] = {}

    def stitched(self, base: Any, generation: int) -> Any:
        """A copy of the FunctionCallOptions `base` that selects the stitched executor of a generation."""
        from tensorflow.core.protobuf import config_pb2
        from tensorflow.python.eager import context

        serialized = base.config_proto_serialized or b""
        key = (serialized, base.executor_type, generation)
        found = self._cached.get(key)
        if found is None:
            config = config_pb2.ConfigProto()
            config.ParseFromString(serialized)
            config.graph_options.rewrite_options.meta_optimizer_timeout_ms = _TIMEOUT_MS + generation
            found = context.FunctionCallOptions(executor_type=base.executor_type, config_proto=config)
            self._cached[key] = found
        return found
