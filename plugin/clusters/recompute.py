"""Which members of one cluster another cluster computes again, instead of reading their results.

A forward cluster passes on to a backward one every tensor in the gradient's formula. Of GELU's four tensors, three are element-wise
functions of the fourth. Computing them again costs a few instructions on values in registers; writing and reading them costs memory
bandwidth twice, and space in the caches in between. XLA's fusion duplicates cheap producers into their consumers for the same reason
(xla/service/instruction_fusion.cc).

A result of a cluster is *copyable* if it is an element-wise function of the cluster's arguments and of its results that are not
copyable, and if only other clusters read it. For each reader, either all copyable results that it reads are copied or none; they are
copied if the reader then has fewer arguments.

A library function does not have one result: a loop's vector form, its tail and another kernel's loop may differ in the last bit. That
is only rounding, unless the reader compares values: the gradient of a maximum compares each element with the largest, which the
forward cluster has found among its own values. So if a copy computes a library function, its reader may only use the result in
continuous operators. An operator that rounds once (IEEE 754; kernels are compiled without contraction) has the same bits everywhere
and may be copied for any use.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from ..graph.placed_graph import PlacedGraph, Port, is_small_const
from ..graph.tf_ops import ELEMENT_WISE

MOST_COPIES = 16
"""Most operators that are copied for one result: GELU's longest chain has five, Keras' swish and softplus fewer."""
_RENAMES = frozenset(("Reshape", "ExpandDims", "Squeeze"))
_MOVES = _RENAMES | frozenset(
    "Identity Transpose BroadcastTo Tile Pad Slice StridedSlice ConcatV2 Pack Unpack Split SplitV".split()
)
_LIBRARY = frozenset(
    "Exp Expm1 Log Log1p Rsqrt Sin Cos Tan Tanh Sigmoid Erf Erfc Sinh Cosh Asinh Acosh Atanh Atan Asin Acos Elu Selu Softplus "
    "Softsign Pow Atan2 Xdivy Xlogy Xlog1py RsqrtGrad EluGrad SeluGrad SoftplusGrad SoftsignGrad".split()
)
"""Operators that do not round once, or not certainly."""
_CONTINUOUS = (
    _MOVES
    | _LIBRARY - {"EluGrad", "SeluGrad", "Atan2"}
    | frozenset(
        "Abs Neg Sqrt Reciprocal Inv Square Relu Relu6 LeakyRelu Add AddV2 Sub Mul Div RealDiv DivNoNan MulNoNan Maximum Minimum "
        "SquaredDifference ClipByValue AddN TanhGrad SigmoidGrad SqrtGrad InvGrad ReciprocalGrad BiasAdd BiasAddGrad Sum Mean "
        "Max Min L2Loss".split()
    )
)


def find_copies(graph: PlacedGraph, groups: Sequence[Collection[int]]) -> list[frozenset[int]]:
    """For each group of members, the nodes of other groups that it computes again. Groups must be disjoint, and on one device.

    A reader is alive only if the results that it reads are alive. Then the operands of the copied nodes, and the nodes that these
    wait for, are alive too: copies do not change a cluster's frame or its predicate (control_flow.py), and cause no cycle.
    """
    owner = {i: number for number, group in enumerate(groups) for i in group}
    copies: list[set[int]] = [set() for _ in groups]
    for number, group in enumerate(groups):
        readers = _readers(graph, group, owner, number)
        wanted = {port: of_port for port, of_port in readers.items() if None not in of_port}
        chains = _chains(graph, group, wanted.keys(), readers.keys() - wanted.keys())
        if len(chains) == len(readers):
            continue  # no result of the group would be left
        for reader in sorted({r for port in chains for r in wanted[port] if r is not None}):
            mine = [port for port in chains if reader in wanted[port]]
            if not _is_put_to_continuous_use(graph, _members(chains, mine), groups[reader]):
                mine = [port for port in mine if not _inexact(graph, chains[port])]
            members = _members(chains, mine)
            taken = {p for i in members for p in graph.nodes[i].inputs if p.node not in members}
            taken = {p for p in taken if not is_small_const(graph, p.node) and not _is_bias(graph, p, members)}
            had = {p for i in groups[reader] for p in graph.nodes[i].inputs if p.node not in groups[reader]}
            if len(mine) > len(taken - had):
                copies[reader] |= members
    return [frozenset(copied) for copied in copies]


def _readers(
    graph: PlacedGraph, group: Collection[int], owner: dict[int, int], number: int
) -> dict[Port, set[int | None]]:
    """The groups that read each result of group `number`. None stands for a node that is in no group."""
    readers: dict[Port, set[int | None]] = {}
    for i in group:
        for consumer, output in graph.consumers[i]:
            if owner.get(consumer) != number:
                readers.setdefault(Port(i, output), set()).add(owner.get(consumer))
    return readers


def _chains(
    graph: PlacedGraph, group: Collection[int], wanted: Collection[Port], there: Collection[Port]
) -> dict[Port, frozenset[int]]:
    """The copyable results among `wanted`, each with the members that compute it. there: results that are written in any case."""
    chains = {port: _chain(graph, group, port, frozenset(there)) for port in wanted}
    # A result that cannot be copied is written too, and chains may start from it.
    there = {*there, *(port for port, chain in chains.items() if chain is None)}
    chains = {port: _chain(graph, group, port, frozenset(there)) for port in wanted if port not in there}
    return {port: chain for port, chain in chains.items() if chain is not None}


def _chain(graph: PlacedGraph, group: Collection[int], port: Port, there: frozenset[Port]) -> frozenset[int] | None:
    """The members of a group that compute `port` from arguments and from results in `there`; None if not all of them are cheap, or if
    there are more than MOST_COPIES."""
    found: set[int] = set()
    waiting = [port.node]
    while waiting:
        i = waiting.pop()
        if i in found:
            continue
        if not _is_cheap(graph, i) or len(found) == MOST_COPIES:
            return None
        found.add(i)
        waiting += [source.node for source in graph.nodes[i].inputs if source.node in group and source not in there]
    return frozenset(found)


def _members(chains: Mapping[Port, frozenset[int]], ports: Iterable[Port]) -> frozenset[int]:
    return frozenset[int]().union(*(chains[port] for port in ports))


def _inexact(graph: PlacedGraph, members: Collection[int]) -> set[int]:
    return {i for i in members if graph.nodes[i].op in _LIBRARY}


def _is_put_to_continuous_use(graph: PlacedGraph, members: Collection[int], reader: Collection[int]) -> bool:
    """Whether a reader uses copied library functions only in continuous operators, and returns none of their values unchanged."""
    waiting = [
        (i, True) for i in _inexact(graph, members)
    ]  # (node, whether its value is a copied one, perhaps rearranged)
    seen = set(waiting)
    while waiting:
        i, is_copy = waiting.pop()
        for consumer, _ in graph.consumers[i]:
            if consumer not in members and consumer not in reader:
                if is_copy and i not in members:
                    return False
                continue
            op = graph.nodes[consumer].op
            if op not in _CONTINUOUS:
                return False
            after = (consumer, consumer in members or (is_copy and op in _MOVES))
            if after not in seen:
                seen.add(after)
                waiting.append(after)
    return True


def _is_cheap(graph: PlacedGraph, index: int) -> bool:
    node = graph.nodes[index]
    if node.op in _RENAMES:
        return all(is_small_const(graph, port.node) for port in node.inputs[1:])
    return node.op in ELEMENT_WISE or node.op == "BiasAdd"


def _is_bias(graph: PlacedGraph, port: Port, members: Collection[int]) -> bool:
    """Whether the members read a port only as a bias: one row, which does not grow with the batch."""
    uses = [(i, k) for i in members for k, source in enumerate(graph.nodes[i].inputs) if source == port]
    return all(graph.nodes[i].op == "BiasAdd" and k == 1 for i, k in uses)


def results_of(
    graph: PlacedGraph, number: int, groups: Sequence[Collection[int]], copies: Sequence[Collection[int]]
) -> set[Port]:
    """The results that group `number` must return if each group computes its copies itself. copies: as `find_copies` returns them."""
    owner = {i: n for n, group in enumerate(groups) for i in group}
    found: set[Port] = set()
    for i in groups[number]:
        for consumer, output in graph.consumers[i]:
            reader = owner.get(consumer)
            if reader != number and (reader is None or i not in copies[reader]):
                found.add(Port(i, output))
    for reader, copied in enumerate(copies):
        if reader != number:
            found |= {
                port
                for i in copied
                for port in graph.nodes[i].inputs
                if owner.get(port.node) == number and port.node not in copied
            }
    return found
