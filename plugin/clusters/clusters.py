"""Finds the clusters of a placed TensorFlow graph: which operators become one Stitch op, and why the others do not.

    placed graph
    -> updates       the optimizer's chains, merged over all variables (updates.py)
    -> candidates    by operator table, dtypes, preserved nodes
    -> scopes        connected sets that cause no cycle, of one frame, one deadness predicate, one device (compiler.step.scopes), and
                     of effects that happen at the end of the data or of others (end_of_data.py)
    -> trimming      renamings and shape arithmetic leave the border
    -> copies        members of another cluster that are cheaper to compute again than to read (recompute.py)
    -> Cluster       with a canonical body

A body is canonical: its members are renamed n0, n1, ... in an order that depends on the structure alone, its arguments a0, a1, ... So
equal structures have equal bodies, equal names and one kernel, across layers, runs and ranks.
"""

from __future__ import annotations

import collections
import hashlib
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from stitchfleet.compiler.step import scopes
from stitchfleet.compiler.support.sequences import zip_strict

from ..base.dtypes import DT_BOOL, DT_INT32, KERNEL_DTYPES, WIDE_FLOATS
from ..base.op_names import READ_VARIABLE, RESOURCE_GATHER
from ..graph import control_flow, convolution_gradients, fused, pooling
from ..graph.placed_graph import GraphNode, OpDefinitions, PlacedGraph, Port, is_small_const
from ..graph.tf_ops import (
    COMPILED_BY_XLA,
    RANDOM_UNIFORM,
    UNCOUNTED,
    OpRule,
    is_compiled_by_xla,
    is_product,
    rule_of,
    why_not,
)
from . import data_extents, demands, end_of_data, rare_data, recompute, resizes, updates
from .bodies import BodyBuilder
from .step_graph import StepGraph

MAX_ARGUMENTS = 512
MAX_UPDATE_ARGUMENTS = 4096
"""An update has four tensors and more for each variable of the model. That of a model with more variables becomes several."""
REMOTE_DISTANCE = 8
"""Two clusters that no path connects are merged if their beginnings are at most this many operators apart."""
AT_THE_BORDER = "renames or reshapes at a cluster's border"
_MOVEMENTS = frozenset(
    "Transpose ConcatV2 Pack Split Slice StridedSlice SpaceToBatchND BatchToSpaceND SpaceToDepth DepthToSpace Roll".split()
)
_APPLY_RULE, _ASSIGN_RULE, _READ_RULE = OpRule(weight=8), OpRule(), OpRule(weight=0)


@dataclass(frozen=True)
class Cluster:
    """A set of nodes that becomes one Stitch op: the ports that enter and leave it, and its functions. Types are DataType numbers."""

    name: str
    """label_hash. The hash covers both functions and `value_arguments`, so it is equal for all clusters with the same structure."""
    members: tuple[int, ...]
    arguments: tuple[Port, ...]
    argument_types: tuple[int, ...]
    results: tuple[Port, ...]
    result_types: tuple[int, ...]
    host_arguments: int
    """Number of leading arguments that are in host memory on every device: `value_arguments` and `handles`."""
    value_arguments: tuple[int, ...]
    """Arguments whose values lowering needs (OpRule.values)."""
    control_inputs: tuple[int, ...]
    body: bytes
    """The function that is compiled, and that a bundle reproduces: a function of values, as a serialized FunctionDefLibrary."""
    scope: str
    """The longest name scope that all members share, for people."""
    op_counts: dict[str, int]
    fallback: bytes
    """The function that the op runs without a kernel. Equal to `body` for most clusters (bodies.py)."""
    handles: tuple[int, ...] = ()
    """Arguments that are variables' handles; `argument_types` has the variables' types."""
    written: tuple[int, ...] = ()
    """Handles of the variables that the cluster writes. `body` returns their new values after `results`."""
    order: tuple[int, ...] = ()
    """The members and the copied members of other clusters, in the order of the bodies: the k-th is named "nk" there."""
    demands: bool = False
    """Whether `body` has a last result, a bool scalar: whether TensorFlow's operators would raise no error (demands.py)."""

    @property
    def all_result_types(self) -> tuple[int, ...]:
        """Types of the kernel's outputs: the op's results, the new values of the variables, and whether the demands are met."""
        return (
            self.result_types
            + tuple(self.argument_types[k] for k in self.written)
            + ((DT_BOOL,) if self.demands else ())
        )


@dataclass(frozen=True)
class FoldedLoop:
    """A while loop that became one op (while_loops/fold.py).

    name: the op's. frame: the loop's. members: names of all its nodes. vanished: members for which no kernel runs any more.
    """

    name: str
    frame: str
    members: frozenset[str]
    vanished: frozenset[str]


@dataclass
class ClusterPlan:
    """The clusters and loops of one graph, and why its other nodes stay in TensorFlow.

    left_out: reason -> operator -> count.
    """

    clusters: list[Cluster] = field(default_factory=list)
    loops: list[FoldedLoop] = field(default_factory=list)
    staying_loops: dict[str, str] = field(default_factory=dict)
    """Name of a loop -> why its operators stay in TensorFlow's executor."""
    left_out: dict[str, collections.Counter[str]] = field(default_factory=dict)
    left_out_nodes: dict[str, str] = field(default_factory=dict)
    """Name of a node that is in no cluster -> reason. `left_out` counts only the operators that compute something."""
    step: StepGraph | None = None
    """The step as `stitchfleet explain` shows it; None if it could not be made."""

    def leave_out(self, reason: str, node: GraphNode) -> None:
        """Notes that a node stays in TensorFlow."""
        self.left_out_nodes[node.name] = reason
        if node.op not in UNCOUNTED:
            self.left_out.setdefault(reason, collections.Counter())[node.op] += 1

    def take_in(self, node: GraphNode) -> None:
        """Undoes `leave_out` for a node. Raises KeyError if it was not left out."""
        reason = self.left_out_nodes.pop(node.name)
        if node.op not in UNCOUNTED:
            self.left_out[reason] -= collections.Counter([node.op])
            if not self.left_out[reason]:
                del self.left_out[reason]


def find_clusters(
    graph: PlacedGraph,
    definitions: OpDefinitions,
    preserve: Collection[str],
    min_ops: int = 2,
    excluded_ops: Collection[str] = (),
    remote: bool | None = None,
    is_excluded: Callable[[str], bool] = lambda name: False,
) -> ClusterPlan:
    """Finds the clusters of a placed graph. The graph is not changed.

    preserve: names of nodes that must stay. min_ops: least weight of a cluster (OpRule.weight). excluded_ops: operators that could
    not be lowered before. remote: also merge clusters that no path connects; None: only those on a GPU. is_excluded: whether the
    caller will leave out a cluster of a given name.
    """
    plan = ClusterPlan()
    liveness = control_flow.analyse(graph)
    reasons = [_reason_to_stay(graph, node.index, definitions, preserve, excluded_ops) for node in graph.nodes]
    for i in data_extents.decided_by_data(graph, definitions, liveness.order):
        reasons[i] = reasons[i] or data_extents.REASON
    edges = [
        (port.node, node.index)
        for node in graph.nodes
        for port in node.inputs
        if not control_flow.is_back_edge(graph, port.node)
    ]
    edges += [
        (source, node.index)
        for node in graph.nodes
        for source in node.control
        if not control_flow.is_back_edge(graph, source)
    ]
    anyway = end_of_data.happening_anyway(graph, liveness.order)
    key = [(node.proto.device, *liveness.key(node.index), node.index in anyway) for node in graph.nodes]
    # First the updates, over all variables at once; then the other clusters, with each update contracted to one node.
    free = [reason is None for reason in reasons]
    members = updates.find_members(graph, liveness.order, free, preserve, excluded_ops)
    in_update = [i in members for i in range(len(graph.nodes))]
    found = scopes.identify(
        scopes.Dag(len(graph.nodes), tuple(edges)),
        member=in_update,
        key=key,
        remote=True,
        pays=updates.fits(graph, MAX_UPDATE_ARGUMENTS),
    )
    representative = list(range(len(graph.nodes)))
    for group in found.clusters:
        if not updates.writes(graph, group):
            continue
        cluster = _make_cluster(graph, definitions, group, min_ops, plan, is_update=True)
        if cluster is not None:
            plan.clusters.append(cluster)
            for i in cluster.members:
                representative[i] = cluster.members[0]
    taken = {i for cluster in plan.clusters for i in cluster.members}
    contracted = {(representative[a], representative[b]) for a, b in edges}
    candidate = [reason is None and i not in taken for i, reason in enumerate(reasons)]
    for node in graph.nodes:
        reason = reasons[node.index]
        if reason is not None and node.index not in taken:
            plan.leave_out(reason, node)
    found = scopes.identify(
        scopes.Dag(len(graph.nodes), tuple(sorted((a, b) for a, b in contracted if a != b))),
        member=candidate,
        key=key,
        caps=scopes.Caps(remote_distance=REMOTE_DISTANCE),
        remote=remote if remote is not None else any(node.device_type == "GPU" for node in graph.nodes),
        pays=lambda first, second: remote or graph.nodes[first[0]].device_type == "GPU",
    )
    made = [_make_cluster(graph, definitions, group, min_ops, plan) for group in found.clusters]
    clusters = [cluster for cluster in made if cluster is not None]
    plan.clusters += _with_copies(graph, definitions, clusters, is_excluded)
    taken.update(i for cluster in plan.clusters for i in cluster.members)
    for node in graph.nodes:
        if node.index not in taken and node.name not in plan.left_out_nodes:
            plan.leave_out(AT_THE_BORDER, node)
    return plan


def _with_copies(
    graph: PlacedGraph,
    definitions: OpDefinitions,
    clusters: list[Cluster],
    is_excluded: Callable[[str], bool],
) -> list[Cluster]:
    """Clusters that benefit recompute members of their producers. Outputs that are no longer read are removed from the producers."""
    groups = [frozenset(cluster.members) for cluster in clusters]
    copies = recompute.find_copies(graph, groups)
    if not any(copies):
        return clusters
    changed = []
    for number, (group, copied) in enumerate(zip_strict(groups, copies)):
        cluster = _build_cluster(
            graph, definitions, group, recompute.results_of(graph, number, groups, copies), copied=copied
        )
        # The operators of a reader that is left out would read outputs that the producers no longer have.
        if isinstance(cluster, str) or (copied and is_excluded(cluster.name)):
            return clusters
        changed.append(cluster)
    return changed


_SCRATCH = {"FusedBatchNormV3": (5,), "FusedBatchNormGradV3": (3, 4)}
"""Operator -> the results that hold nothing, and whose shape depends on the implementation (rewrite.drop_reserve_spaces)."""


def _reason_to_stay(
    graph: PlacedGraph, index: int, definitions: OpDefinitions, preserve: Collection[str], excluded_ops: Collection[str]
) -> str | None:
    node = graph.nodes[index]
    rule = rule_of(node.proto)
    if is_compiled_by_xla(node.proto.attr):
        return COMPILED_BY_XLA
    if rule is None:
        return why_not(node.op, definitions.is_stateful(node.op))
    if node.op in excluded_ops:
        return "cannot be lowered to a kernel"
    if node.name in preserve:
        return "fetched, fed or otherwise preserved"
    if node.device_type not in ("CPU", "GPU"):
        return "not placed on a CPU or GPU"
    if node.device_type == "GPU" and (reason := _reason_to_stay_on_gpu(graph, node, definitions)) is not None:
        return reason
    types = definitions.outputs(node.proto)
    if not rule.shape_only:
        types = types + definitions.inputs(node.proto)[len(updates.handles_of(graph, index)) :]
    if any(dtype not in KERNEL_DTYPES for _, _, dtype in types):
        return "an element type that kernels do not have"
    if rule.dtypes is not None and any(dtype not in rule.dtypes for _, _, dtype in definitions.outputs(node.proto)):
        return "an element type that its kernel does not have"
    if (reason := demands.why_not(graph, index)) is not None:
        return reason
    if convolution_gradients.is_joined(graph, node):
        return "the convolution's gradient computes it as well"
    if pooling.is_too_large(node.proto):
        return "a pooling of large windows"
    gradients = pooling.gradients_of(graph, node)
    if any(_reason_to_stay(graph, i, definitions, preserve, excluded_ops) is not None for i in gradients):
        return "its gradient stays, and reads what it has kept"
    if not node.inputs:
        return "has no input"
    if not graph.consumers[index]:
        return "its results are not used"
    scratch = {Port(index, k) for k in _SCRATCH.get(node.op, ())}
    if any(not scratch.isdisjoint(graph.nodes[reader].inputs) for reader, _ in graph.consumers[index]):
        return "scratch that it returns is read"
    return None


def _reason_to_stay_on_gpu(graph: PlacedGraph, node: GraphNode, definitions: OpDefinitions) -> str | None:
    """Why an operator stays in TensorFlow on a GPU: its results there differ from those on the CPU, which the kernels reproduce."""
    own = ("FusedBatchNorm", "DepthwiseConv", "MaxPoolGrad")
    if node.op == RANDOM_UNIFORM or node.op.startswith(own) or is_product(node.op):
        return "its numbers on a GPU are a library's own"
    if node.op in ("Cumsum", "Cumprod") and int(node.proto.attr["T"].type) in WIDE_FLOATS:
        return "of floats it goes once along the dimension"
    if demands.has_demand(graph, node.index) and not demands.is_defined_on_gpu(graph, node.index):
        return "what it computes on a GPU for operands that the processor refuses is not documented"
    if any(dtype == DT_INT32 for _, _, dtype in definitions.outputs(node.proto)) and not _rule(node).shape_only:
        return "TensorFlow computes int32 on the processor"
    return None


def _rule(node: GraphNode) -> OpRule:
    """The row of a member of a cluster."""
    if node.op in updates.ASSIGNS:
        return _ASSIGN_RULE
    if node.op == READ_VARIABLE:
        return _READ_RULE
    return rule_of(node.proto) or _APPLY_RULE


def _make_cluster(
    graph: PlacedGraph,
    definitions: OpDefinitions,
    members: Iterable[int],
    min_ops: int,
    plan: ClusterPlan,
    is_update: bool = False,
) -> Cluster | None:
    inside = set(members) if is_update else _trim(graph, set(members))
    weight = sum(_rule(graph.nodes[i]).weight for i in inside)
    if weight < min_ops:
        if not is_update:
            for i in inside:
                plan.leave_out("too little work for a kernel of its own", graph.nodes[i])
        return None
    results = {Port(i, output) for i in inside for consumer, output in graph.consumers[i] if consumer not in inside}
    cluster = _build_cluster(graph, definitions, inside, results, is_update)
    if isinstance(cluster, Cluster):
        return cluster
    if not is_update:
        for i in inside:
            plan.leave_out(cluster, graph.nodes[i])
    return None


def _build_cluster(
    graph: PlacedGraph,
    definitions: OpDefinitions,
    members: Collection[int],
    result_ports: Collection[Port],
    is_update: bool = False,
    copied: Collection[int] = (),
) -> Cluster | str:
    """Builds the cluster of the given members. Returns the reason, a string, if no op can be made of them.

    result_ports: its outputs. copied: nodes of other clusters that it computes again.
    """
    inside = {*members, *copied}
    results = sorted(result_ports, key=lambda port: (graph.nodes[port.node].name, port.index))
    order = _canonical_order(graph, inside, results, is_update)
    arguments: dict[Port, int] = {}
    types: list[int] = []
    constants: dict[int, str] = {}
    handles: dict[Port, int] = {}
    for i in order:
        of_variables = set(updates.handles_of(graph, i))
        for port in graph.nodes[i].inputs:
            if port.node in inside or port in arguments or port.node in constants:
                continue
            if port in of_variables:
                handles[port] = len(arguments)
                types.append(updates.variable_dtype(graph, i))
            elif is_small_const(graph, port.node):
                constants[port.node] = f"c{len(constants)}"
                continue
            else:
                types.append(_output_type(graph, definitions, port))
            arguments[port] = len(arguments)
    written = [port for i in order if graph.nodes[i].op in updates.WRITES for port in updates.handles_of(graph, i)]
    written = list(dict.fromkeys(written))
    most = MAX_UPDATE_ARGUMENTS if is_update else MAX_ARGUMENTS
    if not arguments or not (results or written) or len(arguments) > most:
        return "depends on nothing that changes" if not arguments else "too many inputs"
    result_types = tuple(_output_type(graph, definitions, port) for port in results)
    values = _value_arguments(graph, inside, arguments)
    host = {*values, *handles.values()}
    places = {old: new for new, old in enumerate(sorted(arguments.values(), key=lambda k: (k not in host, k)))}
    arguments = {port: places[k] for port, k in sorted(arguments.items(), key=lambda item: places[item[1]])}
    types = [types[k] for k in places]
    handles = {port: places[k] for port, k in handles.items()}
    values = tuple(sorted(places[k] for k in values))
    builder = BodyBuilder(graph, definitions, order, constants, arguments, tuple(types))
    fallback = builder.fallback(results, result_types, frozenset(handles.values()))
    wanting = {i for i in order if demands.has_demand(graph, i)}
    is_on_gpu = graph.nodes[order[0]].device_type == "GPU"
    demanding = set() if is_on_gpu else wanting
    has_randoms = any(graph.nodes[i].op == RANDOM_UNIFORM for i in order)
    has_rare = any(rare_data.has_rule(graph, i, is_on_gpu) for i in order)
    has_fused = any(True for _ in fused.find(graph, inside, results))
    has_resizes = any(resizes.is_marked(graph.nodes[i].proto) for i in order)
    spelled_out = is_update or wanting or has_randoms or has_rare or has_fused or has_resizes
    body = builder.pure(results, result_types, written, demanding) if spelled_out else fallback
    digest = hashlib.sha256(body + repr(values).encode() + (fallback if spelled_out else b"")).hexdigest()[:10]
    counts = collections.Counter(graph.nodes[i].op for i in order)
    control = sorted({source for i in inside for source in graph.nodes[i].control if source not in inside})
    return Cluster(
        name=f"{'optimizer' if is_update else _label(counts)}_{digest}",
        members=tuple(sorted(members)),
        arguments=tuple(arguments),
        argument_types=tuple(types),
        results=tuple(results),
        result_types=result_types,
        host_arguments=len(host),
        value_arguments=values,
        control_inputs=tuple(control),
        body=body,
        scope=_common_scope([graph.nodes[i].name for i in order]),
        op_counts=dict(counts),
        fallback=fallback,
        handles=tuple(sorted(handles.values())),
        written=tuple(arguments[port] for port in written),
        order=tuple(order),
        demands=bool(demanding),
    )


def _trim(graph: PlacedGraph, inside: set[int]) -> set[int]:
    """Removes renamings of buffers and shape arithmetic from the end of a cluster, where they would only add a copy. In place.

    A member can leave without making the rest non-convex if all its consumers, control edges included, are outside.
    """
    waiting = list(inside)
    while waiting:
        i = waiting.pop()
        consumers = [consumer for consumer, _ in graph.consumers[i]] + graph.control_consumers[i]
        if i not in inside or any(consumer in inside for consumer in consumers):
            continue
        rule = _rule(graph.nodes[i])
        if rule.free or rule.weight == 0:
            inside.discard(i)
            waiting += [port.node for port in graph.nodes[i].inputs if port.node in inside]
            waiting += [source for source in graph.nodes[i].control if source in inside]
    return inside


def _canonical_order(graph: PlacedGraph, inside: set[int], results: list[Port], is_update: bool) -> list[int]:
    """Members in depth-first post-order from the results (and, in an update, the writes): producers first.

    The order depends only on the structure and on the order of results and writes. In an update control edges count as well: they
    order the reads and writes of one variable.
    """
    order: list[int] = []
    seen: set[int] = set()
    roots = [port.node for port in results]
    if is_update:
        roots += sorted((i for i in inside if graph.nodes[i].op in updates.WRITES), key=lambda i: graph.nodes[i].name)
    for root in roots:
        stack = [(root, False)]
        while stack:
            i, expanded = stack.pop()
            if expanded:
                order.append(i)
                continue
            if i in seen:
                continue
            seen.add(i)
            stack.append((i, True))
            sources = [port.node for port in graph.nodes[i].inputs]
            if is_update:
                sources = sorted(graph.nodes[i].control, key=lambda c: graph.nodes[c].name) + sources
            stack += [(source, False) for source in reversed(sources) if source in inside and source not in seen]
    return order


def _output_type(graph: PlacedGraph, definitions: OpDefinitions, port: Port) -> int:
    return definitions.outputs(graph.nodes[port.node].proto)[port.index][2]


def _value_arguments(graph: PlacedGraph, inside: set[int], arguments: dict[Port, int]) -> tuple[int, ...]:
    """Arguments whose values lowering needs: those that reach a value operand other than through their shape."""
    waiting: list[Port] = []
    for i in inside:
        node = graph.nodes[i]
        waiting += [node.inputs[position] for position in _rule(node).values]
    needed: set[int] = set()
    seen: set[int] = set()
    while waiting:
        port = waiting.pop()
        if port in arguments:
            needed.add(arguments[port])
        if port.node not in inside or port.node in seen:
            continue
        seen.add(port.node)
        if not _rule(graph.nodes[port.node]).shape_only:
            waiting += graph.nodes[port.node].inputs
    return tuple(sorted(needed))


def _label(counts: collections.Counter[str]) -> str:
    """A word or two that say what a cluster is, for people. The hash that follows it makes the name unique."""
    have = counts.keys()
    if "Softmax" in have or ("SoftmaxCrossEntropyWithLogits" in have):
        return "softmax"
    if "SparseSoftmaxCrossEntropyWithLogits" in have:
        return "cross_entropy"
    if have & {"Rsqrt", "FusedBatchNormV3"} and have & {"Mean", "FusedBatchNormV3"}:
        return "normalization"
    if have & {"RsqrtGrad", "FusedBatchNormGradV3"} or ("Rsqrt" in have and "Sum" in have):
        return "normalization_gradient"
    if have & {"Erf", "Erfc"}:  # TensorFlow spells GELU with either
        return "gelu"
    if "Tanh" in have:
        return "activation"
    if "Sqrt" in have and "Square" in have:
        return "optimizer"
    if have & {"Sum", "Mean", "Max", "Min", "BiasAddGrad", "Prod"}:
        return "reduce"
    if have & {"GatherV2", "GatherNd", RESOURCE_GATHER}:
        return "gather"
    if have & _MOVEMENTS:
        return "movement"
    return "elementwise"


def _common_scope(names: list[str]) -> str:
    parts = [name.split("/")[:-1] for name in names]
    shared: list[str] = []
    for level in zip(*parts):
        if len(set(level)) > 1:
            break
        shared.append(level[0])
    return "/".join(shared)
