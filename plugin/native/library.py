"""The native half of the plugin: built once per TensorFlow version and cached, loaded into TensorFlow, and called by ctypes.

The library holds the Stitch op and the graph-optimizer plugin. Its C++ fits one TensorFlow build only, so the cache key covers
TensorFlow's version, the compile flags and our sources. A build takes some 30 s. `stitchfleet run` builds it before the job starts
and prints its progress; a pod's payload brings it prebuilt. It is not built beside the job: a graph that TensorFlow has optimized
without the plugin has random streams of its own, which a stitched one could not continue (graph/random_stream.cc).
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:  # `stitchfleet run` must be able to start a job where there is no numpy
    from typing import TypeAlias

    import numpy as np
    import numpy.typing as npt

    from stitchfleet.compiler.kernel.metadata import KernelMetadata

SOURCES = pathlib.Path(__file__).parent
UNITS = (
    (
        *("guard/compare.cc", "op/registry.cc", "op/stitch_op.cc", "op/hand_on_op.cc", "op/large_buffers.cc"),
        *("gpu/cuda_driver.cc", "gpu/device_kernel.cc", "gpu/device_stitch_op.cc"),
    ),
    (
        *("loop/loop_op.cc", "loop/rows_product_op.cc", "loop/inner_kernels.cc", "loop/shortcuts.cc"),
        *("products/two_kernels.cc", "products/convolution_gradient_op.cc", "products/batch_product_op.cc"),
        *("graph/graph_optimizer.cc", "graph/random_stream.cc", "graph/random_kernel.cc", "graph/arm_mark.cc"),
    ),
)
"""The library's source files in groups, each of which is compiled as one unit, because a compilation spends most of its time on
TensorFlow's headers. Two compilers run at once."""
GPU_UNIT, GPU_LIBRARY = "graph/gpu_optimizer.cc", "libstitchfleet_tf_gpu.so"
"""The graph optimizer for graphs with a GPU has its own library, since TensorFlow takes one graph optimizer per library."""
BUILD_SECONDS = 600
"""A build fails if no compiler command ends for this long."""
PROGRESS_SECONDS = 20
"""Interval of the lines about a build's progress."""

Rewrite: TypeAlias = "Callable[[bytes, list[str]], bytes | None]"
"""Maps (a serialized GraphDef, names of nodes that must stay) to the new GraphDef, serialized, or None to leave it as it is."""
PASSES: Final = 2
"""In how many passes TensorFlow optimizes a graph if nothing else is asked for."""


class NativeBuildError(Exception):
    """The native library cannot be built or found. The message is one line for the user."""


@dataclass(frozen=True)
class TensorFlowBuild:
    """The TensorFlow that the library is built against. package: the folder of the installed tensorflow."""

    version: str
    package: pathlib.Path

    @property
    def compile_flags(self) -> list[str]:
        """Flags for the C++ compiler, equal to those of tf.sysconfig.get_compile_flags() of pip wheels, and -DNDEBUG."""
        # The flags that tf.sysconfig.get_compile_flags() returns for pip wheels since 2.11, without importing TensorFlow (2 s).
        return [
            f"-I{self.package / 'include'}",
            "-D_GLIBCXX_USE_CXX11_ABI=1",
            "--std=c++17",
            "-DEIGEN_MAX_ALIGN_BYTES=64",
            "-DNDEBUG",  # as for the wheels: without it some of TensorFlow's classes have another layout (gtl::EdgeSet)
        ]

    @property
    def link_flags(self) -> list[str]:
        """Flags for the linker, so that the library is linked against TensorFlow's framework library."""
        return [f"-L{self.package}", "-l:libtensorflow_framework.so.2"]


def find_tensorflow() -> TensorFlowBuild:
    """The installed TensorFlow, found without importing it. Raises NativeBuildError if there is none, or none with a version."""
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or spec.origin is None:
        raise NativeBuildError("TensorFlow is not installed in this Python")
    package = pathlib.Path(spec.origin).parent
    for name in ("tensorflow-cpu", "tensorflow", "tensorflow-intel", "tf-nightly"):
        try:
            return TensorFlowBuild(importlib.metadata.version(name), package)
        except importlib.metadata.PackageNotFoundError:
            continue
    raise NativeBuildError(f"the TensorFlow at {package} has no version in its metadata")


def compiler_command() -> tuple[str, ...]:
    """The C++ compiler for the native library, with its first arguments; empty if there is none. It is the first installed one of
    those for kernels, without zig, whose standard library differs from TensorFlow's."""
    from stitchfleet.compiler.toolchain.host import ZIG, candidates

    for command in candidates(os.environ):
        if ZIG not in command and shutil.which(command[0]):
            return command
    return ()


def library_path(cache: pathlib.Path, build: TensorFlowBuild) -> pathlib.Path:
    """The path of the library for this TensorFlow and these sources in a cache, whether or not it is built."""
    digest = hashlib.sha256()
    own = sorted(path for path in SOURCES.rglob("*") if path.suffix in (".cc", ".h", ".def"))
    for source in [*own, *_shared_headers()]:
        digest.update(source.name.encode() + source.read_bytes())
    digest.update(json.dumps([build.version, *build.compile_flags[1:], *UNITS]).encode())
    return cache / "native" / f"tf-{build.version}-{digest.hexdigest()[:16]}" / "libstitchfleet_tf.so"


def find_library(cache: pathlib.Path, payload: pathlib.Path | None, build: TensorFlowBuild) -> pathlib.Path | None:
    """The path of the built library: in the cache, else in the payload; None if it is in neither."""
    places = (cache, payload) if payload is not None else (cache,)
    return next((path for place in places if (path := library_path(place, build)).exists()), None)


def prebuilt_versions(payload: pathlib.Path) -> list[str]:
    """The TensorFlow versions for which a payload has a library, oldest first."""
    found = {path.parent.name.removeprefix("tf-").rpartition("-")[0] for path in payload.glob("native/tf-*/*_tf.so")}
    return sorted(found, key=lambda version: [int(part) if part.isdigit() else 0 for part in version.split(".")])


def _shared_headers() -> list[pathlib.Path]:
    """Files that the compiler's Python code reads too: a kernel's interface, the attributes of a device."""
    import stitchfleet.compiler

    compiler = pathlib.Path(stitchfleet.compiler.__file__).resolve().parent
    return [compiler / "kernel" / "stitch_abi.h", compiler / "targets" / "cuda_attributes.def"]


def build_library(cache: pathlib.Path, build: TensorFlowBuild, tell: Callable[[str], None]) -> pathlib.Path:
    """Builds the library if it is missing, and returns its path. Several processes may call it at once.

    tell: prints a line for people. Raises NativeBuildError: no compiler, its first error, or a time-out.
    """
    target = library_path(cache, build)
    if target.exists():
        return target
    compiler = compiler_command()
    if not compiler:
        raise NativeBuildError("no C++ compiler found (install g++ or set CXX)")
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(target.parent / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists():
            return target
        tell(f"building the TensorFlow {build.version} op once (about half a minute)")
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            includes = [f"-I{place}" for place in (SOURCES, *(header.parent for header in _shared_headers()))]
            flags = ["-c", "-w", "-fPIC", "-O2", *build.compile_flags, *includes]
            objects = []
            for number, group in enumerate((*UNITS, (GPU_UNIT,))):
                source = os.path.join(folder, f"group-{number}.cc")
                with open(source, "w", encoding="utf-8") as file:
                    file.writelines(f'#include "{unit}"\n' for unit in group)
                objects.append((source, f"{source}.o"))
            _run_all([[*compiler, *flags, source, "-o", out] for source, out in objects], "compiled", tell)
            *of_op, of_gpu = [out for _, out in objects]
            fresh, fresh_of_gpu = os.path.join(folder, target.name), os.path.join(folder, GPU_LIBRARY)
            _run_all([[*compiler, "-shared", *of_op, "-o", fresh, *build.link_flags]], "linked", tell)
            found_there = ["-Wl,-rpath,$ORIGIN", f"-L{folder}", f"-l:{target.name}"]
            _run_all(
                [[*compiler, "-shared", of_gpu, "-o", fresh_of_gpu, *found_there, *build.link_flags]], "linked", tell
            )
            os.replace(fresh_of_gpu, target.with_name(GPU_LIBRARY))
            os.replace(fresh, target)
    return target


def _run_all(commands: Sequence[Sequence[str]], made: str, tell: Callable[[str], None]) -> None:
    """Runs compiler commands, two at a time. The first failure ends all, as NativeBuildError. Reports every PROGRESS_SECONDS how many
    files are `made`."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("STITCHFLEET_")}
    waiting = list(commands)
    running: list[subprocess.Popen[str]] = []
    changed = time.monotonic()
    try:
        while waiting or running:
            while waiting and len(running) < 2:
                running.append(
                    subprocess.Popen(
                        waiting.pop(0), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
                    )
                )
            first = running[0]
            try:
                _, errors = first.communicate(timeout=PROGRESS_SECONDS)
            except subprocess.TimeoutExpired as error:
                if time.monotonic() - changed > BUILD_SECONDS:
                    raise NativeBuildError(f"the C++ compiler took more than {BUILD_SECONDS} s") from error
                done = len(commands) - len(waiting) - len(running)
                tell(f"still building: {done} of {len(commands)} files {made}")
                continue
            del running[0]
            changed = time.monotonic()
            if first.returncode != 0:
                lines = (
                    [line for line in errors.splitlines() if "error" in line] or errors.splitlines() or ["no message"]
                )
                raise NativeBuildError(f"the C++ compiler failed: {lines[0].strip()[:200]}")
    except OSError as error:
        raise NativeBuildError(f"the C++ compiler could not be started: {error}") from error
    finally:
        for process in running:
            process.kill()
            process.wait()


# ---------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SignatureStatistics:
    """Counters of one executable.

    state: one of the numbers in `State`. fallback_calls, verify_calls, stitched_calls: calls in which TensorFlow's operators,
    both, or the kernel alone computed. mismatches: failed comparisons. fallback_ns, kernel_ns: sums over `timed_calls` verified
    calls, in which both ran on the same tensors, one after the other. slower_calls: the number of these in which the kernel took
    a quarter longer. last_good_step: number of the step of the last comparison that agreed; -1 before. worst_ratio: largest error
    over its tolerance in a comparison with TensorFlow's own results. largest_error: largest absolute error.
    """

    state: int
    fallback_calls: int
    verify_calls: int
    stitched_calls: int
    mismatches: int
    last_good_step: int
    timed_calls: int
    fallback_ns: int
    kernel_ns: int
    slower_calls: int
    worst_ratio: float
    largest_error: float


@dataclass(frozen=True)
class BufferCounters:
    """Memory for large results of kernels (op/large_buffers.h): the bytes in use and the free ones that are kept, and how many
    buffers were mapped and how many used again so far."""

    live_bytes: int
    free_bytes: int
    fresh: int
    reused: int


@dataclass(frozen=True)
class MismatchReport:
    """One failed comparison, with copies of its tensors.

    signature: of the executable. output: number of the first output that differs. step: number of the job's step. index: flat
    index of the element with the worst error, whose values are expected_value (TensorFlow's) and actual_value. largest_error:
    over the output's elements, absolute. inputs: of the call. expected, actual: TensorFlow's outputs and the kernel's, one array
    each.
    """

    signature: int
    output: int
    step: int
    index: int
    expected_value: float
    actual_value: float
    largest_error: float
    inputs: list[npt.NDArray[np.generic]]
    expected: list[npt.NDArray[np.generic]]
    actual: list[npt.NDArray[np.generic]]


_INTERFACE: Final = (SOURCES / "op" / "interface.def").read_text(encoding="utf-8")
"""What the C++ sources have by number or by place, and Python too."""


def _rows(macro: str) -> list[tuple[str, str]]:
    """The rows of one macro in op/interface.def: its two arguments in each, as text."""
    return re.findall(rf"^{macro}\(([\w* ]+), (\w+)\)", _INTERFACE, re.MULTILINE)


def _enumeration(macro: str) -> dict[str, int]:
    """The rows of an enumeration in op/interface.def: the enumerator in lower case and without its k -> its number."""
    return {enumerator.removeprefix("k").lower(): int(number) for enumerator, number in _rows(macro)}


_STATES: Final = _enumeration("SIGNATURE_STATE")


class State:
    """The states of an executable, by number."""

    FALLBACK = _STATES["fallback"]
    READY = _STATES["ready"]
    VERIFY = _STATES["verify"]
    STITCHED = _STATES["stitched"]
    SUSPECT = _STATES["suspect"]
    REVERTED = _STATES["reverted"]
    NAMES: Final[dict[int, str]] = {number: name for name, number in _STATES.items()}


def _numbers(kind: type[Any], values: Sequence[Any]) -> Any:
    """A C array of the given numbers, with at least one element."""
    return (kind * max(1, len(values)))(*values)


TENSOR_KINDS: Final = _enumeration("TENSOR_KIND")
"""Kind of a tensor that a GPU kernel takes (`GpuLaunch.tensors`) -> its number."""

_C_TYPES: Final[dict[str, Any]] = {
    "const char*": ctypes.c_char_p,
    "int64_t": ctypes.c_int64,
    "const int64_t*": ctypes.POINTER(ctypes.c_int64),
    "const double*": ctypes.POINTER(ctypes.c_double),
}
"""C types of a kernel's description, and ctypes' own."""


class KernelDescription(ctypes.Structure):
    """StitchfleetKernel of op/kernel_description.h; both have their fields from op/interface.def."""

    _fields_ = tuple((name, _C_TYPES[c_type]) for c_type, name in _rows("KERNEL_FIELD"))

    @classmethod
    def of(
        cls,
        library: pathlib.Path,
        metadata: KernelMetadata,
        kernel_inputs: Sequence[int],
        result_types: Sequence[int],
    ) -> KernelDescription:
        """Describes a kernel; the arguments are those of `NativeLibrary.install`. Raises OSError if a GPU's image cannot be read."""
        shapes = [number for output in metadata.outputs for number in (len(output.shape), *output.shape)]
        described = cls(
            symbol=metadata.symbol.encode(),
            scratch_bytes=metadata.scratch_bytes,
            parallel_phases=metadata.parallel_phases,
            input_count=len(kernel_inputs),
            inputs=_numbers(ctypes.c_int64, kernel_inputs),
            output_count=len(result_types),
            output_dtypes=_numbers(ctypes.c_int64, result_types),
            output_shapes=_numbers(ctypes.c_int64, shapes),
            tolerances=_numbers(ctypes.c_double, [number for pair in metadata.tolerances for number in pair]),
            alias_count=len(metadata.aliases),
            aliases=_numbers(
                ctypes.c_int64, [n for output, given in metadata.aliases for n in (output, kernel_inputs[given])]
            ),
            parameter_count=len(metadata.parameters),
            parameters=_numbers(ctypes.c_int64, metadata.parameters),
        )
        if (launch := metadata.launch) is None:
            described.library = os.fsencode(library)
            return described
        described.image = library.read_bytes()
        described.image_bytes = library.stat().st_size
        described.grid, described.block, described.shared_bytes = launch.grid, launch.block, launch.shared_bytes
        described.cooperative, described.by_table = launch.cooperative, launch.by_table
        described.tensor_count = len(launch.tensors)
        tensors = [n for kind, number in launch.tensors for n in (TENSOR_KINDS[kind], number)]
        described.tensors = _numbers(ctypes.c_int64, tensors)
        return described


_REWRITE = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_char_p,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_size_t),
)


class NativeLibrary:
    """The loaded library. Raises OSError if it cannot be loaded or does not fit this file.

    Methods may be called from any thread; those that wait release the GIL.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self._c = ctypes.CDLL(str(path))
        c = self._c
        c.stitchfleet_kernel_bytes.restype = ctypes.c_int64
        if c.stitchfleet_kernel_bytes() != ctypes.sizeof(KernelDescription):
            raise OSError(
                f"{path} describes a kernel in {c.stitchfleet_kernel_bytes()} bytes, library.py in another number"
            )
        c.stitchfleet_alloc.restype = ctypes.c_void_p
        c.stitchfleet_alloc.argtypes = [ctypes.c_size_t]
        c.stitchfleet_free.argtypes = [ctypes.c_void_p]
        c.stitchfleet_next_request.restype = ctypes.c_void_p
        c.stitchfleet_next_mismatch.restype = ctypes.c_void_p
        c.stitchfleet_next_failure.restype = ctypes.c_void_p
        c.stitchfleet_mismatch_free.argtypes = [ctypes.c_void_p]
        c.stitchfleet_mismatch_facts.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        c.stitchfleet_mismatch_tensor.restype = ctypes.c_void_p
        c.stitchfleet_unverified_calls.restype = ctypes.c_void_p
        self._unverified_calls = ctypes.c_int64.from_address(c.stitchfleet_unverified_calls())
        c.stitchfleet_begin_step.argtypes = [ctypes.c_int64, ctypes.c_int, ctypes.c_int]
        c.stitchfleet_arm_mark.restype = ctypes.c_char_p
        c.stitchfleet_operand_shapes.restype = ctypes.c_void_p
        c.stitchfleet_operand_shapes.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
        c.stitchfleet_try_operator.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
        c.stitchfleet_let_kernels_compete.argtypes = [ctypes.c_int]
        c.stitchfleet_let_kernels_compete.restype = None
        c.stitchfleet_trim_buffers.argtypes = [ctypes.c_double, ctypes.c_void_p]
        c.stitchfleet_trim_buffers.restype = None
        c.stitchfleet_allow.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_double]
        c.stitchfleet_enable_cluster.argtypes = [ctypes.c_char_p, ctypes.c_int]
        c.stitchfleet_cluster_statistics.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
        c.stitchfleet_statistics.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
        self._callback: object = None

    def register(self) -> None:
        """Registers the ops and the graph optimizers with the imported TensorFlow."""
        from ..versions import places  # the payload's image, which only builds the library, does not have it

        load = places.plugin_loader()
        load(str(self.path))
        load(str(self.path.with_name(GPU_LIBRARY)))

    def set_rewrite(self, rewrite: Rewrite, passes: Callable[[], int] = lambda: PASSES) -> None:
        """Calls `rewrite` from now on with each placed graph that TensorFlow has optimized. If it raises an exception, the graph
        stays. passes: in how many passes TensorFlow optimizes the graph that is being offered on this thread (arms/passes.py)."""

        def offered(number: int, data: int, size: int, preserve: bytes, out: object, out_size: object) -> int:
            try:
                if number < passes():
                    return 1
                changed = rewrite(ctypes.string_at(data, size), preserve.decode().split("\n"))
                if changed is None:
                    return 1
                memory = self._c.stitchfleet_alloc(len(changed))
                ctypes.memmove(memory, changed, len(changed))
                out[0] = memory  # type: ignore[index]
                out_size[0] = len(changed)  # type: ignore[index]
                return 0
            except BaseException:  # an exception must not leave a C callback
                return 1

        self._callback = _REWRITE(offered)
        self._c.stitchfleet_set_rewrite(self._callback)

    def arm_mark(self) -> str:
        """Within `rewrite`: the mark of the nested function whose body is offered (nested_calls.py), "" for other graphs."""
        found: bytes = self._c.stitchfleet_arm_mark()
        return found.decode()

    def let_kernels_compete(self, allowed: bool) -> None:
        """Sets whether TensorFlow's other kernels may compute the job's products and gradients of convolutions if they are
        faster (products/two_kernels.h); False at first."""
        self._c.stitchfleet_let_kernels_compete(allowed)

    def trim_buffers(self, idle_seconds: float) -> BufferCounters:
        """Releases the memory for large results that has been free for at least `idle_seconds` seconds. Returns the counters
        afterwards."""
        found = (ctypes.c_int64 * 4)()
        self._c.stitchfleet_trim_buffers(idle_seconds, found)
        return BufferCounters(*found)

    def operand_shapes(self, nodes: Sequence[str]) -> dict[str, list[tuple[int, ...] | None]]:
        """Within `rewrite`: the static shapes of the operands of nodes of the offered graph; None for a shape of unknown rank.
        An unknown extent is negative; unknown extents that TensorFlow knows to be equal have the same number below -1. A node
        whose shapes TensorFlow cannot infer is left out."""
        from tensorflow.core.grappler.costs import op_performance_data_pb2

        size = ctypes.c_size_t()
        pointer = self._c.stitchfleet_operand_shapes("".join(f"{n}\n" for n in nodes).encode(), ctypes.byref(size))
        if not pointer:
            return {}
        try:
            data = memoryview(ctypes.string_at(pointer, size.value))
        finally:
            self._c.stitchfleet_free(pointer)
        found: dict[str, list[tuple[int, ...] | None]] = {}
        place = 0

        def number() -> int:
            nonlocal place
            place += 4
            return int.from_bytes(data[place - 4 : place], sys.byteorder, signed=True)

        for node in nodes:
            count = number()
            for _ in range(count):
                length = number()
                shape: Any = op_performance_data_pb2.OpInfo.TensorProperties.FromString(
                    bytes(data[place : place + length])
                ).shape
                place += length
                known = None if shape.unknown_rank else tuple(int(dimension.size) for dimension in shape.dim)
                found.setdefault(node, []).append(known)
        return found

    def refusal_of_operator(self, node: bytes) -> str:
        """The reason why TensorFlow cannot create the operator of a serialized NodeDef on a CPU; "" if it can."""
        error = ctypes.create_string_buffer(512)
        refused = self._c.stitchfleet_try_operator(node, len(node), error, len(error))
        return (error.value.decode(errors="replace") or "no reason given") if refused else ""

    def next_request(self, timeout_ms: int) -> dict[str, object] | None:
        """Waits for an op's request for a kernel (Kernels.forward reads it). timeout_ms: longest wait in milliseconds. Returns
        None after that, after `wake`, or if a mismatch or failure waits instead."""
        pointer = self._c.stitchfleet_next_request(timeout_ms)
        if not pointer:
            return None
        try:
            text = ctypes.string_at(pointer).decode()
        finally:
            self._c.stitchfleet_free(pointer)
        request: dict[str, object] = json.loads(text)
        return request

    def wake(self) -> None:
        """Makes a waiting `next_request` return None."""
        self._c.stitchfleet_wake()

    def install(
        self,
        signature: int,
        library: pathlib.Path,
        metadata: KernelMetadata,
        kernel_inputs: Sequence[int],
        result_types: Sequence[int],
    ) -> None:
        """Gives a signature its kernel, and makes it READY if it is FALLBACK.

        kernel_inputs: numbers of the op's inputs that the kernel takes, in its order. result_types: DataType numbers of the kernel's
        outputs (Cluster.all_result_types). Raises OSError if the library cannot be loaded, or if there is no driver for a GPU's
        kernel.
        """
        error = ctypes.create_string_buffer(512)
        described = KernelDescription.of(library, metadata, kernel_inputs, result_types)
        if self._c.stitchfleet_install(
            ctypes.c_int(signature), ctypes.byref(described), error, ctypes.c_size_t(len(error))
        ):
            raise OSError(error.value.decode(errors="replace"))

    def state(self, signature: int) -> int:
        """The state of a signature, one of the numbers in `State`. Raises KeyError if there is no such signature."""
        state = int(self._c.stitchfleet_state(signature))
        if state < 0:
            raise KeyError(signature)
        return state

    def next_failure(self) -> tuple[int, str] | None:
        """(signature of a kernel that a device has refused, the reason), or None. The state of the signature is REVERTED already."""
        signature = ctypes.c_int()
        pointer = self._c.stitchfleet_next_failure(ctypes.byref(signature))
        if not pointer:
            return None
        try:
            return signature.value, ctypes.string_at(pointer).decode(errors="replace")
        finally:
            self._c.stitchfleet_free(pointer)

    def next_postponed(self) -> int | None:
        """A signature with a failed comparison whose tensors could not be kept, or None. Its state is VERIFY, so that the next
        failed comparison can be kept."""
        signature = int(self._c.stitchfleet_next_postponed())
        return None if signature < 0 else signature

    def move(self, signature: int, source: int, target: int) -> bool:
        """Changes a signature's state from `source` (below 0: any) to `target`. Returns whether it was `source`."""
        return bool(self._c.stitchfleet_move(signature, source, target) == 0)

    def allow(self, signature: int, output: int, absolute: float) -> None:
        """Sets the absolute term of the tolerance for one output of a signature's kernel."""
        self._c.stitchfleet_allow(signature, output, absolute)

    def enable(self, enabled: bool) -> None:
        """Lets kernels run, or makes all ops of the process run TensorFlow's operators."""
        self._c.stitchfleet_enable(int(enabled))

    def enable_cluster(self, name: str, enabled: bool) -> None:
        """As `enable`, for the ops of the cluster `name` alone."""
        self._c.stitchfleet_enable_cluster(name.encode(), int(enabled))

    def begin_step(self, step: int, stride: int, offset: int) -> None:
        """Begins step number `step`, in which stitched signatures with turn % stride == offset are compared again; stride 0:
        none. A signature's turn is a hash of its cluster and shapes, equal on all ranks (op/registry.h)."""
        self._c.stitchfleet_begin_step(step, stride, offset)

    @property
    def unverified_calls(self) -> int:
        """Number of calls so far in which a kernel was not used because it is compared (again), or judged; without samples."""
        return self._unverified_calls.value

    def statistics(self, signature: int) -> SignatureStatistics:
        """The counters of a signature. Raises KeyError if there is no such signature."""
        integers, reals = (ctypes.c_int64 * 10)(), (ctypes.c_double * 2)()
        if self._c.stitchfleet_statistics(signature, integers, reals):
            raise KeyError(signature)
        return SignatureStatistics(*integers, *reals)

    def cluster_statistics(self, name: str) -> tuple[int, bool, bool]:
        """(number of calls without a signature, whether the registry gave up on new shapes, whether the cluster is enabled); (0,
        False, True) for an unknown name."""
        integers = (ctypes.c_int64 * 3)()
        if self._c.stitchfleet_cluster_statistics(name.encode(), integers):
            return 0, False, True
        return int(integers[0]), bool(integers[1]), bool(integers[2])

    def next_mismatch(self) -> MismatchReport | None:
        """The next failed comparison, or None. Its signature is SUSPECT until the caller moves it."""
        pointer = self._c.stitchfleet_next_mismatch()
        if not pointer:
            return None
        try:
            integers, reals = (ctypes.c_int64 * 6)(), (ctypes.c_double * 4)()
            self._c.stitchfleet_mismatch_facts(pointer, integers, reals)
            signature, output, step, index, inputs, outputs = integers
            return MismatchReport(
                signature,
                output,
                step,
                index,
                reals[0],
                reals[1],
                reals[2],
                [self._tensor(pointer, 0, i) for i in range(inputs)],
                [self._tensor(pointer, 1, i) for i in range(outputs)],
                [self._tensor(pointer, 2, i) for i in range(outputs)],
            )
        finally:
            self._c.stitchfleet_mismatch_free(pointer)

    def _tensor(self, mismatch: int, which: int, index: int) -> npt.NDArray[np.generic]:
        import numpy as np

        size, dtype, rank = ctypes.c_int64(), ctypes.c_int(), ctypes.c_int()
        shape = (ctypes.c_int64 * 16)()
        data = self._c.stitchfleet_mismatch_tensor(
            ctypes.c_void_p(mismatch), which, index, ctypes.byref(size), ctypes.byref(dtype), ctypes.byref(rank), shape
        )
        raw = ctypes.string_at(data, size.value) if size.value else b""
        return np.frombuffer(raw, dtype=numpy_dtype(dtype.value)).reshape(tuple(shape[: rank.value])).copy()


def numpy_dtype(tensorflow_enum: int) -> np.dtype[np.generic]:
    """The numpy dtype of a TensorFlow DataType number. Raises KeyError for types that kernels do not have (strings, handles, and bf16
    without the package ml_dtypes)."""
    import numpy as np

    from stitchfleet.compiler.ir.graph import BFLOAT16

    from ..base import dtypes

    numpy_dtypes: dict[int, np.dtype[Any]] = {
        dtypes.DT_FLOAT: np.dtype(np.float32),
        dtypes.DT_DOUBLE: np.dtype(np.float64),
        dtypes.DT_INT32: np.dtype(np.int32),
        dtypes.DT_UINT8: np.dtype(np.uint8),
        dtypes.DT_INT16: np.dtype(np.int16),
        dtypes.DT_INT8: np.dtype(np.int8),
        dtypes.DT_INT64: np.dtype(np.int64),
        dtypes.DT_BOOL: np.dtype(np.bool_),
        **({} if BFLOAT16 is None else {dtypes.DT_BFLOAT16: BFLOAT16}),
        dtypes.DT_UINT16: np.dtype(np.uint16),
        dtypes.DT_HALF: np.dtype(np.float16),
        dtypes.DT_UINT32: np.dtype(np.uint32),
        dtypes.DT_UINT64: np.dtype(np.uint64),
    }
    return numpy_dtypes[tensorflow_enum]


def main() -> int:
    """`python -m stitchfleet.plugin.native.library CACHE`: builds the library and prints its path. Returns the exit status: 0, or
    1 if the build failed."""
    try:
        print(build_library(pathlib.Path(sys.argv[1]), find_tensorflow(), lambda line: print(line, file=sys.stderr)))
    except NativeBuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
