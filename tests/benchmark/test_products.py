"""`scripts/bench --products`: what a product must do, and what of its time could be gained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from scripts.benchmark import arithmetic
from scripts.benchmark.arithmetic import Arithmetic, Peak
from scripts.benchmark.products import (
    Alone,
    Operand,
    Product,
    Row,
    Step,
    Work,
    main,
    operands_of,
    product_of,
    rows_of,
    table,
    title_of,
    totals,
    work_of,
)
from scripts.benchmark.trace import NodeTime

WINDOW = {"strides": [1, 2, 1, 1], "dilations": [1, 1, 1, 1], "data_format": "NHWC"}
CASES: list[tuple[str, list[tuple[int, ...]], dict[str, Any], int]] = [
    # op, shapes of the operands, attributes, multiply-adds for each element of the result
    ("MatMul", [(3, 5), (5, 7)], {}, 5),
    ("MatMul", [(5, 3), (7, 5)], {"transpose_a": True, "transpose_b": True}, 5),
    ("BatchMatMulV2", [(2, 4, 3, 5), (2, 4, 5, 7)], {}, 5),
    ("BatchMatMulV2", [(4, 1, 3, 5), (6, 7, 5)], {"adj_y": True}, 5),
    ("BatchMatMulV2", [(4, 3, 5), (5, 7)], {}, 5),
    ("Einsum", [(2, 3, 4, 5), (2, 6, 4, 5)], {"equation": "abcd,aecd->acbe"}, 5),
    ("Conv2D", [(2, 9, 8, 3), (3, 3, 3, 5)], {**WINDOW, "padding": "SAME"}, 27),
    ("Conv2D", [(2, 9, 8, 3), (3, 2, 3, 5)], {**WINDOW, "padding": "VALID", "dilations": [1, 2, 2, 1]}, 18),
    ("Conv2D", [(2, 9, 8, 4), (3, 3, 2, 6)], {**WINDOW, "padding": "SAME"}, 18),  # two groups
    (
        "Conv2D",
        [(2, 9, 8, 3), (3, 3, 3, 5)],
        {**WINDOW, "padding": "EXPLICIT", "explicit_paddings": [0, 0, 2, 0, 1, 3, 0, 0]},
        27,
    ),
    ("Conv3D", [(2, 5, 6, 7, 3), (2, 3, 2, 3, 4)], {"strides": [1, 1, 2, 1, 1], "padding": "VALID"}, 36),
]


def product(op: str, shapes: list[tuple[int, ...]], attributes: dict[str, Any]) -> Product:
    text = ";".join(f"float[{','.join(map(str, shape))}]" for shape in shapes)
    return product_of(op, f"({text})", {"attributes": attributes})


@pytest.mark.parametrize(("op", "shapes", "attributes", "depth"), CASES)
def test_the_work_of_a_product_is_that_of_tensorflow_s_result(
    op: str, shapes: list[tuple[int, ...]], attributes: dict[str, Any], depth: int
) -> None:
    tensors = [tf.ones(shape) for shape in shapes]
    names = {"M": ("a", "b"), "B": ("x", "y"), "C": ("input", "filter")}.get(op[0])
    given = {"inputs": tensors} if names is None else dict(zip(names, tensors))
    result = getattr(tf.raw_ops, op)(**given, **attributes)
    expected = Work(2 * int(tf.size(result)) * depth, 4 * (int(tf.size(result)) + sum(map(int, map(tf.size, tensors)))))
    assert work_of(product(op, shapes, attributes)) == expected


def test_a_gradient_of_a_convolution_does_the_convolution_s_work() -> None:
    forward = work_of(product("Conv2D", [(2, 8, 8, 3), (3, 3, 3, 5)], {**WINDOW, "padding": "SAME"}))
    assert forward is not None
    of_image = product_of(
        "_MklConv2DBackpropInput",
        "(int32[4];float[3,3,3,5];float[2,4,8,5])",
        {"attributes": {**WINDOW, "padding": "SAME", "input 0": [2, 8, 8, 3]}},
    )
    of_filter = product_of(
        "Conv2DBackpropFilter",
        "(float[2,8,8,3];int32[4];float[2,4,8,5])",
        {"attributes": {**WINDOW, "padding": "SAME", "input 1": [3, 3, 3, 5]}},
    )
    assert [work.operations for work in (work_of(of_image), work_of(of_filter)) if work] == [forward.operations] * 2


def test_what_is_not_known_has_no_work() -> None:
    assert work_of(product("Cholesky", [(5, 5)], {})) is None
    assert work_of(product("Einsum", [(2, 3), (3, 4)], {"equation": "...a,ab->...b"})) is None
    assert work_of(product_of("MatMul", "", {})) is None


def test_shapes_that_the_profile_does_not_have_are_the_graph_s() -> None:
    member = {"attributes": {"T": 2, "adj_y": True, "adj_x": False}, "shapes": [[-1, 9, 16], [24, 16]]}
    found = product_of("BatchMatMulV2", "", member)
    assert found == Product(
        "BatchMatMulV2", (Operand("double", (-1, 9, 16)), Operand("double", (24, 16))), (("adj_y", True),)
    )
    assert work_of(found) is None
    assert title_of(found) == "BatchMatMulV2 ?x9x16 . 24x16' double"
    known = product_of("BatchMatMulV2", "", {**member, "shapes": [[4, 9, 16], [24, 16]]})
    assert work_of(known) == Work(2 * 4 * 9 * 24 * 16, 8 * (4 * 9 * 16 + 24 * 16 + 4 * 9 * 24))


def test_a_batch_that_became_one_product_is_the_same_product() -> None:
    shapes, member = "(float[4,9,16];float[16,24])", {"attributes": {"adj_x": False, "T": 1}}
    assert product_of("StitchfleetBatchMatMulV2", shapes, member) == product_of("BatchMatMulV2", shapes, member)
    summed = {"attributes": {"adj_x": True, "T": 1, "grad_y": True}}
    added = product_of("StitchfleetBatchMatMulSum", "(float[4,9,16];float[4,9,24];int32[1])", summed)
    assert added == product_of("BatchMatMulV2", "(float[4,9,16];float[4,9,24])", summed)


def test_operands_are_read_from_a_profile_s_text() -> None:
    assert operands_of("(float[64,36];bfloat16[36,72];int32[])") == (
        Operand("float", (64, 36)),
        Operand("bfloat16", (36, 72)),
        Operand("int32", ()),
    )
    assert operands_of("(float[64,36];bfloat16[36,72])")[1].bytes == 36 * 72 * 2


def test_a_title_says_what_is_transposed() -> None:
    assert title_of(product("_FusedMatMul", [(3, 5), (7, 5)], {"transpose_b": True})) == "MatMul 3x5 . 7x5'"
    assert title_of(product("Conv2D", [(2, 9, 8, 3), (3, 3, 3, 5)], WINDOW)) == "Conv2D 2x9x8x3 . 3x3x3x5 /2x1"
    assert title_of(product_of("BatchMatMulV2", "(half[2,3,4];half[2,3,4])", {"attributes": {"adj_x": True}})) == (
        "BatchMatMulV2 2x3x4' . 2x3x4 half"
    )


def test_products_of_equal_shapes_are_one_row() -> None:
    shape = "(float[64,36];float[36,72])"
    plain = [
        NodeTime("q/MatMul", "MatMul", 10, 100.0, shape),
        NodeTime("k/MatMul", "MatMul", 10, 300.0, shape),
        NodeTime("v/MatMul", "MatMul", 10, 900.0, "(float[36,64];float[36,72])"),
        NodeTime("in_a_loop/MatMul", "_FusedMatMul", 500, 10.0, "(float[1,36];float[36,72])"),
        NodeTime("norm/mul", "Mul", 10, 900.0),
    ]
    stitched = [node._replace(runs=4, own_us=40.0) for node in plain[:3]]
    members = {"v/MatMul": {"attributes": {"transpose_a": True, "T": 1}}}
    first, second, third = rows_of(plain, stitched, (10, 4), members)
    assert first.product.attribute("transpose_a") is True
    assert (first.nodes, first.runs, first.plain_us, first.stitched_us) == (1, 1.0, 90.0, 10.0)
    assert (second.nodes, second.runs, second.plain_us, second.stitched_us) == (2, 2.0, 20.0, 10.0)
    assert (third.nodes, third.runs, third.stitched_us) == (1, 50.0, None)  # it runs within a stitch op now


ROW = Row(
    product("MatMul", [(100, 100), (100, 100)], {}), 1, 2.0, 50.0, 40.0, Alone(30.0, 1.0), Work(2_000_000, 120_000)
)


def test_what_is_to_gain_is_above_the_slower_of_arithmetic_and_memory() -> None:
    assert ROW.least_us(1e11, 1e12) == pytest.approx(20.0)  # 2 million operations
    assert ROW.least_us(1e11, 4e9) == pytest.approx(30.0)  # 120 thousand bytes
    assert ROW.to_gain_ms(1e11 / 0.85, 1e12) == pytest.approx(2 * (40.0 - 20.0) / 1e3)
    assert ROW.to_gain_ms(1e9, 1e12) == 0.0


def test_the_tables_say_the_share_of_the_peak_and_what_is_to_gain() -> None:
    speed = Arithmetic(Peak(5e10, 1e11), None)
    step = Step("small", (ROW,), 1.0, 0.08)
    lines = table(step, speed, 1e12, 12)
    assert lines[-1].split() == "MatMul 100x100 . 100x100 2 50.0 40.0 30.0 1.0 40% 0.03".split()
    assert totals([step], speed, 1e12)[-1].split() == "small 1.00 0.08 0.03 1.03x".split()
    assert table(step, speed, 1e12, 0)[-1].split() == ["1", "more", "0.03"]


def test_the_machine_s_arithmetic_is_measured() -> None:
    found = arithmetic.measure()
    assert found.float32.one > 1e9
    assert found.float32.all > 0.25 * found.float32.one  # other work may have the other cores
    assert found.bfloat16_tiles is None or found.bfloat16_tiles.one > found.float32.one


@pytest.mark.slow
def test_the_products_of_a_step_are_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "products.json"
    assert main(["--workloads", "session", "--json", str(out)]) == 0
    assert "GFLOP/s" in capsys.readouterr().out
    (step,) = json.loads(out.read_text())["steps"]
    works = [row["work"] for row in step["rows"]]
    assert works
    assert all(works)
    assert all(row["alone"]["us"] > 0 for row in step["rows"])
    assert 0 < step["product_wall_ms"] < step["wall_ms"]
    assert np.isfinite([row["to_gain_ms"] for row in step["rows"]]).all()
