"""XLA, through JAX, on the same HLO as our kernels. XLA reads its flags once, so each set of flags is a process of its own.

    python3 -m scripts.gpu.worker_xla --folder FOLDER --contestant xla [--platform cpu]

Two measures, since the cost of starting a computation from Python is no property of its kernels:
    us        the time of the kernels: what CUPTI saw of one execution, from the beginning of its first kernel to the end of its last,
              and `busy_us`, the sum of the kernels alone
    wall_us   many executions put into the stream one after another, divided by their number
"""

from __future__ import annotations

import argparse
import contextlib
import glob
import os
import re
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from .cases import CACHE_BYTES, Case, read_cases, sets_of
from .workers import Answer, Command, answers, each_in_time, in_time, one_line, serve

TUNED: Final = (
    "--xla_gpu_experimental_enable_fusion_autotuner=true "
    "--xla_gpu_unsupported_enable_triton_multi_output_fusion=true "
    "--xla_gpu_experimental_enable_triton_heroless_priority_fusion=true"
)
FLAGS: Final = {
    "xla": "",
    "xla tuned": TUNED,
    "xla autotuner": TUNED.split()[0],
    "xla without graphs": "--xla_gpu_enable_command_buffer=",
}
"""The contestants and their flags: the defaults, and those that newer versions may make the default."""
STITCHED: Final = " stitched"
_COPY: Final = re.compile(r"( = [a-z0-9]+\[[0-9,]*\](?:\{[^}]*\})? )copy\(")
PROFILED: Final = 12


class Xla:
    """The handlers of the worker's commands, by name. answer: writes one line of results. contestant: one of FLAGS."""

    def __init__(self, folder: Path, answer: Answer, contestant: str, platform: str) -> None:
        import jax
        from jax._src.lib import _jax, xla_client
        from jaxlib import _hlo

        jax.config.update("jax_enable_x64", True)
        self.folder, self.answer, self.contestant = folder, answer, contestant
        self.jax, self._jax, self._hlo, self._client = jax, _jax, _hlo, xla_client
        self.cases = {case.name: case for case in read_cases(folder)}
        self.device = jax.devices(platform)[0]
        self.parsing = threading.Lock()
        self.executables: dict[str, Any] = {}
        self.handler: Any = None
        self.scratch = tempfile.TemporaryDirectory()
        if any(case.group == "step" for case in self.cases.values()):
            from .ffi import register

            try:
                name = "CUDA" if platform != "cpu" else "cpu"
                self.handler = register(Path(self.scratch.name), name, images=folder)
            except Exception as error:
                answer(fact="handler", contestant=contestant, error=one_line(error))
        self.modules: dict[str, str] = {}

    def compile(self, name: str, text: str) -> Any:
        """The executable of a module in HLO's text form. The module's name becomes `name`."""
        first, rest = text[text.index("HloModule") :].split("\n", 1)
        symbol = "case_" + "".join(letter if letter.isalnum() else "_" for letter in name)
        attributes = first.partition(",")[2]
        text = f"HloModule {symbol}{',' if attributes else ''}{attributes}\n{rest}"
        text = _COPY.sub(r"\1reshape(", text)  # StableHLO has no copy
        with self.parsing:  # the parser crashes if two threads use it
            proto = self._hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
            stable = self._jax.mlir.hlo_to_stablehlo(proto)
        client = self.device.client
        options = self._client.CompileOptions()
        try:
            devices = self._client.DeviceList((self.device,))
            found = client.compile_and_load(stable, devices, options)
        except TypeError:
            found = client.compile_and_load(stable, [self.device], options)
        self.modules[name] = symbol
        return found

    def prepare(self, command: Command) -> None:
        """Compiles all cases, several at a time."""

        def one(name: str) -> None:
            begun = time.perf_counter()
            try:
                if not in_time(command):
                    raise TimeoutError("out of time")
                if self.cases[name].group == "step":
                    self._compile_step(self.cases[name])
                else:
                    self.executables[name] = self.compile(name, self.cases[name].hlo(self.folder).read_text())
                self.answer(
                    name=name, contestant=self.contestant, prepared=True, seconds=round(time.perf_counter() - begun, 2)
                )
            except Exception as error:
                self.answer(name=name, contestant=self.contestant, error=one_line(error))

        if not self.modules:  # the first compilation must be alone: two at once crash
            self.compile(
                "warm", "HloModule warm\nENTRY e {\n  x = f32[8] parameter(0)\n  ROOT y = f32[8] add(x, x)\n}\n"
            )
        steps = any(self.cases[given["name"]].group == "step" for given in command["cases"])
        # The library's products are chosen by timing: a step must be alone meanwhile.
        with ThreadPoolExecutor(1 if steps else min(12, os.cpu_count() or 1)) as pool:
            list(pool.map(one, [given["name"] for given in command["cases"]]))

    def _compile_step(self, case: Case) -> None:
        """A step as it is, and with our kernels."""
        self.executables[case.name] = self.compile(case.name, case.hlo(self.folder).read_text())
        if self.handler is None:
            return
        stitched = f"{case.name}{STITCHED}"
        self.cases[stitched] = case
        self.executables[stitched] = self.compile(stitched, case.stitched_hlo(self.folder).read_text())

    def compare(self, command: Command) -> None:
        """Compares the results of each step with and without our kernels: the largest distance of any result, relative to the
        result's norm. A reduction's order differs, so the results do."""
        import numpy as np

        for given in command["cases"]:
            name = given["name"]
            stitched = f"{name}{STITCHED}"
            if stitched not in self.executables:
                continue
            try:
                inputs = self._inputs(self.cases[name], 1)[0]
                first = [np.asarray(one) for one in self.executables[name].execute(inputs)]
                second = [np.asarray(one) for one in self.executables[stitched].execute(inputs)]
                again = [np.asarray(one) for one in self.executables[name].execute(inputs)]
                self.answer(
                    name=name,
                    contestant=self.contestant,
                    distance=max(map(distance, first, second), default=0.0),
                    own_distance=max(map(distance, first, again), default=0.0),
                )
            except Exception as error:
                self.answer(name=name, contestant=self.contestant, error=one_line(error))

    def time(self, command: Command) -> None:
        """Times the cases by the clock, then all of them in one profile."""
        ready: dict[str, tuple[list[list[Any]], dict[str, Any]]] = {}
        for name in self._ready(command):
            if name in self.executables:
                try:
                    ready[name] = self._clock(self.cases[name], self.executables[name])
                except Exception as error:
                    self.answer(name=name, contestant=self.contestant, error=one_line(error))
        found: dict[str, dict[str, Any]] = {}
        try:
            with tempfile.TemporaryDirectory() as folder:
                with self._trace(folder):
                    for name, (inputs, _) in ready.items():
                        self._run(self.executables[name], inputs, PROFILED)
                found = self._profile(folder)
        except Exception as error:
            self.answer(fact="profile", contestant=self.contestant, error=one_line(error))
        for name, (_, clocked) in ready.items():
            seen = found.get(self.modules[name], {"us": None})
            said = {"name": name.removesuffix(STITCHED), "contestant": self.contestant}
            if name.endswith(STITCHED):
                said["contestant"] = f"stitchfleet in {self.contestant}"
            self.answer(**said, **clocked, **seen)

    def _ready(self, command: Command) -> Iterator[str]:
        """The names of what is timed: a step, then the same with our kernels."""
        for given in each_in_time(command, self.answer, self.contestant):
            yield given["name"]
            if f"{given['name']}{STITCHED}" in self.executables:
                yield f"{given['name']}{STITCHED}"

    @contextlib.contextmanager
    def _trace(self, folder: str) -> Any:
        options = self.jax.profiler.ProfileOptions()
        options.python_tracer_level = 0
        options.host_tracer_level = 1
        self.jax.profiler.start_trace(folder, profiler_options=options)
        try:
            yield
        finally:
            self.jax.profiler.stop_trace()

    def _inputs(self, case: Case, sets: int) -> list[list[Any]]:
        if case.group == "step":
            from .steps import step_inputs

            arrays = step_inputs(case, self.folder)
        else:
            arrays = case.draw(case.graph(self.folder))
        return [[self.jax.device_put(array, self.device) for array in arrays] for _ in range(sets)]

    def _clock(self, case: Case, executable: Any) -> tuple[list[list[Any]], dict[str, Any]]:
        sets = sets_of(case, CACHE_BYTES) if case.group != "step" else 1
        inputs = self._inputs(case, sets)
        self._run(executable, inputs, 2)
        once = self._run(executable, inputs, sets)
        count = max(PROFILED, min(60, int(4_000 / max(once, 1.0))))
        walls = [self._run(executable, inputs, count) for _ in range(3)]
        return inputs, {"wall_us": statistics.median(walls), "sets": sets}

    def _run(self, executable: Any, inputs: list[list[Any]], count: int) -> float:
        """Microseconds of one of `count` executions that are put into the stream one after another."""
        begun = time.perf_counter()
        outputs: Any = None
        for number in range(count):
            outputs = executable.execute(inputs[number % len(inputs)])
        outputs[0].block_until_ready()
        return (time.perf_counter() - begun) * 1e6 / count

    def _profile(self, folder: str) -> dict[str, dict[str, Any]]:
        """From a profile: for each module, microseconds of one execution, the busy part, and its kernels."""
        (path,) = glob.glob(os.path.join(folder, "**", "*.xplane.pb"), recursive=True)
        data = self.jax.profiler.ProfileData.from_file(path)
        events: dict[str, list[tuple[float, float]]] = defaultdict(list)
        shown: dict[str, str] = {}
        planes = [plane for plane in data.planes if plane.name.startswith("/device:GPU")]
        for plane in planes:
            for line in plane.lines:
                if not line.name.startswith("Stream"):
                    continue
                for event in line.events:
                    stats = dict(event.stats)
                    if not shown:
                        shown = {key: str(value)[:60] for key, value in stats.items()}
                    events[str(stats.get("hlo_module", ""))].append((event.start_ns, event.duration_ns))
        self.answer(
            fact="profile",
            contestant=self.contestant,
            planes=[plane.name for plane in data.planes],
            lines=[line.name for plane in planes for line in plane.lines][:20],
            events={module: len(found) for module, found in list(events.items())[:10]},
            stats=shown,
        )
        return {module: executions(found, PROFILED) for module, found in events.items() if module}

    def inspect(self, command: Command) -> None:
        """The number of fusions and kernels that XLA makes of each case, from its optimized module."""
        for given in command["cases"]:
            name = given["name"]
            if name in self.executables:
                text = self.executables[name].hlo_modules()[0].to_string()
                entry = text.rpartition("\nENTRY ")[2]
                kernels = sum(entry.count(f" {word}(") for word in ("fusion", "custom-call", "copy", "reduce", "sort"))
                self.answer(name=name, contestant=self.contestant, kernels_in_entry=kernels)


def executions(events: Sequence[tuple[float, float]], count: int) -> dict[str, Any]:
    """Statistics of a module's kernels (begin and duration in ns) in `count` executions. busy_us: the kernels alone, the mean of all
    executions. us, low, high: from the first kernel's begin to the last one's end, if each execution has the same kernels; the first
    two executions do not count."""
    ordered = sorted(events)
    kernels, rest = divmod(len(ordered), count)
    found: dict[str, Any] = {"us": None, "busy_us": sum(one[1] for one in ordered) / 1e3 / count}
    found["kernels"] = len(ordered) / count
    if rest or not kernels:
        return found
    runs = [ordered[first : first + kernels] for first in range(2 * kernels, len(ordered), kernels)]
    spans = [(max(begin + took for begin, took in run) - run[0][0]) / 1e3 for run in runs]
    busy = [sum(took for _, took in run) / 1e3 for run in runs]
    return {
        **found,
        "us": statistics.median(spans),
        "low": min(spans),
        "high": max(spans),
        "busy_us": statistics.median(busy),
    }


def distance(first: Any, second: Any) -> float:
    """|first - second| / |first|, in float64; 0 if both are the same; infinite if only one has a NaN somewhere."""
    import numpy as np

    a, b = (np.asarray(one).astype(np.float64).reshape(-1) for one in (first, second))
    odd = np.isnan(a) | np.isinf(a) | np.isnan(b) | np.isinf(b)
    if not np.array_equal(a[odd], b[odd], equal_nan=True):
        return float("inf")
    gap = float(np.linalg.norm(a[~odd] - b[~odd]))
    return gap / max(float(np.linalg.norm(a[~odd])), 1e-300) if gap else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--contestant", choices=FLAGS, default="xla")
    parser.add_argument("--platform", default="gpu")
    arguments = parser.parse_args()
    answer = answers()
    # A step with our kernels gets the same kernels for its products as the step without: what XLA finds by timing is kept.
    with tempfile.TemporaryDirectory() as kept:
        cache = f"--xla_gpu_per_fusion_autotune_cache_dir={kept}" if arguments.platform != "cpu" else ""
        flags = (os.environ.get("XLA_FLAGS", ""), FLAGS[arguments.contestant], cache)
        os.environ["XLA_FLAGS"] = " ".join(flag for flag in flags if flag)
        os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        try:
            xla = Xla(arguments.folder, answer, arguments.contestant, arguments.platform)
        except Exception as error:
            answer(error=one_line(error))
            raise SystemExit(1) from None
        serve({name: getattr(xla, name) for name in ("prepare", "time", "inspect", "compare")}, answer)


if __name__ == "__main__":
    main()
