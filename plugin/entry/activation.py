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
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..base.containment import contained, say
from ..base.settings import Settings, read_settings

if TYPE_CHECKING:
    from ..job.job import Job

JOB: Job | None = None
"""This process's job; None until TensorFlow is imported."""


class _AfterTensorFlow(importlib.abc.MetaPathFinder):
    """Finds `tensorflow` by the other finders, and calls `activate` when its import is complete."""

    def __init__(self) -> None:
        self._searching = threading.local()

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> Any:
        if fullname != "tensorflow" or getattr(self._searching, "now", False):
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
            activate()

        loader.exec_module = exec_module
        return spec


@contained(None)
def install_import_hook() -> None:
    """Activates when TensorFlow is imported, or at once if it is imported already."""
    if "tensorflow" in sys.modules and hasattr(sys.modules["tensorflow"], "function"):
        activate()
    elif not any(isinstance(finder, _AfterTensorFlow) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterTensorFlow())


@contained(None)
def activate() -> None:
    """Installs the plugin in this process, once. After any failure plain TensorFlow remains."""
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
    from ..base import tf_version
    from ..reporting import summary
    from . import hooks_function, hooks_keras, hooks_session

    job.at_end = summary.finish

    switch.install(tf_version.context_class())
    hooks_function.install(job, tf_version.polymorphic_function_class(), tf_version.concrete_function_class())
    hooks_session.hide_marks(tf_version.graph_class())
    hooks_session.install(job, tf_version.session_class(), tf_version.monitored_session_class())
    hooks_keras.install(job)
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
    from ..base import tf_version
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
    foreign = other_graph_optimizers(build.package.parent)
    if foreign:
        return plain(f"another graph optimizer is installed for the CPU ({foreign[0]}); TensorFlow takes only one")
    ctypes.CDLL(str(build.package / tf_version.tensorflow_cc_library()), mode=ctypes.RTLD_GLOBAL)
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
    """Plugins in TensorFlow's own plugin folder that register a graph optimizer: a second one for a device kills the process."""
    found = []
    for library in sorted((site_packages / "tensorflow-plugins").glob("*.so")):
        try:
            if b"TF_InitGraph" in library.read_bytes():
                found.append(library.name)
        except OSError:
            continue
    return found
