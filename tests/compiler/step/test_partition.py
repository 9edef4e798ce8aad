"""A whole step, split: whatever is outside, the stitch ops are as few as can be and the step computes the same."""

from __future__ import annotations

from random import Random
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stitchfleet.compiler.hlo.module import HloImportError, HloInstruction
from stitchfleet.compiler.hlo.text import read_hlo_text
from stitchfleet.compiler.ir.graph import Array
from stitchfleet.compiler.ops.interpreter import evaluate
from stitchfleet.compiler.step.merging import MergeDecision, MergeModel, OpWork
from stitchfleet.compiler.step.partition import SplitComputation, StitchOp, partition
from stitchfleet.compiler.step.scopes import Caps
from stitchfleet.compiler.targets.targets import V100

ADD = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] add(a, b) }\n"
DOT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"

LAYERS = f"""HloModule two_layers
{ADD}
layer {{
 x = f32[4,8] parameter(0)
 w = f32[8,8] parameter(1)
 d = f32[4,8] dot(x, w), {DOT}
 z = f32[] constant(0)
 zeros = f32[4,8] broadcast(z), dimensions={{}}
 m = f32[4,8] maximum(d, zeros)
 ROOT t = (f32[4,8], f32[4,8]) tuple(m, zeros)
}}
ENTRY e {{
 x = f32[4,8] parameter(0)
 w = f32[8,8] parameter(1)
 c = (f32[4,8], f32[4,8]) call(x, w), to_apply=layer
 g = f32[4,8] get-tuple-element(c), index=0
 z = f32[] constant(0)
 r = f32[4] reduce(g, z), dimensions={{1}}, to_apply=add
 rb = f32[4,8] broadcast(r), dimensions={{0}}
 q = f32[4,8] divide(g, rb)
 c2 = (f32[4,8], f32[4,8]) call(q, w), to_apply=layer
 g2 = f32[4,8] get-tuple-element(c2), index=0
 v = f32[32] reshape(g2)
 h = f32[4,8] get-tuple-element(c2), index=1
 ROOT t = (f32[32], f32[4,8], f32[4]) tuple(v, h, r)
}}"""

LOOP = f"""HloModule loop
body {{
 s = (s32[], f32[4,4], f32[4,4]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 one = s32[] constant(1)
 next = s32[] add(i, one)
 x = f32[4,4] get-tuple-element(s), index=1
 w = f32[4,4] get-tuple-element(s), index=2
 d = f32[4,4] dot(x, w), {DOT}
 y = f32[4,4] tanh(d)
 ROOT t = (s32[], f32[4,4], f32[4,4]) tuple(next, y, w)
}}
condition {{
 s = (s32[], f32[4,4], f32[4,4]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 n = s32[] constant(7)
 ROOT less = pred[] compare(i, n), direction=LT
}}
ENTRY e {{
 x = f32[4,4] parameter(0)
 zero = s32[] constant(0)
 a = f32[4,4] abs(x)
 n = f32[4,4] negate(x)
 t = (s32[], f32[4,4], f32[4,4]) tuple(zero, a, n)
 loop = (s32[], f32[4,4], f32[4,4]) while(t), condition=condition, body=body
 y = f32[4,4] get-tuple-element(loop), index=1
 e = f32[4,4] exponential(y)
 u = f32[4,4] sqrt(x)
 ROOT r = (f32[4,4], f32[4,4]) tuple(e, u)
}}"""


def opcodes(split: SplitComputation) -> list[str]:
    return ["stitch" if isinstance(step, StitchOp) else step.opcode for step in split.steps]


def execute(split: SplitComputation, arguments: list[Array]) -> list[Array]:
    """Runs a split entry: stitch ops by the interpreter, matrix products by numpy, in the order given."""
    values: dict[str, Array] = {}
    for item in split.flat.instructions.values():
        if item.opcode == "parameter":
            values[item.name] = arguments[item.parameter_number]

    def value(name: str) -> Array:
        item = split.flat.instructions[name]
        if name not in values:
            if item.literal is not None:
                return item.literal
            return value(item.operands[0]).reshape(item.shape.dimensions)  # a view, or it has not been computed
        return values[name]

    for step in split.steps:
        if isinstance(step, HloInstruction):
            assert step.opcode == "dot"
            left, right = map(value, step.operands)
            values[step.name] = left @ right
        else:
            outputs = evaluate(step.graph, [value(name) for name in step.inputs])
            values.update(zip(step.outputs, outputs, strict=True))
    root = split.flat.instructions[split.flat.root]
    return [value(name) for name in (root.operands if root.opcode == "tuple" else (root.name,))]


def test_calls_are_inlined_views_are_free_and_only_the_products_stay_outside() -> None:
    found = partition(read_hlo_text(LAYERS))
    (split,) = found.splits
    assert opcodes(split) == ["dot", "stitch", "dot", "stitch"]
    first, second = found.stitch_ops
    assert len(first.inputs) == 1
    assert len(first.outputs) == 2
    assert second.inputs == ("c2/d",)
    assert {str(op.reason) for op in found.outside} == {"a matrix product, left to the library"}
    x, w = np.random.default_rng(0).random((2, 8, 8), dtype=np.float32)
    v, zeros, r = execute(split, [x[:4], w])
    hidden = np.maximum(x[:4] @ w, 0)
    assert np.allclose(r, hidden.sum(1), rtol=1e-6)
    assert np.allclose(v, (hidden / hidden.sum(1, keepdims=True) @ w).ravel(), rtol=1e-5)
    assert not zeros.any()


def test_the_bodies_of_loops_are_split_for_themselves_and_independent_ops_become_one() -> None:
    found = partition(read_hlo_text(LOOP))
    by_name = {split.computation: split for split in found.splits}
    # sqrt has nothing to do with the loop: it joins what runs before it
    assert opcodes(by_name["e"]) == ["stitch", "while", "stitch"]
    assert set(by_name["e"].stitch_ops[0].instructions) == {"a", "n", "u"}
    assert opcodes(by_name["body"]) == ["stitch", "dot", "stitch"] or opcodes(by_name["body"]) == ["dot", "stitch"]
    assert opcodes(by_name["condition"]) == ["stitch"]
    assert [op.opcode for op in found.outside] == ["while", "dot"]
    alone = partition(read_hlo_text(LOOP), remote=False)
    assert len(alone.stitch_ops) > len(found.stitch_ops)


def test_what_the_importer_refuses_is_left_out_and_the_rest_stitched() -> None:
    text = f"""HloModule median
{ADD}
half {{ a = f32[] parameter(0)
 b = f32[] parameter(1)
 s = f32[] add(a, b)
 h = f32[] constant(0.5)
 ROOT m = f32[] multiply(s, h) }}
ENTRY e {{
 x = f32[6] parameter(0)
 z = f32[] constant(0)
 n = f32[6] negate(x)
 w = f32[5] reduce-window(n, z), window={{size=2}}, to_apply=half
 ROOT r = f32[5] exponential(w)
}}"""
    found = partition(read_hlo_text(text))
    assert opcodes(found.splits[0]) == ["stitch", "reduce-window", "stitch"]
    assert [(op.name, op.reason) for op in found.outside] == [("w", "a reduce-window with a region of its own")]


def test_what_the_outside_reads_is_in_memory_and_what_is_constant_is_computed_by_each() -> None:
    text = f"""HloModule ambient
ENTRY e {{
 x = f32[4,4] parameter(0)
 i = f32[4,4] iota(), iota_dimension=0
 h = f32[] constant(0.5)
 hb = f32[4,4] broadcast(h), dimensions={{}}
 k = f32[4,4] multiply(i, hb)
 a = f32[4,4] add(x, k)
 d = f32[4,4] dot(a, k), {DOT}
 b = f32[4,4] add(d, k)
 ROOT r = f32[4,4] dot(b, x), {DOT}
}}"""
    (split,) = partition(read_hlo_text(text)).splits
    assert opcodes(split) == ["stitch", "dot", "stitch", "dot"]
    first, second = split.stitch_ops
    assert set(first.outputs) == {"a", "k"}
    assert second.inputs in (("d", "k"), ("d",))


def test_between_stitch_ops_and_the_library_all_is_row_major() -> None:
    """TensorFlow's lowering gives a transpose the layout that would make it a bitcast."""
    text = f"""HloModule heads
ENTRY e {{
 x = f32[2,3]{{1,0}} parameter(0)
 n = f32[2,3]{{1,0}} negate(x)
 t = f32[3,2]{{0,1}} transpose(n), dimensions={{1,0}}
 d = f32[3,3]{{1,0}} dot(t, x), {DOT}
 u = f32[2,2]{{0,1}} dot(x, t), {DOT}
 ROOT r = (f32[3,3]{{1,0}}, f32[2,2]{{1,0}}) tuple(d, u)
}}"""
    (split,) = partition(read_hlo_text(text)).splits
    assert opcodes(split) == ["stitch", "dot", "dot"]
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    d, u = execute(split, [x])
    assert np.array_equal(d, -x.T @ x)
    assert np.array_equal(u, -x @ x.T)


def test_a_step_that_only_moves_views_needs_no_kernel() -> None:
    text = (
        "HloModule v\nENTRY e {\n x = f32[4,4] parameter(0)\n y = f32[16] reshape(x)\n ROOT z = f32[1,16] reshape(y)\n}"
    )
    found = partition(read_hlo_text(text))
    assert found.stitch_ops == ()
    assert found.outside == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("HloModule m\nENTRY e {\n x = f32[4] parameter(0)\n ROOT r = f32[4] call(x), to_apply=gone\n}", "gone"),
        (
            "HloModule m\nf {\n a = f32[4] parameter(0)\n ROOT r = f32[4] call(a), to_apply=f\n}\n"
            "ENTRY e {\n x = f32[4] parameter(0)\n ROOT r = f32[4] call(x), to_apply=f\n}",
            "nest deeper than 64",
        ),
    ],
)
def test_a_module_that_is_broken_is_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(HloImportError, match=said):
        partition(read_hlo_text(text))


def computed(instructions: list[tuple[str, str, list[str]]], arguments: list[Array]) -> dict[str, Array]:
    """What a random module computes, by numpy, instruction by instruction."""
    values: dict[str, Array] = {"p0": arguments[0], "p1": arguments[1], "zb": np.zeros((4, 4), np.float32)}
    for name, kind, (x, y) in instructions:
        a, b = values[x], values[y]
        values[name] = {
            "dot": lambda a=a, b=b: a @ b,
            "add": lambda a=a, b=b: a + b,
            "abs": lambda a=a: abs(a),
            "rows": lambda a=a: np.broadcast_to(a.sum(0, keepdims=True), (4, 4)).T,
            "columns": lambda a=a: np.broadcast_to(a.sum(1, keepdims=True), (4, 4)),
            "transpose": lambda a=a: a.T,
            "view": lambda a=a: a,
            "difference": lambda a=a, b=b: b @ a - b,
            "product": lambda a=a, b=b: b @ a,
        }[kind]()
    return values


@st.composite
def modules(draw: st.DrawFn) -> tuple[str, list[tuple[str, str, list[str]]], list[str]]:
    """Square matrices, products among element-wise ops, reductions, transposes and views: the module's text, the same for `computed`,
    and the results."""
    lines = [" p0 = f32[4,4] parameter(0)", " p1 = f32[4,4] parameter(1)", " z = f32[] constant(0)"]
    lines.append(" zb = f32[4,4] broadcast(z), dimensions={}")
    values, instructions = ["p0", "p1", "zb"], []
    kinds = ["dot", "add", "abs", "rows", "columns", "transpose", "view", "difference", "product"]
    for k in range(draw(st.integers(1, 14))):
        x, y = draw(st.sampled_from(values)), draw(st.sampled_from(values))
        kind = draw(st.sampled_from(kinds))
        instructions.append((f"v{k}", kind, [x, y]))
        if kind == "dot":
            lines.append(f" v{k} = f32[4,4] dot({x}, {y}), {DOT}")
        elif kind in ("rows", "columns"):
            lines.append(f" s{k} = f32[4] reduce({x}, z), dimensions={{{int(kind == 'columns')}}}, to_apply=add")
            lines.append(f" v{k} = f32[4,4] broadcast(s{k}), dimensions={{0}}")
        elif kind == "view":
            lines += [f" w{k} = f32[16] reshape({x})", f" v{k} = f32[4,4] reshape(w{k})"]
        elif kind == "transpose":
            lines.append(f" v{k} = f32[4,4] transpose({x}), dimensions={{1,0}}")
        elif kind in ("difference", "product"):
            lines.append(f" c{k} = (f32[4,4], f32[4,4]) call({x}, {y}), to_apply=pair")
            lines.append(f" v{k} = f32[4,4] get-tuple-element(c{k}), index={int(kind == 'product')}")
        else:
            lines.append(f" v{k} = f32[4,4] {kind}({x}{', ' + y if kind == 'add' else ''})")
        values.append(f"v{k}")
    results = draw(st.lists(st.sampled_from(values), min_size=1, max_size=4))
    shapes = ", ".join(["f32[4,4]"] * len(results))
    lines.append(f" ROOT r = ({shapes}) tuple({', '.join(results)})")
    pair = (
        "pair { a = f32[4,4] parameter(0)\n b = f32[4,4] parameter(1)\n "
        f"d = f32[4,4] dot(b, a), {DOT}\n e = f32[4,4] subtract(d, b)\n "
        "ROOT t = (f32[4,4], f32[4,4]) tuple(e, d) }\n"
    )
    return "\n".join(["HloModule random", ADD, pair, "ENTRY e {", *lines, "}"]), instructions, results


@settings(max_examples=150, deadline=None)
@given(modules())
def test_however_a_step_is_split_it_computes_the_same(
    case: tuple[str, list[tuple[str, str, list[str]]], list[str]],
) -> None:
    """One stitch op for each operator, one for each connected set, and remote ones: in an order in which each has what it reads."""
    text, instructions, results = case
    module = read_hlo_text(text)
    arguments = list(np.random.default_rng(1).uniform(-1, 1, (2, 4, 4)).astype(np.float32))
    values = computed(instructions, arguments)
    counts = []
    for remote, caps in ((False, Caps(1)), (False, Caps()), (True, Caps())):
        (split,) = partition(module, remote, caps).splits
        for found, result in zip(execute(split, arguments), results, strict=True):
            wanted = values[result]
            assert np.allclose(found, wanted, rtol=1e-3, atol=1e-4 * float(abs(wanted).max(initial=1)))
        counts.append(len(split.stitch_ops))
    assert counts[2] <= counts[1] <= counts[0]


@settings(max_examples=100, deadline=None)
@given(modules(), st.randoms(use_true_random=False))
def test_whatever_a_cost_model_says_of_merges_the_step_computes_the_same(
    case: tuple[str, list[tuple[str, str, list[str]]], list[str]], random: Random
) -> None:
    """Sets are cut and kept apart at random."""
    text, instructions, results = case
    arguments = list(np.random.default_rng(1).uniform(-1, 1, (2, 4, 4)).astype(np.float32))
    values = computed(instructions, arguments)

    def judge(self: MergeModel, together: OpWork, apart: list[OpWork]) -> MergeDecision:
        return MergeDecision(1.0, 1.0, random.random() < 0.5, "by chance")

    with patch.object(MergeModel, "judge", judge), patch.object(MergeModel, "worth_a_cut", lambda self, work: True):
        (split,) = partition(read_hlo_text(text), target=V100).splits
    for found, result in zip(execute(split, arguments), results, strict=True):
        wanted = values[result]
        assert np.allclose(found, wanted, rtol=1e-3, atol=1e-4 * float(abs(wanted).max(initial=1)))
    assert len(split.stitch_ops) >= len(partition(read_hlo_text(text)).stitch_ops)
