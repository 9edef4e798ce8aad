"""Steps of v1 sessions: one run of a set of fetches is one step of its program, through any of these methods.

    run                               called by MonitoredSession, Estimator, `eval` and users
    _call_tf_sessionrun               what `make_callable` returns goes straight there; so does `run`, within its step
    _make_callable_from_options       Keras' models after `disable_v2_behavior()`: the runtime is given all fetches beforehand
    partial_run                       deprecated, and left plain: a step is spread over several calls

A step runs in the stitched arm if a constant of ours is among its fetches: TensorFlow then builds a second executor beside the first.
A MonitoredSession finalizes its graph before the first step, so a SessionRunHook, which we add, makes the constants in `begin`,
including spare ones for later generations; a plain Session gets them at the first step that needs them. A session of a server
(tf.distribute.Server, as with parameter servers) stays plain: the server prepares its graphs itself, and sends parts of them to other
processes, which do not have the stitch ops.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from typing import Any

from ..arms import switch
from ..arms.passes import passes_of
from ..arms.switch import SESSION_MARK, Arm
from ..base.containment import contained
from ..base.edges import node_of
from ..base.wrapping import wrap
from ..job.job import GENERATIONS, Job
from ..job.program import Program, Ticket
from ..ranks.collectives import fetches_steps_per_collective


class _Thread(threading.local):
    busy = False
    pending: Ticket | None = None
    """The step that the hook has begun and that the session's `run` will execute."""


PARTIAL = "partial_run"
OF_A_SERVER = "its session is a server's, which hands parts of the graph to other processes"
_thread = _Thread()
_numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
_next_number = itertools.count()
_fills_a_queue: weakref.WeakKeyDictionary[Any, dict[tuple[str, ...], bool]] = weakref.WeakKeyDictionary()
"""Graph -> names of a run's targets -> the result of `_only_fills_a_queue`."""


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
    """Sorted names of all fetches of a `run`, in any nested structure (hooks are keys of MonitoredSession's dict)."""
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
    """A number that identifies a graph in this process, even if an earlier graph had the same address."""
    number = _numbers.get(graph)
    return _numbers.setdefault(graph, next(_next_number)) if number is None else number


def _name_of(names: tuple[str, ...]) -> str:
    return node_of(names[0]) if names else "session"


def _program_of(job: Job, graph: Any, names: tuple[str, ...]) -> Program:
    number = _number_of(graph)
    program = job.program_of_fetches((number, names), _name_of(names), graph)
    if program.graph is None:
        program.graph = number
        if job.ranks is not None:
            program.steps_per_collective = _steps_per_collective(graph, names, job.stitcher.workers)
    return program


def _steps_per_collective(graph: Any, names: tuple[str, ...], workers: int) -> int:
    try:
        return fetches_steps_per_collective(graph, names, workers)
    except (KeyError, ValueError):  # a fetch that TensorFlow will reject, or interpret differently
        return 0


def _only_fills_a_queue(graph: Any, names: tuple[str, ...]) -> bool:
    """Whether a run of these operations is a queue runner's, which waits for space in its queue, so that its time says nothing.
    The result for each set of operations is cached, since operations do not change."""
    known = _fills_a_queue.setdefault(graph, {})
    if names not in known:
        known[names] = all(graph.get_operation_by_name(name).type.startswith("QueueEnqueue") for name in names)
    return known[names]


def make_hook(job: Job) -> Any:
    """The SessionRunHook for one MonitoredSession."""
    import tensorflow as tf

    class StitchfleetHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
        """Begins each step and adds its arm's constant to the fetches. Its methods are contained."""

        @contained(None)
        def begin(self) -> None:
            _make_marks(tf.compat.v1.get_default_graph())

        @contained(None)
        def before_run(self, run_context: Any) -> Any:
            names = _fetch_names(run_context.original_args.fetches)
            graph = run_context.session.graph
            program = _program_of(job, graph, names)
            if run_context.session.sess_str:
                program.refuse(OF_A_SERVER)
            ticket = job.begin(program)
            if ticket is None:
                return None
            _thread.pending = ticket
            if ticket.arm is Arm.PLAIN:
                return None
            mark = _find_mark(graph, ticket.generation)
            if mark is None:
                program.refuse("the session's graph was finalized before stitchfleet could prepare it")
                ticket.arm = Arm.PLAIN
                return None
            return tf.compat.v1.train.SessionRunArgs(mark)

    return StitchfleetHook()


def hide_marks(graph_class: type[Any]) -> None:
    """Hides our constants from what Python serializes of a graph (graph.pbtxt, meta graphs, SavedModels) and from the list of its
    operations. Sessions do not read their graph through Python, so they still have the constants."""

    @contained(None)
    def strip(serialized: Any) -> None:
        ours = [i for i, node in enumerate(serialized.node) if node.name.startswith(SESSION_MARK)]
        for i in reversed(ours):
            del serialized.node[i]

    def make_serializer(original: Any) -> Any:
        def as_graph_def(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(self, *args, **kwargs)
            strip(result[0])
            return result

        return as_graph_def

    def make_list(original: Any) -> Any:
        def get_operations(self: Any) -> Any:
            return [operation for operation in original(self) if not operation.name.startswith(SESSION_MARK)]

        return get_operations

    wrap(graph_class, "_as_graph_def", make_serializer)
    wrap(graph_class, "get_operations", make_list)


class _Running(switch.RunningStep):
    """`with _Running(job, ticket)`: this thread runs a step that has begun. The step is booked at the end, unless its code raises.

    A context manager leaves no frame in a user's traceback, so all ways to run a step use it.
    """

    __slots__ = ("_job", "_ticket")

    def __init__(self, job: Job, ticket: Ticket) -> None:
        super().__init__(ticket.program, ticket.arm)
        self._job, self._ticket = job, ticket

    def __enter__(self) -> None:
        _thread.busy = True
        super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        _thread.busy = False
        if error[0] is None:
            self._end()

    @contained(None)
    def _end(self) -> None:
        self._job.end(self._ticket)


class _SessionSteps:
    """Begins and ends the steps of v1 sessions."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._seen_executors: set[tuple[int, tuple[str, ...]]] = set()

    def begin(self, session: Any, names: tuple[str, ...]) -> Ticket | None:
        """Begins a step that fetches `names`, unless the hook has begun it already. Returns None if the run is not a step."""
        graph, (pending, _thread.pending) = session.graph, (_thread.pending, None)
        ticket = self._begun(session, names) if pending is None else pending
        if ticket is None:
            return None
        if pending is None and ticket.arm is Arm.STITCHED and self.mark_of(graph, ticket) is None:
            ticket.program.refuse("the session's graph is finalized")
            ticket.arm = Arm.PLAIN
        # A user's hooks may change the fetches from step to step, and each new set builds an executor: such a step is not counted.
        executor = (_number_of(graph), (*names, str(ticket.arm)))
        if executor not in self._seen_executors:
            self._seen_executors.add(executor)
            ticket.counted = False
            if session._config is not None:
                ticket.program.passes = passes_of(session._config)
        return ticket

    def _begun(self, session: Any, names: tuple[str, ...]) -> Ticket | None:
        program = _program_of(self.job, session.graph, names)
        if session.sess_str:
            program.refuse(OF_A_SERVER)
        return self.job.begin(program)

    def mark_of(self, graph: Any, ticket: Ticket) -> Any | None:
        """The constant whose fetch selects the stitched arm; None if the graph has none and is finalized."""
        mark = _find_mark(graph, ticket.generation)
        if mark is None and not graph.finalized:
            _make_marks(graph)
            mark = _find_mark(graph, ticket.generation)
        return mark


class _Callable:
    """Wraps what `_make_callable_from_options` returns: one of the runtime's callables, and a second one for the stitched arm.

    Everything except calls is passed to the first. make(options): makes one of the runtime's callables.
    """

    def __init__(self, steps: _SessionSteps, session: Any, options: Any, make: Any) -> None:
        self._stitchfleet = (steps, session, options, make)
        self._stitchfleet_plain = make(options)
        self._stitchfleet_arms: dict[str, Any] = {}
        """Name of a mark -> the callable that also fetches it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_stitchfleet_plain"], name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _thread.busy:
            return self._stitchfleet_plain(*args, **kwargs)
        begun = self._stitchfleet_begin()
        if begun is None:
            return self._stitchfleet_plain(*args, **kwargs)
        ticket, stitched = begun
        with _Running(self._stitchfleet[0].job, ticket):
            return self._stitchfleet_plain(*args, **kwargs) if stitched is None else stitched(*args, **kwargs)[:-1]

    @contained(None)
    def _stitchfleet_begin(self) -> tuple[Ticket, Any] | None:
        steps, session, options, make = self._stitchfleet
        ticket = steps.begin(session, tuple(sorted([*options.fetch, *options.target])))
        if ticket is None:
            return None
        if ticket.arm is Arm.PLAIN:
            return ticket, None
        mark = steps.mark_of(session.graph, ticket)
        assert mark is not None  # `begin` has looked
        if mark.name not in self._stitchfleet_arms:
            with_mark = type(options)()
            with_mark.CopyFrom(options)
            with_mark.fetch.append(mark.name)
            with switch.RunningStep(ticket.program, ticket.arm):  # the graph is offered here
                self._stitchfleet_arms[mark.name] = make(with_mark)
        return ticket, self._stitchfleet_arms[mark.name]


def install(job: Job, session_class: type[Any], monitored_session_class: type[Any]) -> None:
    """Wraps the methods that run a step of v1 sessions and adds the hook to every MonitoredSession. Call it once per process."""
    from tensorflow.python.client import pywrap_tf_session

    steps = _SessionSteps(job)

    @contained(None)
    def begin(session: Any, fetches: Any) -> tuple[Ticket, Any] | None:
        by_hook = _thread.pending is not None  # the hook has already added the mark to the fetches
        ticket = steps.begin(session, _fetch_names(fetches))
        if ticket is None:
            return None
        return ticket, None if by_hook or ticket.arm is Arm.PLAIN else steps.mark_of(session.graph, ticket)

    @contained(None)
    def begin_raw(session: Any, fetches: Any, targets: Any) -> tuple[Ticket, Any] | None:
        named = [pywrap_tf_session.TF_OperationName(target) for target in targets]
        if not fetches and _only_fills_a_queue(session.graph, tuple(named)):
            return None
        named += [f"{pywrap_tf_session.TF_OperationName(fetch.oper)}:{fetch.index}" for fetch in fetches]
        ticket = steps.begin(session, tuple(sorted(named)))
        if ticket is None:
            return None
        return ticket, None if ticket.arm is Arm.PLAIN else steps.mark_of(session.graph, ticket)

    @contained(None)
    def begin_partial(session: Any, fetches: Any) -> Ticket | None:
        names = _fetch_names(fetches)
        key = (_number_of(session.graph), PARTIAL, names)
        program = job.program_of_fetches(key, f"{PARTIAL} of {_name_of(names)}", session.graph)
        program.refuse("a step of partial_run is spread over several calls")
        return job.begin(program)

    @contained(None)
    def end(ticket: Ticket) -> None:
        job.end(ticket)

    def make_partial_run(original: Any) -> Any:
        def partial_run(self: Any, handle: Any, fetches: Any, feed_dict: Any = None) -> Any:
            ticket = begin_partial(self, fetches)
            result = original(self, handle, fetches, feed_dict)
            if ticket is not None:
                end(ticket)
            return result

        return partial_run

    def make_run(original: Any) -> Any:
        def run(self: Any, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
            if _thread.busy:
                return original(self, fetches, feed_dict, options, run_metadata)
            begun = begin(self, fetches)
            if begun is None:
                return original(self, fetches, feed_dict, options, run_metadata)
            ticket, mark = begun
            with _Running(job, ticket):
                if mark is None:
                    return original(self, fetches, feed_dict, options, run_metadata)
                return original(self, [fetches, mark], feed_dict, options, run_metadata)[0]

        return run

    def make_raw_run(original: Any) -> Any:
        def call_tf_sessionrun(
            self: Any, options: Any, feed_dict: Any, fetch_list: Any, target_list: Any, run_metadata: Any
        ) -> Any:
            if _thread.busy:
                return original(self, options, feed_dict, fetch_list, target_list, run_metadata)
            begun = begin_raw(self, fetch_list, target_list)
            if begun is None:
                return original(self, options, feed_dict, fetch_list, target_list, run_metadata)
            ticket, mark = begun
            with _Running(job, ticket):
                if mark is None:
                    return original(self, options, feed_dict, fetch_list, target_list, run_metadata)
                self._extend_graph()
                fetched = [*fetch_list, mark._as_tf_output()]
                return original(self, options, feed_dict, fetched, target_list, run_metadata)[:-1]

        return call_tf_sessionrun

    def make_callable(original: Any) -> Any:
        def make_callable_from_options(self: Any, callable_options: Any) -> Any:
            return _Callable(steps, self, callable_options, lambda options: original(self, options))

        return make_callable_from_options

    @contained(None)
    def hook() -> Any:
        return make_hook(job)

    def make_init(original: Any) -> Any:
        def init(self: Any, session_creator: Any, hooks: Any, *args: Any, **kwargs: Any) -> None:
            ours = hook()
            original(self, session_creator, [*(hooks or []), ours] if ours is not None else hooks, *args, **kwargs)

        return init

    wrap(session_class, "run", make_run)
    wrap(session_class, "partial_run", make_partial_run)
    wrap(session_class, "_call_tf_sessionrun", make_raw_run)
    wrap(session_class, "_make_callable_from_options", make_callable)
    wrap(monitored_session_class, "__init__", make_init)
