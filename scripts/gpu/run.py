"""Runs the benchmark on a machine with a GPU, Python 3.12, JAX and PyTorch; TensorFlow and a network are not needed.

    python3 -m scripts.gpu.run FOLDER --results FILE [--minutes 8] [--only GROUPS] [--contestants NAMES] [--resume]

FOLDER is what `scripts/gpu/prepare` made. Every result is one line of JSON in FILE, written at once, so that a run that is cut off
leaves what it had; with --resume, cases that FILE has are not repeated. The table of the end is also printed by `scripts.gpu.table`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from .cases import CACHE_BYTES, GROUPS, Case, read_case, read_cases, save_arrays, sets_of
from .table import read_results, table
from .workers import one_line

CONTESTANTS: Final = ("torch", "stitchfleet", "xla", "xla tuned", "xla without graphs")
SILENT_SECONDS: Final = 30.0
"""If our process says nothing for this long, one of its kernels is assumed to wait for ever."""
MOST_RESTARTS: Final = 6


class Worker:
    """One process of a contestant. Answers go to `results`."""

    def __init__(self, name: str, words: Sequence[str], results: Results) -> None:
        self.name, self.results, self.words = name, results, words
        self.running: tuple[str, str] | None = None  # the case and kernel that it has begun
        self.skip: list[str] = []
        self.heard = time.time()
        self.log = open(results.path.with_suffix(f".{name.replace(' ', '-')}.log"), "w")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-m", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            start_new_session=True,  # so that it can be ended together with its own processes
        )
        self.done: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                answer = json.loads(line)
            except ValueError:
                continue
            self.heard = time.time()
            if "begins" in answer:
                self.running = answer["case"], answer["begins"]
            elif "done" in answer:
                self.done.put(answer["done"])
            else:
                self.results.add({"worker": self.name, **answer})
        self.done.put("ended")

    def begin(self, do: str, cases: Sequence[dict[str, Any]], until: float, **more: Any) -> None:
        """Sends a command (see `workers`). until: a Unix time in seconds. more: further fields of the command."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps({"do": do, "cases": cases, "until": until, **more}) + "\n")
            self.process.stdin.flush()
        except OSError:
            self.done.put("ended")

    def wait(self, until: float, silent: float = 1e9) -> bool:
        """Waits until the last command is done. Returns False if it is not done by `until` (a Unix time in seconds), if the
        process has ended, or if it said nothing for `silent` seconds: a kernel may wait for ever."""
        self.heard = time.time()
        while True:
            try:
                said = self.done.get(timeout=1.0)
                break
            except queue.Empty:
                if time.time() > until or time.time() - self.heard > silent:
                    self.results.add(
                        {"worker": self.name, "error": f"no answer in time after {self.running}; it is stopped"}
                    )
                    self.stop()
                    return False
        if said == "ended":
            self.results.add({"worker": self.name, "error": f"the process has ended with {self.process.wait()}"})
            return False
        return True

    def again(self) -> Worker:
        """Ends this process and starts another one in its place, which leaves out the kernel at which this process was."""
        self.stop()
        worker = Worker(self.name, self.words, self.results)
        worker.skip = [*self.skip, *([self.running[1]] if self.running else [])]
        return worker

    def stop(self) -> None:
        """Ends the process and those that it has begun."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        """Ends the process, and closes its log."""
        self.stop()
        self.log.close()


class Results:
    """The file of results."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.begun = time.time()
        self.lock = threading.Lock()
        self.file = open(path, "a", buffering=1)  # noqa: SIM115

    def add(self, row: dict[str, Any]) -> None:
        with self.lock:
            self.file.write(json.dumps({"at": round(time.time() - self.begun, 2), **row}) + "\n")


def machine_facts() -> Iterator[dict[str, Any]]:
    """What the results depend on: GPU, driver, libraries."""
    yield {"fact": "date", "value": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())}
    yield {"fact": "python", "value": platform.python_version(), "processors": os.cpu_count()}
    asked = "name,driver_version,memory.total,clocks.sm,clocks.mem,clocks.max.sm"
    yield {"fact": "nvidia-smi", "value": _output(["nvidia-smi", f"--query-gpu={asked}", "--format=csv,noheader"])}
    from importlib import metadata

    for name in ("jax", "jaxlib", "torch", "triton", "numpy", "pycuda", "nvidia-cuda-nvrtc"):
        try:
            yield {"fact": name, "value": metadata.version(name)}
        except metadata.PackageNotFoundError:
            yield {"fact": name, "value": "not installed"}


def _output(words: Sequence[str]) -> str:
    try:
        return subprocess.run(words, capture_output=True, text=True, check=False, timeout=20).stdout.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        return one_line(error)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--only", default=",".join(GROUPS), help="groups, or the beginnings of cases' names")
    parser.add_argument("--contestants", default=",".join(CONTESTANTS))
    parser.add_argument("--prepare-seconds", type=float, default=90.0, help="most time for compiling a group")
    parser.add_argument(
        "--platform", choices=("cuda", "cpu"), default="cuda", help="cpu: a rehearsal; times mean nothing"
    )
    parser.add_argument("--resume", action="store_true", help="leave out cases that FILE has")
    arguments = parser.parse_args(words)
    try:
        every_case = read_cases(arguments.folder)
        made = json.loads((arguments.folder / "made.json").read_text())
    except (OSError, ValueError, TypeError) as error:
        print(f"{arguments.folder} was not prepared by scripts/bench-gpu prepare: {one_line(error)}", file=sys.stderr)
        return 2
    results = Results(arguments.results)
    end = time.time() + 60 * arguments.minutes
    for fact in machine_facts():
        results.add(fact)
    words_given = " ".join(sys.argv[1:] if words is None else words)
    results.add({"fact": "made", **made, "arguments": words_given})
    results.add({"fact": "cases", "cases": [asdict(case) for case in every_case]})
    chosen = arguments.only.split(",")
    had = finished(read_results(arguments.results)) if arguments.resume else {}
    cases = [case for case in every_case if case.is_among(chosen)]
    names = arguments.contestants.split(",")
    cases = [case for case in cases if not set(_taking_part(names, case.group)) <= had.get(case.name, set())]
    workers = list(_workers(names, arguments, results))
    try:
        _race(workers, cases, arguments, results, end)
    finally:
        for worker in workers:
            worker.close()
    print(table(arguments.results))
    return 0


def finished(rows: Sequence[dict[str, Any]]) -> dict[str, set[str]]:
    """Maps the name of each case to the contestants (named as the workers are) whose times the rows contain."""
    found: dict[str, set[str]] = {}
    for row in rows:
        if row.get("name") and (row.get("us") or row.get("wall_us") or row.get("us_without_graph")):
            found.setdefault(row["name"], set()).add(row["worker"])
    return found


def _taking_part(names: Sequence[str], group: str) -> list[str]:
    return [name for name in names if group in _GROUPS_OF.get(name, GROUPS)]


def _workers(names: Sequence[str], arguments: argparse.Namespace, results: Results) -> Iterator[Worker]:
    folder = str(arguments.folder)
    if "stitchfleet" in names:
        yield Worker("stitchfleet", ["scripts.gpu.worker_ours", "--folder", folder], results)
    if "torch" in names:
        yield Worker("torch", ["scripts.gpu.worker_torch", "--device", arguments.platform], results)
    for name in names:
        if name.startswith("xla"):
            platform_name = "cpu" if arguments.platform == "cpu" else "gpu"
            words = ["scripts.gpu.worker_xla", "--folder", folder, "--contestant", name, "--platform", platform_name]
            yield Worker(name, words, results)


def _race(
    workers: list[Worker], cases: Sequence[Case], arguments: argparse.Namespace, results: Results, end: float
) -> None:
    alive = list(workers)

    def finish(worker: Worker, do: str, rows: Sequence[dict[str, Any]], until: float) -> None:
        """Waits for a worker. If a kernel of ours ends its process, another one goes on behind that kernel."""
        restarts = 0
        while not worker.wait(until + 20, SILENT_SECONDS if worker.name == "stitchfleet" else 1e9):
            place = alive.index(worker)
            if (
                worker.name != "stitchfleet"
                or worker.running is None
                or restarts == MOST_RESTARTS
                or time.time() > until
            ):
                alive.pop(place)
                return
            restarts += 1
            names = [row["name"] for row in rows]
            rows = rows[names.index(worker.running[0]) :] if worker.running[0] in names else rows
            worker = alive[place] = worker.again()
            workers.append(worker)
            worker.begin(do, rows, until, skip=worker.skip)

    def all_do(do: str, rows: Sequence[dict[str, Any]], until: float, among: Sequence[Worker]) -> None:
        """All at once."""
        for worker in among:
            worker.begin(do, rows, until, skip=worker.skip)
        for worker in among:
            finish(worker, do, rows, until)

    def in_turn(do: str, rows: Sequence[dict[str, Any]], among: Sequence[Worker]) -> None:
        """One after another, so that nobody disturbs."""
        for worker in among:
            worker.begin(do, rows, end - 5, skip=worker.skip)
            finish(worker, do, rows, end - 5)

    def ours() -> list[Worker]:
        return [worker for worker in alive if worker.name == "stitchfleet"]

    for group in GROUPS:
        now = [case for case in cases if case.group == group]
        if not now or time.time() > end - 10:
            continue

        def taking_part(group: str = group) -> list[Worker]:
            return [worker for worker in alive if group in _GROUPS_OF.get(worker.name, GROUPS)]

        among = taking_part()
        rows = [{"name": case.name, "function": case.function, "sets": 1} for case in now]
        if any(worker.name == "torch" for worker in among):
            _save_inputs(arguments.folder, now, rows)
        # Who tunes by timing has the GPU alone meanwhile.
        alone = [[worker] for worker in among if worker.name in ("torch", "xla tuned", "xla autotuner")]
        together = [worker for worker in among if [worker] not in alone]
        for some in [*alone[:1], together, *alone[1:]]:
            all_do("prepare", rows, min(end - 10, time.time() + arguments.prepare_seconds), some)
        if group == cases[0].group:
            in_turn("facts", rows, ours())
            in_turn("barrier", rows, ours())
        in_turn("copy", rows, [worker for worker in ours() if group == "micro"])
        in_turn("time", rows, taking_part())
        in_turn("time", rows, [worker for worker in taking_part() if worker in ours()])
        xlas = [worker for worker in taking_part() if worker.name.startswith("xla")]
        if group == "step":
            in_turn("compare", rows, xlas)
        in_turn("inspect", rows, xlas)
    for worker in ours():
        worker.begin("verdicts", [], end - 5)
        worker.wait(end)


_GROUPS_OF: Final = {"stitchfleet": ("micro", "op"), "torch": ("micro",)}


def _save_inputs(folder: Path, cases: Sequence[Case], rows: Sequence[dict[str, Any]]) -> None:
    """Writes the inputs of the cases for a contestant that does not read HLO."""
    place = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path("/tmp")
    with ProcessPoolExecutor(min(6, os.cpu_count() or 1)) as pool:
        list(pool.map(_save, [(str(folder), case.name, str(place / f"stitch-{case.name}")) for case in cases]))
    for row, case in zip(rows, cases, strict=True):
        row["inputs"] = str(place / f"stitch-{case.name}")
        row["sets"] = sets_of(case, CACHE_BYTES)


def _save(work: tuple[str, str, str]) -> None:
    folder, name, place = work
    case = read_case(Path(folder), name)
    save_arrays(Path(place), case.draw(case.graph(Path(folder))))


if __name__ == "__main__":
    sys.exit(main())
