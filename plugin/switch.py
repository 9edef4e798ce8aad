"""The switch between a job's two arms: its own graph, and the graph with Stitch ops beside it.

Every executor of TensorFlow's belongs to one arm. For `tf.function` and Keras the calling thread's FunctionCallOptions decide: the
plain arm has the user's own options, untouched; the stitched arm has a copy with one innocuous difference, so that TensorFlow keeps
a second executor beside the first. In a session a constant added to the fetches does the same. TensorFlow offers each new
executor's graph on the thread that called, where `offered` asks which arm that thread is in.
"""

from __future__ import annotations

import enum
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .program import Program


class Arm(enum.IntEnum):
    """Which graph a step runs. The numbers are those of the records (telemetry)."""

    PLAIN = 0
    STITCHED = 1

    __hash__ = int.__hash__  # Enum's own is written in Python


class _Thread(threading.local):
    program: Program | None = None
    arm: Arm = Arm.PLAIN


_thread = _Thread()

SESSION_MARK = "stitchfleet_stitched_arm"
"""Name of the constants whose fetch puts a session's step into the stitched arm; a number follows for each generation."""

# RewriterConfig.meta_optimizer_timeout_ms is 0 by default: no time-out. An hour and some milliseconds is as good as none, and makes
# a different key for the function's executor; the milliseconds count the generations of the stitched graph.
_TIMEOUT_MS = 3_600_000


def current() -> tuple[Program | None, Arm]:
    """The program and arm of the step that this thread is in; (None, PLAIN) outside steps."""
    return _thread.program, _thread.arm


class RunningStep:
    """`with RunningStep(program, arm)`: this thread runs a step. A class, since it costs a third of a generator's context manager."""

    __slots__ = ("arm", "program")

    def __init__(self, program: Program, arm: Arm) -> None:
        self.program, self.arm = program, arm

    def __enter__(self) -> None:
        _thread.program, _thread.arm = self.program, self.arm

    def __exit__(self, *error: object) -> None:
        _thread.program, _thread.arm = None, Arm.PLAIN


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


def optimizer_is_off(config_bytes: bytes) -> bool:
    """Whether the user's own options keep TensorFlow from offering graphs to any plugin."""
    from tensorflow.core.protobuf import config_pb2, rewriter_config_pb2

    config = config_pb2.ConfigProto()
    config.ParseFromString(config_bytes)
    rewrite = config.graph_options.rewrite_options
    return (
        bool(rewrite.disable_meta_optimizer) or rewrite.use_plugin_optimizers == rewriter_config_pb2.RewriterConfig.OFF
    )
