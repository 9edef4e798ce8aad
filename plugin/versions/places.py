"""Where each version of TensorFlow has the classes, functions and files that we use.

A place that has moved is looked for at the newer one first; nothing asks for the number of a version.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final


def polymorphic_function_class() -> type[Any]:
    """The class of the objects that `tf.function` returns."""
    from tensorflow.python.eager.polymorphic_function import polymorphic_function

    found: type[Any] = polymorphic_function.Function
    return found


def concrete_function_class() -> type[Any]:
    """The class of a function's traces. Every call (by a tf.function, a gradient, a signature) goes through its `_call_flat`."""
    try:
        from tensorflow.python.eager.polymorphic_function import concrete_function as place
    except ImportError:  # until 2.12
        from tensorflow.python.eager.polymorphic_function import monomorphic_function as place
    found: type[Any] = place.ConcreteFunction
    return found


def tracing_module() -> ModuleType | None:
    """The module by whose `call_function` a `tf.function` finds its trace (its `trace_function`) and calls it; None until 2.13."""
    try:
        from tensorflow.python.eager.polymorphic_function import tracing_compilation as place
    except ImportError:
        return None
    found: ModuleType = place
    return found if hasattr(found, "call_function") and hasattr(found, "trace_function") else None


@dataclass(frozen=True)
class TraceCall:
    """The method by which eager code calls a traced function (a function that another graph calls is a node of that graph).

    name: the function's, given the method's first two arguments; each trace has a name of its own.
    """

    owner: type[Any]
    method: str
    name: Callable[[Any, Any], str]


def trace_call() -> TraceCall:
    """`Context.call_function`, or the method that did its work up to TensorFlow 2.12. Imports TensorFlow."""
    from tensorflow.python.eager import context

    if hasattr(context.Context, "call_function"):
        return TraceCall(context.Context, "call_function", lambda _, name: _as_text(name))
    from tensorflow.python.eager.polymorphic_function import monomorphic_function  # until 2.12

    return TraceCall(monomorphic_function._EagerDefinedFunction, "call", lambda function, _: _as_text(function.name))


def _as_text(name: bytes | str) -> str:
    return name.decode() if isinstance(name, bytes) else name


def is_onednn_on() -> bool:
    """Whether TensorFlow runs oneDNN's kernels on a CPU where it has them (TF_ENABLE_ONEDNN_OPTS, or the processor's features)."""
    from tensorflow.python.util import _pywrap_util_port

    return bool(_pywrap_util_port.IsMklEnabled())


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

    Not `load_pluggable_device_library`, which also looks for devices and creates the eager context for that. If the eager
    context is older than the job's `disable_eager_execution`, `init_scope` leads out of a v1 graph: a variable that is made in
    a `tf.cond` would then be an eager variable, and the job would fail.
    """
    from tensorflow.python.client import pywrap_tf_session

    found: Callable[[str], object] = pywrap_tf_session.TF_LoadPluggableDeviceLibrary
    return found


def tensorflow_cc_library() -> str:
    """Name of the shared library with the grappler C API, which the pip wheel's link flags do not include."""
    return "libtensorflow_cc.so.2"


KERAS_PACKAGES: Final = ("keras", "tf_keras")
"""Packages that `tf.keras` may be: Keras 2 or 3, and Keras 2 under a name of its own beside Keras 3 (TF_USE_LEGACY_KERAS)."""


def imported_keras() -> list[Any]:
    """The packages of KERAS_PACKAGES whose import is complete."""
    return [package for name in KERAS_PACKAGES if hasattr(package := sys.modules.get(name), "Model")]
