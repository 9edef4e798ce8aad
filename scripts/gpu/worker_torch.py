"""A process that compiles the micro cases with TorchInductor and times them.

    python3 -m scripts.gpu.worker_torch --device cuda

It reads a command per line from stdin and answers in lines on stdout, both JSON; all other output goes to stderr. Commands:

    {"do": "prepare", "cases": [CASE...], "until": SECONDS}   compiles each case and runs it once
    {"do": "time", "cases": [CASE...], "until": SECONDS}      times each case

A case is {"name": ..., "function": a key of torch_functions.FUNCTIONS, "inputs": a folder (see `load_inputs`), "sets": how many
copies of the inputs the timed calls rotate over}. Nothing new begins after "until", a Unix time. {"done": the command's name} ends
the answers to a command. After an error that leaves the device unusable, the worker ends with exit code 1.

Other processes of this module compile ahead (command "compile"): they fill Inductor's cache on disk, and the worker takes the
compiled code from there. Kernels that compete for the best configuration are timed by one process at a time.
"""

from __future__ import annotations

import argparse
import fcntl
import gc
import getpass
import json
import os
import queue
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .cases import load_arrays
from .workers import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Case = Mapping[str, Any]
    Answer = Callable[[Mapping[str, Any]], None]

MODULE: Final = "scripts.gpu.worker_torch"
DEFAULT: Final = "inductor"
MAX_AUTOTUNE: Final = "inductor max-autotune"
MODES: Final[dict[str, str | None]] = {DEFAULT: None, MAX_AUTOTUNE: "max-autotune-no-cudagraphs"}

MANY_INPUTS: Final = 32  # cases with more are tuned last: each of their kernels is tuned
REPLAY_US: Final = 2000.0
FEWEST_CALLS, MOST_CALLS = 4, 50
REPEATS, PLAIN_REPEATS, QUICK_REPEATS = 15, 5, 3
OUT_OF_TIME: Final = "out of time"


class UnusableDeviceError(Exception):
    """The device fails all further calls of this process, after an illegal address for example."""


@dataclass(frozen=True)
class Job:
    """One compilation: an alternative of a case's function, for a contestant."""

    case: Case = field(hash=False, compare=False)
    name: str
    contestant: str
    alternative: str


@dataclass
class Compiled:
    """A compiled alternative that ran. kernels: how many it launches. cached: whether its code was in Inductor's cache."""

    alternative: str
    function: Callable[..., Any]
    kernels: int | None
    finite: bool
    cached: bool


def load_inputs(folder: str | Path, device: str) -> list[Any]:
    """Loads the arrays that `save_arrays` wrote to a folder as tensors. Raises FileNotFoundError if there are none."""
    import torch

    def tensor(array: Any) -> Any:
        if array.dtype.name == "bfloat16":
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)

    return [tensor(array).to(device) for array in load_arrays(Path(folder))]


def alternatives(function: str) -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """Returns the alternatives of a function by their names, each with Inductor's options for it. Functions of many tensors are also
    compiled with combined kernels, which Inductor makes on demand only."""
    from scripts.gpu.torch_functions import COMBINED, FUNCTIONS

    found: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
        each.__name__: (each, {}) for each in FUNCTIONS[function]
    }
    if function in COMBINED:
        found[f"{function} combo_kernels"] = (COMBINED[function], {"combo_kernels": True})
    return found


def renewed(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Copies a function with its code under another name, since Dynamo keeps what it compiled per code object."""
    code = function.__code__.replace(co_name=re.sub(r"\W", "_", name))
    return types.FunctionType(code, function.__globals__, code.co_name, function.__defaults__, function.__closure__)


def cache_hits() -> int:
    """Returns how often code came from Inductor's cache so far."""
    from torch._dynamo.utils import counters

    return int(counters["aot_autograd"]["autograd_cache_hit"] + counters["inductor"]["fxgraph_cache_hit"])


def as_tuple(results: Any) -> tuple[Any, ...]:
    """Returns results as a tuple, a single one too."""
    return tuple(results) if isinstance(results, (tuple, list)) else (results,)


class Device:
    """The device that runs the functions."""

    def __init__(self, name: str, quick: bool) -> None:
        import torch

        self.name, self.quick, self.torch = name, quick, torch
        self.is_cuda = name.startswith("cuda")
        if self.is_cuda:
            torch.empty(1, device=name)

    def wait(self) -> None:
        """Waits for all work on the device."""
        if self.is_cuda:
            self.torch.cuda.synchronize()

    def free(self) -> None:
        """Frees the memory of tensors that are no longer used."""
        gc.collect()
        if self.is_cuda:
            self.torch.cuda.empty_cache()

    def check(self, error: BaseException) -> None:
        """Raises UnusableDeviceError if the device works no more after this error."""
        try:
            self.wait()
        except Exception as second:
            raise UnusableDeviceError(one_line(error)) from second

    def timed(self, calls: Sequence[Callable[[], Any]]) -> dict[str, Any]:
        """Times calls that are made in turn: `us`, `low`, `high` and `us_without_graph` of one, and a `note` without a graph."""
        return self._timed_cuda(calls) if self.is_cuda else self._timed_cpu(calls)

    def _timed_cpu(self, calls: Sequence[Callable[[], Any]]) -> dict[str, Any]:
        def repeat(count: int) -> float:
            start = time.perf_counter()
            for number in range(count):
                calls[number % len(calls)]()
            return (time.perf_counter() - start) * 1e6 / count

        repeat(len(calls))
        count = self._count(repeat(len(calls)), len(calls))
        times = sorted(repeat(count) for _ in range(QUICK_REPEATS if self.quick else REPEATS))
        median = statistics.median(times)
        return {"us": median, "low": times[0], "high": times[-1], "us_without_graph": median, "calls": count}

    @staticmethod
    def _count(us: float, sets: int) -> int:
        count = min(MOST_CALLS, max(FEWEST_CALLS, round(REPLAY_US / max(us, 0.01))))
        return max(1, count // sets) * sets if count >= sets else sets

    def _timed_cuda(self, calls: Sequence[Callable[[], Any]]) -> dict[str, Any]:
        torch, sets = self.torch, len(calls)
        kept: list[Any] = [
            None
        ] * sets  # the last results stay allocated, so that results rotate over memory as inputs do

        def several(count: int) -> None:
            for number in range(count):
                kept[number % sets] = calls[number % sets]()

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            several(max(3, sets))
        torch.cuda.current_stream().wait_stream(side)
        self.wait()
        kept[:] = [None] * sets
        found: dict[str, Any] = {}
        count = max(FEWEST_CALLS, sets)
        graph = None
        try:
            graph = self._captured(several, count)
            count = self._count(statistics.median(self._events(graph.replay, 3)) / count, sets)
            kept[:] = [None] * sets
            del graph
            graph = self._captured(several, count)
            times = [us / count for us in self._events(graph.replay, QUICK_REPEATS if self.quick else REPEATS)]
            found = {"us": statistics.median(times), "low": min(times), "high": max(times)}
        except Exception as error:
            self.check(error)
            found = {"us": None, "low": None, "high": None, "note": f"no CUDA graph: {one_line(error)}"}
        kept[:] = [None] * sets
        del graph
        plain = [us / count for us in self._events(lambda: several(count), PLAIN_REPEATS)]
        return {**found, "us_without_graph": statistics.median(plain), "calls": count}

    def _captured(self, several: Callable[[int], None], count: int) -> Any:
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            several(count)
        return graph

    def _events(self, run: Callable[[], Any], repeats: int) -> list[float]:
        """Times runs in microseconds. They are queued without a wait between them, so that no launch is waited for."""
        cuda = self.torch.cuda
        run()
        pairs = [(cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)) for _ in range(repeats)]
        for start, end in pairs:
            start.record()
            run()
            end.record()
        self.wait()
        return [start.elapsed_time(end) * 1e3 for start, end in pairs]


class Compiler:
    """Compiles functions with Inductor for a device, in this process."""

    def __init__(self, device: Device, lock_path: str) -> None:
        import torch
        import torch._inductor.compile_fx

        self.device = device
        self.launches = 0
        torch.set_grad_enabled(False)
        torch._dynamo.config.recompile_limit = 64
        torch._dynamo.config.accumulated_recompile_limit = 1 << 20
        if device.is_cuda:
            self._watch_kernels(lock_path)
        gc.freeze()  # makes each later collection fast

    def _watch_kernels(self, lock_path: str) -> None:
        """Counts launches of kernels, and lets one process at a time measure configurations."""
        from torch._inductor.runtime.triton_heuristics import CachingAutotuner

        run, bench = CachingAutotuner.run, CachingAutotuner.bench
        lock = os.open(lock_path, os.O_RDWR | os.O_CREAT)

        def counting_run(autotuner: Any, *args: Any, **kwargs: Any) -> Any:
            self.launches += 1
            return run(autotuner, *args, **kwargs)

        def exclusive_bench(autotuner: Any, *args: Any, **kwargs: Any) -> Any:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                return bench(autotuner, *args, **kwargs)
            finally:
                fcntl.flock(lock, fcntl.LOCK_UN)

        CachingAutotuner.run, CachingAutotuner.bench = counting_run, exclusive_bench

    def inputs(self, case: Case) -> list[Any]:
        """Loads the inputs of a case. Raises ValueError for labels without a class: a kernel would read beyond its rows."""
        inputs = load_inputs(case["inputs"], self.device.name)
        if case["function"] == "cross_entropy":
            logits, labels = inputs
            if int(labels.min()) < 0 or int(labels.max()) >= logits.shape[-1]:
                raise ValueError("labels without a class")
        return inputs

    def compiled(self, job: Job, inputs: Sequence[Any]) -> Compiled:
        """Compiles a job and runs it on the inputs."""
        import torch
        from torch._inductor import list_mode_options, metrics

        function, options = alternatives(job.case["function"])[job.alternative]
        mode = MODES[job.contestant]
        options = {**(list_mode_options(mode) if mode else {}), **options}
        own = renewed(function, f"{job.name} {job.contestant} {job.alternative}")
        made = torch.compile(own, dynamic=False, fullgraph=True, options=options or None)
        metrics.reset()
        hits = cache_hits()
        made(*inputs)
        cached = cache_hits() > hits
        kernels: int | None = metrics.generated_kernel_count or None
        self.device.wait()
        self.launches = 0
        results = as_tuple(made(*inputs))
        kernels = self.launches or kernels
        finite = all(bool(each.isfinite().all()) for each in results)
        return Compiled(job.alternative, made, kernels, finite, cached)


class Helper:
    """A process that compiles jobs ahead."""

    def __init__(self, device: str) -> None:
        environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "4" if device.startswith("cuda") else "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", MODULE, "--device", device, "--processes", "0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )

    def compile(self, job: Job) -> Mapping[str, Any]:
        """Lets the process compile a job and returns its answer. Raises OSError or ValueError if the process has ended."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        command = {"do": "compile", "case": job.case, "contestant": job.contestant, "alternative": job.alternative}
        print(json.dumps(command), file=self.process.stdin, flush=True)
        answer: Mapping[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def end(self) -> None:
        """Ends the process and the processes that it started."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


class Pool:
    """Processes that compile jobs ahead, in the order of the jobs."""

    def __init__(self, device: str, processes: int) -> None:
        self.helpers = [Helper(device) for _ in range(processes)]

    def compiled(self, jobs: Sequence[Job], until: float) -> Iterator[tuple[Job, Mapping[str, Any]]]:
        """Yields each job with its process's answer as soon as it is there: {} if there was none, "error" if it failed."""
        waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
        ready: queue.SimpleQueue[tuple[Job | None, Mapping[str, Any]]] = queue.SimpleQueue()
        for job in jobs:
            waiting.put(job)

        def feed(helper: Helper) -> None:
            while time.time() < until:
                try:
                    job = waiting.get_nowait()
                except queue.Empty:
                    break
                try:
                    ready.put((job, helper.compile(job)))
                except (OSError, ValueError):
                    ready.put((job, {}))
                    break
            ready.put((None, {}))

        for helper in self.helpers:
            threading.Thread(target=feed, args=(helper,), daemon=True).start()
        left, running = dict.fromkeys(jobs), len(self.helpers)
        while running and left:
            try:
                done, answer = ready.get(timeout=max(0.0, min(until - time.time(), threading.TIMEOUT_MAX)))
            except queue.Empty:
                break
            if done is None:
                running -= 1
            else:
                del left[done]
                yield done, answer
        for job in left:
            yield job, {}

    def end(self) -> None:
        """Ends the processes."""
        for helper in self.helpers:
            helper.end()


class Worker:
    """Carries out the commands."""

    def __init__(self, device: str, quick: bool, processes: int, answer: Answer) -> None:
        self.answer, self.quick, self.processes = answer, quick, processes
        self.device = Device(device, quick)
        self.pool = Pool(device, processes) if processes else None
        self.compiler = Compiler(self.device, os.path.join(os.environ["TORCHINDUCTOR_CACHE_DIR"], "measuring.lock"))
        self.prepared: dict[tuple[str, str], list[Compiled] | str] = {}

    @property
    def contestants(self) -> list[str]:
        """The contestants' names: the quick run leaves out the one that takes long."""
        return [DEFAULT] if self.quick else [DEFAULT, MAX_AUTOTUNE]

    def handle(self, command: Mapping[str, Any]) -> None:
        """Carries out a command. Raises UnusableDeviceError after it has said so for what is left of the command."""
        do, until = command["do"], float(command.get("until", float("inf")))
        if do == "compile":
            self._compile(command)
            return
        if do == "prepare":
            self._prepare(command["cases"], until)
        elif do == "time":
            self._each(command["cases"], until, self._time)
        else:
            self.answer({"error": f"unknown command {do}"})
        self.answer({"done": do})

    def end(self) -> None:
        """Ends the processes that compile."""
        if self.pool:
            self.pool.end()
            self.pool = None

    def _compile(self, command: Mapping[str, Any]) -> None:
        job = Job(command["case"], command["case"]["name"], command["contestant"], command["alternative"])
        error = self._tried(lambda: self._run_once(job))[1]
        self.answer({"error": error} if error else {"compiled": True})

    def _run_once(self, job: Job) -> Compiled:
        return self.compiler.compiled(job, self.compiler.inputs(job.case))

    def _tried(self, call: Callable[[], Any]) -> tuple[Any, str]:
        """Returns a call's result and "", or None and what failed."""
        try:
            result, error = call(), ""
        except Exception as raised:
            self.device.check(raised)
            result, error = None, one_line(raised)
        self.device.free()
        return result, error

    def _prepare(self, cases: Sequence[Case], until: float) -> None:
        jobs = self._jobs(cases)
        missing = Counter((job.name, job.contestant) for job in jobs)
        compiled: dict[tuple[str, str], list[Compiled]] = {key: [] for key in missing}
        errors: dict[tuple[str, str], str] = {}
        seconds: Counter[tuple[str, str]] = Counter()
        dead = ""
        if self.pool is None and self.processes:
            self.pool = Pool(self.device.name, self.processes)
        ahead = self.pool.compiled(jobs, until) if self.pool else ((job, {}) for job in jobs)
        for job, answer in ahead:
            key = (job.name, job.contestant)
            start = time.time()
            if dead or answer.get("unusable"):
                errors[key] = dead or answer["error"]
            elif start >= until:
                errors.setdefault(key, OUT_OF_TIME)
            else:
                try:
                    made, error = self._tried(lambda job=job: self._run_once(job))  # type: ignore[misc]
                except UnusableDeviceError as raised:
                    dead = error = f"the device is unusable: {raised}"
                    made = None
                if made is not None:
                    compiled[key].append(made)
                else:
                    errors[key] = f"{job.alternative}: {error}"
            seconds[key] += time.time() - start  # type: ignore[assignment]
            missing[key] -= 1
            if not missing[key]:
                self.prepared[key] = compiled[key] or errors[key]
                self._say_prepared(key, compiled[key], errors.get(key, ""), seconds[key])
        self.end()
        if dead:
            raise UnusableDeviceError(dead)

    def _jobs(self, cases: Sequence[Case]) -> list[Job]:
        def is_large(case: Case) -> bool:
            return (Path(case["inputs"]) / f"{MANY_INPUTS}.npy").exists()

        jobs = []
        for contestant in self.contestants:
            # What takes longest begins first, except where it may take all the time that is left.
            for case in sorted(cases, key=is_large, reverse=contestant == DEFAULT):
                try:
                    names = list(alternatives(case["function"]))
                except KeyError:
                    self.prepared[case["name"], contestant] = "no such function"
                    self.answer({"name": case["name"], "contestant": contestant, "error": "no such function"})
                    continue
                jobs += [Job(case, case["name"], contestant, name) for name in names]
        return jobs

    def _say_prepared(self, key: tuple[str, str], compiled: Sequence[Compiled], error: str, seconds: float) -> None:
        said: dict[str, Any] = {"name": key[0], "contestant": key[1]}
        if not compiled:
            self.answer({**said, "error": error})
            return
        kernels = {each.alternative: each.kernels for each in compiled}
        said |= {"prepared": True, "seconds": round(seconds, 3), "kernels": next(iter(kernels.values()))}
        said |= {"alternatives": kernels, "finite": all(each.finite for each in compiled)}
        said["cached"] = sum(each.cached for each in compiled)
        self.answer({**said, "note": error} if error else said)

    def _each(self, cases: Sequence[Case], until: float, do: Callable[[Case, str], dict[str, Any]]) -> None:
        dead = ""
        for case in cases:
            for contestant in self.contestants:
                said = {"name": case["name"], "contestant": contestant}
                if dead or time.time() >= until:
                    self.answer({**said, "error": dead or OUT_OF_TIME})
                    continue
                try:
                    found, error = self._tried(lambda case=case, contestant=contestant: do(case, contestant))  # type: ignore[misc]
                except UnusableDeviceError as raised:
                    dead = error = f"the device is unusable: {raised}"
                self.answer({**said, "error": error} if error else {**said, **found})
        if dead:
            raise UnusableDeviceError(dead)

    def _ready(self, case: Case, contestant: str) -> list[Compiled]:
        """Returns what "prepare" made of a case; compiles it if it was not asked for. Raises ValueError if that failed."""
        key = (case["name"], contestant)
        if key not in self.prepared:
            inputs = self.compiler.inputs(case)
            names = alternatives(case["function"])
            self.prepared[key] = [
                self.compiler.compiled(Job(case, case["name"], contestant, name), inputs) for name in names
            ]
        ready = self.prepared[key]
        if isinstance(ready, str):
            raise ValueError(f"not prepared: {ready}")
        return ready

    def _time(self, case: Case, contestant: str) -> dict[str, Any]:
        ready = self._ready(case, contestant)
        first = self.compiler.inputs(case)
        sets = [first] + [[each.clone() for each in first] for _ in range(int(case.get("sets", 1)) - 1)]
        found: list[dict[str, Any]] = []
        for each in ready:
            calls = [lambda inputs=inputs, each=each: each.function(*inputs) for inputs in sets]
            times = self.device.timed(calls)
            found.append({**times, "alternative": each.alternative, "kernels": each.kernels})
            self.device.free()
        best = min(found, key=lambda times: (times["us"] is None, times["us"] or times["us_without_graph"]))
        return {**best, "all": {times["alternative"]: times["us"] for times in found}}


def main() -> int:
    """Carries out the commands on stdin until it ends."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    options.add_argument("--device", default="cuda", help="cuda or cpu")
    options.add_argument("--quick", action="store_true", help="fewer repeats, and no max-autotune")
    options.add_argument("--processes", type=int, help="processes that compile ahead")
    given = options.parse_args()
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if given.processes is None:
        given.processes = min(6, (os.cpu_count() or 1) // 2) if given.device.startswith("cuda") else 0
    cache = os.path.join(tempfile.gettempdir(), f"torchinductor_{getpass.getuser()}")
    os.makedirs(os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", cache), exist_ok=True)
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "8" if given.device.startswith("cuda") else "1")

    def answer(said: Mapping[str, Any]) -> None:
        print(json.dumps(said), file=replies, flush=True)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends the processes that compile
    worker = None
    try:
        worker = Worker(given.device, given.quick, given.processes, answer)
        for line in sys.stdin:
            worker.handle(json.loads(line))
    except UnusableDeviceError as error:
        answer({"error": one_line(error), "unusable": True})
        return 1
    except Exception as error:
        answer({"error": one_line(error), "unusable": True})
        raise
    finally:
        if worker is not None:
            worker.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
