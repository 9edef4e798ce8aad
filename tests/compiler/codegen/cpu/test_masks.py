"""Vector loops have no conditions that they do not change."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stitchfleet.compiler.codegen.cpu.kernel_text import render, translation_unit
from stitchfleet.compiler.codegen.cpu.masks import without_conditions
from stitchfleet.compiler.ir.graph import DType, Graph
from stitchfleet.compiler.ir.index_maps import Bound, Index, Var
from stitchfleet.compiler.loops.loops import Choose, Either, Let, Load, Loop, LoopKind, Masked, Store
from stitchfleet.compiler.lowering.kernel_loops import lower
from stitchfleet.compiler.planning.plan import plan_graph

from ...library import max_pool, max_pool_gradient, padded_rows
from ...native import said_of_vectors, toolchain

F32 = DType.F32
R, K = Var("r", 8), Var("k", 64)
FIRST = (Bound(Index.of_var(R), 1, 1 << 40),)
"""In all rows but the first."""


def shifted_row(guard: tuple[Bound, ...] = FIRST, index: Index | None = None, otherwise: str = "2.0f") -> Loop:
    """A row is the one before it; the first is `otherwise`."""
    at = Index.of_var(R) * 64 + Index.of_var(K)
    body = (
        Let("x", F32, Load(0, F32, at + -64 if index is None else index, guard)),
        Let("y", F32, Choose(((guard, "x"),), otherwise)),
        Store(1, F32, at, "y"),
    )
    return Loop(K, 64, LoopKind.SIMD, body)


def values(loop: Loop) -> list[object]:
    return [each.value for each in loop.body if isinstance(each, Let)]


def test_a_condition_that_the_loop_does_not_change_is_decided_before_it() -> None:
    before, loop = without_conditions(shifted_row(), (8 * 64 * 4,) * 2)
    read, masked, either = values(loop)
    assert isinstance(read, Load)
    assert isinstance(masked, Masked)
    assert isinstance(either, Either)
    assert not read.guard
    start = read.index - Index.of_var(K)
    assert R not in start.variables, "the position is chosen before the loop"
    assert [each.value.cases[0][0] for each in before if isinstance(each, Let) and isinstance(each.value, Choose)] == [
        FIRST
    ] * 3


@pytest.mark.parametrize(
    "loop",
    [
        shifted_row(guard=(Bound(Index.of_var(K), 3, 40),)),  # it depends on the element
        shifted_row(otherwise="x"),
    ],
)
def test_what_the_loop_changes_stays(loop: Loop) -> None:
    _, found = without_conditions(loop, (8 * 64 * 4,) * 2)
    assert any(isinstance(value, Choose) for value in values(found))


def test_nothing_beyond_the_tensor_is_read() -> None:
    """Where the guard fails, the loop would read from the tensor's beginning, as far as the loop goes."""
    loop = shifted_row(index=Index.of_var(R) * 2 + Index.of_var(K) * 3)
    guards = []
    for elements in (190, 189):
        read = values(without_conditions(loop, (elements * 4,) * 2)[1])[0]
        assert isinstance(read, Load)
        guards.append(read.guard)
    assert guards == [(), FIRST]


@pytest.mark.parametrize(
    "graph",
    [
        max_pool_gradient(8, 56, 64),
        max_pool(8, 56, 64),
        padded_rows(DType.F32, 40, 64),
        padded_rows(DType.BF16, 40, 64),
    ],
    ids=lambda graph: graph.name,
)
def test_loops_under_conditions_are_vectors(graph: Graph, tmp_path: Path) -> None:
    if toolchain().is_clang:
        pytest.skip("asks gcc")
    text = render(lower(plan_graph(graph)), "k")
    said = said_of_vectors(translation_unit([text]), tmp_path, "-fopt-info-vec")
    lines = (tmp_path / "k.cc").read_text().splitlines()
    vectors = {int(number) for number in re.findall(r"k\.cc:(\d+):\d+: optimized: loop vectorized", said)}
    wanted = [
        i + 2
        for i, line in enumerate(lines)
        if line.strip() == "#pragma omp simd" and i > lines.index(text.splitlines()[0])
    ]
    assert wanted
    assert all(vectors & {*range(number, number + 4)} for number in wanted), (wanted, vectors)
