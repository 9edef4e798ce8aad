"""Kernels, run: every graph of the library and random ones agree with the float64 oracle, whatever the target's
sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from stitchfleet.compiler.check.judge import judge
from stitchfleet.compiler.check.random_inputs import Regime, random_inputs
from stitchfleet.compiler.check.selfcheck import same_bits
from stitchfleet.compiler.codegen.cpu import forms
from stitchfleet.compiler.codegen.cpu.kernel_text import render, translation_unit
from stitchfleet.compiler.ir.graph import DType, GatherDimensions, Graph
from stitchfleet.compiler.loops import split
from stitchfleet.compiler.lowering.kernel_loops import lower
from stitchfleet.compiler.planning.plan import plan_graph
from stitchfleet.compiler.targets.targets import CPU, Target

from ....marks import slow
from ...library import LIBRARY, Maker, adam, gelu, heads_apart, joined_row_times_matrix, layer_norm_gradient, softmax
from ...native import STRESS, Built, build_all, complaint, said_of_vectors, toolchain
from ...strategies import graphs

TARGETS = {"cpu": CPU, "stress": STRESS}


@pytest.fixture(scope="module", params=sorted(TARGETS))
def library(request: pytest.FixtureRequest) -> dict[str, Built]:
    made = [make() for make in LIBRARY.values()]
    return dict(zip(LIBRARY, build_all(made, TARGETS[request.param]), strict=True))


@pytest.mark.parametrize("regime", [Regime.NORMAL, Regime.SPECIAL, slow(Regime.HUGE)])
@pytest.mark.parametrize("name", LIBRARY)
def test_agrees_with_the_oracle(library: dict[str, Built], name: str, regime: Regime) -> None:
    assert complaint(library[name], regime, seed=11) is None


@pytest.mark.parametrize("name", ["adam", "gelu", "bias_residual"])
def test_outputs_may_be_written_over_the_inputs_that_the_metadata_lists(library: dict[str, Built], name: str) -> None:
    built = library[name]
    free_inputs, pairs = {i for _, i in built.metadata.aliases}, []
    for output in sorted({o for o, _ in built.metadata.aliases}):
        source = next((i for o, i in built.metadata.aliases if o == output and i in free_inputs), None)
        if source is not None:
            free_inputs.discard(source)
            pairs.append((output, source))
    assert pairs, "an element-wise kernel must be able to work in place"
    inputs = random_inputs(built.graph, np.random.default_rng(5), Regime.NORMAL)
    results = built.load().run(inputs, in_place=pairs)
    assert judge(built.graph, inputs, results).ok


def test_a_row_that_begins_under_a_guard_keeps_its_vectors(tmp_path: Path) -> None:
    """gcc must not jam such rows together: of the jammed loops over the row it makes no vectors."""
    if toolchain().is_clang:
        pytest.skip("asks gcc")
    text = translation_unit([render(lower(plan_graph(joined_row_times_matrix(256, 512, 1024))), "k")])
    said = said_of_vectors(text, tmp_path, "-fopt-info-vec", "-fopt-info-vec-missed")
    assert "loop vectorized" in said
    assert "no vectype" not in said


def test_a_conversion_of_what_was_chosen_keeps_its_vectors(tmp_path: Path) -> None:
    """As TensorFlow's Cast of floats has it: what an integer cannot hold becomes the smallest one."""
    if toolchain().is_clang:
        pytest.skip("asks gcc")
    m, shape = Maker("conversions"), (1000,)
    x, limit, least = m.parameter(*shape), m.constant(2.0**31), m.constant(-(2.0**31))
    whole = []
    for shift in (0.0, 1.0):
        value = m.shifted(x, shift)
        fits = m.op("compare", m.op("abs", value), m.spread(limit, shape), direction="LT", total_order=False)
        whole.append(m.convert(m.op("select", fits, value, m.spread(least, shape)), DType.S32))
    text = translation_unit([render(lower(plan_graph(m.done(m.op("multiply", *whole)))), "k")])
    assert "loop vectorized" in said_of_vectors(text, tmp_path, "-fopt-info-vec")


def test_large_tensors_run_in_parallel_and_agree() -> None:
    made = [softmax(2048, 96), layer_norm_gradient(3000, 64), gelu(512, 1000), adam([(700, 300), (50_000,)])]
    for built in build_all(made):
        inputs = random_inputs(built.graph, np.random.default_rng(3), Regime.NORMAL)
        kernel = built.load()
        results = kernel.run(inputs)
        assert kernel.phases_run_parallel >= 1
        assert judge(built.graph, inputs, results).ok


def normalized(rows: int, kept: int) -> Graph:
    """x * rsqrt(v + e) + exp(v) * y, with v and y of the columns."""
    m = Maker(f"normalized_{rows}_{kept}")
    x, v, y = m.parameter(rows, kept), m.op("abs", m.parameter(kept)), m.parameter(kept)
    scale = m.op("rsqrt", m.op("add", v, m.constant(1e-3, (kept,))))
    offset = m.op("multiply", m.op("exp", m.op("negate", v)), y)
    scaled = m.op("multiply", x, m.spread(scale, (rows, kept), 1))
    return m.done(m.op("add", scaled, m.spread(offset, (rows, kept), 1)), m.reduce(scaled, 1))


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_what_is_the_same_for_all_rows_and_takes_long_is_computed_once_a_task(target: str) -> None:
    text = render(lower(plan_graph(normalized(300, 40))), "k")
    before, _, loop = text.partition("for (long long r = first_row")
    assert before.count("__builtin_sqrtf") == before.count("stitch_exp(") == 1, text
    assert "__builtin_sqrtf" not in loop
    made = [normalized(*shape) for shape in ((300, 40), (7, 1000), (64, 33), (5000, 3), (2, 64))]
    for number, built in enumerate(build_all(made, TARGETS[target])):
        assert complaint(built, Regime.NORMAL, seed=number) is None


def narrow(rows: int, kept: int, kind: str, dtype: DType) -> Graph:
    """A reduction over all rows to a few results, of squares: the value is one of several that are computed."""
    m = Maker(f"narrow_{rows}_{kept}_{kind}_{dtype.value}")
    x = m.parameter(rows, kept, dtype=dtype)
    return m.done(m.reduce(m.op("multiply", x, x), 0, kind=kind), m.reduce(x, 0, 1, kind="max"))


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_rows_are_added_up_in_several_accumulators_to_few_results(target: str) -> None:
    shapes = [(64, 2), (67, 3), (1000, 8), (333, 16), (130, 17), (515, 32), (100, 33), (63, 8)]
    kinds = [("sum", DType.F32), ("max", DType.F32), ("sum", DType.F64), ("sum", DType.BF16), ("min", DType.S32)]
    made = [narrow(*shape, *kinds[number % len(kinds)]) for number, shape in enumerate(shapes * 2)]
    assert "% 8) * 8" in render(lower(plan_graph(narrow(1000, 8, "sum", DType.F32))), "k")
    for number, built in enumerate(build_all(made, TARGETS[target])):
        assert complaint(built, Regime.NORMAL, seed=number) is None


def padded(length: int, low: int, high: int, dtype: DType) -> Graph:
    """Rows with zeros at their ends, so long as one or two vectors, each beside another row."""
    m = Maker(f"padded_{length}_{low}_{high}_{dtype.value}")
    rows = m.parameter(31, length, 1, dtype=dtype)
    return m.done(m.op("pad", rows, m.constant(0, dtype=dtype), low=(0, low, 1), high=(0, high, 1), interior=(0, 0, 0)))


@pytest.mark.parametrize("dtype", [DType.F32, slow(DType.S32), DType.F64, slow(DType.S64)])
def test_rows_as_long_as_a_vector_are_padded_without_a_read_outside_of_them(dtype: DType) -> None:
    """A page that may not be read lies before and behind each tensor. g++ 12 reads there if it knows the mask of a masked load."""
    made = [padded(size - low - high, low, high, dtype) for size in (4, 8, 16) for low in (0, 2) for high in (0, 1)]
    for built in build_all(made):
        assert complaint(built, Regime.NORMAL, seed=1) is None


def reduced(length: int, kind: str, dtype: DType) -> Graph:
    """Rows of so many elements, combined; and of all rows together, in a nest whose lanes may have the same names."""
    m = Maker(f"reduced_{length}_{kind}_{dtype.value}")
    x = m.parameter(37, length, dtype=dtype)
    rows = m.reduce(x, 1, kind=kind)
    centred = m.op("subtract", x, m.spread(rows, (37, length), 0))
    return m.done(rows, m.reduce(centred, 0, 1, kind=kind))


@pytest.mark.parametrize("dtype", [DType.F32, DType.S32, slow(DType.F64), slow(DType.BF16)])
@pytest.mark.parametrize("kind", ["sum", "max"])
def test_what_rows_leave_after_their_last_vector_is_combined(kind: str, dtype: DType) -> None:
    for built in build_all([reduced(length, kind, dtype) for length in (33, 39, 47, 48, 63, 67, 79, 95)]):
        for regime in (Regime.NORMAL, Regime.SPECIAL):
            assert complaint(built, regime, seed=2) is None, built.graph.name


def test_rows_added_together_give_the_bits_of_rows_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def columns(rows: int, kind: str) -> Graph:
        m = Maker(f"columns_{rows}_{kind}")
        x, y = m.parameter(rows, 2500), m.parameter(rows, 2500)
        return m.done(m.reduce(m.op("multiply", x, y), 0, kind=kind), m.reduce(x, 0, kind="max"))

    made = [columns(rows, kind) for rows in (3, 64, 1001) for kind in ("sum", "max")]
    together = list(build_all(made))
    monkeypatch.setattr(forms, "LEAST_COLUMNS", 1 << 60)
    for built, single in zip(together, build_all(made), strict=True):
        assert built.library != single.library
        inputs = random_inputs(built.graph, np.random.default_rng(1), Regime.SPECIAL)
        for a, b in zip(built.load().run(inputs), single.load().run(inputs), strict=True):
            assert a.tobytes() == b.tobytes()
        assert complaint(built, Regime.NORMAL, seed=1) is None


def joined(widths: tuple[int, ...], low: int) -> Graph:
    """Rows joined from pieces, some of them looked up or computed, behind zeros; written, and their columns added."""
    m = Maker(f"joined_{'_'.join(map(str, widths))}_{low}")
    pieces = [m.parameter(29, width) for width in widths]
    pieces[-1] = m.op("tanh", pieces[-1])
    whole = m.op("concatenate", *pieces, dimension=1)
    whole = m.op("pad", whole, m.constant(0), low=(0, low), high=(0, 0), interior=(0, 0))
    return m.done(whole, m.reduce(m.op("multiply", whole, whole), 0))


def test_rows_cut_into_the_pieces_they_are_joined_of_are_the_same_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [joined(widths, low) for widths in ((36, 36), (36, 1), (5, 6, 70), (18, 18, 36)) for low in (0, 1, 20)]
    cut = list(build_all(made))
    monkeypatch.setattr(split, "LEAST_EXTENT", 1 << 60)
    for built, whole in zip(cut, build_all(made), strict=True):
        assert built.library != whole.library
        inputs = random_inputs(built.graph, np.random.default_rng(1), Regime.SPECIAL)
        for a, b in zip(built.load().run(inputs), whole.load().run(inputs), strict=True):
            assert a.tobytes() == b.tobytes()
        assert complaint(built, Regime.NORMAL, seed=1) is None


def test_heads_one_after_the_other_are_the_same_to_the_bit_if_their_loops_are_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = [
        heads_apart(edges, nodes, heads)
        for edges, nodes, heads in ((90, 11, 8), (700, 20, 4), (3000, 77, 8), (5, 3, 2))
    ]
    cut = list(build_all(made))
    monkeypatch.setattr(split, "MOST_PARTS", 0)
    for built, whole in zip(cut, build_all(made), strict=True):
        assert built.library != whole.library
        for number, regime in enumerate((Regime.NORMAL, Regime.SPECIAL)):
            inputs = random_inputs(built.graph, np.random.default_rng(number), regime)
            for a, b in zip(built.load().run(inputs), whole.load().run(inputs), strict=True):
                assert a.tobytes() == b.tobytes()
            assert complaint(built, regime, seed=number) is None


def collect(count: int, max_ops: int, number: int) -> list[Graph]:
    """`count` random graphs, the same in every run."""
    found: list[Graph] = []

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(graphs(max_ops=max_ops))
    def draw(graph: Graph) -> None:
        found.append(graph)

    draw()
    return found


def _disagreements(made: list[Graph], target: Target) -> list[str]:
    found = []
    for number, built in enumerate(build_all(made, target)):
        for regime in (Regime.NORMAL, Regime.SPECIAL):
            what = complaint(built, regime, seed=number)
            if what is not None:
                found.append(f"graph {number}, {regime.value}: {what}\n{built.graph}")
    return found


@pytest.mark.costly
@pytest.mark.parametrize("target", sorted(TARGETS))
def test_random_graphs_agree_with_the_oracle(target: str) -> None:
    assert _disagreements(collect(32, 40, 1), TARGETS[target]) == []


@pytest.mark.slow
@pytest.mark.parametrize("part", range(5))
def test_a_thousand_random_graphs_agree_with_the_oracle(part: int) -> None:
    assert _disagreements(collect(200, 60, 100 + part), STRESS if part % 2 else CPU) == []


def activated(rows: int, length: int, dtype: DType = DType.F32) -> Graph:
    """The logistic of a row with a bias, as a dense layer has it."""
    m, shape = Maker(f"activated_{rows}_{length}_{dtype.value}"), (rows, length)
    x, bias = m.parameter(*shape, dtype=dtype), m.parameter(length, dtype=dtype)
    return m.done(m.op("logistic", m.op("add", x, m.spread(bias, shape, 1))))


def test_the_last_elements_of_a_row_are_computed_together_and_each_is_stored_once() -> None:
    """Also where the result lies over the operand: the last elements are then read before any is overwritten, though some of them
    are computed twice."""
    assert "_last[" in render(lower(plan_graph(activated(300, 50))), "k")
    assert "_last[" not in render(lower(plan_graph(activated(300, 56))), "k"), "whole vectors"
    lengths = (33, 34, 36, 37, 39, 41, 47, 50, 53, 100)
    made = [activated(300, length, dtype) for length in lengths for dtype in (DType.F32, DType.F64, DType.BF16)]
    made += [softmax(300, length) for length in (37, 53, 69, 87, 95, 117)]
    assert any("_last[" in render(lower(plan_graph(graph)), "k") for graph in made[-6:])
    for number, built in enumerate(build_all(made)):
        assert complaint(built, Regime.SPECIAL, seed=number) is None
        if (0, 0) not in built.metadata.aliases:
            continue
        inputs = random_inputs(built.graph, np.random.default_rng(number), Regime.NORMAL)
        apart, over = (built.load().run(inputs, in_place=pairs) for pairs in ((), [(0, 0)]))
        assert same_bits(apart[0], over[0]), built.graph.name


def weighted_rows(rows: int, outer: int, inner: int) -> Graph:
    """Weights of a function's values, which a sum needs too, and products of each weight with a row of its own, added up."""
    m = Maker(f"weighted_rows_{rows}_{outer}_{inner}")
    x, y = m.parameter(rows, outer + 1), m.parameter(rows, outer, inner)
    weight = m.op("logistic", m.op("slice", x, start=(0, 1), limit=(rows, outer + 1), strides=(1, 1)))
    products = m.op("multiply", m.spread(weight, (rows, outer, inner), 0, 1), y)
    return m.done(products, m.reduce(products, 0, 1), m.reduce(weight, 0, 1))


def test_a_function_that_an_inner_loop_only_reads_is_computed_in_vectors() -> None:
    text = render(lower(plan_graph(weighted_rows(64, 49, 50))), "k")
    lines = text.splitlines()
    uses = [number for number, line in enumerate(lines) if "stitch_logistic(" in line]
    assert uses
    for number in uses:
        loop = max(before for before in range(number) if "for (" in lines[before])
        assert "#pragma omp simd" in lines[loop - 1], text
    made = [weighted_rows(*shape) for shape in ((64, 49, 50), (40, 9, 33), (5, 100, 40), (33, 8, 64))]
    for target in TARGETS.values():
        for number, built in enumerate(build_all(made, target)):
            assert complaint(built, Regime.NORMAL, seed=number) is None


def looked_up(column: int, dtype: DType, rows: int = 1500, length: int = 8) -> Graph:
    """The exponential of one column of a table's rows."""
    m = Maker(f"looked_up_{dtype.value}")
    table, indices = m.parameter(rows, length), m.parameter(1000, dtype=dtype)
    numbers = GatherDimensions((1,), (0,), (0,), 1, (1, length))
    found = m.op("gather", table, indices, gather=numbers)
    wanted = m.op("slice", found, start=(0, column), limit=(1000, column + 1), strides=(1, 1))
    return m.done(m.op("exp", m.reshape(wanted, 1000)))


@pytest.mark.parametrize("dtype", [DType.S32, DType.S64])
def test_a_loop_that_reads_a_column_by_index_keeps_its_vectors(dtype: DType, tmp_path: Path) -> None:
    """g++ 12 has no vector instruction for a position in bytes of more than eight times an index."""
    if toolchain().is_clang:
        pytest.skip("asks gcc")
    text = translation_unit([render(lower(plan_graph(looked_up(3, dtype))), "k")])
    said = said_of_vectors(text, tmp_path, "-march=haswell", "-fopt-info-vec", "-fopt-info-vec-missed")
    assert "loop vectorized" in said
    assert "no vectype" not in said


INDICES = (DType.S8, DType.U8, DType.S16, DType.U16, DType.S32, DType.U32, DType.S64, DType.U64)


@pytest.mark.parametrize("rows", [3, 200, 1500])
def test_an_index_is_clamped_in_its_own_range(rows: int) -> None:
    """The least and the greatest number of each dtype among them, which as another type would be a valid index."""
    for dtype, built in zip(INDICES, build_all([looked_up(3, dtype, rows) for dtype in INDICES]), strict=True):
        limits = np.iinfo(dtype.numpy)
        ends = [limits.min, limits.max, limits.max // 2, limits.max // 2 + 1, rows - 1, rows, 1 << 31, (1 << 32) + 1, 0]
        indices = np.resize([end for end in ends if limits.min <= end <= limits.max], 1000).astype(dtype.numpy)
        table = np.arange(rows * 8, dtype=np.float32).reshape(rows, 8) / np.float32(rows * 8)
        (result,) = built.load().run([table, indices])
        at = [min(max(int(index), 0), rows - 1) for index in indices]
        assert np.allclose(result, np.exp(table[at, 3]), rtol=1e-6), dtype
