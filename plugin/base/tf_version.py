"""Where the supported versions of TensorFlow (2.15 with Keras 2; 2.21 with Keras 3) have the classes and files that we use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def polymorphic_function_class() -> type[Any]:
    """The class of the objects that `tf.function` returns."""
    from tensorflow.python.eager.polymorphic_function import polymorphic_function

    found: type[Any] = polymorphic_function.Function
    return found


def concrete_function_class() -> type[Any]:
    """The class of a function's traces. Every call (by a tf.function, a gradient, a signature) goes through its `_call_flat`."""
    from tensorflow.python.eager.polymorphic_function import concrete_function

    found: type[Any] = concrete_function.ConcreteFunction
    return found


def context_class() -> type[Any]:
    """The class of the eager context. Its `call_function` passes every traced function to the runtime by name."""
    from tensorflow.python.eager import context

    found: type[Any] = context.Context
    return found


def session_class() -> type[Any]:
    """The base class of v1 sessions. All steps go through its methods."""
    from tensorflow.python.client import session

    found: type[Any] = session.BaseSession
    return found


def monitored_session_class() -> type[Any]:
    """The class that MonitoredSession, MonitoredTrainingSession and Estimator all use."""
    from tensorflow.python.training import monitored_session

    found: type[Any] = monitored_session._MonitoredSession
    return found


def graph_class() -> type[Any]:
    """The class of Python's graphs. Every serialization goes through its `_as_graph_def`."""
    from tensorflow.python.framework import ops

    found: type[Any] = ops.Graph
    return found


def plugin_loader() -> Callable[[str], object]:
    """Loads a library's operators and graph optimizers, given its path. Raises what TensorFlow raises.

    Not `load_pluggable_device_library`, which looks for devices too and for that makes the eager context. A context that is older
    than the job's `disable_eager_execution` lets `init_scope` lead out of a v1 graph: a variable that is made in a `tf.cond` there
    would be an eager one, and the job fail.
    """
    from tensorflow.python.client import pywrap_tf_session

    found: Callable[[str], object] = pywrap_tf_session.TF_LoadPluggableDeviceLibrary
    return found


def tensorflow_cc_library() -> str:
    """Name of the shared library with the grappler C API, which the pip wheel's link flags do not include."""
    return "libtensorflow_cc.so.2"
