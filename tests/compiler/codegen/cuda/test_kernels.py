"""CUDA kernels, executed: the very text that NVRTC compiles, run by an emulator that checks bounds, races and barriers, agrees
with the float64 oracle; and NVRTC compiles it for every architecture."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from stitchfleet.compiler.check.judge import judge
from stitchfleet.compiler.check.random_inputs import Regime, random_inputs
from stitchfleet.compiler.codegen.cuda.kernel_text import CudaError, plan_for_gpu, translation_unit
from stitchfleet.compiler.codegen.cuda.survey import is_distributed
from stitchfleet.compiler.ir.graph import DType, GatherDimensions, Graph
from stitchfleet.compiler.ir.index_maps import Index
from stitchfleet.compiler.loops import loops
from stitchfleet.compiler.lowering.kernel_loops import lower
from stitchfleet.compiler.ops.interpreter import evaluate
from stitchfleet.compiler.planning import scatters
from stitchfleet.compiler.targets.targets import A100, GPUS, H200, T4, V100, GpuTarget
from stitchfleet.compiler.toolchain import nvrtc

from ....marks import NIGHTLY, slow
from ... import library
from ...codegen.test_golden import GOLDEN
from ...emulated import TARGETS, BuiltForGpu, build_all
from ...library import LIBRARY
from ..cpu.test_kernels import collect


@pytest.fixture(scope="module", params=["small", "h200", pytest.param("warp", marks=pytest.mark.slow)])
def built(request: pytest.FixtureRequest) -> dict[str, BuiltForGpu]:
    made = [make() for make in LIBRARY.values()]
    return dict(zip(LIBRARY, build_all(made, TARGETS[request.param]), strict=True))


def _disagreements(made: list[Graph], target: str) -> list[str]:
    found = []
    for number, one in enumerate(build_all(made, TARGETS[target])):
        what = one.complaint(Regime.NORMAL, seed=number)
        if what is not None:
            found.append(f"graph {number}: {what}\n{one.graph}")
    return found


@pytest.mark.parametrize("regime", [Regime.NORMAL, Regime.SPECIAL])
@pytest.mark.parametrize("name", LIBRARY)
def test_agrees_with_the_oracle(built: dict[str, BuiltForGpu], name: str, regime: Regime) -> None:
    assert built[name].complaint(regime, seed=12 if regime is Regime.SPECIAL else 11) is None


@pytest.mark.parametrize("target", ["small", pytest.param("warp", marks=pytest.mark.slow)])
def test_random_graphs_agree_with_the_oracle(target: str) -> None:
    assert _disagreements(collect(60, 30, 7), target) == []


@pytest.mark.parametrize("columns", [12, 40, 600])
def test_what_a_blocks_groups_add_up_is_combined(columns: int) -> None:
    """Row, column and full reductions of one tensor in one nest: rows of part of a warp, of a warp, of a block."""
    m = library.Maker("sums")
    x = m.parameter(70, columns)
    rows = m.reduce(m.op("multiply", x, x), 1)
    graph = m.done(rows, m.reduce(x, 0), m.reduce(x, 0, 1), m.reduce(rows, 0))
    for one in build_all([graph], TARGETS["small"]):
        assert ("_all[" in one.kernel.text) == (columns < 600)
        for seed in range(4):
            assert one.complaint(Regime.NORMAL, seed) is None


def _combined(columns: int, dtype: DType, kind: str) -> Graph:
    m = library.Maker(f"combined_{columns}_{dtype.value}_{kind}")
    return m.done(m.reduce(m.parameter(20_000 if columns < 3 else 700, columns, dtype=dtype), 0, kind=kind))


def _steps_of_loads(body: Sequence[loops.Statement], distributed: loops.Loop | None) -> Iterator[Index]:
    """How far from each other neighbouring threads read, of each load."""
    for statement in body:
        if isinstance(statement, loops.Let) and isinstance(statement.value, loops.Load) and distributed is not None:
            first, second = (statement.value.index.substitute({distributed.variable: Index(place)}) for place in (0, 1))
            yield second - first
        elif isinstance(statement, loops.Loop) and is_distributed(statement):
            yield from _steps_of_loads(statement.body, statement)
        elif isinstance(statement, loops.Loop | loops.Blocks | loops.If):
            yield from _steps_of_loads(statement.body, distributed)


@pytest.mark.costly
@pytest.mark.parametrize(
    ("device", "most"),
    [(TARGETS["small"], 100), (H200, 1000), (replace(H200, multiprocessors=1, partial_tasks=5), 1000)],
)
def test_partial_results_are_read_by_whole_sectors(device: GpuTarget, most: int) -> None:
    """Neighbouring threads read neighbouring parts, whatever the number of results: fewer than a sector holds, fewer in the last
    block than in the others, one for each thread."""
    kinds = [(DType.F32, "sum"), (DType.BF16, "sum"), (DType.S64, "sum"), (DType.F32, "max"), (DType.F64, "min")]
    cases = [(columns, *kinds[0]) for columns in (1, 2, 9, 31, 100, 1000) if columns <= most]
    cases += [(columns, *kind) for columns in (3, 21) for kind in kinds[1:]]
    for case in cases:
        nests = lower(plan_for_gpu(_combined(*case), device)[0]).phases[-1].nests
        assert [str(step) for nest in nests for step in _steps_of_loads(nest.body, None)] == ["1"], case
    for one in build_all([_combined(*case) for case in cases], device):
        for seed in range(3):
            assert one.complaint(Regime.NORMAL, seed) is None, one.graph.name


@pytest.mark.parametrize("length", [5, 33, 64, 300])
def test_a_variadic_reductions_threads_take_stretches_and_keep_their_order(length: int) -> None:
    """Its body need not commute: of several NaNs the first one's place counts, as in a loop."""
    graph = library.argmax(7, length, 1)
    (one,) = build_all([graph], TARGETS["small"])
    assert "stitch_shuffle_xor" in one.kernel.text
    rng = np.random.default_rng(length)
    x = rng.integers(-3, 3, (7, length)).astype(np.float32)  # ties
    x[rng.random(x.shape) < 0.1] = np.nan
    outputs, messages = one.run([x], seed=1)
    assert messages == []
    for found, wanted in zip(outputs, evaluate(graph, [x]), strict=True):
        assert np.array_equal(found, wanted, equal_nan=True)


@pytest.mark.costly
@pytest.mark.parametrize("part", [0, *map(slow, range(1, 100 if NIGHTLY else 5))])
def test_thousands_of_random_graphs_agree_with_the_oracle(part: int) -> None:
    """1,000 small ones; each night (`scripts/test --nightly`) 20,000 larger ones."""
    graphs = collect(200, 30 if NIGHTLY else 10, 200 + part)
    assert _disagreements(graphs, sorted(TARGETS)[part % 3]) == []


@pytest.mark.parametrize("arch", [arch if arch == "sm_90" else slow(arch) for arch in sorted(GPUS)])
def test_nvrtc_compiles_the_kernels_of_telling_graphs(arch: str) -> None:
    for name in ("softmax", "layer_norm_gradient", "clip_by_global_norm", "many_tensors"):
        _, kernel = plan_for_gpu(GOLDEN[name](), GPUS[arch])
        built = nvrtc.build(translation_unit(kernel), arch)
        assert f".target {arch}".encode() in built.ptx
        assert built.cubin[:4] == b"\x7fELF"
        assert 0 < built.registers <= 255


def test_an_architecture_that_nvrtc_does_not_know_is_one_clear_line() -> None:
    with pytest.raises(nvrtc.NvrtcError, match=r"architecture 'sm_10': this NVRTC knows sm_"):
        nvrtc.build("", "sm_10")
    with pytest.raises(nvrtc.NvrtcError, match=r"NVRTC refuses the kernel for sm_80: .*error"):
        nvrtc.build("this is no kernel", "sm_80")


def test_occupancy_follows_the_programming_guides_table() -> None:
    # research: blocks of 1024 threads that are co-resident, with 32 registers a thread.
    for target, blocks in ((V100, 160), (T4, 40), (A100, 216), (H200, 264)):
        assert replace(target, block=1024).blocks_at_once(0, registers=32) == blocks


def test_what_does_not_fit_shared_memory_is_demoted_or_refused() -> None:
    graph = library.layer_norm_gradient(1024, 256)
    _, roomy = plan_for_gpu(graph, V100)
    cramped = replace(V100, shared_bytes_per_block=1024)
    _, kernel = plan_for_gpu(graph, cramped)
    assert kernel.shared_bytes <= 1024 < roomy.shared_bytes
    with pytest.raises(CudaError, match="bytes of shared memory"):
        plan_for_gpu(library.layer_norm_gradient(64, 2048), replace(V100, shared_bytes_per_block=8))


def _elementwise(dtype: DType, rows: int, columns: int) -> Graph:
    """Of neighbours, of a row's place in two tensors, of one element for all; and of a tensor turned round, which is neither."""
    m = library.Maker(f"elementwise_{dtype.value}_{rows}_{columns}")
    x, row, one = m.parameter(rows, columns, dtype=dtype), m.parameter(columns, dtype=dtype), m.parameter(dtype=dtype)
    turned = m.op("reverse", x, dimensions=(1,))
    wide = m.op("broadcast", row, shape=(rows, columns), dimensions=(1,))
    scalar = m.op("broadcast", one, shape=(rows, columns), dimensions=())
    total = m.op("add", m.op("multiply", x, wide), m.op("maximum", turned, scalar))
    return m.done(total, m.op("negate", x))


def assert_right_at_any_address(one: BuiltForGpu, draw: int) -> None:
    """The kernel is right on tensors at a multiple of 64 bytes, and one element behind, where it gives the same bits."""
    inputs = random_inputs(one.graph, np.random.default_rng(draw), Regime.NORMAL)
    found = []
    for seed in (2, 3):
        outputs, messages = one.run([np.require(each, requirements="C") for each in inputs], seed)
        assert messages == []
        assert judge(one.graph, inputs, outputs).ok
        found.append(b"".join(output.tobytes() for output in outputs))
    assert found[0] == found[1], "to the last bit"


@pytest.mark.parametrize("target", ["small", "h200"])
def test_neighbours_go_in_vectors_where_addresses_allow_and_one_by_one_elsewhere(target: str) -> None:
    shapes = [(3, 64), (7, 130), (40, 513), (1, 6)]
    dtypes = [DType.F32, DType.F16, DType.BF16, DType.S8, DType.F64]
    graphs = [_elementwise(dtype, *shape) for dtype in dtypes for shape in shapes]
    seen: dict[DType, bool] = {}
    for number, one in enumerate(build_all(graphs, TARGETS[target])):
        dtype = dtypes[number // len(shapes)]
        seen[dtype] = seen.get(dtype, False) or "STITCH_LOAD_NEIGHBOURS" in one.kernel.text
        assert_right_at_any_address(one, number)
    assert seen == dict.fromkeys(dtypes, True)


def _beside_its_mean(rows: int, length: int, skipped: int, dtype: DType) -> Graph:
    """Each row without its first elements, beside its mean and the sum of its squares: of a row, or of a part of a longer one."""
    m = library.Maker(f"means_{rows}_{length}_{skipped}_{dtype.value}")
    x = m.parameter(rows, length, dtype=dtype)
    part = m.op("slice", x, start=(0, skipped), limit=(rows, length), strides=(1, 1)) if skipped else x
    shape = (rows, length - skipped)
    mean = m.op("broadcast", m.reduce(part, 1), shape=shape, dimensions=(0,))
    total = m.reduce(m.op("multiply", part, part), 1)
    return m.done(m.op("subtract", part, mean), total)


def _column_sums(rows: int, columns: int) -> Graph:
    """More accumulators of a row than registers: some are in shared memory."""
    m = library.Maker("column_sums")
    x = m.parameter(rows, columns)
    return m.done(*(m.reduce(m.op(op, x), 0) for op in ("abs", "negate", "floor", "ceil", "sign")))


def _widest(text: str) -> int:
    return max((int(width) for width in re.findall(r"STITCH_LOAD_NEIGHBOURS\([\w ]+, (\d+)", text)), default=1)


ROWS = {
    # target, length, elements that are skipped, dtype: neighbours that a thread takes
    ("h200", 1024, 0, DType.F32): 4,
    ("h200", 1024, 0, DType.F16): 4,  # eight would leave half of the threads without any
    ("h200", 2048, 0, DType.F16): 8,
    ("h200", 2048, 0, DType.BF16): 8,
    ("h200", 1024, 0, DType.F64): 2,
    ("h200", 768, 0, DType.F32): 4,  # 192 of 256 threads have four, instead of all three
    ("h200", 1022, 0, DType.F32): 2,
    ("h200", 1021, 0, DType.F32): 1,
    ("h200", 1028, 4, DType.F32): 4,
    ("h200", 1026, 2, DType.F32): 2,
    ("h200", 1025, 1, DType.F32): 1,
    ("h200", 6000, 0, DType.F32): 4,  # too long to be kept
    ("h200", 30_000, 0, DType.F32): 4,
    ("small", 12, 0, DType.F32): 4,  # by four threads, of which three have one
    ("small", 40, 0, DType.F16): 4,
    ("small", 256, 0, DType.F16): 4,
    ("small", 300, 0, DType.F32): 2,
    ("small", 2_000, 0, DType.S8): 16,
}


@pytest.mark.costly
@pytest.mark.parametrize("target", ["small", "h200"])
def test_rows_go_in_vectors_where_lengths_and_addresses_allow_and_sums_keep_their_order(target: str) -> None:
    """Rows that are kept in registers, that are not, and whose tile is in shared memory."""
    cases = {key[1:]: width for key, width in ROWS.items() if key[0] == target}
    graphs = [_beside_its_mean(5, *case) for case in cases]
    graphs += [library.softmax(6, 4096), library.softmax(5, 5120), library.cross_entropy(5, 6000)]
    graphs += [library.layer_norm(9, 256), library.layer_norm_gradient(40, 768), library.full_sum(50_003)]
    if target == "h200":
        graphs.append(_column_sums(40, 4096))
    for number, one in enumerate(build_all(graphs, TARGETS[target])):
        if number < len(cases):
            assert _widest(one.kernel.text) == list(cases.values())[number], one.graph.name
        else:
            assert _widest(one.kernel.text) > 1, one.graph.name
        assert_right_at_any_address(one, number)


SHORT = {
    # length, dtype: threads of a row, neighbours that a thread takes
    (8, DType.F32): (2, 4),
    (31, DType.F32): (32, 1),
    (32, DType.F32): (8, 4),
    (32, DType.BF16): (4, 8),
    (36, DType.F16): (8, 2),
    (48, DType.F32): (8, 4),  # two vectors each, since the rows have enough threads for the whole device
    (62, DType.BF16): (8, 2),
    (64, DType.F32): (8, 4),
    (64, DType.S8): (4, 16),
}


def test_a_short_row_has_as_many_threads_as_vectors() -> None:
    graphs = [_beside_its_mean(700, length, 0, dtype) for length, dtype in SHORT]
    for number, one in enumerate(build_all(graphs, TARGETS["small"])):
        threads, width = list(SHORT.values())[number]
        assert f"thread = threadIdx.x % {threads}," in one.kernel.text, one.graph.name
        assert _widest(one.kernel.text) == width, one.graph.name
        assert_right_at_any_address(one, number)


def test_little_work_is_spread_over_the_device_and_much_goes_two_vectors_at_a_time() -> None:
    texts = {}
    for rows, length in ((100, 256), (140, 256), (20_000, 1), (1 << 18, 1), (1 << 25, 1)):
        m = library.Maker("spread")
        shape = (rows, length) if length > 1 else (rows,)
        kernel = plan_for_gpu(m.done(m.op("tanh", m.parameter(*shape))), H200)[1]
        texts[rows] = (kernel.blocks, kernel.text.count("STITCH_LOAD_NEIGHBOURS"))
    assert texts == {100: (100, 0), 140: (35, 1), 20_000: (79, 0), 1 << 18: (256, 1), 1 << 25: (1 << 14, 2)}
    blocks = [plan_for_gpu(library.embedding(rows, 256, 50), H200)[1].blocks for rows in (100, 200)]
    assert blocks == [100, 100], "a block's threads for each row, or two rows for a block, each for a warp"


def test_what_a_row_stores_once_is_stored_once_if_it_is_spread() -> None:
    """One element of each row beside a loop whose iterations become rows of their own."""
    m = library.Maker("once")
    largest = m.reduce(m.parameter(33, 17, 1, 3), 0, 1, 2, kind="max")
    graph = m.done(m.spread(largest, (1, 3), 1), m.spread(largest, (5, 3, 4, 8), 1))
    (one,) = build_all([graph], TARGETS["warp"])
    assert "_row = first_row" in one.kernel.text
    assert one.complaint(Regime.NORMAL, 0) is None


def test_a_row_that_is_far_into_a_tensor_has_a_wide_position() -> None:
    for rows, ctype in ((1 << 20, "int"), (1 << 23, "long long")):
        m = library.Maker("far")
        text = plan_for_gpu(m.done(m.op("negate", m.parameter(rows, 128))), H200)[1].text
        assert f"const {ctype} first_row" in text


@pytest.mark.parametrize(("dtype", "width"), [(DType.S8, 16), (DType.F16, 8), (DType.F32, 4), (DType.F64, 2)])
def test_a_thread_moves_16_bytes_whatever_the_elements(dtype: DType, width: int) -> None:
    for reduced in (False, True):
        m = library.Maker("flat")
        x, y = m.parameter(1 << 20, dtype=dtype), m.parameter(1 << 20, dtype=dtype)
        largest = m.op("maximum", x, y)
        graph = m.done(m.reduce(largest, 0, kind="max") if reduced else largest)
        assert _widest(plan_for_gpu(graph, V100)[1].text) == width


def test_what_a_thread_owns_in_shared_memory_lies_by_threads() -> None:
    """Neighbours that one thread takes would else all be four banks from the next one's."""
    text = plan_for_gpu(_column_sums(40, 4096), TARGETS["h200"])[1].text
    assert "for (int i = thread; i < 4096; i += 256) task5[i] = 0x0.0p+0f;" in text
    assert "task5[k4096_1_first - thread * 3 + element * 256] = " in text
    assert "stitch_group_sync" not in text
    whole = replace(TARGETS["h200"], barrier_ns=1e6)  # a row is not split, whatever that saves
    wide = plan_for_gpu(library.softmax(5, 4100), whole)[1].text
    assert (
        "STITCH_SHARED(float, tile1, group_shared + 0, 5120);" in wide
    )  # as for 5 x 4 elements of each of 256 threads


def test_an_embeddings_rows_are_loaded_by_vectors() -> None:
    (one,) = build_all([library.embedding(200, 256, 50)], TARGETS["h200"])
    assert re.search(r"STITCH_LOAD_NEIGHBOURS\(float, 4, \w+, b\d+, \w+ \* 256", one.kernel.text)
    for seed in (2, 3):
        assert one.complaint(Regime.NORMAL, seed) is None


@pytest.mark.parametrize("arch", [arch if arch == "sm_90" else slow(arch) for arch in sorted(GPUS)])
def test_nvrtc_makes_one_instruction_of_a_vector_and_spills_no_row(arch: str) -> None:
    kernels = [library.gelu(1024, 1024), library.softmax(4096, 4096), library.layer_norm(4096, 1024)]
    kernels += [library.layer_norm_gradient(4096, 1024), library.cross_entropy(512, 8000)]
    for graph in kernels:
        _, kernel = plan_for_gpu(graph, GPUS[arch])
        built = nvrtc.build(translation_unit(kernel), arch)
        assert re.search(rb"ld\.global[.\w]*\.v4\.[fbu]32", built.ptx), graph.name
        assert re.search(rb"st\.global[.\w]*\.v4\.[fbu]32", built.ptx), graph.name
        assert built.spill_bytes == 0, graph.name


@pytest.mark.parametrize("arch", sorted(GPUS))
def test_halves_are_rounded_by_one_instruction_where_the_device_has_it(arch: str) -> None:
    for dtype, instruction in ((DType.F16, b"cvt.rn.f16.f32"), (DType.BF16, b"cvt.rn.bf16x2.f32")):
        m = library.Maker(f"sum_{dtype.value}")
        x, y = (m.parameter(512, 1024, dtype=dtype) for _ in range(2))
        _, kernel = plan_for_gpu(m.done(m.op("multiply", m.op("add", x, y), y)), GPUS[arch])
        built = nvrtc.build(translation_unit(kernel), arch)
        assert (instruction in built.ptx) == (dtype is DType.F16 or int(arch.removeprefix("sm_")) >= 80)


SCATTERS = list(itertools.product(["sum", "max", "replace"], [(5,), (40,), (3, 600)]))
PLACES = np.array([0, 3, 3, -1, 8, 9, 3, 100, 5, 0, 3, 7, 2, 3, 3, -(2**31), 3, 8, 4, 3, 2**31 - 1], np.int32)


def _scatter(
    kind: str, window: tuple[int, ...], dtype: DType = DType.F32, places: int = 9, count: int = len(PLACES)
) -> Graph:
    m = library.Maker(f"scatter_{kind}")
    base, updates = m.parameter(places, *window, dtype=dtype), m.parameter(count, *window, dtype=dtype)
    indices = m.parameter(count, dtype=DType.S32)
    numbers = GatherDimensions(tuple(range(1, 1 + len(window))), (0,), (0,), 1)
    return m.done(m.op("scatter", base, indices, updates, scatter=numbers, kind=kind))


def _in_order(kind: str, base: np.ndarray, updates: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """One update after the other, each result rounded to the dtype."""
    result = base.copy()
    for number, place in enumerate(indices):
        if 0 <= place < len(result):
            old, new = result[place].astype(np.float32), updates[number].astype(np.float32)
            result[place] = {"sum": old + new, "max": np.maximum(old, new)}.get(kind, new).astype(base.dtype)
    return result


@pytest.mark.parametrize("table", [False, True])
@pytest.mark.parametrize("target", ["small", "h200"])
def test_updates_of_one_place_are_applied_in_the_order_of_the_indices(
    target: str, table: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the place's owner, whichever threads come first: places named once, often and never, and indices outside."""
    monkeypatch.setattr(scatters, "LEAST_MARKED", 1 if table else 1 << 30)
    rng = np.random.default_rng(5)
    cases = [(kind, window, DType.F32) for kind, window in SCATTERS]
    cases += [(kind, (40,), DType.BF16) for kind in ("sum", "max", "replace")]
    cases += [("sum", (), DType.F32), ("sum", (1031,), DType.F32)]
    built = build_all([_scatter(*case) for case in cases], TARGETS[target])
    named = [PLACES, np.full(21, 4), np.roll(np.arange(21) - 5, 7), np.full(21, 9), np.repeat([2, -1, 7], 7)]
    for (kind, window, dtype), one in zip(cases, built, strict=True):
        assert ("STITCH_ATOMIC" in one.kernel.text) == table
        assert "stitch_ballot" in one.kernel.text
        assert one.kernel.shared_bytes == 0, "elements are in registers, or a long window's in memory"
        x, u = (rng.standard_normal((n, *window)).astype(dtype.numpy) for n in (9, 21))
        for seed, places in enumerate(named):
            indices = places.astype(np.int32)
            (found,), messages = one.run([x, u, indices], seed)
            assert messages == []
            assert np.array_equal(found, _in_order(kind, x, u, indices)), "to the last bit: one update after the other"


def test_many_indices_are_marked_in_one_table_for_all_scatters_that_share_them() -> None:
    m = library.Maker("two_scatters")
    count, indices = 2050, m.parameter(2050, dtype=DType.S32)
    numbers = GatherDimensions((1,), (0,), (0,), 1)
    made = []
    for window in (3, 18):
        base, updates = m.parameter(70, window), m.parameter(count, window)
        made.append(m.op("scatter", base, indices, updates, scatter=numbers, kind="sum"))
    graph = m.done(*made)
    (one,) = build_all([graph], TARGETS["h200"])
    assert len(one.kernel.loops.phases) == 3, "fill and clear, mark, apply"
    assert one.kernel.text.count("STITCH_ATOMIC(Min") == 1
    rng = np.random.default_rng(6)
    places = np.minimum(rng.integers(-5, 120, count), 80).astype(np.int32)
    tensors = {
        tuple(node.shape): rng.standard_normal(node.shape).astype(np.float32)
        for node in graph.nodes
        if node.op == "parameter" and node.dtype is DType.F32
    }
    inputs = [
        places if node.dtype is DType.S32 else tensors[tuple(node.shape)]
        for node in graph.nodes
        if node.op == "parameter"
    ]
    found, messages = one.run(inputs, 1)
    assert messages == []
    for result, window in zip(found, (3, 18), strict=True):
        assert np.array_equal(result, _in_order("sum", tensors[70, window], tensors[count, window], places))


def test_a_row_of_few_is_cut_where_it_only_computes() -> None:
    """A concatenation whose parts are transposed: 3 rows of 7 times 21 elements become 21 rows."""
    m = library.Maker("few_rows")
    long, short = m.parameter(7, 3, 20), m.parameter(7, 3, 1)
    both = m.op("concatenate", long, m.op("exp", short), dimension=2)
    graph = m.done(m.op("transpose", both, permutation=(1, 0, 2)))
    (one,) = build_all([graph], TARGETS["h200"])
    assert [nest.rows for phase in one.kernel.loops.phases for nest in phase.nests] == [21]
    assert one.complaint(Regime.NORMAL, 1) is None


def test_windows_that_overlap_in_part_are_left_to_one_task_each() -> None:
    m = library.Maker("overlapping")
    base, updates, starts = m.parameter(30, 8), m.parameter(6, 4, 8), m.parameter(6, dtype=DType.S32)
    numbers = GatherDimensions((1, 2), (), (0,), 1)
    graph = m.done(m.op("scatter", base, starts, updates, scatter=numbers, kind="sum"))
    (one,) = build_all([graph], TARGETS["small"])
    assert "stitch_ballot" not in one.kernel.text
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal((30, 8)).astype(np.float32), rng.standard_normal((6, 4, 8)).astype(np.float32)]
    inputs.append(np.array([0, 2, 2, 25, 27, 3], np.int32))
    (found,), messages = one.run(inputs, 1)
    assert messages == []
    assert np.array_equal(found, evaluate(graph, inputs)[0])
