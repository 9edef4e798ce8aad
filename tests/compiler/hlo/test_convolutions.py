"""Convolutions of each feature by itself are written out in the compiler's ops; others are refused."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from stitchfleet.compiler.hlo.importer import UnsupportedHloError, import_hlo_text
from stitchfleet.compiler.hlo.module import HloImportError
from stitchfleet.compiler.hlo.text import HloSyntaxError, read_hlo_text
from stitchfleet.compiler.ops.interpreter import evaluate

Array = npt.NDArray[Any]
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], str, str, int, int]] = {
    # shape of the left operand and of the filter, window, dimensions, feature groups, batch groups
    "depthwise": ((2, 7, 6, 4), (3, 3, 1, 4), "size=3x3 pad=1_1x1_1", "b01f_01io->b01f", 4, 1),
    "multiplier": ((2, 7, 6, 4), (3, 2, 1, 12), "size=3x2 pad=1_1x0_1", "b01f_01io->b01f", 4, 1),
    "strided": ((2, 9, 8, 4), (3, 3, 1, 4), "size=3x3 stride=2x3 pad=0_1x1_1", "b01f_01io->b01f", 4, 1),
    "dilated filter": ((2, 9, 8, 4), (3, 2, 1, 4), "size=3x2 pad=2_2x1_3 rhs_dilate=2x3", "b01f_01io->b01f", 4, 1),
    "gradient of a strided input": (
        *((2, 5, 5, 4), (3, 3, 4, 1), "size=3x3 pad=1_1x1_2 lhs_dilate=2x2"),
        *("b01f_01oi->b01f", 4, 1),
    ),
    "negative padding": ((2, 7, 6, 4), (2, 2, 1, 4), "size=2x2 pad=-1_0x1_-1", "b01f_01io->b01f", 4, 1),
    "channels first": ((2, 4, 7, 6), (4, 1, 3, 3), "size=3x3 pad=1_1x1_1", "bf01_oi01->bf01", 4, 1),
    "turned result": ((2, 7, 6, 4), (3, 2, 1, 8), "size=3x2", "b01f_01io->f10b", 4, 1),
    "turned image": ((2, 7, 6, 4), (3, 2, 1, 4), "size=2x3 pad=0_1x1_1", "b10f_10io->b01f", 4, 1),
    "gradient of a multiplied input": ((2, 7, 6, 12), (3, 2, 4, 3), "size=3x2 pad=2_2x1_1", "b01f_01oi->b01f", 4, 1),
    "of one feature": ((2, 7, 6, 1), (3, 2, 1, 1), "size=3x2", "b01f_01io->b01f", 1, 1),
    "one dimension": ((2, 9, 4), (3, 1, 4), "size=3 pad=2_0", "b0f_0io->b0f", 4, 1),
    "three dimensions": ((1, 4, 5, 4, 3), (2, 2, 3, 1, 3), "size=2x2x3", "b012f_012io->b012f", 3, 1),
    "gradient of the filter": ((2, 7, 6, 4), (2, 7, 6, 4), "size=7x6 pad=1_1x1_1", "f01b_i01o->01bf", 1, 4),
    "of a strided one": ((3, 9, 8, 4), (3, 4, 4, 4), "size=4x4 pad=0_0x1_1 rhs_dilate=2x2", "f01b_i01o->01bf", 1, 4),
    "of one with a multiplier": ((3, 5, 4, 4), (3, 5, 4, 8), "size=5x4 pad=1_1x1_1", "f01b_i01o->01bf", 1, 4),
    "of one image": ((1, 5, 4, 4), (1, 5, 4, 4), "size=5x4 pad=1_1x1_1", "f01b_i01o->01bf", 1, 4),
}


def module(case: str, result: tuple[int, ...] = (), attributes: str = "") -> str:
    lhs, rhs, window, labels, features, batches = CASES[case]
    more = f", feature_group_count={features}" * (features > 1) + f", batch_group_count={batches}" * (batches > 1)

    def of(shape: tuple[int, ...]) -> str:
        return f"f32[{','.join(map(str, shape))}]"

    return (
        f"HloModule test\nENTRY main {{\n  x = {of(lhs)} parameter(0)\n  w = {of(rhs)} parameter(1)\n"
        f"  ROOT c = {of(result)} convolution(x, w), window={{{window}}}, dim_labels={labels}{more}{attributes}\n}}\n"
    )


def convolution(case: str, x: Array, w: Array) -> Array:
    """As HLO defines it, one product after the other."""
    _, _, _, labels, features, batches = CASES[case]
    names = labels.replace("->", "_").split("_")
    rank = x.ndim - 2
    window = read_hlo_text(module(case)).computations["main"].instructions["c"].window
    digits = "".join(map(str, range(rank)))
    x = np.transpose(x, [names[0].index(name) for name in f"bf{digits}"])
    w = np.transpose(w, [names[1].index(name) for name in f"io{digits}"])
    extents = [
        (extent - 1) * item.base_dilation + 1 + item.padding_low + item.padding_high
        for extent, item in zip(x.shape[2:], window, strict=True)
    ]
    padded = np.zeros((*x.shape[:2], *extents))
    for at in itertools.product(*map(range, x.shape[2:])):
        place = tuple(i * item.base_dilation + item.padding_low for i, item in zip(at, window, strict=True))
        if all(0 <= i < extent for i, extent in zip(place, extents, strict=True)):
            padded[(slice(None), slice(None), *place)] = x[(slice(None), slice(None), *at)]
    positions = [
        (extent - (item.size - 1) * item.window_dilation - 1) // item.stride + 1
        for extent, item in zip(extents, window, strict=True)
    ]
    batch, outputs = x.shape[0] // batches, w.shape[1]
    result = np.zeros((batch, outputs, *positions))
    for b, f in itertools.product(range(batch), range(outputs)):
        image = b + f // (outputs // batches) * batch
        first = f // (outputs // features) * (x.shape[1] // features)
        for at in itertools.product(*map(range, positions)):
            for i, *taps in itertools.product(range(w.shape[0]), *map(range, w.shape[2:])):
                place = [
                    p * item.stride + t * item.window_dilation for p, t, item in zip(at, taps, window, strict=True)
                ]
                result[(b, f, *at)] += padded[(image, first + i, *place)] * w[(i, f, *taps)]
    return np.transpose(result, [f"bf{digits}".index(name) for name in names[2]])


@pytest.mark.parametrize("case", CASES)
def test_a_convolution_of_each_feature_by_itself(case: str) -> None:
    random = np.random.default_rng(0)
    x, w = (random.standard_normal(shape).astype(np.float32) for shape in CASES[case][:2])
    expected = convolution(case, x, w)
    graph = import_hlo_text(module(case, expected.shape)).graph
    assert "patches" in [node.op for node in graph.nodes]
    (found,) = evaluate(graph, [x, w])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("shapes", "window", "groups", "expected"),
    [
        (((2, 7, 6, 4), (3, 3, 4, 8)), "size=3x3 pad=1_1x1_1", "", "a convolution, left to the library"),
        (((2, 7, 6, 4), (3, 3, 2, 8)), "size=3x3 pad=1_1x1_1", ", feature_group_count=2", "left to the library"),
        (((2, 7, 6, 4), (3, 3, 1, 8)), "size=3x2", ", feature_group_count=4", "do not fit"),
        (((2, 7, 6, 4), (3, 3, 1, 4)), "size=3x3 rhs_reversal=1x1", ", feature_group_count=4", "a reversed window"),
        (((2, 7, 6, 4), (3, 3, 1, 4)), "size=3x3", ", feature_group_count=4", "whose operands give (2, 5, 4, 4)"),
    ],
)
def test_other_convolutions_are_left_to_the_library(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], window: str, groups: str, expected: str
) -> None:
    x, w = (",".join(map(str, shape)) for shape in shapes)
    text = (
        f"HloModule test\nENTRY main {{\n  x = f32[{x}] parameter(0)\n  w = f32[{w}] parameter(1)\n"
        f"  ROOT c = f32[2,7,6,8] convolution(x, w), window={{{window}}}, dim_labels=b01f_01io->b01f{groups}\n}}\n"
    )
    with pytest.raises((UnsupportedHloError, HloImportError)) as caught:
        import_hlo_text(text)
    assert expected in str(caught.value)


@pytest.mark.parametrize("labels", ["b01f_01io", "b01f_01io->b0", "b01f_01oo->b01f", "b11f_01io->b01f"])
def test_dimensions_that_are_not_named_once(labels: str) -> None:
    text = module("depthwise", (2, 7, 6, 4)).replace("b01f_01io->b01f", labels)
    with pytest.raises((HloSyntaxError, HloImportError)):
        import_hlo_text(text)
