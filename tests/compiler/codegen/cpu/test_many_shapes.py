"""One binary for many shapes: it runs, number by number, what the generator writes for each shape, and no shape that it does
not serve gets it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stitchfleet.compiler.check.random_inputs import Regime
from stitchfleet.compiler.check.selfcheck import CheckOptions
from stitchfleet.compiler.codegen.cpu import many_shapes
from stitchfleet.compiler.codegen.cpu.kernel_text import render
from stitchfleet.compiler.codegen.cpu.many_shapes import NEUTRAL, STATIC_SHAPES, ShapedText, Template
from stitchfleet.compiler.ir.graph import Graph
from stitchfleet.compiler.kernel.cache import KernelCache
from stitchfleet.compiler.lowering.kernel_loops import lower
from stitchfleet.compiler.pipeline import cpu
from stitchfleet.compiler.pipeline.backend import CompileOutcome, KernelRequest
from stitchfleet.compiler.pipeline.cpu import compile_graphs
from stitchfleet.compiler.planning.plan import plan_graph
from stitchfleet.compiler.toolchain.host import ToolchainError

from ....marks import slow
from ... import library
from ...library import Maker
from ...native import Built, KeptToolchain, complaint, toolchain

pytestmark = pytest.mark.usefixtures("kept_kernels")

QUICK = CheckOptions(regimes=(Regime.NORMAL,))


def mean_and_centre(batch: int, length: int) -> Graph:
    """A mean over the length, whose reciprocal is a number of the text, and what depends on the position."""
    m = Maker("mean_and_centre")
    x = m.parameter(batch, length, 24)
    mean = m.scaled(m.reduce(x, 1), 1.0 / length)
    place = m.convert(m.iota(1, (batch, length, 24)), m.builder.nodes[x].dtype)
    return m.done(m.op("subtract", m.op("add", x, place), m.spread(mean, (batch, length, 24), 0, 2)), mean)


def divided_by_its_shape(rows: int) -> Graph:
    """Rows divided by an array of constants that holds their number, as the gradient of a mean over them does."""
    m = Maker("divided_by_its_shape")
    x = m.parameter(rows, 4)
    shape = m.convert(m.constant(np.array([rows, 4, rows * 4, 1], np.int32)), m.builder.nodes[x].dtype)
    return m.done(m.op("divide", x, m.spread(shape, (rows, 4), 1)))


FAMILIES: dict[str, Callable[[int], Graph]] = {
    "rows of layer norm": lambda n: library.layer_norm(8 * n, 48),
    "its gradient": lambda n: library.layer_norm_gradient(4 * n, 48),
    "softmax as long as n": lambda n: library.softmax(40, n),
    "attention as long as n": lambda n: library.masked_softmax(3, 2, n),
    "heads apart": lambda n: library.attention_heads(3, n, 4, 8),
    "attention pool": lambda n: library.attention_pool(4, n, 8),
    "cross-entropy": lambda n: library.cross_entropy(4 * n, 100),
    "mean and centre": lambda n: mean_and_centre(3, n),
    "embedding's gradient": lambda n: library.embedding_gradient(4 * n, 16, 50),
    "drawn dropout": lambda n: library.drawn_dropout(4 * n, 24),
    "drawn dropout as long as n": lambda n: library.drawn_dropout(12, n),
    "a column sum": lambda n: library.column_sum(16 * n, 32),
    "running sums as long as n": lambda n: library.cumulative((40, 8 * n), 1),
    "running sums down n rows": lambda n: library.cumulative((2, 8 * n, 24), 1, exclusive=True),
    "divided by its shape": lambda n: divided_by_its_shape(4 * n),
}
AT_ALL_TIMES = (
    "rows of layer norm",
    "its gradient",
    "softmax as long as n",
    "cross-entropy",
    "embedding's gradient",
    "a column sum",
    "running sums as long as n",
)
"""The others take `scripts/test --all`."""


def shaped(graph: Graph) -> ShapedText:
    return ShapedText.of(render(lower(plan_graph(graph)), NEUTRAL, len(graph.parameters)))


def compiled(graph: Graph, cache: KernelCache, check: CheckOptions = QUICK) -> CompileOutcome:
    (outcome,) = compile_graphs([KernelRequest(graph.name, graph, cluster="cluster")], cache, toolchain(), check)
    return outcome


def check_by_oracle(outcome: CompileOutcome, graph: Graph) -> None:
    assert outcome.entry is not None, outcome.failure
    built = Built(graph, outcome.entry.library, outcome.entry.metadata)
    for regime in (Regime.NORMAL, Regime.MIXED):
        assert complaint(built, regime, seed=3) is None


def four_shapes_have_binaries_of_their_own(cache: KernelCache) -> None:
    for rows in (200, 210, 220, 230):
        graph = library.softmax(rows, 40)
        outcome = compiled(graph, cache)
        check_by_oracle(outcome, graph)
        assert outcome.entry is not None
        assert not outcome.entry.metadata.parameters


@pytest.fixture
def cache(tmp_path: Path) -> KernelCache:
    return KernelCache(tmp_path / "kernels")


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sources given to the compiler."""
    found: list[str] = []
    build = KeptToolchain.build

    def counted(self: KeptToolchain, source: Path, output: Path) -> None:
        found.append(source.read_text())
        build(self, source, output)

    monkeypatch.setattr(KeptToolchain, "build", counted)
    return found


@pytest.mark.costly
@pytest.mark.parametrize("name", [name if name in AT_ALL_TIMES else slow(name) for name in FAMILIES])
def test_shapes_share_a_binary_and_each_agrees_with_the_oracle(
    name: str, cache: KernelCache, builds: list[str]
) -> None:
    lengths = [33, 35, 47, 53, 60, 36, 41, 39]
    libraries = set()
    for length in lengths:
        graph = FAMILIES[name](length)
        outcome = compiled(graph, cache)
        check_by_oracle(outcome, graph)
        assert outcome.entry is not None
        libraries.add(outcome.entry.library)
    assert len(builds) == len(libraries) < len(lengths)
    assert outcome.entry is not None
    assert outcome.entry.metadata.parameters


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(sorted(FAMILIES)), st.lists(st.integers(1, 130), min_size=5, max_size=8, unique=True))
def test_what_a_binary_runs_at_a_shape_is_what_the_generator_writes_for_it(name: str, lengths: list[int]) -> None:
    """The template's text with its parameters put in is the text of that shape, but for the sizes of locals."""
    texts: dict[str, list[ShapedText]] = {}
    for length in lengths:
        one = shaped(FAMILIES[name](length))
        texts.setdefault(one.skeleton, []).append(one)
    for skeleton, members in texts.items():
        template = Template(skeleton, tuple(dict.fromkeys(member.numbers for member in members[:3])))
        text = template.text("kernel")
        for member in members:
            words = template.parameters(member.numbers)
            if words is None:
                assert member not in members[:3]
                continue
            assert put_in(text, words) == bare(alone(member))


def put_in(text: str, words: tuple[int, ...]) -> tuple[str, ...]:
    """The numbers of a template's text with its declarations taken out and each parameter in its place, as numbers."""
    kinds = {slot: ctype for ctype, slot in re.findall(r"const ([a-z ]+) (p\d+) = ", text)}
    body = re.sub(r"const [a-z ]+ p\d+ = [^;]*;\s*", "", text)

    def number(match: re.Match[str]) -> str:
        slot = int(match.group(1))
        ctype, word = kinds[match.group()], words[slot]
        if ctype in ("float", "double"):
            value = np.array([word], np.int64).view(np.float64)[0]
            return f"{float(value).hex()}{'f' if ctype == 'float' else ''}"
        return str(word) + ("ull" if ctype.startswith("unsigned") else "")

    filled = re.sub(r"\bp(\d+)\b", number, body)
    return bare(filled)


def bare(text: str) -> tuple[str, ...]:
    """The numbers of a text but for the sizes of locals; long ones without their suffix, which the declaration has."""
    without = re.sub(r"(\w+ \w+)\[\(\d+\)\];", r"\1[];", text)
    return tuple(re.sub(r"(?<!u)ll$", "", number) for number in ShapedText.of(without).numbers)


def alone(text: ShapedText) -> str:
    """The text of one shape again."""
    return Template(text.skeleton, (text.numbers,)).text("kernel")


@pytest.mark.slow
def test_fuzzed_shapes_of_one_kernel(cache: KernelCache, builds: list[str]) -> None:
    """Batch and length both change: some thirty shapes, a few binaries, every result by the oracle."""
    rng = np.random.default_rng(11)
    for _ in range(30):
        graph = mean_and_centre(int(rng.integers(1, 12)), int(rng.integers(20, 90)))
        check_by_oracle(compiled(graph, cache), graph)
    assert len(builds) <= 18


@pytest.mark.slow
def test_a_shape_that_needs_more_room_makes_a_new_binary(cache: KernelCache, builds: list[str]) -> None:
    for length in (70, 75, 83, 100):
        compiled(library.softmax(40, length), cache)
    before = len(builds)
    longer = library.softmax(40, 141)
    check_by_oracle(compiled(longer, cache), longer)
    assert len(builds) == before + 1
    assert "[(256)]" in builds[-1]


def test_a_number_that_was_the_same_so_far_becomes_a_parameter_when_it_differs(
    cache: KernelCache, builds: list[str]
) -> None:
    for rows in (200, 210, 220, 230):
        compiled(library.softmax(rows, 40), cache)
    before = len(builds)
    for rows, length in ((240, 41), (250, 43), (260, 44)):
        graph = library.softmax(rows, length)
        check_by_oracle(compiled(graph, cache), graph)
    assert before < len(builds) <= before + 2


def test_the_first_shapes_have_binaries_of_their_own(cache: KernelCache) -> None:
    for number, rows in enumerate((200, 210, 220)):
        outcome = compiled(library.softmax(rows, 40), cache)
        assert outcome.entry is not None
        assert bool(outcome.entry.metadata.parameters) == (number >= STATIC_SHAPES)


def test_without_a_cluster_every_shape_has_its_own_binary(cache: KernelCache) -> None:
    for rows in (200, 210, 220, 230):
        (outcome,) = compile_graphs([KernelRequest("softmax", library.softmax(rows, 40))], cache, toolchain(), QUICK)
        assert outcome.entry is not None
        assert not outcome.entry.metadata.parameters


def test_a_text_that_does_not_compile_for_many_shapes_costs_only_that(
    cache: KernelCache, builds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    build = KeptToolchain.build

    def refuse(self: KeptToolchain, source: Path, output: Path) -> None:
        if "parameters[" in source.read_text():
            raise ToolchainError("no, thank you")
        build(self, source, output)

    monkeypatch.setattr(KeptToolchain, "build", refuse)
    four_shapes_have_binaries_of_their_own(cache)
    (family,) = (cache.directory / "families").glob("??/*")
    assert "no, thank you" in json.loads(family.read_text())["refused"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["softmax as long as n", slow("mean and centre")])
def test_rows_of_all_widths_share_binaries_that_compile(name: str, cache: KernelCache) -> None:
    """As many lanes are folded as a row is long enough for: 4, 8, 16 and 32 of them here."""
    for length in (5, 6, 7, 9, 10, 11, 13, 18, 20, 21, 22, 23, 37, 38, 39, 41, 70, 71, 73, 74, 141, 142, 143, 145):
        assert compiled(FAMILIES[name](length), cache).entry is not None
    families = [json.loads(family.read_text()) for family in (cache.directory / "families").glob("??/*")]
    assert [family["refused"] for family in families] == [""] * len(families)
    assert sum(bool(family["entry"]) for family in families) >= 3


def test_a_binary_that_is_wrong_at_a_shape_is_not_used_for_many(
    cache: KernelCache, builds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by the self-check, on the first shapes that are given to it."""
    text = Template.text
    wrong = "const int p0 = (int)parameters[0] - 1;"
    monkeypatch.setattr(
        Template, "text", lambda self, symbol: text(self, symbol).replace("const int p0 = (int)parameters[0];", wrong)
    )
    four_shapes_have_binaries_of_their_own(cache)
    assert sum(wrong in source for source in builds) == 1


def test_a_family_that_cannot_be_read_is_begun_again(cache: KernelCache) -> None:
    for rows in (200, 210, 220):
        compiled(library.softmax(rows, 40), cache)
    for path in (cache.directory / "families").glob("??/*"):
        path.write_text("[1, 2")
    graph = library.softmax(230, 40)
    check_by_oracle(compiled(graph, cache), graph)


def test_a_binary_that_left_the_cache_is_built_again(cache: KernelCache, builds: list[str]) -> None:
    for rows in (200, 210, 220, 230):
        outcome = compiled(library.softmax(rows, 40), cache)
    assert outcome.entry is not None
    outcome.entry.library.write_bytes(b"damaged")
    before = len(builds)
    graph = library.softmax(240, 40)
    check_by_oracle(compiled(graph, cache), graph)
    assert len(builds) == before + 1


def test_shapes_after_the_first_few_are_neither_compiled_nor_checked(
    cache: KernelCache, builds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for rows in (200, 210, 220, 230, 240):
        compiled(library.softmax(rows, 40), cache)
    monkeypatch.setattr(KeptToolchain, "build", lambda *_: pytest.fail("built"))
    monkeypatch.setattr(cpu, "check_part", lambda *_: pytest.fail("checked"))
    graph = library.softmax(250, 40)
    check_by_oracle(compiled(graph, cache), graph)


def test_numbers_of_every_kind_go_through_the_parameters() -> None:
    text = f"""static void f() {{
  {many_shapes.PARAMETERS}
  int a[{many_shapes.CAPACITY}(3)]; use(%s, %s, %s, %s, %s, b12, 0x1full);
}}"""
    shapes = [
        ("7", "7ll", "18446744073709551615ull", "0x1.8000000000000p+0f", "0x1.999999999999ap-4"),
        ("8", "9ll", "5ull", "0x1.0000000000000p-1f", "0x1.0000000000000p+3"),
    ]
    texts = [ShapedText.of(text % shape) for shape in shapes]
    template = Template(texts[0].skeleton, tuple(one.numbers for one in texts))
    written = template.text("kernel")
    for ctype in ("int", "long long", "unsigned long long", "float", "double"):
        assert re.search(rf"const {ctype} p\d = ", written), written
    assert "int a[(3)];" in written
    assert "b12, 0x1full" in written
    words = template.parameters(texts[0].numbers)
    assert words is not None
    assert sorted(words)[:2] == [-1, 7]
    floats = np.array(words, np.int64).view(np.float64)
    assert 1.5 in floats
    assert float.fromhex("0x1.999999999999ap-4") in floats
    assert template.parameters((*texts[0].numbers[:-1], "0x1.8p+0f")) is not None
    assert template.parameters(texts[0].numbers[:-1]) is None


def test_two_places_that_were_equal_by_chance_are_told_apart_later() -> None:
    skeleton = "f\x01i\x01i"
    template = Template(skeleton, (("3", "3"), ("4", "4")))
    assert template.parameters(("5", "5")) == (5,)
    assert template.parameters(("5", "6")) is None
    assert len(Template(skeleton, (("3", "3"), ("4", "4"), ("5", "6"))).parameters(("7", "8")) or ()) == 2
