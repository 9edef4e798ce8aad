"""How often a step runs a collective of all ranks: then no rank ends that step before all have begun it.

The agreement of ranks (agreement.py) relies on this to count steps. A collective of a process set does not tie all ranks
together, nor does a collective outside the function. A collective in a branch does in two cases, in which the branch's
predicate is the same on all ranks and it is known in which steps it holds:

    - The predicate depends on the world alone. In elastic jobs Horovod reduces gradients only if the world has more than one
      rank (horovod/tensorflow/__init__.py, `_allreduce_cond`); a world of one rank is tied to itself.
    - The predicate compares a counter with a constant N. With `backward_passes_per_step` = N, Horovod sums up the gradients of
      N steps. Its counter starts at 0, each step raises it by one, and at N the gradients are reduced and the counter returns
      to 0 (horovod/tensorflow/gradient_aggregation.py). So every Nth step, counted from the first, holds a collective.

A loop (Keras' `steps_per_execution`) is taken to run at least once in each step, and as often on all ranks, else Horovod's own
collectives would not meet. If it does not, a rank may wait in vain for as long as it may, once a round (Times.wait_s in courier.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..base.dtypes import DT_INT32, DT_INT64
from ..base.edges import node_of
from ..base.op_names import READ_VARIABLE, REFERENCE_VARIABLES

COLLECTIVES = frozenset(
    f"Horovod{name}"
    for name in (
        *("Allreduce", "GroupedAllreduce", "Allgather", "GroupedAllgather"),
        *("Alltoall", "Reducescatter", "GroupedReducescatter"),
    )
)
OF_WORKERS = frozenset(
    ("CollectiveReduceV2", "CollectiveGatherV2", "CollectiveReduceScatterV2", "CollectiveAllToAllV2")
)
"""TensorFlow's own, by which a strategy of several workers reduces. The second argument: the number of members."""
BRANCHES = ("Switch", "RefSwitch", "_SwitchN")
_OF_THE_WORLD = frozenset(("HorovodSize", "HorovodLocalSize", "HorovodProcessSetIncluded", "Const"))
"""Operators whose results are the same in all steps of a world and, for the set of all ranks, on all ranks."""
_PURE = frozenset(
    (
        *("Equal", "NotEqual", "Greater", "GreaterEqual", "Less", "LessEqual"),
        *("LogicalAnd", "LogicalOr", "LogicalNot", "Cast", "Identity"),
    )
)
_JOINS = ("Merge", "RefMerge", "Exit", "RefExit")
"""Operators after these run whichever way the predicate went."""


_READS = (READ_VARIABLE, "VarIsInitializedOp", "IsVariableInitialized")
_PASSES_ON = ("Identity", "RefIdentity", *BRANCHES)
"""Operators that pass on their first input unchanged."""
_RAISES = ("AssignAddVariableOp", "AssignAdd")
_SETS = ("AssignVariableOp", "Assign")


class Operator(NamedTuple):
    """An operator. inputs: names of the operators that it reads or waits for, the first ones in the order of its arguments.
    process_set: 0 is the set of all ranks. value: of a constant that is one integer."""

    op: str
    inputs: Sequence[str]
    process_set: int = 0
    value: int | None = None


def operator_of(definition: Any) -> Operator:
    """The Operator of a NodeDef."""
    inputs = [node_of(name) for name in definition.input]
    process_set = definition.attr["process_set_id"].i if "process_set_id" in definition.attr else 0
    return Operator(definition.op, inputs, process_set, _integer(definition) if definition.op == "Const" else None)


def _integer(definition: Any) -> int | None:
    """The value of a Const that is one integer; else None."""
    tensor = definition.attr["value"].tensor
    if tensor.tensor_shape.dim or len(tensor.int_val) + len(tensor.int64_val) > 1:
        return None
    if tensor.int_val or tensor.int64_val:
        return int((*tensor.int_val, *tensor.int64_val)[0])
    width = {DT_INT32: 4, DT_INT64: 8}.get(tensor.dtype, 0)
    if width and len(tensor.tensor_content) in (0, width):  # no value at all is 0
        return int.from_bytes(tensor.tensor_content, "little", signed=True)
    return None


def steps_per_collective(nodes: Mapping[str, Operator], workers: int = 0) -> int:
    """1 if each run of all these operators (by name) runs a collective of all ranks, N if every Nth does, 0 if that is not known.

    workers: number of a strategy's workers, with equally many members each in TensorFlow's own collectives; 0: there are none.
    """
    guards = _Guards(nodes)
    found = [guards.period(name) for name, node in nodes.items() if guards.is_of_all(node, workers)]
    return min((period for period in found if period), default=0)


class _Guards:
    """Finds the branches that decide whether an operator runs, and in how many steps they let it run."""

    def __init__(self, nodes: Mapping[str, Operator]) -> None:
        self.nodes = nodes
        self._of_predicates: dict[str, int] = {}
        self._readers: dict[str, list[str]] = {}
        """The operators that read, or wait for, each; made when it is needed."""

    def is_of_all(self, node: Operator, workers: int) -> bool:
        """Whether an operator is a collective of all ranks. workers: as for `steps_per_collective`."""
        if node.op in OF_WORKERS and workers and len(node.inputs) > 1:
            members = self._constant(node.inputs[1])
            return members is not None and members > 0 and members % workers == 0
        return node.op in COLLECTIVES and node.process_set == 0

    def period(self, name: str, within: str = "") -> int:
        """N if the operator runs in every Nth step: 1 if no predicate guards it that may differ from step to step, 0 if it is not
        known. within: a predicate that is known to hold."""
        periods = {1}
        seen, waiting = {name}, [name]
        while waiting:
            found = self.nodes[waiting.pop()]
            if found.op in BRANCHES:
                predicate = self._through_identities(found.inputs[1]) if len(found.inputs) > 1 else ""
                if not predicate or predicate != within:
                    periods.add(self._period_of_predicate(predicate))
            if found.op in _JOINS:
                continue
            fresh = {each for each in found.inputs if each in self.nodes} - seen
            seen |= fresh
            waiting += fresh
        several = periods - {1}
        return 1 if not several else several.pop() if len(several) == 1 else 0

    def _through_identities(self, name: str) -> str:
        while name in self.nodes and self.nodes[name].op == "Identity" and self.nodes[name].inputs:
            name = self.nodes[name].inputs[0]
        return name

    def _period_of_predicate(self, name: str) -> int:
        if name not in self._of_predicates:
            self._of_predicates[name] = 0  # a predicate that depends on itself
            if (name in self.nodes and self.nodes[name].op == "LoopCond") or self._depends_on_the_world_alone(name):
                self._of_predicates[name] = 1
            else:
                self._of_predicates[name] = self._limit_of_counter(name)
        return self._of_predicates[name]

    def _depends_on_the_world_alone(self, name: str) -> bool:
        found = self.nodes.get(name)
        if found is None:
            return False
        if found.op in _OF_THE_WORLD:
            return found.process_set == 0
        return found.op in _PURE and all(self._depends_on_the_world_alone(each) for each in found.inputs)

    def _limit_of_counter(self, predicate: str) -> int:
        """N if the predicate is `counter == N` and the counter runs from 1 to N again and again, raised by one in each step; else
        0."""
        node = self.nodes.get(predicate)
        if node is None or node.op != "Equal" or len(node.inputs) < 2:
            return 0
        first, second = node.inputs[:2]
        for counter, limit in ((first, self._constant(second)), (second, self._constant(first))):
            variable = self._variable_read(counter)
            if limit is not None and limit > 1 and variable is not None and self._counts(variable, predicate):
                return limit
        return 0

    def _variable_read(self, name: str) -> str | None:
        """The operator that creates the variable whose value this operator passes on; None if it passes on none."""
        name = self._through_identities(name)
        node = self.nodes.get(name)
        if node is not None and node.op == READ_VARIABLE:
            return self._origin(node.inputs[0])
        return name if node is not None and node.op in REFERENCE_VARIABLES else None

    def _origin(self, name: str) -> str:
        """The operator whose result this operator passes on unchanged."""
        while name in self.nodes and self.nodes[name].op in _PASSES_ON and self.nodes[name].inputs:
            name = self.nodes[name].inputs[0]
        return name

    def _counts(self, variable: str, predicate: str) -> bool:
        """Whether each step raises the variable by 1 exactly once, and the only other change is that it is set to 0 if
        `predicate` holds."""
        raised = set_back = 0
        for name in self._users_of(variable):
            node = self.nodes[name]
            if node.op in _READS:
                continue
            if len(node.inputs) < 2 or self._origin(node.inputs[0]) != variable:
                return False
            value = self._constant(node.inputs[1])
            if node.op in _RAISES and value == 1 and self.period(name) == 1:
                raised += 1
            elif node.op in _SETS and value == 0 and self.period(name, predicate) == 1:
                set_back += 1
            else:
                return False
        return raised == 1 and set_back > 0

    def _constant(self, name: str) -> int | None:
        """The integer constant that the operator passes on; None if it is not known."""
        node = self.nodes.get(self._origin(name))
        return None if node is None else node.value

    def _users_of(self, variable: str) -> list[str]:
        """The operators that read or change the variable."""
        if not self._readers:
            for name, node in self.nodes.items():
                for each in node.inputs:
                    self._readers.setdefault(each, []).append(name)
        reads_it = self.nodes[variable].op in REFERENCE_VARIABLES if variable in self.nodes else False
        found: list[str] = []
        seen, waiting = {variable}, [variable]
        while waiting:
            for name in self._readers.get(waiting.pop(), []):
                op = self.nodes[name].op
                if name in seen or (reads_it and op == "Identity"):
                    continue
                seen.add(name)
                (waiting if op in _PASSES_ON else found).append(name)
        return found


def graph_steps_per_collective(graph: Any, workers: int = 0) -> int:
    """`steps_per_collective` of a GraphDef, all of whose operators run."""
    if not any(definition.op in COLLECTIVES or definition.op in OF_WORKERS for definition in graph.node):
        return 0
    return steps_per_collective({definition.name: operator_of(definition) for definition in graph.node}, workers)


def fetches_steps_per_collective(graph: Any, names: Sequence[str], workers: int = 0) -> int:
    """`steps_per_collective` of a session run that fetches these tensors and operators of a Graph.

    Raises what Graph.get_operation_by_name raises for a name that is not there (KeyError, ValueError).
    """
    waiting = [node_of(name) for name in names]
    nodes: dict[str, Operator] = {}
    while waiting:
        name = waiting.pop()
        if name in nodes:
            continue
        operation = graph.get_operation_by_name(name)
        inputs = [tensor.op.name for tensor in operation.inputs] + [before.name for before in operation.control_inputs]
        reads_more = operation.type == "Const" or operation.type.startswith("Horovod")
        own = operator_of(operation.node_def) if reads_more else Operator(operation.type, inputs)
        nodes[name] = own._replace(inputs=inputs)
        waiting += inputs
    return steps_per_collective(nodes, workers)
