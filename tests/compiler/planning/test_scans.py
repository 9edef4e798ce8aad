"""Windows that are prefixes are scans: one combination an element, whatever the dimension, the direction, the dtype and the data."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stitchfleet.compiler.check.random_inputs import Regime, random_inputs
from stitchfleet.compiler.codegen.cpu.kernel_text import render, translation_unit
from stitchfleet.compiler.ir.graph import DType, Graph, WindowDimension
from stitchfleet.compiler.lowering.kernel_loops import lower
from stitchfleet.compiler.ops import interpreter
from stitchfleet.compiler.ops.attributes import window_of
from stitchfleet.compiler.ops.reference import reduce_axes, reduce_identity, reduce_ufunc, windows
from stitchfleet.compiler.pipeline.backend import describe
from stitchfleet.compiler.planning.plan import plan_graph
from stitchfleet.compiler.planning.scans import find_scans
from stitchfleet.compiler.targets.targets import CPU, Target
from stitchfleet.compiler.toolchain.host import cpu_features

from ...kept import kept
from .. import emulated
from ..library import Maker, cumulative
from ..native import STRESS, Built, build_all, complaint, toolchain

SHAPES = [
    ((40,), 0),
    ((1000,), 0),
    ((3, 17, 5), 1),
    ((2, 33, 64), 1),
    ((70, 20), 0),
    ((5, 130), 1),
    ((2, 3, 1100), 2),
    ((1500, 3), 0),
]


@pytest.mark.parametrize("target", [CPU, STRESS], ids=lambda target: target.name)
def test_scans_agree_with_the_oracle(target: Target) -> None:
    graphs = [
        cumulative(shape, dimension, reverse=reverse, exclusive=exclusive)
        for (shape, dimension), reverse, exclusive in itertools.product(SHAPES, (False, True), (False, True))
    ]
    for number, built in enumerate(build_all(graphs, target)):
        assert "reduce_window" not in [node.op for node in plan_graph(built.graph, target).graph.nodes]
        for regime in (Regime.NORMAL, Regime.SPECIAL, Regime.HUGE):
            assert complaint(built, regime, seed=number) is None, built.graph.name


KINDS = [
    *(
        ("sum", dtype)
        for dtype in (DType.F64, DType.F16, DType.BF16, DType.S32, DType.S64, DType.U32, DType.S8, DType.U64)
    ),
    *(("product", dtype) for dtype in (DType.F32, DType.F64, DType.S32)),
    *(
        (kind, dtype)
        for kind in ("max", "min")
        for dtype in (DType.F32, DType.F64, DType.BF16, DType.S32, DType.U16, DType.S64)
    ),
    *((kind, dtype) for kind in ("and", "or") for dtype in (DType.PRED, DType.S32, DType.U64)),
]


def test_every_kind_and_dtype_agrees_with_the_oracle() -> None:
    graphs = [
        cumulative(shape, dimension, kind, dtype, reverse=dimension == 0)
        for (kind, dtype), (shape, dimension) in itertools.product(KINDS, (((3, 77), 1), ((40, 24), 0)))
    ]
    for number, built in enumerate(build_all(graphs)):
        for regime in (Regime.NORMAL, Regime.SPECIAL):
            assert complaint(built, regime, seed=number) is None, built.graph.name


def test_rows_shorter_than_a_vector_are_lanes() -> None:
    """A graph of scans itself: windows as short stay windows."""
    graphs = []
    for extent, reverse, exclusive in itertools.product((1, 2, 5, 8), (False, True), (False, True)):
        for dtype in (DType.F32, DType.BF16, DType.S64):
            m = Maker(f"short_{dtype.value}_{extent}_{reverse}_{exclusive}")
            x, start = m.parameter(301, extent, dtype=dtype), m.parameter(301, dtype=dtype)
            flags = {"reverse": reverse, "exclusive": exclusive}
            graphs.append(m.done(m.op("scan", x, start, dimension=1, kind="sum", **flags)))
    for number, built in enumerate(build_all(graphs)):
        assert complaint(built, Regime.NORMAL, seed=number) is None, built.graph.name


LONG_SHAPES = [((600_000,), 0), ((2, 300_000), 1), ((2, 150_000, 3), 1), ((20_480, 16), 0)]


def test_one_long_dimension_is_scanned_in_parts() -> None:
    graphs = [
        cumulative(shape, dimension, "max" if k == 1 else "sum", DType.S32, exclusive=k % 2 == 1, reverse=k == 2)
        for k, (shape, dimension) in enumerate(LONG_SHAPES)
    ]
    for number, built in enumerate(build_all(graphs)):
        ops = [node.op for node in plan_graph(built.graph).graph.nodes]
        assert ops.count("scan") == 2, built.graph.name
        assert ops.count("reduce") == 1, built.graph.name
        assert complaint(built, Regime.NORMAL, seed=number) is None, built.graph.name


def ordered(x: np.ndarray, axis: int, reverse: bool = False) -> np.ndarray:
    """Sums in order, in float32, as TensorFlow's CPU kernel has them."""
    moved = np.flip(x, axis) if reverse else x
    with np.errstate(all="ignore"):
        found = np.add.accumulate(moved, axis=axis, dtype=np.float32)
    return np.flip(found, axis) if reverse else found


def run(built: Built, x: np.ndarray) -> np.ndarray:
    (found,) = built.load().run([x])
    return np.asarray(found)


RARE = [3e38, 3e38, -3e38, np.nan, np.inf, -np.inf, -0.0, 1e-42]


@pytest.mark.parametrize(("shape", "dimension"), [((2100,), 0), ((4, 100), 1), ((100, 20), 0), ((2100, 3), 0)])
def test_what_overflows_in_order_stays_infinite(shape: tuple[int, ...], dimension: int) -> None:
    """TensorFlow's Cumsum goes once along the dimension: what its running sum has become infinite or NaN stays so, even where a pair
    of later elements would have cancelled first."""
    for reverse in (False, True):
        (built,) = build_all([cumulative(shape, dimension, reverse=reverse)])
        rng = np.random.default_rng(7)
        for rare in RARE[:3], RARE[:4], RARE[3:4], RARE[4:6], RARE[6:]:
            x = rng.standard_normal(shape).astype(np.float32)
            x[rng.random(shape) < 0.01] = 0.0
            for value in rare:
                x.reshape(-1)[rng.integers(0, x.size, 3)] = value
            expected, found = ordered(x, dimension, reverse), run(built, x)
            np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
            np.testing.assert_array_equal(np.isinf(found), np.isinf(expected))
            np.testing.assert_array_equal(found[np.isinf(found)], expected[np.isinf(expected)])


def test_a_long_sum_of_equal_numbers_does_not_drift() -> None:
    """In order in float32 the sums of 0.1 are off by up to 1e-2 of themselves."""
    for shape, dimension in (((100_000,), 0), ((100_000, 5), 0)):
        (built,) = build_all([cumulative(shape, dimension)])
        x = np.full(shape, 0.1, np.float32)
        exact = np.cumsum(x.astype(np.float64), axis=dimension)
        assert np.max(np.abs(run(built, x) - exact) / exact) < 1e-5


@pytest.mark.parametrize("reverse", [False, True])
def test_an_exclusive_sum_is_one_loop(reverse: bool) -> None:
    """TensorFlow's slice behind it leaves nothing to copy."""
    graph = cumulative((64, 1000), 1, reverse=reverse, exclusive=True)
    assert [node.op for node in find_scans(graph, CPU).nodes if node.op not in ("parameter", "constant")] == [
        "broadcast",
        "scan",
    ]
    assert len(lower(plan_graph(graph)).phases) == 1


def test_windows_that_are_no_scan_stay_windows() -> None:
    def of(item: WindowDimension, kind: str = "sum", start: float = 0.0, extent: int = 40) -> set[str]:
        m = Maker("no_scan")
        x = m.parameter(2, extent)
        y = m.op("reduce_window", x, m.constant(start), window=(WindowDimension(1), item), kind=kind)
        return {node.op for node in find_scans(m.done(y), CPU).nodes}

    assert "scan" in of(WindowDimension(40, padding_low=39))
    assert "scan" in of(WindowDimension(100, padding_low=99))  # windows longer than the dimension
    assert "scan" in of(WindowDimension(40, padding_low=39), "max", -5.0)
    assert "scan" not in of(WindowDimension(40, padding_low=39), "sum", 1.0)  # padding would be added, too
    assert "scan" not in of(WindowDimension(3, padding_low=2))
    assert "scan" not in of(WindowDimension(40, stride=2, padding_low=39))
    assert "scan" not in of(WindowDimension(40, padding_low=78, window_dilation=2))
    assert "scan" not in of(WindowDimension(79, padding_low=39, padding_high=39))
    assert "scan" not in of(WindowDimension(8, padding_low=7), "max", extent=8)  # cheaper written out
    assert "scan" in of(WindowDimension(8, padding_low=7), extent=8)  # but in order


def by_definition(graph: Graph, x: np.ndarray) -> np.ndarray:
    """A reduce_window as HLO defines it: every window for itself."""
    node = next(node for node in graph.nodes if node.op == "reduce_window")
    kind = str(node.attributes["kind"])
    init = reduce_identity(kind, node.dtype)
    view = windows(x, window_of(node), init, node.shape)
    axes = tuple(range(len(node.shape), 2 * len(node.shape)))
    return np.asarray(reduce_ufunc(kind, x.dtype)(reduce_axes(view, kind, node.dtype, axes), init))


@given(
    st.integers(1, 40), st.integers(1, 3), st.integers(0, 60), st.integers(0, 60), st.integers(2, 60),
    st.sampled_from(["sum", "max", "product"]), st.booleans(),
)  # fmt: skip
def test_the_reference_and_the_rewriting_are_the_windows_of_the_definition(
    extent: int, rows: int, low: int, high: int, size: int, kind: str, is_last: bool
) -> None:
    if extent + low + high < size:
        return
    m = Maker("any")
    x = m.parameter(*((rows, extent) if is_last else (extent, rows)), dtype=DType.S32)
    items = (WindowDimension(1), WindowDimension(size, padding_low=low, padding_high=high))
    init = m.constant(reduce_identity(kind, DType.S32), dtype=DType.S32)
    graph = m.done(m.op("reduce_window", x, init, window=items if is_last else items[::-1], kind=kind))
    (values,) = random_inputs(graph, np.random.default_rng(extent * size), Regime.NORMAL)
    expected = by_definition(graph, values)
    np.testing.assert_array_equal(interpreter.evaluate(graph, [values])[0], expected)
    np.testing.assert_array_equal(interpreter.evaluate(find_scans(graph, CPU), [values])[0], expected)


def test_a_scan_is_computed_with_what_its_elements_are_made_of() -> None:
    m = Maker("fused")
    x, y = m.parameter(6, 500), m.parameter(6, 500)
    product = m.op("multiply", m.op("exp", m.op("negate", m.op("abs", x))), y)
    items = (WindowDimension(1), WindowDimension(500, padding_low=499))
    total = m.op("reduce_window", product, m.constant(0.0), window=items, kind="sum")
    graph = m.done(m.op("divide", total, m.shifted(m.op("abs", x), 1.0)), m.reduce(product, 1))
    (built,) = build_all([graph])
    assert complaint(built, Regime.NORMAL, seed=1) is None
    text = render(lower(plan_graph(cumulative((6464,), 0, dtype=DType.S32))), "k")
    assert text.count("for (") - text.count("int lane") <= 5, text


GPU_SHAPES = [
    ((200,), 0),
    ((3, 77), 1),
    ((2, 33, 40), 1),
    ((70, 9), 0),
    ((5, 600), 1),
    ((20, 5), 1),
    ((300, 6), 1),
    ((2, 9000), 1),
]


@pytest.mark.parametrize("target", ["small", "h200", pytest.param("warp", marks=pytest.mark.slow)])
def test_a_gpus_groups_scan_their_rows_together(target: str) -> None:
    """By the emulator, which finds missing barriers too: groups of part of a warp, of a warp, of a block."""
    graphs = [
        cumulative(shape, dimension, kind, dtype, reverse=number % 2 == 1, exclusive=number % 3 == 1)
        for number, ((shape, dimension), (kind, dtype)) in enumerate(
            itertools.product(
                GPU_SHAPES, [("sum", DType.F32), ("max", DType.S32), ("or", DType.PRED), ("sum", DType.BF16)]
            )
        )
    ]
    for number, built in enumerate(emulated.build_all(graphs, emulated.TARGETS[target])):
        for seed in (number, number + 1):
            assert built.complaint(Regime.NORMAL, seed) is None, built.graph.name
        assert built.complaint(Regime.SPECIAL, number) is None, built.graph.name


def test_one_long_dimension_keeps_a_gpu_busy_in_parts() -> None:
    (built,) = emulated.build_all([cumulative((300_000,), 0)], emulated.TARGETS["h200"])
    ops = [node.op for node in plan_graph(built.graph, emulated.TARGETS["h200"]).graph.nodes]
    assert ops.count("scan") == 2
    assert built.complaint(Regime.NORMAL, 1) is None


@pytest.mark.parametrize("march", ["x86-64-v3", "x86-64"])
def test_scans_agree_with_the_oracle_on_older_processors(march: str, tmp_path: Path) -> None:
    features = cpu_features().split()
    if "vendor_id" not in cpu_features() or (march == "x86-64-v3" and "avx2" not in features):
        pytest.skip("another processor's flag")
    kinds = [("sum", DType.F32), ("sum", DType.F64), ("max", DType.F32), ("sum", DType.S32), ("product", DType.F64)]
    graphs = [cumulative((3, 1100), 1, kind, dtype) for kind, dtype in kinds]
    plans = [plan_graph(graph) for graph in graphs]
    kernels = [lower(plan) for plan in plans]
    text = translation_unit([render(kernel, f"kernel{number}") for number, kernel in enumerate(kernels)])
    library = kept(text, " ".join((toolchain().identity, march)), "unit.cc", _build_for(march))
    for number, (graph, plan, kernel) in enumerate(zip(graphs, plans, kernels, strict=True)):
        built = Built(graph, library, describe(graph, plan, kernel, f"kernel{number}", "test"))
        for regime in (Regime.NORMAL, Regime.SPECIAL, Regime.HUGE):
            assert complaint(built, regime, seed=number) is None, graph.name


def _build_for(march: str) -> Callable[[Path, Path], None]:
    return lambda source, library: toolchain().build(source, library, [f"-march={march}"])
