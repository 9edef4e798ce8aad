"""From graphs to checked kernels: nothing wrong gets out, and nothing that fails costs more than itself."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stitchfleet.compiler.check.random_inputs import Regime
from stitchfleet.compiler.check.selfcheck import CheckFailedError, CheckOptions, run_apart
from stitchfleet.compiler.ir.graph import Array, DType, Graph
from stitchfleet.compiler.kernel.cache import KernelCache
from stitchfleet.compiler.ops.interpreter import evaluate
from stitchfleet.compiler.pipeline import backend, cpu
from stitchfleet.compiler.pipeline.backend import CompileOutcome, KernelRequest
from stitchfleet.compiler.pipeline.cpu import compile_graphs, entry_key, identity
from stitchfleet.compiler.support.free_memory import free_bytes
from stitchfleet.compiler.toolchain.host import Toolchain

from ...broken_kernels.broken_kernels import break_kernels
from ..library import Maker, bias_residual, gelu, softmax
from ..native import toolchain

pytestmark = pytest.mark.usefixtures("kept_kernels")

QUICK = CheckOptions(regimes=(Regime.NORMAL,))


@pytest.fixture
def cache(tmp_path: Path) -> KernelCache:
    return KernelCache(tmp_path / "kernels")


def compiled(graphs: Sequence[Graph], cache: KernelCache, check: CheckOptions = QUICK) -> list[CompileOutcome]:
    return compile_graphs([KernelRequest(graph.name, graph) for graph in graphs], cache, toolchain(), check)


def test_kernels_come_out_checked_and_are_found_again(cache: KernelCache, monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = [softmax(20, 30), gelu(10, 7), bias_residual(9, 8)]
    first = compiled(graphs, cache)
    for graph, outcome in zip(graphs, first, strict=True):
        assert outcome.entry is not None, outcome.failure
        metadata = outcome.entry.metadata
        assert metadata.check.checked
        assert metadata.graph_digest == graph.digest
        assert metadata.op_count > 0
        assert metadata.bytes_written == sum(graph.nodes[i].size_bytes for i in graph.outputs)
    monkeypatch.setattr(Toolchain, "build", lambda *_: pytest.fail("built again"))
    assert [outcome.entry for outcome in compiled(graphs, cache)] == [outcome.entry for outcome in first]


def test_a_graph_that_cannot_be_planned_fails_alone(cache: KernelCache, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = gelu(6, 5), gelu(5, 6)
    plan_graph = cpu.plan_graph

    def plan(graph: Graph, target: object) -> object:
        if graph is bad:
            raise RuntimeError("no plan\nfor this one")
        return plan_graph(graph)

    monkeypatch.setattr(cpu, "plan_graph", plan)
    fine, failed = compiled([good, bad], cache)
    assert fine.entry is not None
    assert failed.failure == "cannot plan gelu: RuntimeError: no plan for this one"


def test_a_kernel_that_is_too_large_to_check_beside_the_job_is_not_made(
    cache: KernelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "free_bytes", lambda: 1 << 20)
    fine, refused = compiled([gelu(6, 5), gelu(300, 400)], cache)
    assert fine.entry is not None
    assert refused.entry is None
    assert not refused.permanent  # there may be more memory next time
    assert refused.failure.startswith("checking its kernel would take ")
    monkeypatch.undo()
    (made,) = compiled([gelu(300, 400)], cache)
    assert made.entry is not None
    monkeypatch.setattr(cpu, "free_bytes", lambda: 1 << 20)
    assert compiled([gelu(300, 400)], cache)[0].entry == made.entry  # it was checked before


def test_free_memory_is_the_least_of_what_machine_and_control_group_leave(tmp_path: Path) -> None:
    meminfo, groups = tmp_path / "meminfo", tmp_path / "groups"
    groups.mkdir()
    assert free_bytes(meminfo, groups) is None
    meminfo.write_text("MemTotal:       24000 kB\nMemAvailable:    1000 kB\n")
    assert free_bytes(meminfo, groups) == 1000 * 1024
    (groups / "memory.max").write_text("max\n")
    assert free_bytes(meminfo, groups) == 1000 * 1024
    (groups / "memory.max").write_text("500000\n")
    (groups / "memory.current").write_text("200000\n")
    assert free_bytes(meminfo, groups) == 300_000
    (groups / "memory.current").write_text("600000\n")
    assert free_bytes(meminfo, groups) == 0


def test_a_kernel_that_does_not_compile_fails_alone(cache: KernelCache, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = gelu(6, 5), bias_residual(5, 6)
    render = cpu.render
    monkeypatch.setattr(
        cpu, "render", lambda loops, symbol: "nonsense;" if loops.name == bad.name else render(loops, symbol)
    )
    fine, failed = compiled([good, bad], cache)
    assert fine.entry is not None
    assert failed.entry is None
    assert "nonsense" in (failed.failure or "")
    assert failed.permanent, "the same compiler says the same of it"


def test_without_a_compiler_each_request_fails_with_one_line(
    cache: KernelCache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    (outcome,) = compile_graphs([KernelRequest("gelu", gelu(3, 3))], cache)
    assert "no C++ compiler" in (outcome.failure or "")
    assert not outcome.permanent
    assert identity()  # asking does not raise


@pytest.mark.parametrize("kind", ["add_one_output", "rare"])
def test_a_kernel_made_wrong_on_purpose_is_caught(
    cache: KernelCache, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    key = entry_key(gelu(8, 9), toolchain())
    break_kernels(cpu, kind, patch=monkeypatch.setattr)
    assert cpu.entry_key(gelu(8, 9), toolchain()) != key  # a broken kernel is never taken for a right one
    regimes = (Regime.NORMAL,) if kind == "add_one_output" else (Regime.NORMAL, Regime.HUGE)
    (outcome,) = compiled([gelu(8, 9)], cache, CheckOptions(regimes=regimes))
    assert outcome.entry is None
    assert "self-check of gelu failed" in (outcome.failure or "")


def test_the_rare_fault_needs_rare_data(cache: KernelCache, monkeypatch: pytest.MonkeyPatch) -> None:
    break_kernels(cpu, "rare", unchecked=True, patch=monkeypatch.setattr)
    graph = bias_residual(4, 4)
    (outcome,) = compile_graphs([KernelRequest("bias", graph)], cache, toolchain())
    assert outcome.entry is not None
    assert not outcome.entry.metadata.check.checked
    inputs = [np.ones(t.shape, t.numpy) for t in outcome.entry.metadata.inputs]
    from stitchfleet.compiler.kernel.host_kernel import LoadedKernel

    kernel = LoadedKernel(outcome.entry.library, outcome.entry.metadata)
    right = evaluate(graph, inputs)[0]
    assert (kernel.run(inputs)[0] == right).all()
    inputs[0][2, 2] = 20_000
    right = evaluate(graph, inputs)[0]
    assert kernel.run(inputs)[0][0, 0] == right[0, 0] * 1.5 + 1


def test_a_framework_that_computes_something_else_is_noticed(cache: KernelCache) -> None:
    graph = gelu(30, 30)

    def other(inputs: Sequence[Array]) -> list[Array]:
        return [np.asarray(evaluate(graph, inputs)[0] * np.float32(1.5))]

    (outcome,) = compile_graphs([KernelRequest("gelu", graph, other)], cache, toolchain(), QUICK)
    assert "is not what the framework computes" in (outcome.failure or "")

    same = KernelRequest("gelu", graph, lambda inputs: evaluate(graph, inputs))
    (outcome,) = compile_graphs([same], cache, toolchain(), QUICK)
    assert outcome.entry is not None
    assert outcome.entry.metadata.check.against_reference


@pytest.mark.parametrize("is_right_elsewhere", [True, False])
def test_a_framework_with_other_numbers_where_there_is_no_valid_one(
    cache: KernelCache, is_right_elsewhere: bool
) -> None:
    """Its fused operators make zeros of NaN (a batch normalization with an activation, of a variance below zero)."""
    m = Maker("root")
    graph = m.done(m.op("sqrt", m.parameter(40, 40)))

    def zeros_for_nan(inputs: Sequence[Array]) -> list[Array]:
        (right,) = evaluate(graph, inputs)
        return [np.asarray(np.nan_to_num(right) if is_right_elsewhere else np.zeros_like(right))]

    (outcome,) = compile_graphs([KernelRequest("root", graph, zeros_for_nan)], cache, toolchain(), QUICK)
    assert (outcome.entry is not None) == is_right_elsewhere, outcome.failure

    def nan_for_all(inputs: Sequence[Array]) -> list[Array]:
        return [np.asarray(np.full_like(evaluate(graph, inputs)[0], np.nan))]

    m = Maker("wider_root")
    graph = m.done(m.op("sqrt", m.parameter(40, 41)))
    (outcome,) = compile_graphs([KernelRequest("root", graph, nan_for_all)], cache, toolchain(), QUICK)
    assert "is not what the framework computes" in (outcome.failure or "")


CRASHES = {
    "crashed with SIGSEGV": "*(volatile int*)0 = 1;",
    "did not end within": "for (volatile int i = 0; i < 1; i = 0) {}",
}


@pytest.mark.parametrize("what", CRASHES)
def test_a_crash_or_a_hang_costs_a_child_only(cache: KernelCache, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    render = cpu.render

    def crashing(loops: object, symbol: str) -> str:
        text = render(loops, symbol)  # type: ignore[arg-type]
        end = text.rindex("}")
        return text[:end] + CRASHES[what] + text[end:]

    monkeypatch.setattr(cpu, "render", crashing)
    limit_s = 0.5 if what == "did not end within" else 60.0  # a crash takes a busy machine more than half a second
    (outcome,) = compiled([gelu(3, 4)], cache, replace(QUICK, time_limit_s=limit_s))
    assert what in (outcome.failure or "")


def test_an_element_never_written_is_seen(cache: KernelCache) -> None:
    (outcome,) = compiled([gelu(4, 4)], cache)
    assert outcome.entry is not None
    larger = replace(outcome.entry.metadata, outputs=(replace(outcome.entry.metadata.outputs[0], shape=(5, 4)),))
    (result,) = run_apart(outcome.entry.library, larger, [np.zeros((4, 4), np.float32)], 1, False, 5.0)
    assert (result[4].view(np.uint8) == 0xA5).all()


def test_a_missing_symbol_is_reported(cache: KernelCache) -> None:
    (outcome,) = compiled([gelu(4, 5)], cache)
    assert outcome.entry is not None
    other = replace(outcome.entry.metadata, symbol="no_such_kernel")
    with pytest.raises(CheckFailedError, match="no_such_kernel"):
        run_apart(outcome.entry.library, other, [np.zeros((4, 5), np.float32)], 1, False, 5.0)


def test_a_kernel_exports_nothing_but_its_entry(cache: KernelCache) -> None:
    (outcome,) = compiled([softmax(8, 41)], cache)
    assert outcome.entry is not None
    library = ctypes.CDLL(str(outcome.entry.library))
    assert hasattr(library, outcome.entry.metadata.symbol)
    assert not hasattr(library, f"{outcome.entry.metadata.symbol}_nest0")


def test_graphs_of_constants_and_forwarded_parameters_are_kernels_too(cache: KernelCache) -> None:
    m = Maker("forwarded")
    x = m.parameter(3, 4)
    m.parameter(2)
    table = m.op("constant", literal=_literal(np.arange(600, dtype=np.float32).reshape(20, 30)))
    graph = m.done(x, x, table, m.constant(7, (2, 2), DType.S32))
    (outcome,) = compiled([graph], cache, CheckOptions())
    assert outcome.entry is not None, outcome.failure


def _literal(value: Array) -> object:
    from stitchfleet.compiler.ir.graph import Literal

    return Literal(value)


COMPILER = Path(backend.__file__).parents[1]


def test_a_kernel_s_key_covers_what_makes_and_checks_it_and_nothing_else(tmp_path: Path) -> None:
    copy = tmp_path / "compiler"
    shutil.copytree(COMPILER, copy, ignore=shutil.ignore_patterns("__pycache__"))
    before = backend.sources_digest(copy)
    assert before == backend.generator_version()
    for path in sorted(path for path in copy.rglob("*") if path.suffix in (".py", ".h", ".c", ".def")):
        text = path.read_bytes()
        path.write_bytes(text + b"\n")
        is_part = path.relative_to(copy).parts[0] not in backend.NO_PART_OF_A_KERNEL
        assert (backend.sources_digest(copy) != before) == is_part, path
        path.write_bytes(text)
    assert backend.sources_digest(copy) == before
