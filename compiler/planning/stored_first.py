"""What a CPU stores in order before a transpose moves it.

A transpose needs no loops of its own: a nest can read the tensor where it lies, across memory, in squares or through copies
(transposes.py). If that is the only large tensor that the nest reads so, nothing is faster. But a nest that computes a softmax in the
order of its transposed result reads the tensor, the maxima and the sums so, and computes each exp again. Then it is faster to store
the result in order, in loops that have its rows in the cache, and to move it in a nest that does nothing else:

    nest 0   max, sum                    row by row             nest 0   max, sum, exp(x - max) / sum   row by row
    nest 1   exp(x - max) / sum          in squares             nest 1   what nest 0 has stored         in squares

`plan.py` plans a graph again, with `moved_nodes` in memory, and takes that plan if it has fewer nests that read across memory at a
loss. Measured on a Zen 4 (one core, 72 normalizations, softmaxes and their gradients of transposed tensors or with transposed
results, 0.3 to 1 million elements): half of them become faster, up to 9.7 times. If every transpose stored its operand first, sums of
two tensors of different orders, which read one across memory, would take 1.4 times as long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..ir.graph import Graph
from ..ir.index_maps import Digit, Index
from ..ops.table import OPS
from .access import trace
from .execution import Execution, Mode
from .placement import Nest, mapped_roots, within
from .transposes import CACHE_LINE_ELEMENTS

LARGE_BYTES: Final = 64 * 1024
"""A smaller tensor stays in the caches, however it is read."""


def moved_nodes(graph: Graph, nest: Nest, execution: Execution, stored: Callable[[int], bool]) -> frozenset[int]:
    """The nodes to be stored before transposes move them: what the transposes of the nest move, or their results if these are read
    from memory anyway. Empty if the nest reads at most one large tensor across memory. stored: whether the nest reads a node from
    memory."""
    if execution.mode is not Mode.SQUARES and execution.turns is None:
        return frozenset()
    here = nest.computes()
    across: set[tuple[int, Index]] = set()
    transposes: set[int] = set()
    for segment, mapping in nest.placed:
        inner = within(mapping.inner)
        roots = mapped_roots(graph, segment, mapping, Index.of_var(nest.row), Index.of_var(inner))
        steps = trace(graph, roots, stored)
        transposes |= {request.node for request in steps.steps if graph.nodes[request.node].op == "transpose"}
        for request, flat in steps.loads():
            apart = [c for c, a in flat.terms if isinstance(a, Digit) and a.variable == inner and a.stride == 1]
            if request.node not in here and apart and apart[0] >= CACHE_LINE_ELEMENTS:
                across.add((request.node, flat))
    large = [node for node, _ in across if graph.nodes[node].size_bytes >= LARGE_BYTES]
    # A copy is made for each row, of whatever size; squares of small tensors stay cached.
    count = len(across) if large and execution.turns is not None else len(large)
    if count <= 1:
        return frozenset()
    return frozenset(_source(graph, i, stored) for i in transposes if graph.nodes[i].size_bytes >= LARGE_BYTES)


def _source(graph: Graph, transpose: int, stored: Callable[[int], bool]) -> int:
    """What a transpose moves; the transpose itself if that is in memory."""
    node = graph.nodes[transpose].operands[0]
    while graph.nodes[node].op == "reshape":
        node = graph.nodes[node].operands[0]
    return transpose if OPS[graph.nodes[node].op].is_leaf or stored(node) else node
