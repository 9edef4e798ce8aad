"""Our kernels: each candidate is judged by the float64 oracle and timed, in the stream and in a CUDA graph.

    python -m scripts.gpu.worker_ours --folder FOLDER

Commands: prepare (load, run once on poisoned outputs, hand the results to the oracle's processes), verdicts (wait for the oracle),
time, barrier, copy, facts.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import math
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from stitchfleet.compiler.check.judge import judge_by
from stitchfleet.compiler.check.oracle import evaluate_sample, evaluate_with_bounds
from stitchfleet.compiler.check.random_inputs import Regime
from stitchfleet.compiler.kernel.metadata import KernelMetadata
from stitchfleet.compiler.pipeline.cuda_runtime import Gpu, GpuError, GpuKernel

from .cases import CACHE_BYTES, Case, load_arrays, read_case, read_cases, save_arrays, sets_of
from .graphs import RecordedLaunches
from .workers import Answer, Command, answers, each_in_time, in_time, one_line, serve

WHOLE_ELEMENTS = 1 << 24
"""A larger case is judged by a sample of its slices."""
SMALL_ELEMENTS = 1 << 21
"""A smaller case is judged on inputs of a second regime, with NaN, infinities and the largest and smallest numbers."""
REPLAY_US = 2_000.0
REPLAYS = 15


def judged(folder: str, name: str, regime: str, results: str) -> str:
    """In a process of the oracle: the verdict on results that were saved; they are removed. "" if all are right."""
    place = Path(results)
    case = read_case(Path(folder), name)
    graph = case.graph(Path(folder))
    inputs = case.draw(graph, Regime(regime))
    found = load_arrays(place)
    for file in place.iterdir():
        file.unlink()
    place.rmdir()
    if max((array.size for array in (*inputs, *found)), default=0) > WHOLE_ELEMENTS:
        oracle, ranges = evaluate_sample(graph, inputs, np.random.default_rng(1))
        verdict = judge_by(graph, oracle, found, ranges=ranges)
    else:
        verdict = judge_by(graph, evaluate_with_bounds(graph, inputs), found)
    return "" if verdict.ok else str(verdict)


class Ours:
    """The handlers of the worker's commands (see the module), by name. answer: writes one line of results. pool: the oracle's
    processes."""

    def __init__(self, folder: Path, answer: Answer, pool: ProcessPoolExecutor) -> None:
        self.folder, self.answer, self.pool = folder, answer, pool
        self.cases = {case.name: case for case in read_cases(folder)}
        self.gpu = Gpu()
        self.results = Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
        self.waiting: list[tuple[str, str, str, Future[str]]] = []

    def facts(self, command: Command) -> None:
        target = self.gpu.target
        self.answer(
            fact="target",
            name=target.name,
            arch=target.arch,
            multiprocessors=target.multiprocessors,
            l2_bytes=target.l2_bytes,
            bytes_per_ns=target.bytes_per_ns,
            shared_bytes_per_block=target.shared_bytes_per_block,
            shared_bytes_per_multiprocessor=target.shared_bytes_per_multiprocessor,
            cooperative=target.cooperative,
        )

    def prepare(self, command: Command) -> None:
        """Runs each kernel once per regime."""
        for given in each_in_time(command, self.answer, "stitchfleet"):
            case = self.cases[given["name"]]
            graph = case.graph(self.folder)
            sizes = [node.element_count for node in graph.nodes]
            small = max(sizes) <= SMALL_ELEMENTS
            for regime in dict.fromkeys([case.regime, *((Regime.NORMAL, Regime.SPECIAL) if small else ())]):
                inputs = case.draw(graph, regime)
                for name in self._begun(case, command):
                    try:
                        with self._loaded(case, name) as kernel:
                            outputs = kernel.run(inputs)
                    except GpuError as error:
                        self._failed(case, name, error)
                        continue
                    place = self.results / f"{len(self.waiting)}"
                    save_arrays(place, outputs)
                    work = (str(self.folder), case.name, regime.value, str(place))
                    self.waiting.append((case.name, name, regime.value, self.pool.submit(judged, *work)))

    def verdicts(self, command: Command) -> None:
        """Waits for the oracle until the command's time is over; what is not judged then stays in the list."""
        later = []
        for case, kernel, regime, future in self.waiting:
            try:
                said = future.result(timeout=max(0.0, float(command["until"]) - time.time()))
                self.answer(name=case, kernel=kernel, regime=regime, wrong=said)
            except TimeoutError:
                later.append((case, kernel, regime, future))
            except Exception as error:
                self.answer(name=case, kernel=kernel, regime=regime, error=one_line(error))
        self.waiting = later
        self.answer(fact="not judged yet", count=len(later))

    def time(self, command: Command) -> None:
        for given in each_in_time(command, self.answer, "stitchfleet"):
            case = self.cases[given["name"]]
            graph = case.graph(self.folder)
            inputs = case.draw(graph)
            sets = sets_of(case, CACHE_BYTES)
            for name in self._begun(case, command):
                try:
                    self._time(case, name, inputs, sets)
                except GpuError as error:
                    self._failed(case, name, error)

    def _begun(self, case: Case, command: Command) -> Iterator[str]:
        """The case's kernels but those that the command leaves out; each is announced, so that it is known which one never ended."""
        for name in case.kernels:
            if name not in command.get("skip", ()):
                self.answer(begins=name, case=case.name)
                yield name

    def _failed(self, case: Case, kernel: str, error: GpuError) -> None:
        """Tells of a kernel that failed; if the context is lost with it, the process ends, and another goes on behind the kernel."""
        self.answer(name=case.name, contestant="stitchfleet", kernel=kernel, error=one_line(error))
        try:
            self.gpu.to_device(self.gpu.allocate(4), np.zeros(4, np.uint8))
        except Exception as lost:
            self.answer(error=f"the device's context is lost: {one_line(lost)}")
            for child in multiprocessing.active_children():
                child.kill()
            os._exit(1)

    def _time(self, case: Case, name: str, inputs: list[Any], sets: int) -> None:
        with contextlib.ExitStack() as stack:
            kernels = [stack.enter_context(self._loaded(case, name)) for _ in range(sets)]
            for kernel in kernels:
                kernel.run(inputs)
            times = self._timed(lambda number: kernels[number % sets].launch(), sets)
        self.answer(name=case.name, contestant="stitchfleet", kernel=name, sets=sets, **times)

    def _timed(self, launch: Callable[[int], None], sets: int) -> dict[str, Any]:
        """Microseconds of one launch: in a CUDA graph, and put into the stream one by one."""

        def several(count: int) -> None:
            for number in range(count):
                launch(number)

        def plain(count: int) -> float:
            return self._between(lambda: several(count)) / count

        first = max(plain(sets), 0.5)
        count = max(sets, min(60, math.ceil(REPLAY_US / first)))
        count = -(-count // sets) * sets
        alone = [plain(count) for _ in range(5)]
        found: dict[str, Any] = {"us_without_graph": statistics.median(alone)}
        try:
            recorded = RecordedLaunches(self.gpu, lambda: several(count))
        except GpuError as error:
            return {
                **found,
                "us": statistics.median(alone),
                "low": min(alone),
                "high": max(alone),
                "note": one_line(error),
            }
        with contextlib.closing(recorded):
            self._between(recorded.launch)
            replays = [self._between(recorded.launch) / count for _ in range(REPLAYS)]
        return {**found, "us": statistics.median(replays), "low": min(replays), "high": max(replays)}

    def _between(self, begin: Callable[[], Any]) -> float:
        """Microseconds between two events around what `begin` puts into the stream."""
        return self.gpu.elapsed_ns(begin) / 1e3

    @contextlib.contextmanager
    def _loaded(self, case: Case, name: str) -> Iterator[GpuKernel]:
        image = (self.folder / "kernels" / f"{name}.cubin").read_bytes()
        metadata: KernelMetadata = case.metadata(self.folder, name)
        with contextlib.closing(GpuKernel(self.gpu, image, metadata)) as kernel:
            yield kernel

    def barrier(self, command: Command) -> None:
        """Microseconds of one grid barrier, for several grids: the difference of many and none."""
        gpu = self.gpu
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        gpu.call("cuModuleLoadData", ctypes.byref(module), (self.folder / "barrier.cubin").read_bytes())
        gpu.call("cuModuleGetFunction", ctypes.byref(function), module, b"barriers")
        semaphore = gpu.allocate(64)
        gpu.to_device(semaphore, np.zeros(64, np.uint8))
        address = np.array([int(semaphore)], np.uint64)
        for per_multiprocessor in (0.25, 0.5, 1, 2, 4, 8):
            grid = max(1, int(gpu.target.multiprocessors * per_multiprocessor))
            took = {}
            for turns in (0, 100):
                count = ctypes.c_int(turns)
                given = (ctypes.c_void_p * 2)(address.ctypes.data, ctypes.addressof(count))
                shape = (grid, 1, 1, 256, 1, 1, 0, gpu.stream, given)
                launch = lambda shape=shape: gpu.call("cuLaunchCooperativeKernel", function, *shape)  # noqa: E731
                self._between(launch)
                took[turns] = statistics.median(self._between(launch) for _ in range(15))
            self.answer(barrier_blocks=grid, us=(took[100] - took[0]) / 100, launch_us=took[0])

    def copy(self, command: Command) -> None:
        """Microseconds of device-to-device copies that read and write as many bytes as each case moves."""
        sizes = sorted({self.cases[given["name"]].bytes_moved for given in command["cases"]})
        for size in sizes:
            if size and in_time(command):
                half = max(size // 2, 4)
                pairs = max(1, min(6, -(-3 * CACHE_BYTES // size)))
                buffers = [(self.gpu.allocate(half), self.gpu.allocate(half)) for _ in range(pairs)]

                def begin(number: int, half: int = half, buffers: list[Any] = buffers) -> None:
                    source, target = buffers[number % len(buffers)]
                    self.gpu.copy(target, source, half)

                self.answer(copy_bytes=size, **self._timed(begin, pairs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--judges", type=int, default=6)
    arguments = parser.parse_args()
    answer = answers()
    # Processes of their own: they have neither this one's context of the GPU nor its channel for answers.
    with ProcessPoolExecutor(arguments.judges, multiprocessing.get_context("spawn")) as pool:
        try:
            ours = Ours(arguments.folder, answer, pool)
        except GpuError as error:
            answer(error=one_line(error))
            raise SystemExit(1) from None
        handlers = ("facts", "prepare", "verdicts", "time", "barrier", "copy")
        serve({name: getattr(ours, name) for name in handlers}, answer)
        ours.gpu.close()
        pool.shutdown(wait=False, cancel_futures=True)


if __name__ == "__main__":
    main()
