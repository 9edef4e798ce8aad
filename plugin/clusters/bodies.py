"""A cluster's members as a FunctionDef: the fallback that a Stitch op carries, and the body that is compiled.

For most clusters the two are the same. They differ if a cluster has variables, random numbers, demands, operators with a rule for
rare data, resizes of images, or operators that TensorFlow has fused (fused.py):

    fallback   the job's own operators, on the variables' handles, with the control edges between them
    pure       the same as a function of values: a read is the variable's current value, an assign makes a new current value, and
               the last value of each written variable is an additional result. Random numbers are made from the words of their
               stream as TensorFlow's CPU kernel makes them. The last result says whether the operators' demands on their operands'
               values are met (demands.py). Operators whose result on rare data differs in XLA are written in other operators
               (rare_data.py), and so are resizes of images (resizes.py). XLA and the compiler see only this function
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import Any

from stitchfleet.compiler.support.sequences import zip_strict

from ..base.dtypes import DT_BOOL, DT_FLOAT, DT_INT32, DT_RESOURCE, DT_UINT32
from ..base.op_names import READ_VARIABLE, RESOURCE_GATHER
from ..graph import fused, pooling
from ..graph.apply_ops import APPLY, Expressions, Operand
from ..graph.placed_graph import OpDefinitions, PlacedGraph, Port
from ..graph.tf_ops import RANDOM_UNIFORM, UNIFORM_BITS
from . import addends, rare_data, resizes
from .demands import GATHERS, add_demand, add_zeros, batch_dims, both

FUNCTION = "stitchfleet_body"
INTEGERS_ON_DEVICE = "experimental_ints_on_device"
"""A function's attribute (TensorFlow's function.h): its int32 arguments and results are on the device as all others, not on the
host."""


class BodyBuilder:
    """Builds the bodies of one cluster. Members are named n0, n1, ... in the given order, arguments a0, a1, ..., results r0, r1, ...

    order: the members, producers first. copied: small constants that are copied into the body, with their names there. arguments:
    each port that enters the cluster and its position. argument_types: DataType numbers; for a variable's handle the variable's.
    """

    def __init__(
        self,
        graph: PlacedGraph,
        definitions: OpDefinitions,
        order: list[int],
        copied: dict[int, str],
        arguments: dict[Port, int],
        argument_types: tuple[int, ...],
    ) -> None:
        self.graph, self.definitions = graph, definitions
        self.order, self.copied = order, copied
        self.names = {i: f"n{position}" for position, i in enumerate(order)}
        self.arguments, self.argument_types = arguments, argument_types
        self._is_on_gpu = graph.nodes[order[0]].device_type == "GPU"

    def fallback(self, results: list[Port], result_types: tuple[int, ...], handles: frozenset[int]) -> bytes:
        """The members unchanged (but for the order of addends: addends.py), as a serialized FunctionDefLibrary of one function.
        result_types: DataType numbers. handles: positions of the arguments that are variables' handles."""
        types = [DT_RESOURCE if k in handles else dtype for k, dtype in enumerate(self.argument_types)]
        library, function = self._begin(types, result_types)
        if self._is_on_gpu:
            function.attr[INTEGERS_ON_DEVICE].b = True
        whole = {operator.last: operator for operator in fused.find(self.graph, self.names.keys(), results)}
        parts = {part for operator in whole.values() for part in operator.parts}
        sources = {
            port: self._output(self.names[operator.last], operator.original, output)
            for operator in whole.values()
            for port, output in operator.moved.items()
        }

        def source(port: Port) -> str:
            return sources.get(port) or self._source(port)

        for i in self.order:
            if i in parts:
                continue
            node = function.node_def.add()
            proto, inputs = self.graph.nodes[i].proto, self.graph.nodes[i].inputs
            if i in whole:
                proto, inputs = whole[i].original, list(whole[i].inputs)
            _copy_node(node, proto, self.names[i])
            if addends.depend_on_order(proto) and not addends.come_from_within(self.graph, i, self.names):
                inputs = addends.in_order(self.graph, i)
                held = [port.node not in self.names for port in inputs]
                own = [port.node in self.names and addends.is_fresh(self.graph, port) for port in inputs]
                operands = [source(port) for port in inputs]
                node.input.extend(addends.keep_order(function, self.names[i], proto, operands, held, own))
                node.attr["N"].i = len(node.input)
            else:
                node.input.extend(source(port) for port in inputs)
            if pooling.lacks_pooling(self.graph, i, self.names):
                node.input[1] = pooling.pool_again(function, self.names[i], proto, node.input[0])
            if handles:
                inside = [self.names[source] for source in self.graph.nodes[i].control if source in self.names]
                node.input.extend(f"^{name}" for name in sorted(set(inside)))
                if self.definitions.is_stateful(node.op):
                    # an operator with an effect must run even if nothing reads its result
                    function.signature.control_output.append(self.names[i])
                    function.control_ret[self.names[i]] = self.names[i]
        for position, port in enumerate(results):
            function.ret[f"r{position}"] = source(port)
        return bytes(library.SerializeToString(deterministic=True))

    def pure(
        self, results: list[Port], result_types: tuple[int, ...], written: list[Port], demanding: Collection[int] = ()
    ) -> bytes:
        """The members as a function of values, as a serialized FunctionDefLibrary of one function.

        Its results are `results`, then the new values of the variables in `written` (their handles), then, if `demanding` is not
        empty, a bool scalar: whether the demands of all members in `demanding` are met.
        """
        written_types = tuple(self.argument_types[self.arguments[port]] for port in written)
        demand_types = (DT_BOOL,) if demanding else ()
        library, function = self._begin(list(self.argument_types), result_types + written_types + demand_types)
        demands: list[str] = []
        current = {port: f"a{k}" for port, k in self.arguments.items()}
        values: dict[Port, str] = {}

        def source(port: Port) -> str:
            return values.get(port) or self._source(port)

        for i in self.order:
            node = self.graph.nodes[i]
            name = self.names[i]
            if i in demanding:
                operands = [source(port) for port in node.inputs]
                demands.append(add_demand(function, name, self.graph, i, operands))
            if node.op == READ_VARIABLE:
                values[Port(i, 0)] = current[node.inputs[0]]
            elif node.op == "AssignVariableOp":
                current[node.inputs[0]] = source(node.inputs[1])
            elif node.op in ("AssignAddVariableOp", "AssignSubVariableOp"):
                added = function.node_def.add(name=name, op="AddV2" if node.op == "AssignAddVariableOp" else "Sub")
                added.input.extend([current[node.inputs[0]], source(node.inputs[1])])
                added.attr["T"].type = node.proto.attr["dtype"].type
                current[node.inputs[0]] = f"{name}:z:0"
            elif node.op in APPLY:
                self._decompose(function, i, current, source)
            elif node.op == RANDOM_UNIFORM:
                _spell_out_uniform(function, name, node.proto, [source(port) for port in node.inputs])
            elif resizes.is_marked(node.proto):
                values[Port(i, 0)] = resizes.spell_out(
                    function, name, node.proto, [source(port) for port in node.inputs]
                )
            elif node.op in GATHERS:
                operands = [source(port) for port in node.inputs]
                gather_name = f"{name}_gathered" if self._is_on_gpu else name
                if node.op == RESOURCE_GATHER:
                    _gather_of_value(function, gather_name, node.proto, operands)
                else:
                    copy = function.node_def.add()
                    _copy_node(copy, node.proto, gather_name)
                    copy.input.extend(operands)
                if self._is_on_gpu:
                    add_zeros(function, name, self.graph, i, operands, f"{gather_name}:output:0")
            else:
                operands = [source(port) for port in node.inputs]
                if rare_data.has_rule(self.graph, i, self._is_on_gpu):
                    spelled = rare_data.spell_out(function, name, self.graph, i, operands)
                    if isinstance(spelled, str):
                        values[Port(i, 0)] = spelled
                        continue
                    operands = spelled
                copy = function.node_def.add()
                _copy_node(copy, node.proto, name)
                copy.input.extend(operands)
        for position, port in enumerate(results):
            function.ret[f"r{position}"] = source(port)
        for position, port in enumerate(written, len(results)):
            function.ret[f"r{position}"] = current[port]
        if demands:
            conjunction = Expressions(function, "demands", DT_BOOL)
            function.ret[f"r{len(results) + len(written)}"] = functools.reduce(
                lambda first, second: both(conjunction, first, second), demands
            )
        return bytes(library.SerializeToString(deterministic=True))

    def _decompose(self, function: Any, i: int, current: dict[Port, str], source: Any) -> None:
        """Appends a fused Apply operator as the arithmetic that its documentation states, and updates `current`."""
        node = self.graph.nodes[i]
        rule = APPLY[node.op]
        expressions = Expressions(function, self.names[i], int(node.proto.attr["T"].type))
        names = [str(argument.name) for argument in self.definitions.find(node.op).input_arg]  # type: ignore[union-attr]
        given = {
            name: Operand(expressions, current[port] if name in rule.variables else source(port))
            for name, port in zip_strict(names, node.inputs)
        }
        flags = {key: bool(node.proto.attr[key].b) for key in rule.flags}
        handles = dict(zip_strict(names, node.inputs))
        for name, value in rule.formula(given, flags).items():
            current[handles[name]] = value.name

    def _begin(self, argument_types: list[int], result_types: tuple[int, ...]) -> tuple[Any, Any]:
        """Makes (a FunctionDefLibrary, its function with the signature and the copied constants, but no members yet)."""
        from tensorflow.core.framework import function_pb2

        library: Any = function_pb2.FunctionDefLibrary()
        function = library.function.add()
        function.signature.name = FUNCTION
        for position, dtype in enumerate(argument_types):
            function.signature.input_arg.add(name=f"a{position}", type=dtype)
        for position, dtype in enumerate(result_types):
            function.signature.output_arg.add(name=f"r{position}", type=dtype)
        for i, name in self.copied.items():
            _copy_node(function.node_def.add(), self.graph.nodes[i].proto, name)
        return library, function

    def _source(self, port: Port) -> str:
        if port.node in self.names:
            return self._output(self.names[port.node], self.graph.nodes[port.node].proto, port.index)
        if port.node in self.copied:
            return f"{self.copied[port.node]}:output:0"
        return f"a{self.arguments[port]}"

    def _output(self, name: str, proto: Any, output: int) -> str:
        argument, index, _ = self.definitions.outputs(proto)[output]
        return f"{name}:{argument}:{index}"


def _spell_out_uniform(function: Any, name: str, node: Any, inputs: list[str]) -> None:
    """Appends the uniform numbers in [0, 1) of a RANDOM_UNIFORM as node `name`: the lowest bits of a word, as many as a mantissa
    has, times the power of two that makes them less than 1. XLA uses the upper bits."""
    dtype = int(node.attr["dtype"].type)
    bits = UNIFORM_BITS[dtype]
    integers = Expressions(function, f"{name}_integer", DT_UINT32)
    floats = Expressions(function, f"{name}_float", DT_FLOAT)
    words = function.node_def.add(name=f"{name}_words", op="StatelessRandomUniformFullIntV2", input=inputs)
    words.attr["dtype"].type, words.attr["Tshape"].type = DT_UINT32, node.attr["Tshape"].type
    low = integers.node("BitwiseAnd", "z", f"{words.name}:output:0", integers.constant((1 << bits) - 1))
    real = floats.cast(low, DT_UINT32, DT_FLOAT)
    scaled = floats.node("Mul", "z", real, floats.constant(2.0**-bits))
    narrow = scaled if dtype == DT_FLOAT else floats.cast(scaled, DT_FLOAT, dtype)  # exact
    # Other members refer to the operator's result as "output"; that of Mul is called "z".
    result = function.node_def.add(name=name, op="Identity", input=[narrow])
    result.attr["T"].type = dtype


def _gather_of_value(function: Any, name: str, node: Any, inputs: list[str]) -> None:
    """Appends a ResourceGather that reads the variable's value, not its handle: a GatherV2, whose result has the same name."""
    integers = Expressions(function, f"{name}_axis", DT_INT32)
    gather = function.node_def.add(name=name, op="GatherV2", input=[*inputs, integers.constant(batch_dims(node))])
    gather.attr["Tparams"].type = node.attr["dtype"].type
    gather.attr["Tindices"].type, gather.attr["Taxis"].type = node.attr["Tindices"].type, DT_INT32
    gather.attr["batch_dims"].i = batch_dims(node)


def _copy_node(target: Any, source: Any, name: str) -> None:
    target.name = name
    target.op = source.op
    for key, value in source.attr.items():
        if not key.startswith("_"):  # _class, _output_shapes and attributes of other passes
            target.attr[key].CopyFrom(value)
