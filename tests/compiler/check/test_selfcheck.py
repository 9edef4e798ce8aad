"""The self-check finds what can be wrong with a kernel: mutants of generated sources, each wrong in one way."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from stitchfleet.compiler.check import selfcheck
from stitchfleet.compiler.check.checkers import Check, CheckerDiedError, checkers
from stitchfleet.compiler.check.oracle import evaluate_sample
from stitchfleet.compiler.check.random_inputs import Regime, random_inputs
from stitchfleet.compiler.check.selfcheck import CheckFailedError, CheckOptions, disjoint_pairs
from stitchfleet.compiler.ir.graph import Array, DType, Graph
from stitchfleet.compiler.kernel.cache import KernelCache
from stitchfleet.compiler.kernel.metadata import CheckReport
from stitchfleet.compiler.pipeline import cpu
from stitchfleet.compiler.pipeline.backend import CompileOutcome, KernelRequest
from stitchfleet.compiler.pipeline.cpu import compile_graphs

from ..library import (
    Maker,
    adam,
    bias_residual,
    column_sum,
    cross_entropy,
    dropout,
    gelu,
    layer_norm,
    layer_norm_gradient,
    softmax,
)
from ..native import toolchain

SMALL = CheckOptions(processes=1)
LARGE = replace(SMALL, large_elements=0)
"""As graphs above the limit are checked: normal inputs, and mixed ones whose rows each take another regime."""
HUGE = replace(LARGE, huge_elements=0)
"""As those above the second limit: valid and mixed inputs, and the oracle looks at a sample of the slices."""
SIZES = {"small": SMALL, "large": LARGE, "huge": HUGE}


def first_of(text: str, old: str, new: str) -> str:
    assert re.search(old, text), f"the source has no {old}:\n{text}"
    return re.sub(old, new, text, count=1)


def last_of(text: str, old: str, new: str) -> str:
    *_, match = re.finditer(old, text)
    return text[: match.start()] + match.expand(new) + text[match.end() :]


def relu(rows: int, length: int) -> Graph:
    m = Maker("relu")
    x = m.parameter(rows, length)
    return m.done(m.op("maximum", x, m.constant(0.0, (rows, length))))


def sigmoid_gradient(rows: int, length: int) -> Graph:
    m = Maker("sigmoid_gradient")
    x, dy = m.parameter(rows, length), m.parameter(rows, length)
    y = m.op("logistic", x)
    return m.done(m.op("multiply", m.op("multiply", dy, y), m.op("subtract", m.constant(1.0, (rows, length)), y)))


Mutation = Callable[[str], str]
MUTANTS: dict[str, tuple[Callable[[], Graph], Mutation]] = {
    "a row's last element is left out of a sum": (
        lambda: layer_norm(200, 96),
        lambda s: first_of(s, r"_base < 96;", "_base < 64;"),
    ),
    "a wrong stride": (
        lambda: layer_norm(200, 96),
        lambda s: last_of(s, r"b(\d)\[r \* 96 \+", r"b\1[r * 96 + 1 +"),
    ),
    "the last row is not written": (
        lambda: bias_residual(301, 40),
        lambda s: first_of(s, r"last_row < rows \? last_row : rows;", "last_row < rows ? last_row : rows - 1;"),
    ),
    "the tail of a row is not written": (
        lambda: softmax(200, 37),
        lambda s: last_of(s, r"< 37;", "< 36;"),
    ),
    "a maximum that loses NaN": (
        lambda: relu(100, 64),
        lambda s: first_of(s, r"stitch_max\(([^,]*), ([^)]*)\)", r"(\1 > \2 ? \1 : \2)"),
    ),
    "a softmax without its maximum overflows": (
        lambda: softmax(200, 64),
        lambda s: first_of(s, r"\((t\d+) - (stitch_\w+|max\d+|sum\d+|t\d+)\)", r"(\1 - 0 * \2)"),
    ),
    "a coefficient is off by a ten-thousandth": (
        lambda: gelu(100, 64),
        lambda s: first_of(s, r"0x1\.6e4e26", "0x1.6e5e26"),
    ),
    "a column's partial sums miss a task": (
        lambda: column_sum(4000, 64),
        lambda s: first_of(s, r"for \(int t = 0; t <", "for (int t = 1; t <"),
    ),
    "labels are compared with the wrong class": (
        lambda: cross_entropy(120, 50),
        lambda s: first_of(s, r"\(t(\d+) == ", r"(t\1 + 1 == "),
    ),
    "a mask is not read": (
        lambda: dropout(100, 64),
        lambda s: first_of(s, r"const bool (t\d+) = [^;]*;", r"const bool \1 = true;"),
    ),
    "gradients of scale and shift are exchanged": (
        lambda: layer_norm_gradient(300, 64),
        lambda s: s.replace("outputs[1]", "outputs[9]").replace("outputs[2]", "outputs[1]").replace("[9]", "[2]"),
    ),
    "a square root of the wrong moment": (
        lambda: adam([(64, 32), (77,)]),
        lambda s: first_of(s, r"__builtin_sqrtf\((t\d+)\)", r"__builtin_sqrtf(__builtin_fabsf(\1 * 1.001f))"),
    ),
}


def outcome_of(
    graph: Graph, mutate: Mutation, options: CheckOptions, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> CompileOutcome:
    render = cpu.render
    monkeypatch.setattr(cpu, "render", lambda loops, symbol: mutate(render(loops, symbol)))
    if options is HUGE:  # slices of these small graphs
        monkeypatch.setattr(selfcheck, "evaluate_sample", partial(evaluate_sample, slice_elements=256))
    (outcome,) = compile_graphs(
        [KernelRequest(graph.name, graph)], KernelCache(folder / "kernels"), toolchain(), options
    )
    return outcome


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_found(name: str, size: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, mutate = MUTANTS[name]
    outcome = outcome_of(make(), mutate, SIZES[size], tmp_path, monkeypatch)
    assert outcome.entry is None, "the mutant passed"
    assert "self-check of" in (outcome.failure or ""), outcome.failure


@pytest.mark.parametrize("size", ["large", "huge"])
@pytest.mark.parametrize("name", MUTANTS)
def test_what_the_mutants_are_made_of_is_right(
    name: str, size: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = outcome_of(MUTANTS[name][0](), lambda text: text, SIZES[size], tmp_path, monkeypatch)
    assert outcome.entry is not None, outcome.failure


def test_an_output_that_clobbers_an_input_before_it_is_read_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right while inputs and outputs lie apart, wrong over each other."""
    graph = bias_residual(64, 48)

    def early_write(text: str) -> str:
        return first_of(text, r"( *)(#pragma omp simd\n *for \(int k)", r"\1b0[r * 48 + 47] = 0;\n\1\2")

    outcome = outcome_of(graph, early_write, SMALL, tmp_path, monkeypatch)
    assert "differs when written over an input" in (outcome.failure or "")


def root_step(size: int) -> Graph:
    """Of a variance and a decay's power: NaN for most normal inputs."""
    m = Maker("root_step")
    power, variance = m.parameter(), m.parameter(size)
    factor = m.op("sqrt", m.op("sqrt", m.op("subtract", m.constant(0.3), power)))
    return m.done(m.op("multiply", m.op("sqrt", m.op("sqrt", variance)), m.spread(factor, (size,))))


def test_inputs_on_which_little_can_be_decided_are_not_the_only_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = outcome_of(root_step(5000), lambda text: text, LARGE, tmp_path, monkeypatch)
    assert outcome.entry is not None, outcome.failure
    assert outcome.entry.metadata.check.regimes == ("normal", "mixed", "unit")


def test_pairs_in_place_are_disjoint() -> None:
    assert disjoint_pairs([(0, 1), (0, 2), (1, 1), (1, 3), (2, 3)]) == {0: 1, 1: 3}


# ---- checks side by side -------------------------------------------------------------------------------------------


def report() -> CheckReport:
    return CheckReport(True, ("normal",), 0.5, False)


def fail() -> CheckReport:
    raise CheckFailedError("normal inputs: output 0 is wrong")


def die() -> CheckReport:
    os.kill(os.getpid(), 9)
    raise AssertionError


def stumble() -> CheckReport:
    raise MemoryError("no room")


def test_checks_side_by_side_tell_what_became_of_them() -> None:
    with checkers(2) as room:
        done: list[Check[CheckReport]] = [room.start(report) for _ in range(5)]
        failed, died, stumbled = room.start(fail), room.start(die), room.start(stumble)
        assert all(check.result() == report() for check in done)
        with pytest.raises(CheckFailedError, match="output 0 is wrong"):
            failed.result()
        with pytest.raises(CheckerDiedError, match="SIGKILL"):
            died.result()
        with pytest.raises(CheckerDiedError, match="MemoryError: no room"):
            stumbled.result()
        assert room.start(report).result() == report()


def test_checks_nobody_waits_for_are_ended() -> None:
    with checkers(1) as room:
        check = room.start(lambda: os.read(os.pipe()[0], 1) and report())  # type: ignore[arg-type,return-value]
        child = check._child
    assert child
    with pytest.raises(ChildProcessError):
        os.waitpid(child, 0)


def test_a_wrong_kernel_fails_alone_among_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    render = cpu.render
    monkeypatch.setattr(
        cpu,
        "render",
        lambda loops, symbol: (
            render(loops, symbol).replace("0x1.6e4e26", "0x1.7") if loops.name == "gelu" else render(loops, symbol)
        ),
    )
    graphs = [softmax(20, 30), gelu(10, 7), bias_residual(9, 8)]
    options = CheckOptions(regimes=(Regime.NORMAL,), processes=2)
    outcomes = compile_graphs([KernelRequest(g.name, g) for g in graphs], KernelCache(tmp_path), toolchain(), options)
    assert [outcome.entry is not None for outcome in outcomes] == [True, False, True]


# ---- rare data -----------------------------------------------------------------------------------------------------


def clipped_integer() -> Graph:
    m = Maker("clipped_integer")
    x = m.parameter(40, 24)
    low, high = m.constant(-1.0, (40, 24)), m.constant(1.0, (40, 24))
    return m.done(m.convert(m.op("clamp", low, x, high), DType.S32))


def masked_gradient() -> Graph:
    """As XLA has the gradient of sqrt(relu(x)): selected, where the framework multiplies."""
    m = Maker("masked_gradient")
    x = m.parameter(40, 24)
    zero = m.constant(0.0, (40, 24))
    positive = m.op("maximum", x, zero)
    root = m.op("divide", m.constant(0.5, (40, 24)), m.op("sqrt", positive))
    return m.done(m.op("select", m.op("compare", positive, zero, direction="GT"), root, zero))


def quiet_softmax(inputs: Sequence[Array]) -> list[Array]:
    """Rows with a NaN are zeros beside it, as a vectorised exp may make of them."""
    with np.errstate(all="ignore"):
        x = np.asarray(inputs[0], np.float32)
        e = np.exp(x - np.nanmax(x, 1, keepdims=True))
        made = e / np.nansum(e, 1, keepdims=True)
        return [np.where(np.isnan(x).any(1, keepdims=True) & ~np.isnan(x), np.float32(0), made).astype(np.float32)]


def integer_of(nan: int) -> Callable[[Sequence[Array]], list[Array]]:
    def run(inputs: Sequence[Array]) -> list[Array]:
        x = np.asarray(inputs[0], np.float64)
        return [np.where(np.isnan(x), nan, np.nan_to_num(np.clip(x, -1, 1))).astype(np.int32)]

    return run


def gradient(selected: bool) -> Callable[[Sequence[Array]], list[Array]]:
    def run(inputs: Sequence[Array]) -> list[Array]:
        with np.errstate(all="ignore"):
            x = np.asarray(inputs[0], np.float32)
            positive = np.maximum(x, np.float32(0))
            root = np.float32(0.5) / np.sqrt(positive)
            mask = positive > 0
            return [np.where(mask, root, np.float32(0)) if selected else root * mask.astype(np.float32)]

    return run


HALFWAY = 2.0**64
"""The product of two such numbers is the first that f32 does not hold."""


def sum_of_overflows() -> Graph:
    m = Maker("sum_of_overflows")
    x, weights = m.parameter(40, 24), m.parameter(40, 24)
    return m.done(m.reduce(m.op("multiply", m.scaled(x, HALFWAY), m.scaled(weights, HALFWAY)), 1))


def fused(inputs: Sequence[Array]) -> list[Array]:
    """As oneDNN sums products, each rounded only with its sum: what has overflowed once stays that infinity."""
    with np.errstate(all="ignore"):
        x, weights = (np.asarray(value, np.float64) * HALFWAY for value in inputs)
        total = np.zeros(40, np.float32)
        for k in range(24):
            total = (total + x[:, k] * weights[:, k]).astype(np.float32)
        return [total]


def lost_infinity() -> Graph:
    m = Maker("lost_infinity")
    root = m.op("divide", m.constant(1.0, (40, 24)), m.op("maximum", m.parameter(40, 24), m.constant(0.0, (40, 24))))
    return m.done(m.op("subtract", root, m.scaled(root, 0.0)))


def found_infinity(inputs: Sequence[Array]) -> list[Array]:
    with np.errstate(all="ignore"):
        return [np.float32(1) / np.maximum(np.asarray(inputs[0], np.float32), np.float32(0))]


@pytest.mark.parametrize("size", ["small", "huge"])
@pytest.mark.parametrize(
    ("make", "reference", "complaint"),
    [
        (clipped_integer, integer_of(0), None),
        (clipped_integer, integer_of(-(2**31)), "missing inputs"),
        (masked_gradient, gradient(True), None),
        (masked_gradient, gradient(False), "zeros inputs|not what the framework"),
        (lambda: softmax(40, 24), quiet_softmax, None),
        (sum_of_overflows, fused, None),
        (lost_infinity, found_infinity, "zeros inputs: .* nan, the framework inf"),
    ],
)
def test_a_kernel_that_is_another_than_the_framework_on_rare_data_is_refused(
    make: Callable[[], Graph],
    reference: Callable[[Sequence[Array]], list[Array]],
    complaint: str | None,
    size: str,
    tmp_path: Path,
) -> None:
    """But a NaN may spread further than the framework's, as its documented formula has it, and where the framework's result is an
    infinity by overflow, Inf - Inf may be NaN."""
    graph = make()
    (outcome,) = compile_graphs(
        [KernelRequest(graph.name, graph, reference)], KernelCache(tmp_path), toolchain(), SIZES[size]
    )
    assert (outcome.entry is None) == (complaint is not None), outcome.failure
    if complaint is not None:
        assert re.search(complaint, outcome.failure or ""), outcome.failure


# ---- sums that cancel ----------------------------------------------------------------------------------------------


def deviations(rows: int, length: int, without_largest: bool) -> Graph:
    """The sum of all deviations from the mean, which is nothing but rounding: the gradient of a bias on which a ranking loss does not
    depend. And the squares' sum, which is not. without_largest: of what does not equal the maximum, which the oracle cannot
    decide."""
    m = Maker("deviations")
    x = m.scaled(m.parameter(rows, length), 0.7)
    if without_largest:
        largest = m.spread(m.reduce(x, 0, 1, kind="max"), (rows, length))
        is_largest = m.op("compare", x, largest, direction="EQ")
        x = m.op("select", is_largest, m.constant(0.0, (rows, length)), x)
    mean = m.op("multiply", m.reduce(x, 0, 1), m.constant(1.0 / (rows * length)))
    far = m.op("subtract", x, m.spread(mean, (rows, length)))
    return m.done(m.reduce(far, 0, 1), m.reduce(m.op("multiply", far, far), 0, 1))


def deviations_by(shift: float, without_largest: bool) -> Callable[[Sequence[Array]], list[Array]]:
    """As a framework computes them, in another order; `shift` times the sum of their sizes too much."""

    def run(inputs: Sequence[Array]) -> list[Array]:
        with np.errstate(all="ignore"):
            x = np.asarray(inputs[0], np.float32) * np.float32(0.7)
            if without_largest:
                x = np.where(x == x.max(), np.float32(0), x)
            far = x - x.sum(dtype=np.float32) * np.float32(1.0 / x.size)
            first = np.add.accumulate(far.ravel()[::-1], dtype=np.float32)[-1] + np.float32(shift) * np.abs(far).sum()
            return [np.asarray(first, np.float32), np.asarray((far * far).sum(dtype=np.float32))]

    return run


@pytest.mark.parametrize(("shift", "is_right"), [(0.0, True), (0.01, False)])
@pytest.mark.parametrize("without_largest", [False, True])
@pytest.mark.parametrize("rows", [40, 4000])
def test_a_sum_that_cancels_is_not_compared_digit_by_digit(
    shift: float, is_right: bool, rows: int, without_largest: bool, tmp_path: Path
) -> None:
    graph = deviations(rows, 24, without_largest)
    request = KernelRequest(graph.name, graph, deviations_by(shift, without_largest))
    (outcome,) = compile_graphs([request], KernelCache(tmp_path), toolchain(), SIZES["small"])
    assert (outcome.entry is not None) == is_right, outcome.failure
    if not is_right:
        assert "not what the framework computes" in (outcome.failure or "")


def test_rare_inputs_have_what_they_say() -> None:
    m = Maker("rare")
    graph = m.done(m.parameter(400, 16), m.parameter(16))
    zeros, vector = random_inputs(graph, np.random.default_rng(0), Regime.ZEROS)
    assert 0.1 < (zeros == 0).mean() < 0.3
    assert np.signbit(zeros[zeros == 0]).any()
    assert not np.isnan(zeros).any()
    assert (np.abs(zeros) == 20).any()
    missing, vector = random_inputs(graph, np.random.default_rng(0), Regime.MISSING)
    rows = np.isnan(missing).any(1)
    assert 0.15 < rows.mean() < 0.35
    assert not np.isnan(missing).all(1).any()
    assert not np.isnan(vector).any(), "one NaN of a parameter would be one in all results"
    large = Maker("large")
    (repeated,) = random_inputs(large.done(large.parameter(70_000, 32)), np.random.default_rng(0), Regime.MISSING)
    assert 0.15 < np.isnan(repeated).any(1).mean() < 0.35
    special, _ = random_inputs(graph, np.random.default_rng(0), Regime.SPECIAL)
    magnitude = np.abs(special[np.isfinite(special)])
    assert ((magnitude > 0) & (magnitude < 2.0**-126)).any(), "subnormal"


def test_what_may_pass_is_not_certain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(text: str) -> str:
        return text.replace(") {\n", ") {\n  for (volatile bool on = true; on;) {}\n", 1)

    slow = replace(SMALL, time_limit_s=0.5, regimes=(Regime.NORMAL,))
    outcome = outcome_of(gelu(10, 7), sleep, slow, tmp_path, monkeypatch)
    assert "did not end within" in (outcome.failure or "")
    assert not outcome.permanent
    monkeypatch.undo()
    wrong = outcome_of(
        gelu(10, 7), lambda text: text.replace("0x1.6e4e26", "0x1.7"), SMALL, tmp_path / "2", monkeypatch
    )
    assert wrong.entry is None
    assert wrong.permanent
