"""Steps of v1 sessions: one `run` of the same fetches is one step of its program.

A step enters the stitched arm when a constant of ours is among its fetches: TensorFlow then uses an executor of its own for it
(prototype: two executors of one graph side by side). A MonitoredSession finalizes its graph before the first step, so a
SessionRunHook, added by itself, makes the constants in `begin`, spare ones for later generations included; a plain Session gets
them at its first step that needs them.
"""

from __future__ import annotations

import functools
import itertools
import threading
import weakref
from typing import Any

from . import switch
from .containment import contained
from .job import GENERATIONS, Job
from .program import Program, Ticket
from .switch import SESSION_MARK, Arm


class _Thread(threading.local):
    busy = False
    pending: Ticket | None = None
    """The step that the hook has begun and the session's `run` is about to do."""


_thread = _Thread()
_numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
_next_number = itertools.count()


def _mark_name(generation: int) -> str:
    return f"{SESSION_MARK}_{generation}"


def _make_marks(graph: Any) -> None:
    """Adds the constants of all generations to a graph that may still grow."""
    import tensorflow as tf

    with graph.as_default(), tf.control_dependencies(None), tf.device("/cpu:0"):
        for generation in range(GENERATIONS):
            tf.constant(generation, name=_mark_name(generation))


def _find_mark(graph: Any, generation: int) -> Any | None:
    try:
        return graph.get_tensor_by_name(f"{_mark_name(generation)}:0")
    except KeyError:
        return None


def _fetch_names(fetches: Any) -> tuple[str, ...]:
    """The names of all that a `run` fetches, whatever structure they come in (hooks are keys of MonitoredSession's dict)."""
    names: list[str] = []
    waiting = [fetches]
    while waiting:
        fetch = waiting.pop()
        if fetch is None:
            continue
        if isinstance(fetch, dict):
            waiting += list(fetch.values())
        elif isinstance(fetch, (list, tuple)):
            waiting += list(fetch)
        elif hasattr(fetch, "fetches") and not hasattr(fetch, "op"):  # SessionRunArgs
            waiting.append(fetch.fetches)
        else:
            names.append(str(getattr(fetch, "name", fetch)))
    return tuple(sorted(names))


def _number_of(graph: Any) -> int:
    """Tells graphs apart, also one from another at whose address it is now."""
    number = _numbers.get(graph)
    return _numbers.setdefault(graph, next(_next_number)) if number is None else number


def _program_of(job: Job, graph: Any, names: tuple[str, ...]) -> Program:
    return job.program_of_fetches((_number_of(graph), names), names[0].split(":")[0] if names else "session")


def make_hook(job: Job) -> Any:
    """The SessionRunHook for one MonitoredSession."""
    import tensorflow as tf

    class StitchfleetHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
        """Tells each step its arm; contained."""

        @contained(None)
        def begin(self) -> None:
            _make_marks(tf.compat.v1.get_default_graph())

        @contained(None)
        def before_run(self, run_context: Any) -> Any:
            names = _fetch_names(run_context.original_args.fetches)
            graph = run_context.session.graph
            program = _program_of(job, graph, names)
            ticket = job.begin(program)
            if ticket is None:
                return None
            _thread.pending = ticket
            if ticket.arm is Arm.PLAIN:
                return None
            mark = _find_mark(graph, program.generation)
            if mark is None:
                program.refuse("the session's graph was finalized before stitchfleet could prepare it")
                ticket.arm = Arm.PLAIN
                return None
            return tf.compat.v1.train.SessionRunArgs(mark)

    return StitchfleetHook()


def keep_out_of_files(graph_class: type[Any]) -> None:
    """Leaves our constants out of what Python serializes of a graph: graph.pbtxt, meta graphs, SavedModels. Sessions do not go
    through Python for their graph, so they still have them."""
    original = graph_class._as_graph_def
    if getattr(original, "_stitchfleet", False):
        return

    @contained(None)
    def strip(serialized: Any) -> None:
        ours = [i for i, node in enumerate(serialized.node) if node.name.startswith(SESSION_MARK)]
        for i in reversed(ours):
            del serialized.node[i]

    @functools.wraps(original)
    def as_graph_def(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        strip(result[0])
        return result

    as_graph_def._stitchfleet = True  # type: ignore[attr-defined]
    graph_class._as_graph_def = as_graph_def


def install(job: Job, session_class: type[Any], monitored_session_class: type[Any]) -> None:
    """Wraps the `run` of v1 sessions and adds the hook to every MonitoredSession; once a process."""
    original_run = session_class.run
    if getattr(original_run, "_stitchfleet", False):
        return
    seen_executors: set[tuple[int, tuple[str, ...]]] = set()

    @contained(None)
    def begin(session: Any, fetches: Any) -> tuple[Ticket, Any] | None:
        pending, _thread.pending = _thread.pending, None
        names = _fetch_names(fetches)
        graph = session.graph
        mark = None
        if pending is None:
            program = _program_of(job, graph, names)
            ticket = job.begin(program)
            if ticket is None:
                return None
            if ticket.arm is Arm.STITCHED:
                mark = _find_mark(graph, program.generation)
                if mark is None and not graph.finalized:
                    _make_marks(graph)
                    mark = _find_mark(graph, program.generation)
                if mark is None:
                    program.refuse("the session's graph is finalized")
                    ticket.arm = Arm.PLAIN
        else:
            ticket = pending
        # Hooks of the user's change the fetches from step to step, and each new set builds an executor: not a step to count.
        executor = (_number_of(graph), (*names, str(ticket.arm)))
        if executor not in seen_executors:
            seen_executors.add(executor)
            ticket.counted = False
        return ticket, mark

    @contained(None)
    def end(ticket: Ticket) -> None:
        job.end(ticket)

    @functools.wraps(original_run)
    def run(self: Any, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        if _thread.busy:
            return original_run(self, fetches, feed_dict, options, run_metadata)
        begun = begin(self, fetches)
        if begun is None:
            return original_run(self, fetches, feed_dict, options, run_metadata)
        ticket, mark = begun
        _thread.busy = True
        try:
            with switch.RunningStep(ticket.program, ticket.arm):
                if mark is None:
                    result = original_run(self, fetches, feed_dict, options, run_metadata)
                else:
                    result, _ = original_run(self, [fetches, mark], feed_dict, options, run_metadata)
        finally:
            _thread.busy = False
        end(ticket)
        return result

    run._stitchfleet = True  # type: ignore[attr-defined]
    session_class.run = run

    original_init = monitored_session_class.__init__

    @contained(None)
    def hook() -> Any:
        return make_hook(job)

    @functools.wraps(original_init)
    def init(self: Any, session_creator: Any, hooks: Any, *args: Any, **kwargs: Any) -> None:
        ours = hook()
        original_init(self, session_creator, [*(hooks or []), ours] if ours is not None else hooks, *args, **kwargs)

    monitored_session_class.__init__ = init
