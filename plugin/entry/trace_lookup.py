"""Repeated calls of a `tf.function`: its trace is found by what the arguments show at once.

At each call TensorFlow describes the arguments and all captures (in a training step: every variable, every slot of the optimizer)
by objects, hashes them, and looks the trace up (core/function/polymorphism). That takes as long as running a small function, and
about a microsecond more for each variable. The outcome depends on little: dtypes and shapes of the arguments, the surroundings of
the call (TensorFlow's own FunctionContext), which captures and traces there are. So it is kept under these.

call     a key of them -> the trace that TensorFlow found for an equal key -> its `_call_flat`, with the tensors of the arguments
lookup   TensorFlow's own, if there is none; its answer is kept

Kept are only answers for arguments that are tensors, plain Python values, iterators (Keras' `fit` passes one), and tuples, lists and
dictionaries of these; all else goes TensorFlow's way. A new trace or capture of the function makes its answers void.
"""

from __future__ import annotations

import operator
import threading
import weakref
from collections.abc import Callable, Hashable, Iterable
from types import ModuleType
from typing import Any, Final, NamedTuple

from ..base.containment import contained
from ..base.wrapping import wrap

MOST_KEPT: Final = 16
"""Most answers for one function. One whose shapes change all the time would fill the memory, and gain nothing."""

_NAME: Final = "_stitchfleet_traces"
_LITERALS: Final = frozenset({bool, int, str, bytes, type(None)})
"""Types of arguments that become part of a trace; TensorFlow compares them by value. Not float: 0.0 equals -0.0."""


class Answer(NamedTuple):
    """A trace that TensorFlow has found. iterators: those among the arguments; their descriptions are not in the key. captures: what
    the trace captures, if each is a tensor that is handed over as it is; else None."""

    trace: Any
    iterators: tuple[weakref.ref[Any], ...]
    captures: tuple[Any, ...] | None

    @property
    def captured_inputs(self) -> list[Any]:
        """The trace's `captured_inputs`. TensorFlow flattens them at each call, since a capture may be replaced, also by a function
        that gives a value for each call (`replace_capture_with_deferred_capture`)."""
        if self.captures is not None:
            now: list[Any] = self.trace._captured_inputs
            if len(now) == len(self.captures) and all(map(operator.is_, now, self.captures)):
                return now
        found: list[Any] = self.trace.captured_inputs
        return found


def answer_of(trace: Any, iterators: Iterable[Any]) -> Answer:
    """What is kept of a trace and the iterators among the arguments."""
    now = getattr(trace, "_captured_inputs", None)
    captures = None
    if type(now) is list and not any(map(callable, now)):  # a callable is the user's, and called once for each call
        flat = trace.captured_inputs
        if len(now) == len(flat) and all(map(operator.is_, now, flat)):
            captures = tuple(flat)
    return Answer(trace, tuple(map(weakref.ref, iterators)), captures)


class Answers:
    """What is kept for one function (its TracingOptions, which live as long as it does)."""

    def __init__(self, cache: Any, capture_types: Any) -> None:
        self._cache, self._traces, self._capture_types = cache, len(cache), capture_types
        self.of_key: dict[Hashable, Answer] = {}

    def hold_for(self, cache: Any, capture_types: Any) -> bool:
        """Whether no trace and no capture came or went since."""
        return self._cache is cache and self._traces == len(cache) and self._capture_types is capture_types


class Description:
    """What a call's arguments show. words: their part of the key, hashable. tensors: the trace's inputs, in the arguments' order."""

    def __init__(self) -> None:
        self.words: list[Any] = []
        self.tensors: list[Any] = []
        self.iterators: list[Any] = []


class Describer:
    """Describes arguments. Imports TensorFlow."""

    def __init__(self) -> None:
        from tensorflow.python.data.ops import iterator_ops
        from tensorflow.python.framework import dtypes, ops

        self._tensor, self._iterator = ops.EagerTensor, iterator_ops.OwnedIterator
        self._handles = frozenset({dtypes.resource.as_datatype_enum, dtypes.variant.as_datatype_enum})

    def describe(self, value: Any, to: Description) -> bool:
        """Adds `value`. Returns False if it is none of which answers are kept."""
        kind = type(value)
        if kind is self._tensor:
            dtype = value._datatype_enum()
            if dtype in self._handles:  # what the handle is of is part of its description
                return False
            to.words.extend((dtype, value._shape_tuple()))
            to.tensors.append(value)
            return True
        if kind in _LITERALS:
            to.words.extend((kind, value))
            return True
        if kind is tuple or kind is list:
            to.words.extend((kind, len(value)))
            return all(self.describe(one, to) for one in value)
        if kind is dict and all(type(name) is str for name in value):
            names = sorted(value)  # TensorFlow's order
            to.words.extend((kind, tuple(names)))
            return all(self.describe(value[name], to) for name in names)
        if kind is self._iterator:
            to.words.append(kind)
            to.tensors.append(value._iterator_resource)
            to.iterators.append(value)
            return True
        return False


class _Thread(threading.local):
    calls: Any = None
    """The TracingOptions of the function that this thread is calling, until its trace is found. A lookup without a call (by
    get_concrete_function) may have arguments that no call has."""


def install(tracing: ModuleType) -> None:
    """Wraps the functions of TensorFlow's module `tracing_compilation`. Call it once per process."""
    from tensorflow.python.eager import context
    from tensorflow.python.eager.polymorphic_function import function_context

    describer, thread = Describer(), _Thread()

    def describe(args: Any, kwargs: Any, options: Any) -> tuple[Hashable, Description] | None:
        """The key of a call, and its arguments; None if no answer is kept for such a call."""
        if kwargs or not context.executing_eagerly():
            return None
        if options is None or options.function_cache is None or options.bind_graph_to_function:
            return None
        found = Description()
        if not describer.describe(args or (), found):
            return None
        return (function_context.make_function_context(options.scope_type), *found.words), found

    def answers_of(options: Any) -> Answers | None:
        """Those that hold still."""
        kept: Answers | None = getattr(options, _NAME, None)
        return kept if kept is not None and kept.hold_for(options.function_cache, _capture_types(options)) else None

    @contained(None)
    def find(args: Any, kwargs: Any, options: Any) -> tuple[Answer, list[Any]] | None:
        """The answer for a call, and the tensors among its arguments; None if TensorFlow has to look it up."""
        answers = answers_of(options)
        described = None if answers is None else describe(args, kwargs, options)
        if answers is None or described is None:
            return None
        key, found = described
        answer = answers.of_key.get(key)
        if answer is None or [ref() for ref in answer.iterators] != found.iterators:
            return None
        return answer, found.tensors

    @contained(None)
    def keep(args: Any, kwargs: Any, options: Any, trace: Any) -> None:
        answers = answers_of(options)
        if answers is not None and len(answers.of_key) >= MOST_KEPT:
            return
        described = describe(args, kwargs, options)
        if described is None:
            return
        key, found = described
        kind = trace.function_type
        inputs = kind.unpack_inputs(kind.bind(*args or ()))
        if [id(one) for one in inputs] != [id(one) for one in found.tensors]:  # it converts, or orders them otherwise
            return
        if answers is None:
            answers = Answers(options.function_cache, _capture_types(options))
            setattr(options, _NAME, answers)
        answers.of_key[key] = answer_of(trace, found.iterators)

    def lookup(original: Callable[..., Any]) -> Callable[..., Any]:
        def trace_function(args: Any = None, kwargs: Any = None, tracing_options: Any = None) -> Any:
            trace = original(args, kwargs, tracing_options)
            if thread.calls is not None and thread.calls is tracing_options:
                thread.calls = None  # what the trace calls is another call
                keep(args, kwargs, tracing_options, trace)
            return trace

        return trace_function

    def call(original: Callable[..., Any]) -> Callable[..., Any]:
        def call_function(args: Any = None, kwargs: Any = None, tracing_options: Any = None) -> Any:
            found = find(args, kwargs, tracing_options)
            if found is None:
                thread.calls = tracing_options
                try:
                    return original(args, kwargs, tracing_options)
                finally:
                    thread.calls = None
            answer, inputs = found
            return answer.trace._call_flat(inputs, captured_inputs=answer.captured_inputs)

        return call_function

    wrap(tracing, "trace_function", lookup)
    wrap(tracing, "call_function", call)


def _capture_types(options: Any) -> Any:
    """TensorFlow's dictionary of the types of what a function captures: another object after each change. None if it has none."""
    captures = options.function_captures
    return None if captures is None else captures.capture_types
