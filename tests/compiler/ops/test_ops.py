"""The op table: each column agrees with the others, and the C++ text computes what the numpy reference computes."""

from __future__ import annotations

import ctypes
import pickle
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from stitchfleet.compiler.check.judge import judge
from stitchfleet.compiler.codegen.cpu.kernel_text import translation_unit
from stitchfleet.compiler.ir.graph import (
    REDUCE_KINDS,
    Array,
    Attribute,
    DType,
    GatherDimensions,
    Graph,
    GraphBuilder,
    Literal,
    WindowDimension,
)
from stitchfleet.compiler.ops.c_text import (
    REGISTER_TYPE,
    STORAGE_TYPE,
    cpp_combine,
    literal_text,
    load_text,
    store_text,
)
from stitchfleet.compiler.ops.infer import GraphError
from stitchfleet.compiler.ops.interpreter import evaluate
from stitchfleet.compiler.ops.reference import reduce_identity, round_away
from stitchfleet.compiler.ops.table import OPS, build, cpp_expression, libm_functions

from ...kept import kept
from ..native import toolchain

FLAGS = (
    "-std=c++17 -O3 -march=native -fno-math-errno -fno-trapping-math -fopenmp-simd -shared -fPIC -Wall -Werror".split()
)
COMPILER = shutil.which("g++")
BITCAST_TWINS = {
    DType.F32: DType.U32,
    DType.U32: DType.F32,
    DType.F64: DType.S64,
    DType.S64: DType.F64,
    DType.F16: DType.U16,
    DType.BF16: DType.S16,
    DType.S16: DType.F16,
    DType.U16: DType.BF16,
}


class Case(NamedTuple):
    """One element-wise op at one dtype: a graph of it alone, and the C++ function that does the same."""

    name: str
    graph: Graph


def _case(op: str, sources: Sequence[DType], size: int, dtype: DType | None = None, **attributes: Attribute) -> Case:
    name = "_".join([op, *(source.value for source in sources), *([dtype.value] if dtype else [])])
    name += "".join(f"_{value}" for value in attributes.values())
    builder = GraphBuilder(name)
    operands = [
        build(builder, "parameter", (), number=i, shape=(size,), dtype=source) for i, source in enumerate(sources)
    ]
    result = build(builder, op, operands, dtype=dtype, **attributes)  # type: ignore[arg-type]
    return Case(name, builder.finish((result,)))


def _cases(size: int) -> Iterator[Case]:
    """Every element-wise op at every dtype that the table allows."""
    for op, row in OPS.items():
        if not row.elementwise:
            continue
        assert row.arity is not None
        for dtype in DType:
            sources = [dtype] * row.arity
            variants: list[tuple[DType | None, dict[str, Attribute]]] = [(None, {})]
            if op == "select":
                sources[0] = DType.PRED
            elif op == "convert":
                variants = [(target, {}) for target in DType]
            elif op == "bitcast_convert":
                variants = [(BITCAST_TWINS[dtype], {})] if dtype in BITCAST_TWINS else []
            elif op == "reduce_precision":
                variants = [(None, {"exponent_bits": e, "mantissa_bits": m}) for e, m in ((8, 7), (5, 10), (5, 2))]
            elif op == "compare":
                orders = (False, True) if dtype.is_float else (False,)
                directions = ("EQ", "NE", "LT", "LE", "GT", "GE")
                variants = [(None, {"direction": d, "total_order": o}) for d in directions for o in orders]
            for target, attributes in variants:
                try:
                    yield _case(op, sources, size, target, **attributes)
                except GraphError:
                    continue  # not an op of this dtype


def _specials(dtype: DType) -> Array:
    if dtype is DType.PRED:
        return np.asarray([False, True])
    if dtype.is_float:
        info = 65504.0 if dtype is DType.F16 else 3.3e38 if dtype is not DType.F64 else 1.7e308
        ordinary = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 7.0, 127.0, 128.0, 255.5, 256.0, 1e3, 65000.0]
        tiny = [1e-7, 6e-5] if dtype is DType.F16 else [1e-30, 2e-38, 1e-7]
        large = [32767.5, 32768.0] if dtype is DType.F16 else [2147483648.0, 9.3e18, 2e19, 1e30]
        positive = np.array([*ordinary, *tiny, *large, info, np.inf, np.nan])
        return np.asarray(np.concatenate([positive, -positive]).astype(dtype.numpy))
    limits = np.iinfo(str(dtype.numpy))
    values = {limits.min, limits.min + 1, limits.max, limits.max - 1, 0, 1, 2, 3, 5, 7, 8, 31, 63, 100}
    values |= {-1, -2, -7, -100} if dtype.is_signed else set()
    return np.array(sorted(values), dtype=dtype.numpy)


def _operands(graph: Graph, size: int) -> list[Array]:
    """All pairs of special values, then random ones, for each parameter."""
    rng = np.random.default_rng(11)
    found: list[Array] = []
    for position, index in enumerate(graph.parameters):
        dtype = graph.nodes[index].dtype
        special = _specials(dtype)
        repeats = [len(_specials(graph.nodes[i].dtype)) for i in graph.parameters[position + 1 :]]
        column = np.repeat(special, int(np.prod(repeats, dtype=np.int64)))[: size // 2]
        column = np.resize(column, size // 2)
        if dtype.is_float:
            random = (rng.standard_normal(size - size // 2) * 10.0 ** rng.integers(-3, 3)).astype(dtype.numpy)
        else:
            random = rng.choice(special, size - size // 2)
        found.append(np.concatenate([column, random]))
    return found


SIZE = 4096


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    """All cases' C++ functions in one library, each a loop that a vectorising compiler sees as generated kernels'
    loops."""
    if COMPILER is None:
        pytest.skip("no g++")
    source = []
    called = {name for op in OPS for dtype in (DType.F32, DType.F64) for name in libm_functions(op, dtype)}
    for name in sorted(called):
        kind = "float" if name == "fmodf" else "double"
        source.append(f'extern "C" {kind} {name}({kind}, {kind}) noexcept;')
    for case in _cases(SIZE):
        node = case.graph.nodes[-1]
        sources = [case.graph.nodes[i].dtype for i in node.operands]
        parameters = "".join(f"const {STORAGE_TYPE[d]}* __restrict p{i}, " for i, d in enumerate(sources))
        loads = " ".join(f"const {REGISTER_TYPE[d]} v{i} = {load_text(d, f'p{i}[i]')};" for i, d in enumerate(sources))
        value = cpp_expression(node, sources, [f"v{i}" for i in range(len(sources))])
        body = f"{loads} q[i] = {store_text(node.dtype, value)};"
        result = STORAGE_TYPE[node.dtype]
        source.append(
            f'extern "C" void {case.name}({parameters}{result}* __restrict q, int n) {{\n'
            f"  for (int i = 0; i < n; i++) {{ {body} }}\n}}"
        )

    def compile_to(source: Path, library: Path) -> None:
        command = [str(COMPILER), *FLAGS, str(source), "-o", str(library), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
        assert done.returncode == 0, done.stderr[:3000]

    identity = "\n".join((toolchain().identity, *FLAGS))
    return ctypes.CDLL(str(kept(translation_unit(source), identity, "ops.cc", compile_to)))


ALL_CASES = list(_cases(SIZE))


@pytest.mark.parametrize("op", [name for name, row in OPS.items() if row.elementwise])
def test_the_cpp_text_computes_what_the_reference_computes(library: ctypes.CDLL, op: str) -> None:
    cases = [case for case in ALL_CASES if case.graph.nodes[-1].op == op]
    assert cases
    for case in cases:
        node = case.graph.nodes[-1]
        inputs = _operands(case.graph, SIZE)
        result = np.zeros(SIZE, node.dtype.numpy)
        pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (*inputs, result)]
        getattr(library, case.name)(*pointers, SIZE)
        verdict = judge(case.graph, inputs, [result])
        assert verdict.ok, verdict
        assert verdict.decided > 0.1 or node.op in ("bitcast_convert", "power", "tan", "log"), (
            case.name,
            verdict.decided,
        )


@pytest.mark.parametrize("op", [name for name, row in OPS.items() if row.elementwise])
def test_the_native_interpreter_stays_within_the_oracles_bounds(op: str) -> None:
    for case in (case for case in ALL_CASES if case.graph.nodes[-1].op == op):
        inputs = _operands(case.graph, SIZE)
        verdict = judge(case.graph, inputs, evaluate(case.graph, inputs))
        assert verdict.ok, verdict


@pytest.mark.parametrize("kind", REDUCE_KINDS)
@pytest.mark.parametrize("dtype", list(DType))
def test_a_reduce_over_nothing_gives_the_identity(kind: str, dtype: DType) -> None:
    builder = GraphBuilder("empty")
    x = build(builder, "parameter", (), number=0, shape=(3, 0), dtype=dtype)
    try:
        result = build(builder, "reduce", (x,), kind=kind, dimensions=(1,))
    except GraphError:
        return  # not a reduction of this dtype
    (value,) = evaluate(builder.finish((result,)), [np.zeros((3, 0), dtype.numpy)])
    assert (value == reduce_identity(kind, dtype)).all()
    assert cpp_combine(kind, dtype, "a", "b")


@pytest.mark.parametrize("dtype", list(DType))
def test_literals_read_back_as_the_very_value(dtype: DType) -> None:
    for value in _specials(dtype):
        text = literal_text(dtype, value)
        assert text
        if dtype.is_float and np.isfinite(np.float64(value)):
            digits = text.strip("()").rstrip("f")
            assert np.float64(float.fromhex(digits)) == np.float64(value)


def _node(op: str, sources: Sequence[tuple[tuple[int, ...], DType]], **more: object) -> None:
    builder = GraphBuilder("one")
    operands = [
        build(builder, "parameter", (), number=i, shape=shape, dtype=dtype) for i, (shape, dtype) in enumerate(sources)
    ]
    build(builder, op, operands, **more)  # type: ignore[arg-type]


F32 = DType.F32
WRONG: list[tuple[str, list[tuple[tuple[int, ...], DType]], dict[str, object], str]] = [
    ("add", [((2,), F32), ((3,), F32)], {}, "equal shapes"),
    ("add", [((2,), F32), ((2,), DType.F64)], {}, "equal dtypes"),
    ("add", [((2,), F32)], {}, "given 1 operands, expected 2"),
    ("exp", [((2,), DType.S32)], {}, "a float dtype"),
    ("and", [((2,), F32), ((2,), F32)], {}, "pred or an integer"),
    ("compare", [((2,), F32), ((2,), F32)], {"direction": "UP"}, "one of EQ"),
    ("select", [((2,), F32), ((2,), F32), ((2,), F32)], {}, "pred and twice"),
    ("broadcast", [((2,), F32)], {"shape": (3, 4), "dimensions": (0,)}, "equal extents"),
    ("broadcast", [((2, 3), F32)], {"shape": (3, 2), "dimensions": (1, 0)}, "increasing"),
    ("reshape", [((2, 3), F32)], {"shape": (7,)}, "a shape of 6 elements"),
    ("transpose", [((2, 3), F32)], {"permutation": (0, 0)}, "a permutation"),
    ("slice", [((5,), F32)], {"start": (2,), "limit": (7,), "strides": (1,)}, "limit <= 5"),
    ("pad", [((2,), F32), ((), F32)], {"low": (-3,), "high": (0,), "interior": (0,)}, "to >= 0"),
    ("concatenate", [((2, 3), F32), ((2, 4), F32)], {"dimension": 0}, "but for dimension 0"),
    ("reverse", [((2,), F32)], {"dimensions": (1,)}, "distinct dimensions"),
    *(
        ("patches", [((3, 8), F32)], {"dimensions": d, "sizes": s, "strides": t, "dilations": u}, expected)
        for d, s, t, u, expected in (
            ((), (), (), (), "increasing dimensions of f32[3,8]"),
            ((1, 0), (2, 2), (1, 1), (1, 1), "increasing dimensions"),
            ((2,), (2,), (1,), (1,), "increasing dimensions"),
            ((1,), (3,), (1,), (4,), "1 to 8 elements"),
            ((1,), (3,), (0,), (1,), "1 to 8 elements"),
        )
    ),
    ("reduce", [((2,), F32)], {"kind": "mean", "dimensions": (0,)}, "one of sum"),
    ("reduce", [((2,), F32)], {"kind": "and", "dimensions": (0,)}, "and, or of pred"),
    ("reduce", [((2,), F32)], {"kind": "sum"}, "attribute dimensions"),
    ("bitcast_convert", [((2,), F32)], {"dtype": DType.F64}, "4 bytes per element"),
    ("iota", [], {"shape": (), "dtype": F32, "dimension": 0}, "a dimension of ()"),
    ("reduce_window", [((4,), F32), ((), F32)], {"kind": "max", "window": ()}, "1 window dimensions"),
    (
        "gather",
        [((4, 5), F32), ((3,), DType.S32)],
        {"gather": GatherDimensions((1,), (0,), (0,), 1, (2, 5))},
        "1 in collapsed",
    ),
    (
        "scatter",
        [((4, 5), F32), ((3,), DType.S32), ((2, 5), F32)],
        {"scatter": GatherDimensions((1,), (0,), (0,), 1), "kind": "sum"},
        "batch dimensions [3]",
    ),
    ("dynamic_slice", [((4,), F32), ((), F32)], {"sizes": (2,)}, "integer scalars"),
    ("nonsense", [], {}, "not in the op table"),
]


@pytest.mark.parametrize(("op", "sources", "attributes", "expected"), WRONG, ids=[f"{w[0]}-{w[3]}" for w in WRONG])
def test_a_wrong_node_is_refused_with_what_was_given_and_expected(
    op: str, sources: list[tuple[tuple[int, ...], DType]], attributes: dict[str, object], expected: str
) -> None:
    with pytest.raises(GraphError) as caught:
        _node(op, sources, **attributes)
    assert expected in str(caught.value)


def _evaluated(op: str, inputs: Sequence[Array], **more: object) -> Array:
    builder = GraphBuilder(op)
    operands = [
        build(builder, "parameter", (), number=i, shape=x.shape, dtype=DType.of(x.dtype)) for i, x in enumerate(inputs)
    ]
    result = build(builder, op, operands, **more)  # type: ignore[arg-type]
    return evaluate(builder.finish((result,)), inputs)[0]


def test_pad_takes_negative_and_interior_padding() -> None:
    x = np.array([1, 2, 3, 4], np.float32)
    value = np.array(9, np.float32)
    assert _evaluated("pad", (x, value), low=(-1,), high=(2,), interior=(1,)).tolist() == [9, 2, 9, 3, 9, 4, 9, 9]


def test_gather_clamps_and_scatter_drops_what_lies_outside() -> None:
    table, rows = np.arange(8, dtype=np.float32).reshape(4, 2), np.array([-5, 1, 9], np.int32)
    numbers = GatherDimensions((1,), (0,), (0,), 1, (1, 2))
    assert _evaluated("gather", (table, rows), gather=numbers).tolist() == [[0, 1], [2, 3], [6, 7]]
    one = GatherDimensions((), (0, 1), (0, 1), 0, (1, 1))
    assert _evaluated("gather", (table, np.array([1, 1], np.int32)), gather=one).tolist() == 3  # a scalar
    updates = np.full((3, 2), 10, np.float32)
    into = GatherDimensions((1,), (0,), (0,), 1)
    scattered = _evaluated("scatter", (table, rows, updates), scatter=into, kind="sum")
    assert scattered.tolist() == [[0, 1], [12, 13], [4, 5], [6, 7]]


def test_dynamic_slices_clamp_their_starts() -> None:
    x = np.arange(5, dtype=np.float32)
    assert _evaluated("dynamic_slice", (x, np.array(9, np.int32)), sizes=(2,)).tolist() == [3, 4]
    update = np.array([8, 9], np.float32)
    assert _evaluated("dynamic_update_slice", (x, update, np.array(-3, np.int32))).tolist() == [8, 9, 2, 3, 4]


def test_reduce_window_dilates_and_starts_each_window_from_the_initial_value() -> None:
    x = np.array([1, 2, 3, 4, 5], np.float32)
    window = (WindowDimension(size=2, stride=2, padding_low=1, window_dilation=2),)
    found = _evaluated("reduce_window", (x, np.array(0, np.float32)), window=window, kind="sum")
    assert found.tolist() == [2, 6]  # of [0, 1, 2, 3, 4, 5]: 0 + 2, 2 + 4


def test_patches_are_the_elements_of_windows_that_slide() -> None:
    x = np.arange(14, dtype=np.float32).reshape(7, 2)
    found = _evaluated("patches", (x,), dimensions=(0,), sizes=(2,), strides=(2,), dilations=(3,))
    assert found[:, :, 1].tolist() == [[1, 7], [5, 11]]  # rows 0 and 3, then 2 and 5; rows 4 and 7 would be too many
    x = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    found = _evaluated("patches", (x,), dimensions=(0, 2), sizes=(2, 3), strides=(1, 1), dilations=(1, 2))
    assert found.shape == (2, 4, 1, 2, 3)
    assert found[1, 2, 0].tolist() == [[30, 32, 34], [50, 52, 54]]


def test_constants_come_as_they_are() -> None:
    builder = GraphBuilder("constant")
    value = np.array([1.5, np.nan], DType.BF16.numpy)
    (found,) = evaluate(builder.finish((build(builder, "constant", (), literal=Literal(value)),)), [])
    assert found.dtype == value.dtype
    assert found.tobytes() == value.tobytes()


def test_a_dtype_is_found_after_an_array_of_it_was_unpickled() -> None:
    """Unpickling a bfloat16 array changes the hash of numpy's dtype object."""
    for dtype in DType:
        array = pickle.loads(pickle.dumps(np.zeros(2, dtype.numpy)))
        assert DType.of(array.dtype) is dtype
        assert DType.of(dtype.numpy) is dtype
    with pytest.raises(KeyError):
        DType.of(np.dtype(">f4"))
    with pytest.raises(KeyError):
        DType.of(np.complex64)


def test_rounding_away_is_cs_round_to_the_sign_of_a_zero() -> None:
    libm = ctypes.CDLL("libm.so.6")
    libm.round.restype, libm.round.argtypes = ctypes.c_double, [ctypes.c_double]
    values = np.array([-0.0, 0.0, -0.3, 0.3, -0.5, 0.5, -2.5, 2.5, 0.49999999999999994, -1e300, np.inf, -np.inf])
    expected = np.array([libm.round(value) for value in values])
    assert round_away(values).tobytes() == expected.tobytes()
