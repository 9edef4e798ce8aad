"""What row-wise and lane-wise nests share for reductions: the scalar bodies of variadic ones, and a task's partial results."""

from __future__ import annotations

from ...ir.graph import Graph
from ...ir.index_maps import Index, Var
from ...loops import loops
from ...loops.loops import Loop, LoopKind, Store
from ...planning.accumulators import partial_dtype
from ...support.sequences import zip_strict
from ..context import Context
from ..passes import Member
from ..values import Emitter


def flush_partials(context: Context, emitter: Emitter, member: Member, local: str, count: int) -> None:
    """Stores a task's partial results, the local array `local`, to scratch: one row of `count` results per task."""
    dtype = partial_dtype(context.graph, member.segment, member.mapping)
    buffer = context.number_of(context.plan.partial_buffer(member.segment, member.mapping))
    variable = Var(f"i{emitter.fresh()}", count)
    task = Var("task", context.plan.executions[context.nest.number].tasks)
    name = emitter.fresh()
    body = (
        loops.Let(name, dtype, loops.LoadLocal(local, Index.of_var(variable))),
        Store(buffer, dtype, Index.of_var(task) * count + Index.of_var(variable), name),
    )
    emitter.put(Loop(variable, count, LoopKind.SIMD, body), 0)


def fold_body(
    emitter: Emitter, body: Graph, accumulators: list[tuple[str, Index]], values: list[str], depth: int
) -> list[str]:
    """Applies the scalar graph of a variadic reduction to accumulators (local, position) and values. Returns the names of its
    results."""
    names: dict[int, str] = {}
    parameters = body.parameters
    for parameter, (local, position) in zip(parameters, accumulators):
        names[parameter] = emitter.let(body.nodes[parameter].dtype, loops.LoadLocal(local, position), depth)
    names.update(zip_strict(parameters[len(accumulators) :], values))
    return scalar_graph(emitter, body, names, depth)


def fold_across(emitter: Emitter, body: Graph, locals_: list[str]) -> loops.Fold:
    """The Fold that combines the accumulators of the workers that share a variadic reduction's loop."""
    count = len(locals_)
    names = {parameter: emitter.fresh() for parameter in body.parameters}
    in_order = [names[parameter] for parameter in body.parameters]
    dtypes = tuple(body.nodes[parameter].dtype for parameter in body.parameters[:count])
    emitter.push(None)
    depth = len(emitter.scopes) - 1
    for name in in_order:
        emitter.note_depth(name, depth)
    results = scalar_graph(emitter, body, dict(names), depth)
    statements = emitter.pop()
    own, others = tuple(in_order[:count]), tuple(in_order[count:])
    return loops.Fold(tuple(locals_), dtypes, own, others, statements, tuple(results))


def scalar_graph(emitter: Emitter, body: Graph, names: dict[int, str], depth: int) -> list[str]:
    """Writes a graph of scalars whose parameters have the names in `names`. Returns the names of its outputs."""
    from ...ops.c_text import literal_text

    for i, node in enumerate(body.nodes):
        if i in names:
            continue
        if node.op == "constant":
            literal = node.attributes["literal"]
            assert hasattr(literal, "value")
            names[i] = literal_text(node.dtype, literal.value.reshape(-1)[0])
        elif node.op in ("broadcast", "reshape", "copy"):
            names[i] = names[node.operands[0]]
        else:
            dtypes = tuple(body.nodes[operand].dtype for operand in node.operands)
            operands = tuple(names[operand] for operand in node.operands)
            names[i] = emitter.let(node.dtype, loops.Compute(node, dtypes, operands), depth)
    return [names[output] for output in body.outputs]
