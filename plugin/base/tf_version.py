"""All that differs between the supported versions of TensorFlow (2.15 with Keras 2; 2.21 with Keras 3): where things live."""

from __future__ import annotations

from typing import Any


def polymorphic_function_class() -> type[Any]:
    """The class of what `tf.function` returns."""
    from tensorflow.python.eager.polymorphic_function import polymorphic_function

    found: type[Any] = polymorphic_function.Function
    return found


def concrete_function_class() -> type[Any]:
    """The class of one trace of a function. Its `_call_flat` runs it, whoever calls: a tf.function, a gradient, a signature."""
    from tensorflow.python.eager.polymorphic_function import concrete_function

    found: type[Any] = concrete_function.ConcreteFunction
    return found


def context_class() -> type[Any]:
    """The eager context, whose `call_function` hands every traced function to the runtime by its name."""
    from tensorflow.python.eager import context

    found: type[Any] = context.Context
    return found


def session_class() -> type[Any]:
    """The base class whose `run` every v1 session's steps go through."""
    from tensorflow.python.client import session

    found: type[Any] = session.BaseSession
    return found


def monitored_session_class() -> type[Any]:
    """The one class where MonitoredSession, MonitoredTrainingSession and Estimator all end."""
    from tensorflow.python.training import monitored_session

    found: type[Any] = monitored_session._MonitoredSession
    return found


def graph_class() -> type[Any]:
    """The Python graph, whose `_as_graph_def` every serialization goes through."""
    from tensorflow.python.framework import ops

    found: type[Any] = ops.Graph
    return found


def tensorflow_cc_library() -> str:
    """The shared library that holds the grappler C API; the pip wheel's link flags leave it out."""
    return "libtensorflow_cc.so.2"
