"""Rewrites each graph that TensorFlow offers: in the stitched arm clusters become Stitch ops; in both arms seeded random operators
share one stream. Everything else is left as it is.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from stitchfleet.telemetry.pod.garbage import not_collected

from ..arms import nested_calls, random_streams, switch
from ..arms.owner import Owner
from ..arms.switch import Arm
from ..base.containment import HEALTH, contained, say
from ..base.settings import Settings
from ..clusters import rewrite
from ..clusters.clusters import Cluster, ClusterPlan, find_clusters
from ..clusters.collectives_first import hand_on_first
from ..clusters.step_blocks import make_step_graph
from ..clusters.step_graph import StepGraph
from ..clusters.updates import VARIABLE_OPS
from ..graph import constants
from ..graph.memory_bound import OperandShapes
from ..graph.model_fingerprint import model_fingerprint
from ..graph.node_defs import RefusalOf
from ..graph.placed_graph import OpDefinitions, PlacedGraph
from ..graph.tf_ops import RANDOM_UNIFORM
from ..graph.trains import trains
from ..native.library import PASSES
from ..ranks.collectives import graph_steps_per_collective
from ..while_loops.fold import note_loops, stitch_loops
from .preparation import prepare

UNSETTLED = "its cluster's shapes never settle"
NO_KERNEL = "no kernel could be made for its cluster"
SLOWER = "TensorFlow's own operators are faster than its cluster's kernel"
SWITCHED_OFF = "its cluster is switched off by name"
DATASET_LOOP = "ScanDataset"
"""What a loop over a dataset in a function becomes. tf.data calls its body, and TensorFlow does not optimize it (core/data's
captured_function.cc)."""
IN_A_DATASET = "its work is in a loop over a dataset, which tf.data runs; a loop over iter(dataset) can be stitched"
"""Why a program stays plain."""


def _function_definition(name: str) -> Any | None:
    """The FunctionDef of a function in TensorFlow's eager context; None if there is no such function."""
    from tensorflow.python.eager import context

    here = context.context()
    return here.get_function_def(name) if here.has_function(name) else None


def _step_graph(placed: PlacedGraph, plan: ClusterPlan, clusters: list[Cluster]) -> StepGraph | None:
    """The step graph for `stitchfleet explain`. If it cannot be made, the graph is stitched all the same and the result is None."""
    try:
        return make_step_graph(placed, plan, clusters)
    except Exception as error:
        say(f"there will be no picture of this step: {type(error).__name__}: {error}")
        return None


@dataclass
class KnownCluster:
    """A cluster, which its name identifies. instances, scopes: the number of clusters with that name in the last graph that had
    one, and the name scope of each."""

    cluster: Cluster
    instances: int = 0
    scopes: list[str] = field(default_factory=list)


class Stitcher:
    """Rewrites offered graphs, and keeps their clusters by name. TensorFlow's threads call it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.clusters: dict[str, KnownCluster] = {}
        self.excluded_ops: set[str] = set()
        self.excluded_clusters: dict[str, str] = {}
        """Name of a cluster that the next graph leaves out -> the reason."""
        self.seconds = 0.0
        self.empty = settings.mode == "alternate"
        """Whether the stitched arm gets no Stitch ops (a self-test of the switch)."""
        self.mark_of_offered: Callable[[], str] = lambda: ""
        """The mark of the graph that is being offered on this thread (nested_calls.py); "" if it has none."""
        self.refusal_of_operator: RefusalOf = lambda node: ""
        self.operand_shapes: OperandShapes = lambda nodes: {}
        self.looks_for_collectives = False
        self.workers = 0
        """Number of the workers of a tf.distribute strategy that take their steps together; 0 without one."""
        self.on_collective: Callable[[Owner], None] = lambda program: None
        """Called, before the graph runs, when the first graph of a program is found that holds a collective of all ranks."""
        self._programs: dict[str, Owner] = {}
        """Name -> program, of the programs whose calls have been marked."""
        self._lock = threading.Lock()
        self._definitions: OpDefinitions | None = None

    @contained(PASSES)
    def passes(self) -> int:
        """In how many passes TensorFlow optimizes the graph that is being offered on this thread. `offered` is for the last one."""
        mark = self.mark_of_offered()
        return nested_calls.Mark.decode(mark).passes if mark else switch.passes()

    @contained(None)
    def offered(self, data: bytes, preserve: list[str]) -> bytes | None:
        """Rewrites a serialized GraphDef that TensorFlow has optimized. preserve: names of nodes that must stay. Returns the new
        GraphDef serialized, or None to leave the graph as it is."""
        mark = self.mark_of_offered()
        nested = nested_calls.Mark.decode(mark) if mark else None
        program, arm = switch.current() if nested is None else (self._programs.get(nested.program), Arm.STITCHED)
        if program is None:
            return None
        # TensorFlow and the model's own Python objects are millions, and the rewriting of a large graph makes a million more.
        with not_collected():
            return self._rewritten(data, set(preserve), program, arm, nested)

    def _rewritten(
        self, data: bytes, preserve: set[str], program: Owner, arm: Arm, nested: nested_calls.Mark | None
    ) -> bytes | None:
        """The work of `offered` for a graph of `program`. nested: the mark of the call in whose function's body the graph is."""
        from tensorflow.core.framework import graph_pb2

        start = time.perf_counter()
        graph: Any = graph_pb2.GraphDef()
        graph.ParseFromString(data)
        program.trains = program.trains or trains(graph)
        if self.looks_for_collectives and nested is None and not program.steps_per_collective:
            program.steps_per_collective = graph_steps_per_collective(graph, self.workers)
            if program.steps_per_collective:
                self.on_collective(program)
        if not program.model:
            program.model = model_fingerprint(graph)
        if nested is None:
            changed = self._own_graph(graph, preserve, program, arm)
        else:  # the body of a function that the stitched arm calls; it is offered on one of TensorFlow's threads
            changed = self._stitched_arm(graph, preserve, program, nested.function)
        self.seconds += time.perf_counter() - start
        return None if changed is None else bytes(changed.SerializeToString())

    def _own_graph(self, graph: Any, preserve: set[str], program: Owner, arm: Arm) -> Any | None:
        """Rewrites a program's own graph for an arm. Returns None if the graph stays as it is."""
        if program.kind == "session":
            arm = Arm.STITCHED if any(switch.SESSION_MARK in name for name in preserve) else Arm.PLAIN
        executor = switch.executor_name() if program.kind == "function" else ""
        shared = bool(executor) and random_streams.share_streams(graph, executor) > 0
        # Not shared are those on a GPU, and all of a call that bypassed `switch`: there is no name for a stream. The executors of a
        # session share kernels with a state.
        blocked = random_streams.seeded(graph.node) if program.kind == "function" else []
        nested = []
        if graph.library.function:  # it holds the signatures of the functions that are called
            nested = random_streams.seeded_in_called_functions(graph.node, _function_definition)
        stitched = None
        if nested and any(node.op == DATASET_LOOP for node in graph.node):
            program.refuse(IN_A_DATASET)
        elif nested:
            program.refuse(f"the function {nested[0]} that it calls has a seeded random operator of its own")
        elif blocked:
            program.refuse(f"seeded random operator {blocked[0]} cannot share its stream between the arms")
        elif arm is Arm.STITCHED:
            try:
                stitched = self._stitched_arm(graph, preserve, program, shared=shared)
            except Exception as error:
                if not shared:
                    raise
                # This arm must still draw from the streams of the other arm.
                HEALTH.give_up_for(error, "Stitcher.offered")
        return stitched if stitched is not None else graph if shared else None

    def _stitched_arm(
        self, graph: Any, preserve: set[str], program: Owner, function: str = "", shared: bool = False
    ) -> Any | None:
        """Marks the calls in a graph and stitches its clusters. Returns None if it has neither. shared: whether the graph is needed
        afterwards, with its calls marked, because random operators in it share a stream."""
        marked = nested_calls.mark_calls(graph, program.name, program.generation)
        if marked:
            self._programs[program.name] = program
        stitched = None
        if not self.empty and not any(node.op in rewrite.OUR_OPS for node in graph.node):
            # What prepares a graph for its clusters must not stay if it has none.
            own = copy.deepcopy(graph) if marked or shared else graph
            stitched = self._stitch(own, preserve, program, function)
        return graph if marked and stitched is None else stitched

    def _stitch(self, graph: Any, preserve: set[str], program: Owner, function: str) -> Any | None:
        """Stitches the clusters of a graph, which it changes. function: name of the nested function whose body the graph is, "" for
        the program's own graph. Returns None if there is no cluster."""
        with self._lock:
            if self._definitions is None:
                self._definitions = OpDefinitions()
        prepare(graph, self.refusal_of_operator, self.operand_shapes, preserve, self.settings.products)
        placed = PlacedGraph(graph)
        fetched = preserve
        if program.kind == "function" or function:
            # Of a function's graph TensorFlow preserves every operator with effects; its results leave through _Retval.
            fetched = preserve - {node.name for node in placed.nodes if node.op in (*VARIABLE_OPS, RANDOM_UNIFORM)}
        plan: ClusterPlan = find_clusters(
            placed,
            self._definitions,
            fetched,
            self.settings.min_cluster_ops,
            frozenset(self.excluded_ops),
            self.settings.remote,
            is_excluded=lambda name: self._reason_to_leave_out(name) is not None,
        )
        clusters = []
        for cluster in plan.clusters:
            reason = self._reason_to_leave_out(cluster.name)
            if reason is None:
                clusters.append(cluster)
                continue
            for i in cluster.members:
                plan.leave_out(reason, placed.nodes[i])
        with self._lock:
            for cluster in clusters:
                self.clusters.setdefault(cluster.name, KnownCluster(cluster))
            for name in {cluster.name for cluster in clusters}:
                scopes = [cluster.scope for cluster in clusters if cluster.name == name]
                self.clusters[name].instances, self.clusters[name].scopes = len(scopes), scopes
        rewritten = None
        if clusters:
            rewritten = self._with_loops(rewrite.apply_clusters(placed, clusters, preserve), preserve, plan, placed)
            hand_on_first(rewritten)
            constants.drop_unread(rewritten, preserve)  # those of which clusters have copies
        plan.step = _step_graph(placed, plan, clusters)
        if function:
            program.note_nested_plan(function, plan, len(clusters))
        else:
            program.note_plan(plan, len(clusters), frozenset(self.excluded_ops | self.excluded_clusters.keys()))
        return rewritten

    def _with_loops(self, graph: Any, preserve: set[str], plan: ClusterPlan, placed: PlacedGraph) -> Any:
        """Replaces each loop of a stitched graph that allows it by one Loop op. If that fails, the loops stay as they are."""
        assert self._definitions is not None
        try:
            found = stitch_loops(
                graph,
                self._definitions,
                self.refusal_of_operator,
                preserve,
                lambda name: self._reason_to_leave_out(name) is not None,
            )
            note_loops(plan, placed, found)
            return found.graph
        except Exception as error:
            say(f"loops stay in TensorFlow's executor: {type(error).__name__}: {error}")
            return graph

    def _reason_to_leave_out(self, name: str) -> str | None:
        """Why a cluster gets no Stitch op; None if it does."""
        if any(name.startswith(beginning) for beginning in self.settings.disable_clusters):
            return SWITCHED_OFF
        return self.excluded_clusters.get(name)
