"""All that differs between the supported versions of TensorFlow (2.15 with Keras 2; 2.21 with Keras 3): where things live."""

from __future__ import annotations

from typing import Any


def polymorphic_function_class() -> type[Any]:
    """The class of what `tf.function` returns."""
    from tensorflow.python.eager.polymorphic_function import polymorphic_function

    found: type[Any] = polymorphic_function.Function
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
