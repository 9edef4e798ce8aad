"""An output that the plan lets lie in an input's memory is the same there, to the last bit: every pair that any plan allows, run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from stitchfleet.compiler.check.random_inputs import Regime, random_inputs
from stitchfleet.compiler.check.selfcheck import disjoint_pairs, same_bits
from stitchfleet.compiler.codegen.cuda.kernel_text import plan_for_gpu
from stitchfleet.compiler.ir.graph import Graph
from stitchfleet.compiler.lowering.alias import kernel_aliases
from stitchfleet.compiler.targets.targets import CPU

from ...marks import slow
from .. import emulated
from ..codegen.cpu.test_kernels import collect
from ..library import LIBRARY, Maker
from ..native import STRESS, Built, build_all

TARGETS = {"cpu": CPU, "stress": STRESS}
Pairs = Sequence[tuple[int, int]]


class RowGraph:
    """A graph of some rows at random: rows of one or several lengths, numbers of a row, sums over rows, and outputs of each. Inputs
    are read as they are, broadcast over a row, in a slice, in a concatenation and by reductions, mostly at one place."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.m = Maker(f"rows_{seed}")
        self.rows = int(self.random.choice([3, 8, 40, 130]))
        self.width = int(self.random.choice([2, 5, 16, 33, 96]))
        self.shapes = [(self.rows,), (self.rows,), (self.rows, self.width), (self.rows, 2 * self.width), (self.rows, 1)]
        self.nodes: list[int] = []

    def one_of(self, shape: tuple[int, ...]) -> int:
        there = [node for node in self.nodes if self.m.shape(node) == shape]
        if not there or self.random.random() < (0.5 if len(shape) == 1 else 0.15):  # what tells rows apart is shared
            return self.m.parameter(*shape)
        return int(self.random.choice(there))

    def old(self, shape: tuple[int, ...]) -> int:
        """A node that there is, if there is one."""
        there = [node for node in self.nodes if self.m.shape(node) == shape]
        return int(self.random.choice(there)) if there else self.one_of(shape)

    def grow(self) -> None:
        m, rows, width = self.m, self.rows, self.width
        kinds = [
            "sum",
            "sum",
            "spread",
            "spread",
            "binary",
            "binary",
            "binary",
            "concatenate",
            "unary",
            "slice",
            "column",
            "turn",
        ]
        kind = str(self.random.choice(kinds))
        long = int(self.random.choice([width, width, 2 * width]))
        # Half are numbers of a row: they are written beside loops over the row, which read other numbers of it.
        shape = (rows,) if self.random.random() < 0.5 else self.shapes[self.random.integers(len(self.shapes))]
        if kind == "binary":
            made = m.op(str(self.random.choice(["add", "multiply"])), self.old(shape), self.one_of(shape))
        elif kind == "unary":
            made = m.op(str(self.random.choice(["tanh", "negate", "logistic"])), self.one_of(shape))
        elif kind == "spread":
            made = m.op("add", m.spread(self.one_of((rows,)), (rows, long), 0), self.old((rows, long)))
        elif kind == "sum":
            made = m.reduce(self.one_of((rows, long)), 1, kind=str(self.random.choice(["sum", "max"])))
        elif kind == "concatenate":
            made = m.op("concatenate", self.one_of((rows, width)), self.one_of((rows, width)), dimension=1)
        elif kind == "slice":
            start = int(self.random.choice([0, width]))
            whole = self.one_of((rows, 2 * width))
            made = m.op("slice", whole, start=(0, start), limit=(rows, start + width), strides=(1, 1))
        elif kind == "column":
            made = m.op(
                "multiply",
                m.spread(m.reduce(self.one_of((rows, width)), 0), (rows, width), 1),
                self.one_of((rows, width)),
            )
        else:
            made = m.reshape(self.one_of((rows,)), rows, 1)
        self.nodes.append(made)

    def graph(self) -> Graph:
        whole = self.one_of((self.rows, self.width))
        total = self.m.reduce(whole, 1)
        self.nodes += [total, self.m.op("subtract", whole, self.m.spread(total, (self.rows, self.width), 0))]
        for _ in range(int(self.random.integers(4, 16))):
            self.grow()
        count = min(len(self.nodes), int(self.random.integers(2, 9)))
        return self.m.done(*sorted({int(node) for node in self.random.choice(self.nodes, count)} | {self.nodes[-1]}))


def differing(built: Built, number: int) -> list[str]:
    """The aliases of a kernel under which an output is another than without."""
    inputs = random_inputs(built.graph, np.random.default_rng(number), Regime.NORMAL)
    kernel = built.load()
    expected = kernel.run(inputs)
    allowed = list(built.metadata.aliases)
    together = list(disjoint_pairs(allowed).items())
    found = []
    for pairs in [*([pair] for pair in allowed), together, list(disjoint_pairs(reversed(allowed)).items())]:
        for threads, backwards in ((2, False), (1, True)):
            results = kernel.run(inputs, threads, backwards, pairs)
            wrong = [
                n
                for n, (a, b) in enumerate(zip(expected, results, strict=True))
                if not same_bits(a, b.reshape(a.shape))
            ]
            if wrong:
                found.append(f"{built.graph.name}: outputs {wrong} with {pairs}")
    return found


@pytest.mark.costly
@pytest.mark.parametrize("target", [slow("cpu"), "stress"])
def test_every_alias_of_random_row_graphs(target: str) -> None:
    graphs = [RowGraph(seed).graph() for seed in range(100)]
    allowed, found = 0, []
    for number, built in enumerate(build_all(graphs, TARGETS[target])):
        allowed += len(built.metadata.aliases)
        found += differing(built, number)
    assert not found, "\n".join(found[:10])
    assert allowed > 50


@pytest.mark.costly
@pytest.mark.parametrize("target", ["cpu", slow("stress")])
def test_every_alias_of_the_library_and_of_random_graphs(target: str) -> None:
    graphs = [make() for make in LIBRARY.values()] + collect(80, 14, number=17)
    allowed, found = 0, []
    for number, built in enumerate(build_all(graphs, TARGETS[target])):
        allowed += len(built.metadata.aliases)
        found += differing(built, number)
    assert not found, "\n".join(found[:10])
    assert allowed > 50


@pytest.mark.slow
@pytest.mark.parametrize("target", ["small", slow("warp")])
def test_every_alias_on_a_gpu(target: str) -> None:
    """Threads of a block read and write the same row, in any order between barriers."""
    allowed, found = 0, []
    graphs = [RowGraph(seed).graph() for seed in range(60)]
    for number, one in enumerate(emulated.build_all(graphs, emulated.TARGETS[target])):
        inputs = [
            np.require(x, requirements="C")
            for x in random_inputs(one.graph, np.random.default_rng(number), Regime.NORMAL)
        ]
        expected, _ = one.run(inputs, seed=2 * number)
        aliases = kernel_aliases(plan_for_gpu(one.graph, emulated.TARGETS[target])[0])
        allowed += len(aliases)
        for pair in aliases:
            results, _ = one.run(inputs, seed=2 * number, in_place=[pair])
            wrong = [n for n, (a, b) in enumerate(zip(expected, results, strict=True)) if not same_bits(a, b)]
            if wrong:
                found.append(f"{one.graph.name}: outputs {wrong} with {pair}")
    assert not found, "\n".join(found[:10])
    assert allowed > 50


def test_a_number_of_a_row_is_not_written_before_the_loop_over_the_row_reads_another() -> None:
    """y[r] is written, then x[r] is read for all 64 elements of row r: one pass, two loops, one position."""
    m = Maker("two_loops")
    x, z, u = m.parameter(40), m.parameter(40), m.parameter(40, 64)
    total = m.reduce(u, 1)
    y = m.op("add", total, z)
    scaled = m.op("multiply", u, m.spread(total, (40, 64), 0))
    graph = m.done(y, m.op("add", m.spread(x, (40, 64), 0), scaled))
    (built,) = build_all([graph])
    assert (0, 1) in built.metadata.aliases, "z[r] is read where y[r] is written"
    assert (0, 0) not in built.metadata.aliases
    assert differing(built, 0) == []
