"""The native half of the plugin: built once for a TensorFlow version and cached, loaded into TensorFlow, spoken to by ctypes.

The library holds the Stitch op and the graph-optimizer plugin. Its C++ is bound to one TensorFlow build, so the cache key holds
TensorFlow's version and compile flags and our sources. Building takes some 30 s; `stitchfleet run` does it before the job starts and
says how far it is, a pod's payload brings it ready-made.
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
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:  # `stitchfleet run` must be able to start a job where there is no numpy
    import numpy as np
    import numpy.typing as npt

    from stitchfleet.compiler.kernel.metadata import KernelMetadata

SOURCES = pathlib.Path(__file__).parent
UNITS = tuple(
    f"{unit}.cc"
    for unit in (
        "compare registry graph_optimizer stitch_op inner_kernels shortcuts loop_op rows_product_op random_stream arm_mark "
        "cuda_driver device_kernel device_stitch_op"
    ).split()
)
GPU_UNIT, GPU_LIBRARY = "gpu_optimizer.cc", "libstitchfleet_tf_gpu.so"
"""TensorFlow takes one graph optimizer of a library: that for graphs with a GPU has one of its own."""
BUILD_SECONDS = 600
"""The longest that the C++ compiler may take for one file."""
PROGRESS_SECONDS = 20

Rewrite = Callable[[bytes, list[str]], bytes | None]


class NativeBuildError(Exception):
    """The native library cannot be had; the message is one line for the user."""


@dataclass(frozen=True)
class TensorFlowBuild:
    """What the library has to be built against. `package` is the folder of the installed tensorflow."""

    version: str
    package: pathlib.Path

    @property
    def compile_flags(self) -> list[str]:
        # As tf.sysconfig.get_compile_flags() gives them for the pip wheels since 2.11, without importing TensorFlow (2 s).
        return [
            f"-I{self.package / 'include'}",
            "-D_GLIBCXX_USE_CXX11_ABI=1",
            "--std=c++17",
            "-DEIGEN_MAX_ALIGN_BYTES=64",
            "-DNDEBUG",  # as the wheels are built: without it some of TensorFlow's classes have another layout (gtl::EdgeSet)
        ]

    @property
    def link_flags(self) -> list[str]:
        return [f"-L{self.package}", "-l:libtensorflow_framework.so.2"]


def find_tensorflow() -> TensorFlowBuild:
    """The installed TensorFlow, found without importing it. Raises NativeBuildError where there is none."""
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
    """The C++ compiler for the native library and its first words: the first that is there of those that kernels are built with, but
    zig's, whose standard library is not TensorFlow's. Empty if there is none."""
    from stitchfleet.compiler.toolchain.host import ZIG, candidates

    for command in candidates(os.environ):
        if ZIG not in command and shutil.which(command[0]):
            return command
    return ()


def library_path(cache: pathlib.Path, build: TensorFlowBuild) -> pathlib.Path:
    """Where the library for this TensorFlow and these sources lies, built or not."""
    digest = hashlib.sha256()
    for source in [*sorted(SOURCES.glob("*.cc")), *sorted(SOURCES.glob("*.h")), *_shared_headers()]:
        digest.update(source.name.encode() + source.read_bytes())
    digest.update(json.dumps([build.version, *build.compile_flags[1:], *UNITS]).encode())
    return cache / "native" / f"tf-{build.version}-{digest.hexdigest()[:16]}" / "libstitchfleet_tf.so"


def find_library(cache: pathlib.Path, payload: pathlib.Path | None, build: TensorFlowBuild) -> pathlib.Path | None:
    """The library where it is built: in the cache, else in the payload; None if it is in neither."""
    places = (cache, payload) if payload is not None else (cache,)
    return next((path for place in places if (path := library_path(place, build)).exists()), None)


def _shared_headers() -> list[pathlib.Path]:
    """What the compiler's Python reads too: a kernel's interface, a device's figures."""
    import stitchfleet.compiler

    compiler = pathlib.Path(stitchfleet.compiler.__file__).resolve().parent
    return [compiler / "kernel" / "stitch_abi.h", compiler / "targets" / "cuda_attributes.def"]


def build_library(cache: pathlib.Path, build: TensorFlowBuild, tell: Callable[[str], None]) -> pathlib.Path:
    """Builds the library unless it is there; returns its path. Safe against two jobs at once.

    Raises NativeBuildError with one line: no compiler, or what the compiler said last.
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
            objects = {unit: os.path.join(folder, unit + ".o") for unit in (*UNITS, GPU_UNIT)}
            includes = [f"-I{place}" for place in (SOURCES, *(header.parent for header in _shared_headers()))]
            _run_all(
                [
                    [
                        *compiler,
                        "-c",
                        "-w",
                        "-fPIC",
                        "-O2",
                        *build.compile_flags,
                        *includes,
                        str(SOURCES / unit),
                        "-o",
                        out,
                    ]
                    for unit, out in objects.items()
                ],
                "compiled",
                tell,
            )
            of_gpu = objects.pop(GPU_UNIT)
            fresh, fresh_of_gpu = os.path.join(folder, target.name), os.path.join(folder, GPU_LIBRARY)
            _run_all([[*compiler, "-shared", *objects.values(), "-o", fresh, *build.link_flags]], "linked", tell)
            found_there = ["-Wl,-rpath,$ORIGIN", f"-L{folder}", f"-l:{target.name}"]
            _run_all(
                [[*compiler, "-shared", of_gpu, "-o", fresh_of_gpu, *found_there, *build.link_flags]], "linked", tell
            )
            os.replace(fresh_of_gpu, target.with_name(GPU_LIBRARY))
            os.replace(fresh, target)
    return target


def _run_all(commands: Sequence[Sequence[str]], made: str, tell: Callable[[str], None]) -> None:
    """Runs compiler commands, two at a time; the first failure ends them all. Tells every PROGRESS_SECONDS how many are `made`."""
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
    """Counters of one executable. Errors are those of comparisons with TensorFlow's own results.

    fallback_ns, kernel_ns: sums over `timed_calls` verified calls, in which both ran on the same tensors one after the other;
    slower_calls: those of them in which the kernel took longer by a quarter.
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
class MismatchReport:
    """One failed comparison with its tensors (copied). `step` counts the job's steps."""

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


class State:
    """The states of an executable: registry.h's numbers."""

    FALLBACK, READY, VERIFY, STITCHED, SUSPECT, REVERTED = range(6)
    NAMES = ("fallback", "ready", "verify", "stitched", "suspect", "reverted")


def _numbers(kind: type[Any], values: Sequence[Any]) -> Any:
    """A C array, of at least one element."""
    return (kind * max(1, len(values)))(*values)


TENSOR_KINDS: Final = {"input": 0, "output": 1, "scratch": 2}
"""Of what a GPU's kernel takes (`GpuLaunch.tensors`), as the op numbers them."""


class KernelDescription(ctypes.Structure):
    """kernel_description.h's StitchfleetKernel, field by field."""

    _fields_ = (
        ("symbol", ctypes.c_char_p),
        ("library", ctypes.c_char_p),
        ("image", ctypes.c_char_p),
        ("image_bytes", ctypes.c_int64),
        ("scratch_bytes", ctypes.c_int64),
        ("parallel_phases", ctypes.c_int64),
        ("input_count", ctypes.c_int64),
        ("inputs", ctypes.POINTER(ctypes.c_int64)),
        ("output_count", ctypes.c_int64),
        ("output_dtypes", ctypes.POINTER(ctypes.c_int64)),
        ("output_shapes", ctypes.POINTER(ctypes.c_int64)),
        ("tolerances", ctypes.POINTER(ctypes.c_double)),
        ("alias_count", ctypes.c_int64),
        ("aliases", ctypes.POINTER(ctypes.c_int64)),
        ("parameter_count", ctypes.c_int64),
        ("parameters", ctypes.POINTER(ctypes.c_int64)),
        ("grid", ctypes.c_int64),
        ("block", ctypes.c_int64),
        ("shared_bytes", ctypes.c_int64),
        ("cooperative", ctypes.c_int64),
        ("by_table", ctypes.c_int64),
        ("tensor_count", ctypes.c_int64),
        ("tensors", ctypes.POINTER(ctypes.c_int64)),
    )

    @classmethod
    def of(
        cls,
        library: pathlib.Path,
        metadata: KernelMetadata,
        kernel_inputs: Sequence[int],
        result_types: Sequence[int],
    ) -> KernelDescription:
        """As `NativeLibrary.install` is given it. Raises OSError where a GPU's image cannot be read."""
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
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_char_p,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_size_t),
)


class NativeLibrary:
    """The loaded library. Methods may be called from any thread; those that wait release the interpreter."""

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
        c.stitchfleet_begin_step.argtypes = [ctypes.c_int64, ctypes.c_int, ctypes.c_int]
        c.stitchfleet_arm_mark.restype = ctypes.c_char_p
        c.stitchfleet_try_operator.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
        c.stitchfleet_allow.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_double]
        c.stitchfleet_enable_cluster.argtypes = [ctypes.c_char_p, ctypes.c_int]
        c.stitchfleet_cluster_statistics.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
        c.stitchfleet_statistics.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
        self._callback: object = None

    def register(self) -> None:
        """Makes the op and the graph optimizers known to the imported TensorFlow."""
        from tensorflow.python.framework import load_library

        load_library.load_pluggable_device_library(str(self.path))
        load_library.load_pluggable_device_library(str(self.path.with_name(GPU_LIBRARY)))

    def set_rewrite(self, rewrite: Rewrite) -> None:
        """`rewrite(graph_def, nodes_to_preserve)` is called with each placed graph; None leaves it as it is."""

        def offered(data: int, size: int, preserve: bytes, out: object, out_size: object) -> int:
            try:
                changed = rewrite(ctypes.string_at(data, size), preserve.decode().split("\n"))
                if changed is None:
                    return 1
                memory = self._c.stitchfleet_alloc(len(changed))
                ctypes.memmove(memory, changed, len(changed))
                out[0] = memory  # type: ignore[index]
                out_size[0] = len(changed)  # type: ignore[index]
                return 0
            except BaseException:  # nothing may leave a C callback
                return 1

        self._callback = _REWRITE(offered)
        self._c.stitchfleet_set_rewrite(self._callback)

    def arm_mark(self) -> str:
        """Within `rewrite`: the mark of the nested function whose body is offered (nested_calls.py), "" for any other graph."""
        found: bytes = self._c.stitchfleet_arm_mark()
        return found.decode()

    def refusal_of_operator(self, node: bytes) -> str:
        """Why TensorFlow cannot make the operator of a serialized NodeDef on a CPU; "" where it can."""
        error = ctypes.create_string_buffer(512)
        refused = self._c.stitchfleet_try_operator(node, len(node), error, len(error))
        return (error.value.decode(errors="replace") or "no reason given") if refused else ""

    def next_request(self, timeout_ms: int) -> dict[str, object] | None:
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
        self._c.stitchfleet_wake()

    def install(
        self,
        signature: int,
        library: pathlib.Path,
        metadata: KernelMetadata,
        kernel_inputs: Sequence[int],
        result_types: Sequence[int],
    ) -> None:
        """Gives a signature its kernel (state READY). kernel_inputs: which of the op's inputs are the kernel's. result_types:
        DataType numbers of the op's results. Raises OSError with the loader's words, or where a GPU's kernel finds no driver."""
        error = ctypes.create_string_buffer(512)
        described = KernelDescription.of(library, metadata, kernel_inputs, result_types)
        if self._c.stitchfleet_install(
            ctypes.c_int(signature), ctypes.byref(described), error, ctypes.c_size_t(len(error))
        ):
            raise OSError(error.value.decode(errors="replace"))

    def state(self, signature: int) -> int:
        """One of `State`'s. Raises KeyError for a signature that nobody has."""
        state = int(self._c.stitchfleet_state(signature))
        if state < 0:
            raise KeyError(signature)
        return state

    def next_failure(self) -> tuple[int, str] | None:
        """A signature whose kernel the device has refused, and why. It is REVERTED already."""
        signature = ctypes.c_int()
        pointer = self._c.stitchfleet_next_failure(ctypes.byref(signature))
        if not pointer:
            return None
        try:
            return signature.value, ctypes.string_at(pointer).decode(errors="replace")
        finally:
            self._c.stitchfleet_free(pointer)

    def next_postponed(self) -> int | None:
        """A signature whose failed comparison could not be kept. It is in VERIFY: its next failed one may be."""
        signature = int(self._c.stitchfleet_next_postponed())
        return None if signature < 0 else signature

    def move(self, signature: int, source: int, target: int) -> bool:
        """Changes a state if it is `source` (below 0: whatever it is); whether it was."""
        return bool(self._c.stitchfleet_move(signature, source, target) == 0)

    def allow(self, signature: int, output: int, absolute: float) -> None:
        self._c.stitchfleet_allow(signature, output, absolute)

    def enable(self, enabled: bool) -> None:
        self._c.stitchfleet_enable(int(enabled))

    def enable_cluster(self, name: str, enabled: bool) -> None:
        self._c.stitchfleet_enable_cluster(name.encode(), int(enabled))

    def begin_step(self, step: int, stride: int, offset: int) -> None:
        self._c.stitchfleet_begin_step(step, stride, offset)

    def statistics(self, signature: int) -> SignatureStatistics:
        integers, reals = (ctypes.c_int64 * 10)(), (ctypes.c_double * 2)()
        if self._c.stitchfleet_statistics(signature, integers, reals):
            raise KeyError(signature)
        return SignatureStatistics(*integers, *reals)

    def cluster_statistics(self, name: str) -> tuple[int, bool, bool]:
        """(calls without a signature, gave up on new shapes, enabled)."""
        integers = (ctypes.c_int64 * 3)()
        if self._c.stitchfleet_cluster_statistics(name.encode(), integers):
            return 0, False, True
        return int(integers[0]), bool(integers[1]), bool(integers[2])

    def next_mismatch(self) -> MismatchReport | None:
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
    """numpy's dtype for a TensorFlow DataType number. Raises KeyError for one that kernels never see (strings, handles)."""
    import ml_dtypes
    import numpy as np

    dtypes: dict[int, np.dtype[Any]] = {
        1: np.dtype(np.float32),
        2: np.dtype(np.float64),
        3: np.dtype(np.int32),
        4: np.dtype(np.uint8),
        5: np.dtype(np.int16),
        6: np.dtype(np.int8),
        9: np.dtype(np.int64),
        10: np.dtype(np.bool_),
        14: np.dtype(ml_dtypes.bfloat16),
        17: np.dtype(np.uint16),
        19: np.dtype(np.float16),
        22: np.dtype(np.uint32),
        23: np.dtype(np.uint64),
    }
    return dtypes[tensorflow_enum]


def main() -> int:
    """`python -m stitchfleet.plugin.native.library CACHE`: builds the library; prints its path."""
    try:
        print(build_library(pathlib.Path(sys.argv[1]), find_tensorflow(), lambda line: print(line, file=sys.stderr)))
    except NativeBuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
