"""Steps of `tf.function` (and so of Keras): the outermost call of a function from eager code is one step of its program."""

from __future__ import annotations

import functools
import threading
import time
from typing import Any

from . import switch
from .containment import contained
from .job import Job
from .program import Program, Ticket
from .switch import Arm, FunctionOptions


class _Thread(threading.local):
    busy = False
    """A step is under way on this thread: calls inside it are part of it."""


def install(job: Job, function_class: type[Any]) -> None:
    """Wraps the `__call__` of TensorFlow's polymorphic function class, once a process."""
    from tensorflow.python.eager import context

    original = function_class.__call__
    if getattr(original, "_stitchfleet", False):
        return
    options = FunctionOptions()
    thread = _Thread()

    @contained(None)
    def begin(function: Any) -> Program | tuple[Program, Ticket, Any] | None:
        """None: not a step of ours. A Program alone: nothing to decide about its steps. Else the ticket and the arm's options."""
        if not context.executing_eagerly():
            return None
        program = job.program_of(function)
        if program is None or (program.steady and not job.is_forked_child):
            return program
        ticket = job.begin(program)
        if ticket is None:
            return None
        if ticket.arm is Arm.PLAIN:
            return program, ticket, None
        base = context.context().function_call_options
        return program, ticket, (base, options.stitched(base, program.generation))

    @contained(None)
    def end(ticket: Ticket) -> None:
        job.end(ticket)

    @contained(None)
    def book_steady(program: Program, start_ns: int) -> None:
        job.book_steady(program, time.perf_counter_ns() - start_ns)

    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if thread.busy:
            return original(self, *args, **kwargs)
        begun = begin(self)
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
        program, ticket, chosen = begun
        thread.busy = True
        try:
            with switch.RunningStep(program, ticket.arm):
                if chosen is None:
                    result = original(self, *args, **kwargs)
                else:
                    base, stitched = chosen
                    here = context.context()
                    here.function_call_options = stitched
                    try:
                        result = original(self, *args, **kwargs)
                    finally:
                        here.function_call_options = base
        finally:
            thread.busy = False
        end(ticket)
        return result

    call._stitchfleet = True  # type: ignore[attr-defined]
    function_class.__call__ = call
