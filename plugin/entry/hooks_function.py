"""Steps of traced functions (and so of Keras): the outermost call from eager code is one step of its program.

There are two ways to call one: the call of a `tf.function`, and the call of one of its traces (get_concrete_function, a SavedModel's
signature, the backward pass of a function under an eager GradientTape). The first calls the second, on the same thread.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import Any

from ..arms import switch
from ..arms.switch import Arm, FunctionOptions
from ..base.containment import contained
from ..base.wrapping import wrap
from ..job.job import Job
from ..job.program import Program, Ticket

_TRACE_NAME = re.compile(r"^__(?P<kind>inference|forward|backward)_(?P<name>.*?)_\d+$")


class _Thread(threading.local):
    busy = False
    """Whether a step is running on this thread; calls inside it are part of it."""


def install(job: Job, function_class: type[Any], concrete_function_class: type[Any]) -> None:
    """Wraps the calls of TensorFlow's polymorphic functions and of their traces. Call it once per process."""
    from tensorflow.python.eager import context

    options = FunctionOptions()
    thread = _Thread()

    @contained(None)
    def begin(program_of: Callable[[Any], Program], function: Any) -> Program | tuple[Ticket, Any] | None:
        """Begins a step. Returns None if the call is not a step, the Program alone if its steps need no decision, else the ticket
        and the options of its arm."""
        if not context.executing_eagerly():
            return None
        program = program_of(function)
        if program.steady and not job.is_forked_child:
            return program
        ticket = job.begin(program)
        if ticket is None:
            return None
        if ticket.arm is Arm.PLAIN:
            return ticket, None
        base = context.context().function_call_options
        return ticket, (base, options.stitched(base, ticket.generation))

    @contained(None)
    def end(ticket: Ticket) -> None:
        job.end(ticket)

    @contained(None)
    def book_steady(program: Program, start_ns: int) -> None:
        job.book_steady(program, time.perf_counter_ns() - start_ns)

    def as_steps(program_of: Callable[[Any], Program]) -> Callable[[Any], Any]:
        def make(original: Any) -> Any:
            def call(self: Any, *args: Any, **kwargs: Any) -> Any:
                if thread.busy:
                    return original(self, *args, **kwargs)
                begun = begin(program_of, self)
                if begun is None:
                    return original(self, *args, **kwargs)
                if isinstance(begun, Program):
                    thread.busy = True
                    start_ns = time.perf_counter_ns()
                    try:
                        result = original(self, *args, **kwargs)
                    finally:
                        thread.busy = False
                    book_steady(begun, start_ns)
                    return result
                ticket, chosen = begun
                thread.busy = True
                try:
                    if chosen is None:
                        with switch.RunningStep(ticket.program, ticket.arm):
                            result = original(self, *args, **kwargs)
                    else:
                        base, stitched = chosen
                        here = context.context()
                        here.function_call_options = stitched
                        try:
                            with switch.RunningStep(ticket.program, ticket.arm, base):
                                result = original(self, *args, **kwargs)
                        finally:
                            here.function_call_options = base
                finally:
                    thread.busy = False
                end(ticket)
                return result

            return call

        return make

    wrap(function_class, "__call__", as_steps(lambda function: job.program_of(function, _function_name(function))))
    wrap(
        concrete_function_class,
        "_call_flat",
        as_steps(lambda trace: job.program_of(trace, _trace_name(trace))),
    )


def _function_name(function: Any) -> str:
    return str(getattr(function, "_name", None) or getattr(function, "__name__", "function"))


def _trace_name(trace: Any) -> str:
    """The user's name of the function that was traced; for its backward pass "gradient of" and that name."""
    name = trace.name.decode() if isinstance(trace.name, bytes) else str(trace.name)
    is_gradient = False
    while (found := _TRACE_NAME.match(name)) is not None:  # a backward pass is traced under its forward pass's name
        is_gradient |= found["kind"] == "backward"
        name = found["name"]
    return f"gradient of {name}" if is_gradient else name
