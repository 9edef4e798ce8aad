"""The guard's comparison on a device: its results put together are those of a comparison element by element."""

from __future__ import annotations

import math
from functools import lru_cache

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from stitchfleet.compiler.codegen.cuda.kernel_text import head
from stitchfleet.compiler.pipeline.cuda import comparison

from ..cuda_emulator import Emulated, build, trampoline

Array = npt.NDArray[np.generic]
PART = np.dtype([(name, "f8") for name in ("largest", "ratio", "error", "expected", "actual")] + [("index", "i8")])
FLOATS = {"f4": 0, "f8": 1, "f2": 2, "bf16": 3}
GRID, BLOCK = 3, 64


@lru_cache(maxsize=1)
def emulated() -> Emulated:
    """Its scalars come as tensors of one element."""
    scalars = "*(long long*)tensors[2], *(int*)tensors[3]"
    calls = {
        "largest": f"stitch_largest(tensors[0], {scalars}, (StitchCompared*)tensors[5])",
        "compare": f"stitch_compare(tensors[0], tensors[1], {scalars}, ((double*)tensors[4])[0], ((double*)tensors[4])[1], "
        "(StitchCompared*)tensors[5])",
    }
    return build(f"{head()}\n{comparison()}", "".join(trampoline(name, call) for name, call in calls.items()))


def run(entry: str, expected: Array, actual: Array, kind: int, tolerance: tuple[float, float]) -> npt.NDArray[np.void]:
    parts = np.zeros(GRID * BLOCK, PART)
    tensors = [
        *(
            expected,
            actual,
            np.array([expected.size]),
            np.array([kind], np.int32),
            np.array(tolerance),
            parts.view("u1"),
        )
    ]
    messages = emulated().launch(tensors, [True] * 6, GRID, BLOCK, 0, entry=entry)
    assert not messages
    return parts


def dtype_of(name: str) -> np.dtype[np.generic]:
    return np.dtype(ml_dtypes.bfloat16) if name == "bf16" else np.dtype(name)


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("count", [1, 191, 1000])
@pytest.mark.parametrize("wrong", [False, True])
def test_floats_are_compared_by_the_tolerance(name: str, count: int, wrong: bool) -> None:
    random = np.random.default_rng(count)
    kind, relative, of_largest = dtype_of(name), 0.01, 0.002
    expected = (random.standard_normal(count) * 3).astype(kind)
    actual = (expected.astype("f8") * (1 + 0.001 * random.standard_normal(count))).astype(kind)
    for value in (np.nan, np.inf, -np.inf):
        if count > 100:
            place = random.integers(count)
            expected[place] = actual[place] = value
    if wrong:
        place = int(random.integers(count))
        expected[place], actual[place] = 1.0, np.inf if count == 191 else 1.5
    finite = np.abs(expected.astype("f8"))[np.isfinite(expected.astype("f8"))]
    largest = run("largest", expected, actual, FLOATS[name], (0, 0))["largest"].max()
    assert largest == finite.max(initial=0.0)
    found = run("compare", expected, actual, FLOATS[name], (relative, of_largest * largest))
    e, a = expected.astype("f8"), actual.astype("f8")
    with np.errstate(invalid="ignore"):
        errors = np.where(np.isfinite(e) & np.isfinite(a), np.abs(a - e), 0.0)
        ratios = errors / (relative * np.abs(e) + of_largest * largest)
    ratios[~((e == a) | (np.isnan(e) & np.isnan(a))) & ~(np.isfinite(e) & np.isfinite(a))] = math.inf
    ratios[np.isnan(ratios) | (e == a)] = 0.0
    assert found["error"].max() == errors.max()
    assert found["ratio"].max() == ratios.max()
    assert (ratios.max() > 1.0) == wrong
    if wrong:
        worst = found[found["ratio"].argmax()]
        assert (worst["index"], worst["expected"], worst["actual"]) == (place, e[place], a[place])


@pytest.mark.parametrize("name", ["i1", "i4", "i8", "u2", "?"])
def test_integers_have_to_be_equal(name: str) -> None:
    expected = np.arange(500).astype(name)
    actual = expected.copy()
    assert (run("compare", expected, actual, -expected.itemsize, (0, 0))["index"] == -1).all()
    actual[321] = not actual[321] if name == "?" else actual[321] + 1
    found = run("compare", expected, actual, -expected.itemsize, (0, 0))
    (different,) = found[found["index"] >= 0]
    assert (different["index"], different["ratio"]) == (321, math.inf)
    assert different["actual"] == float(actual[321])
