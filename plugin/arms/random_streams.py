"""Gives seeded stateful random operators one stream for both arms (native/graph/random_stream.cc says why and how).

If TensorFlow has a stateless operator with bit-identical numbers, that one draws them; of the others on a CPU (a shuffle, a Poisson
distribution, the samplers of candidates) both arms call one kernel (native/graph/random_kernel.cc). An operator without a seed
draws from a fresh stream in every run anyway: in the plain arm it is left alone; in the stitched arm the uniform one gets a stream of
its own, so that its numbers can be made inside a kernel.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from ..base.dtypes import DT_INT32
from ..base.edges import control_inputs, data_inputs
from ..graph.placed_graph import OpDefinitions, device_type
from ..graph.tf_ops import UNIFORM_BITS

# stateful operator -> the stateless one with the same distribution code over the same Philox stream
STATELESS = {
    "RandomUniform": "StatelessRandomUniformV2",
    "RandomStandardNormal": "StatelessRandomNormalV2",
    "TruncatedNormal": "StatelessTruncatedNormalV2",
    "RandomUniformInt": "StatelessRandomUniformIntV2",
}
OURS = "Stitchfleet"
"""How the names of our ops begin."""
FRESH = ""
"""Stream name of an operator without a seed: a stream of its own with a random seed."""
PHILOX = 1  # tensorflow/core/framework/rng_alg.h: RNG_ALG_PHILOX


def is_seeded(node: Any) -> bool:
    """Whether a NodeDef is of one of TensorFlow's random operators with a seed (attributes seed and seed2 are not both 0)."""
    if node.op.startswith(OURS) or "seed2" not in node.attr:
        return False
    return bool(node.attr["seed"].i or node.attr["seed2"].i)


def seeded(nodes: Iterable[Any]) -> list[str]:
    """Names of the seeded random operators (NodeDefs). `share_streams` replaces all whose stream the arms can share."""
    return [node.name for node in nodes if is_seeded(node)]


def seeded_in_called_functions(nodes: Iterable[Any], find: Callable[[str], Any | None]) -> list[str]:
    """Names of functions that the nodes call (by a function attribute, also indirectly) and that hold a seeded random operator.

    Such a body has a separate executor in each arm, and so separate streams. find(name): the FunctionDef, or None.
    """
    found: list[str] = []
    seen: set[str] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        for value in node.attr.values():
            for called in [value.func.name, *(function.name for function in value.list.func)]:
                if not called or called in seen:
                    continue
                seen.add(called)
                body = find(called)
                if body is None:
                    continue
                if any(is_seeded(inner) for inner in body.node_def):
                    found.append(called)
                waiting += body.node_def
    return found


def share_streams(graph: Any, owner: str) -> int:
    """Replaces the seeded random operators of a GraphDef in place. Returns the number replaced.

    owner: a name of the executor that the graph is for, equal in both arms (`switch.executor_name`).
    """
    count = 0
    definitions = OpDefinitions()
    for node in [node for node in graph.node if is_seeded(node)]:
        name = f"{owner}/{node.name}"
        if node.op in STATELESS:
            _draw_from(graph, node, name)
        elif device_type(node.device) != "CPU" or definitions.find(node.op) is None:
            continue
        else:
            _call_one_kernel(node, name, definitions)
        count += 1
    return count


def own_streams(graph: Any) -> int:
    """Gives each uniform random operator without a seed that is not on a GPU a fresh stream, in place, if kernels draw numbers of its
    dtype. graph: a GraphDef. Returns the number of operators changed."""
    fresh = [
        node
        for node in graph.node
        if node.op == "RandomUniform"
        and not is_seeded(node)
        and node.attr["dtype"].type in UNIFORM_BITS
        and device_type(node.device) != "GPU"  # no kernel makes a GPU's random numbers
    ]
    for node in fresh:
        _draw_from(graph, node, FRESH)
    return len(fresh)


def _processor_of(device: str) -> str:
    """The CPU device beside a GPU, for the position of a stream, which is a few integers."""
    return re.sub(r"(?i)gpu:\d+$", "CPU:0", device)


def _call_one_kernel(node: Any, name: str, definitions: OpDefinitions) -> None:
    """Replaces `node` in place by an operator that calls a kernel of its kind, the one with `name`."""
    types = [[dtype for _, _, dtype in of(node)] for of in (definitions.inputs, definitions.outputs)]
    own = bytes(node.SerializeToString())
    node.op = f"{OURS}RandomKernel"
    node.attr.clear()
    node.attr["Tin"].list.type.extend(types[0])
    node.attr["Tout"].list.type.extend(types[1])
    node.attr["node"].s = own
    node.attr["stream"].s = name.encode()


def _draw_from(graph: Any, node: Any, stream_name: str) -> None:
    """Replaces `node` in place by its stateless twin, which draws from the stream `stream_name`."""
    shape = node.input[0]
    control = control_inputs(node)
    rest = data_inputs(node)[1:]
    stream = graph.node.add(
        name=f"{node.name}/stitchfleet_stream",
        op="StitchfleetRandomStream",
        device=_processor_of(node.device),
        input=[shape, *control],
    )
    stream.attr["S"].type = node.attr["T"].type
    stream.attr["seed"].i = node.attr["seed"].i
    stream.attr["seed2"].i = node.attr["seed2"].i
    stream.attr["stream"].s = stream_name.encode()
    algorithm = graph.node.add(
        name=f"{node.name}/stitchfleet_algorithm", op="Const", device=node.device, input=[f"^{stream.name}"]
    )
    algorithm.attr["dtype"].type = DT_INT32
    algorithm.attr["value"].tensor.dtype = DT_INT32
    algorithm.attr["value"].tensor.tensor_shape.SetInParent()
    algorithm.attr["value"].tensor.int_val.append(PHILOX)
    dtype = node.attr["Tout"].type if node.op == "RandomUniformInt" else node.attr["dtype"].type
    shape_type = node.attr["T"].type
    node.op = STATELESS[node.op]
    del node.input[:]
    node.input.extend([shape, stream.name, f"{stream.name}:1", algorithm.name, *rest])
    for key in ("seed", "seed2", "T", "Tout"):
        if key in node.attr:
            del node.attr[key]
    node.attr["dtype"].type = dtype
    node.attr["Tshape"].type = shape_type
