"""A selection by window, the gradient of max pooling, is written out in the compiler's ops; others are refused."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stitchfleet.compiler.hlo.importer import UnsupportedHloError, import_hlo_text
from stitchfleet.compiler.ops.interpreter import evaluate

Array = npt.NDArray[Any]
Window = tuple[tuple[int, int, int, int], ...]
"""Of each dimension: size, stride, padding before and after."""
WORST = {"GE": -np.inf, "LE": np.inf}
BETTER = {"GE": operator.gt, "LE": operator.lt}
FEW_VALUES = np.array([0, -0.0, 1, 2, -1, np.nan, np.inf, -np.inf, -3.4028235e38], np.float32)


def counts(shape: tuple[int, ...], window: Window) -> tuple[int, ...]:
    """How many windows there are in each dimension."""
    return tuple(
        (low + extent + high - size) // stride + 1
        for extent, (size, stride, low, high) in zip(shape, window, strict=True)
    )


def module(
    shape: tuple[int, ...],
    window: Window,
    select: str = "GE",
    scatter: str = "add",
    init: float = 0.0,
    dtype: str = "f32",
    more: str = "",
) -> str:
    def of(extents: tuple[int, ...]) -> str:
        return f"{dtype}[{','.join(map(str, extents))}]"

    sizes, strides = ("x".join(str(item[i]) for item in window) for i in (0, 1))
    pads = "x".join(f"{low}_{high}" for _, _, low, high in window)
    window_text = f"window={{size={sizes} stride={strides} pad={pads}{more}}}"
    return f"""HloModule test
choose {{
  a = {dtype}[] parameter(0)
  b = {dtype}[] parameter(1)
  ROOT c = pred[] compare(a, b), direction={select}
}}
sum {{
  a = {dtype}[] parameter(0)
  b = {dtype}[] parameter(1)
  ROOT c = {dtype}[] {scatter}(a, b)
}}
ENTRY main {{
  x = {of(shape)} parameter(0)
  y = {of(counts(shape, window))} parameter(1)
  start = {dtype}[] constant({init})
  ROOT r = {of(shape)} select-and-scatter(x, y, start), {window_text}, select=choose, scatter=sum
}}
"""


def selected(x: Array, source: Array, window: Window, select: str, init: float) -> Array:
    """As HLO defines it, one window after the other, but that a NaN is never better."""
    known = np.where(np.isnan(x), WORST[select], x)
    result = np.full(x.shape, init, np.float64)
    for place in np.ndindex(source.shape):
        best: tuple[int, ...] | None = None
        for tap in itertools.product(*(range(size) for size, *_ in window)):
            at = tuple(p * stride + t - low for p, t, (_, stride, low, _) in zip(place, tap, window, strict=True))
            inside = all(0 <= i < extent for i, extent in zip(at, x.shape, strict=True))
            if inside and (best is None or BETTER[select](known[at], known[best])):
                best = at
        if best is not None:
            result[best] += source[place]
    return result


def check(shape: tuple[int, ...], window: Window, x: Array, select: str = "GE", init: float = 0.0) -> None:
    source = np.arange(1, 1 + np.prod(counts(shape, window)), dtype=np.float32).reshape(counts(shape, window))
    graph = import_hlo_text(module(shape, window, select, init=init)).graph
    with np.errstate(all="ignore"):
        (found,) = evaluate(graph, (x, source))
    np.testing.assert_array_equal(found, selected(x, source, window, select, init).astype(np.float32))


WINDOWS: dict[str, tuple[tuple[int, ...], Window]] = {
    "side by side": ((2, 6, 4, 3), ((1, 1, 0, 0), (2, 2, 0, 0), (2, 2, 0, 0), (1, 1, 0, 0))),
    "with a rest": ((1, 7, 5, 2), ((1, 1, 0, 0), (2, 2, 0, 0), (2, 2, 0, 0), (1, 1, 0, 0))),
    "overlapping": ((2, 7, 9, 3), ((1, 1, 0, 0), (3, 2, 0, 0), (3, 2, 0, 0), (1, 1, 0, 0))),
    "at each element": ((1, 5, 6, 2), ((1, 1, 0, 0), (3, 1, 1, 1), (3, 1, 1, 1), (1, 1, 0, 0))),
    "padded unequally": ((1, 8, 7, 2), ((1, 1, 0, 0), (3, 2, 0, 1), (4, 3, 2, 1), (1, 1, 0, 0))),
    "apart": ((1, 9, 8, 2), ((1, 1, 0, 0), (2, 3, 0, 0), (1, 2, 0, 0), (1, 1, 0, 0))),
    "all of the padding": ((4, 3), ((2, 2, 2, 2), (1, 1, 0, 0))),
    "one dimension": ((3, 11, 2), ((1, 1, 0, 0), (5, 3, 2, 1), (1, 1, 0, 0))),
    "three dimensions": ((1, 4, 5, 4, 2), ((1, 1, 0, 0), (2, 2, 0, 0), (3, 2, 1, 1), (2, 1, 1, 0), (1, 1, 0, 0))),
    "channels too": ((2, 6, 4), ((1, 1, 0, 0), (2, 2, 0, 0), (2, 1, 0, 1))),
}


@pytest.mark.parametrize("select", BETTER)
@pytest.mark.parametrize("name", WINDOWS)
def test_the_first_best_element_of_each_window_gets_its_gradient(name: str, select: str) -> None:
    shape, window = WINDOWS[name]
    random = np.random.default_rng(0)
    check(shape, window, random.standard_normal(shape).astype(np.float32), select)
    check(shape, window, random.integers(0, 3, shape).astype(np.float32), select)  # with equal elements
    check(shape, window, random.choice(FEW_VALUES, shape), select)


@given(data=st.data())
def test_of_any_window(data: st.DataObject) -> None:
    dimensions = st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(0, 3), st.integers(0, 3))
    window = tuple(data.draw(st.lists(dimensions, min_size=1, max_size=3)))
    shape = tuple(data.draw(st.integers(size, 6)) for size, *_ in window)
    x = np.random.default_rng(data.draw(st.integers(0, 99))).choice(FEW_VALUES, shape)
    if np.prod([size for size, *_ in window]) <= 32:
        check(shape, window, x, data.draw(st.sampled_from(sorted(BETTER))))


def test_it_starts_from_the_initial_value() -> None:
    shape, window = WINDOWS["overlapping"]
    check(shape, window, np.random.default_rng(1).standard_normal(shape).astype(np.float32), init=2.5)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        *(({"select": other}, "not of the first largest") for other in ("EQ", "GT")),
        ({"scatter": "multiply"}, "not added"),
        ({"dtype": "s32", "init": 0}, "of integers"),
        ({"more": " rhs_dilate=1x2x1x1"}, "dilated window"),
    ],
)
def test_other_selections_are_refused(change: dict[str, Any], reason: str) -> None:
    shape, window = WINDOWS["overlapping"]
    with pytest.raises(UnsupportedHloError, match=reason):
        import_hlo_text(module(shape, window, **change))


def test_a_large_window_is_refused() -> None:
    with pytest.raises(UnsupportedHloError, match="a large or dilated window"):
        import_hlo_text(module((40, 3), ((33, 1, 0, 0), (1, 1, 0, 0))))
