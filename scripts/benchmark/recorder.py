"""Runs a workload's script in this process and profiles its iterations. `coverage` starts it; it is not for use by hand.

    recorder.py FOLDER SCRIPT [ARGUMENT ...]

The script runs as if it had been started itself. Its output is passed through, and its lines "step N" trigger the profiler: they come
between steps, on the thread that trains. Once the file FOLDER/go exists and no kernel waits for the oracle's verdict (for at most a
minute), TensorFlow's profiler runs from one such line to the next. The time of each node is written to FOLDER/profile.json, and the
script is ended. Under `stitchfleet run`, FOLDER/members.json lists which nodes of the offered graphs went into stitch ops. In a job
of several ranks, rank 0 times its collectives instead (Collectives).
"""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import re
import runpy
import shutil
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from stitchfleet.plugin.graph.memory_bound import OperandShapes

FIRST_STEP = 20
"""The profile begins at the first line from this step on, after tracing and the first runs of the executors."""
JUDGE_SECONDS = 60.0
_STEP = re.compile(r"^step\s+(\d+)\b")


class Lines:
    """A standard output that calls `seen` with the number of each step that is reported."""

    def __init__(self, stream: TextIO, seen: Callable[[int], None]) -> None:
        self._stream, self._seen = stream, seen

    def write(self, text: str) -> int:
        written = self._stream.write(text)
        if found := _STEP.match(text):
            self._stream.flush()
            self._seen(int(found[1]))
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Profiler:
    """Runs TensorFlow's profiler from one report to the next, so over complete steps."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._first: int | None = None
        self._deadline: float | None = None

    def seen(self, step: int) -> None:
        import tensorflow as tf

        from scripts.benchmark.trace import node_times

        profiler = tf.profiler.experimental
        if self._first is None:
            if step >= FIRST_STEP and (self._folder / "go").exists() and self._may_begin():
                self._first = step
                levels = profiler.ProfilerOptions(host_tracer_level=3, python_tracer_level=0, device_tracer_level=0)
                profiler.start(str(self._folder / "trace"), options=levels)
            return
        profiler.stop()
        (file,) = (self._folder / "trace").rglob("*.xplane.pb")
        nodes, allocated, wall = node_times(file.read_bytes())
        text = {
            "steps": step - self._first,
            "nodes": [list(node) for node in nodes],
            "allocated_bytes": allocated,
            "wall_us": wall,
        }
        (self._folder / "profile.json").write_text(json.dumps(text))
        shutil.rmtree(self._folder / "trace")
        raise KeyboardInterrupt  # ends the script, as Ctrl-C would

    def _may_begin(self) -> bool:
        """Whether no kernel waits for the oracle's verdict, after which it is in use again or reverted for good."""
        activation = sys.modules.get("stitchfleet.plugin.entry.activation")
        job = activation.JOB if activation is not None else None
        if job is None or job.kernels is None:
            return True
        self._deadline = self._deadline or time.monotonic() + JUDGE_SECONDS
        suspect = any(
            job.kernels.state_of(executable) == "suspect" for executable in list(job.kernels.executables.values())
        )
        return not suspect or time.monotonic() > self._deadline


class Collectives:
    """On rank 0 of a job, writes Horovod's timeline from one report to the next, then TensorFlow's profile up to the one after.

    FOLDER/collectives.json gets: timeline, a file's name; clean and profiled, the numbers [first, last) of the steps of both; clock,
    seconds since the epoch minus time.monotonic(); starts, a trace.StepStarts.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._reports: list[int] = []

    def seen(self, step: int) -> None:
        import tensorflow as tf

        timeline = self._folder / "timeline.json"
        if not self._reports and (step < FIRST_STEP or not (self._folder / "go").exists()):
            return
        self._reports.append(step)
        if len(self._reports) == 1:
            _horovod().start_timeline(str(timeline))
            return
        profiler = tf.profiler.experimental
        if len(self._reports) == 2:
            _horovod().stop_timeline()
            levels = profiler.ProfilerOptions(host_tracer_level=3, python_tracer_level=0, device_tracer_level=0)
            profiler.start(str(self._folder / "trace"), options=levels)
            return
        profiler.stop()
        from scripts.benchmark.trace import step_starts

        (file,) = (self._folder / "trace").rglob("*.xplane.pb")
        first, second, third = self._reports
        found = {
            "timeline": timeline.name,
            "clean": [first + 1, second + 1],
            "profiled": [second + 1, third + 1],
            "clock": time.time() - time.monotonic(),
            "starts": step_starts(file.read_bytes(), third - second)._asdict(),
        }
        (self._folder / "collectives.json").write_text(json.dumps(found))
        shutil.rmtree(self._folder / "trace")
        raise KeyboardInterrupt


def _horovod() -> Any:
    return importlib.import_module("horovod.tensorflow")


class Members:
    """Observes the plugin while TensorFlow offers it graphs: their nodes before and after, and the clusters' names."""

    def __init__(self, out: pathlib.Path) -> None:
        self._out = out
        self._nodes: dict[str, dict[str, Any]] = {}
        """Node -> its operator, whether it is in a stitch op, and the cluster's name, or the reason why not."""
        self._lock = threading.Lock()
        """Several threads may offer graphs at once."""

    def install(self) -> None:
        from stitchfleet.plugin.clusters.clusters import find_clusters
        from stitchfleet.plugin.stitching import stitcher as module

        offered = module.Stitcher.offered
        thread = threading.local()

        def watched_find(graph: Any, *rest: Any, **named: Any) -> Any:
            plan = find_clusters(graph, *rest, **named)
            clusters = {graph.nodes[i].name: cluster.name for cluster in plan.clusters for i in cluster.members}
            thread.plan = (clusters, plan.left_out_nodes)
            return plan

        def watched(stitcher: module.Stitcher, data: bytes, preserve: list[str]) -> bytes | None:
            thread.plan = None
            result: bytes | None = offered(stitcher, data, preserve)
            if thread.plan is not None and result is not None:
                with self._lock:
                    self._note(data, result, stitcher.operand_shapes, *thread.plan)
            return result

        setattr(module, "find_clusters", watched_find)  # noqa: B010 - by name: mypy will not have a function replaced
        setattr(module.Stitcher, "offered", watched)  # noqa: B010

    def _note(
        self,
        before: bytes,
        after: bytes,
        operand_shapes: OperandShapes,
        clusters: dict[str, str],
        reasons: dict[str, str],
    ) -> None:
        from tensorflow.core.framework import graph_pb2

        from stitchfleet.plugin.graph.batch_products import SUM_OF_PRODUCTS_OP
        from stitchfleet.plugin.graph.tf_ops import is_product
        from stitchfleet.plugin.while_loops.program import operators_left

        given: Any = graph_pb2.GraphDef.FromString(before)
        made: Any = graph_pb2.GraphDef.FromString(after)
        # an assign in an update leaves a NoOp with its name
        names = {node.name for node in made.node if node.op == "NoOp"} - {n.name for n in given.node if n.op == "NoOp"}
        kept = operators_left(made.node) - names
        # a Sum that became a product itself, and the product that it read
        sums = {
            node.name: type(node).FromString(node.attr["product"].s)
            for node in made.node
            if node.op == SUM_OF_PRODUCTS_OP
        }
        constants = {node.name: node for node in given.node if node.op == "Const"}
        shapes = operand_shapes([node.name for node in given.node if is_product(node.op)])
        for node in given.node:
            fact: dict[str, Any] = {"op": node.op, "stitched": node.name not in kept or node.name in sums}
            if fact["stitched"]:
                fact["cluster"] = clusters.get(node.name) or next(
                    (cluster for part, cluster in clusters.items() if part.startswith(f"{node.name}/")), None
                )
            else:
                fact["reason"] = reasons.get(node.name, "its cluster is switched off by name")
            product = sums.get(node.name, node)
            if is_product(product.op):
                fact["shapes"] = shapes.get(product.name, [])
                fact["attributes"] = {
                    key: plain for key in product.attr if (plain := _plain(product.attr[key])) is not None
                }
                for number, name in enumerate(node.input):  # of a gradient of a convolution, the shape of its result
                    if name in constants and (sizes := _sizes(constants[name])) is not None:
                        fact["attributes"][f"input {number}"] = sizes
            self._nodes[node.name] = fact
        self._out.write_text(json.dumps(self._nodes))


def _plain(value: Any) -> bool | int | str | list[int] | None:
    """An attribute's value as JSON has it: of a flag, a number, a text or numbers; None for others."""
    kind = value.WhichOneof("value")
    if kind in ("b", "i", "type"):
        plain: bool | int = getattr(value, kind)
        return plain
    if kind == "s":
        return str(value.s, errors="replace")
    return list(value.list.i) if kind == "list" and value.list.i else None


def _sizes(node: Any) -> list[int] | None:
    """The value of a constant that is a vector of a few int32; None of others."""
    import tensorflow as tf

    tensor = node.attr["value"].tensor
    if tensor.dtype != tf.int32.as_datatype_enum or len(tensor.tensor_shape.dim) != 1:
        return None
    sizes: list[int] = tf.make_ndarray(tensor).tolist()
    return sizes if len(sizes) < 8 else None


def main(words: list[str]) -> None:
    folder, script = pathlib.Path(words[0]), pathlib.Path(words[1])
    root = pathlib.Path(__file__).resolve().parents[2]
    sys.path.append(str(root))  # for scripts.benchmark
    sys.path[0] = str(script.parent)
    sys.argv = words[1:]
    if os.environ.get("STITCHFLEET_ENABLED") == "1":
        Members(folder / "members.json").install()
    rank = os.environ.get("HOROVOD_RANK")
    if rank is None:
        sys.stdout = Lines(sys.stdout, Profiler(folder).seen)
    elif rank == "0":
        sys.stdout = Lines(sys.stdout, Collectives(folder).seen)
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
