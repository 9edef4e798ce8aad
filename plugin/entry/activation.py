"""Activation: installs the hooks when TensorFlow is imported in a process whose environment asks for it.

`sitecustomize` (bootstrap/) calls `install_import_hook` in every Python process that starts with our folder on PYTHONPATH; nothing
else happens until TensorFlow is imported. The job's script is not changed.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib.abc
import importlib.machinery
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..base.containment import contained, say
from ..base.settings import Settings, read_settings
from ..versions import known, places, self_test

if TYPE_CHECKING:
    from ..job.job import Job

JOB: Job | None = None
"""This process's job; None until TensorFlow is imported."""


class _AfterImport(importlib.abc.MetaPathFinder):
    """Finds modules by the other finders, and calls a function when the import of one is complete. then: its name -> the function."""

    def __init__(self, then: Mapping[str, Callable[[], None]]) -> None:
        self._then = then
        self._searching = threading.local()

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> Any:
        if fullname not in self._then or getattr(self._searching, "now", False):
            return None
        self._searching.now = True
        try:
            spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        finally:
            self._searching.now = False
        if spec is None or spec.loader is None:
            return None
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self._then[fullname]()

        loader.exec_module = exec_module
        return spec


@contained(None)
def install_import_hook() -> None:
    """Arranges that `activate` runs when TensorFlow is imported, and `hook_keras` when a Keras is; runs `activate` at once if
    TensorFlow is imported already."""
    if not any(isinstance(finder, _AfterImport) for finder in sys.meta_path):
        sys.meta_path.insert(
            0, _AfterImport({"tensorflow": activate, **dict.fromkeys(places.KERAS_PACKAGES, hook_keras)})
        )
    if "tensorflow" in sys.modules and hasattr(sys.modules["tensorflow"], "function"):
        activate()


@contained(None)
def hook_keras() -> None:
    """Wraps `fit` of each Keras that is imported by now, if the plugin is switched on.

    Keras itself is never imported for that: `import tensorflow` does not import it since 2.16, nor must a job that uses it with JAX.
    """
    from . import hooks_keras

    if JOB is not None:
        for keras in places.imported_keras():
            hooks_keras.install(JOB, keras)


@contained(None)
def activate() -> None:
    """Installs the plugin in this process, once, if the settings enable it and this is not a launcher. After any failure plain
    TensorFlow remains."""
    global JOB
    if JOB is not None:
        return
    settings = read_settings(os.environ, say)
    if not settings.enabled or is_launcher(sys.argv):
        return
    from ..job.job import Job

    native, reason = load_native(settings)
    job = Job(settings, native, reason)
    JOB = job
    from ..arms import switch
    from ..reporting import summary
    from . import hooks_function, hooks_session, trace_lookup

    job.at_end = summary.finish

    switch.install(places.trace_call())
    hooks_function.install(job, places.polymorphic_function_class(), places.concrete_function_class())
    tracing = places.tracing_module()
    if tracing is not None and native is not None:  # not on a version that was never tried
        trace_lookup.install(tracing)
    hooks_session.hide_marks(places.graph_class())
    hooks_session.install(job, places.session_class(), places.monitored_session_class())
    hook_keras()
    atexit.register(job.close)
    if "multiprocessing.process" in sys.modules:
        import multiprocessing.util

        if multiprocessing.parent_process() is not None:  # its children end without the interpreter's exit handlers
            multiprocessing.util.Finalize(None, job.close, exitpriority=0)


def is_launcher(arguments: Sequence[str]) -> bool:
    """Whether this process only launches the ranks of a job: `horovodrun` imports TensorFlow too, but does not train."""
    program = arguments[0] if arguments else ""
    return os.path.basename(program) == "horovodrun" or program.endswith(
        ("horovod/runner/launch.py", "horovod/runner/__main__.py")
    )


def load_native(settings: Settings) -> tuple[Any, str]:
    """(the loaded native library or None, the reason if None). Builds nothing: `stitchfleet run` and the payload provide it."""
    from ..native.library import NativeBuildError, NativeLibrary, find_library, find_tensorflow, prebuilt_versions

    def plain(reason: str) -> tuple[None, str]:
        say(f"this job runs plain: {reason}")
        return None, reason

    try:
        build = find_tensorflow()
    except NativeBuildError as error:
        return None, str(error)
    if settings.payload is not None and not has_glibc():
        return plain("the image's C library is not glibc (Alpine's is musl); the payload is built for glibc")
    path = find_library(settings.cache, settings.payload, build)
    if path is None:
        if settings.payload is None:
            return plain(
                f"the op for TensorFlow {build.version} is not built in {settings.cache} "
                "(start the job with `stitchfleet run`, or build it with `stitchfleet doctor --build`)"
            )
        versions = ", ".join(prebuilt_versions(settings.payload)) or "none"  # a pod, in which nobody can build it
        return plain(f"the image has TensorFlow {build.version}; the payload supports only images with: {versions}")
    if not known.is_known(build.version) and not settings.untested:
        verdict = self_test.verdict_of(path)
        if verdict is None or not verdict.passed:
            return plain(
                f"{known.unknown(build.version)}, {verdict.words if verdict else 'and no self-test was made here'}"
            )
    foreign = other_graph_optimizers(build.package.parent)
    if foreign:
        return plain(f"another graph optimizer is installed for the CPU ({foreign[0]}); TensorFlow takes only one")
    ctypes.CDLL(str(build.package / places.tensorflow_cc_library()), mode=ctypes.RTLD_GLOBAL)
    native = NativeLibrary(path)
    native.register()
    return native, ""


def has_glibc() -> bool:
    """Whether this process runs on the GNU C library."""
    try:
        return bool(os.confstr("CS_GNU_LIBC_VERSION"))
    except (ValueError, OSError):  # no such name: musl
        return False


def other_graph_optimizers(site_packages: Any) -> list[str]:
    """File names of libraries in TensorFlow's plugin folder that register a graph optimizer: a second one for a device ends the
    process. site_packages: path of the folder that holds the installed packages."""
    found = []
    for library in sorted((site_packages / "tensorflow-plugins").glob("*.so")):
        try:
            if b"TF_InitGraph" in library.read_bytes():
                found.append(library.name)
        except OSError:
            continue
    return found
