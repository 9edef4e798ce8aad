"""The emulator finds what is wrong with a generated kernel: mutants, made from the generated text and not by the generator.

Each kind is made at the first PLACES places of the text where it applies; what waits within a group do is only seen where all of them
are gone, since one often makes another superfluous.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal

import pytest

from stitchfleet.compiler.check.random_inputs import Regime
from stitchfleet.compiler.codegen.cuda.kernel_text import CudaKernel, head, plan_for_gpu
from stitchfleet.compiler.ir.graph import Graph

from ... import library
from ...cuda_emulator import build
from ...emulated import SMALL, BuiltForGpu, run_by

PLACES = 4

KERNELS: dict[str, Callable[[], Graph]] = {
    "softmax": lambda: library.softmax(9, 300),
    "layer_norm_gradient": lambda: library.layer_norm_gradient(24, 300),
    "clip_by_global_norm": lambda: library.clip_by_global_norm([(31, 21), (101,)]),
    "column_sum": lambda: library.column_sum(40, 130),
    "layer_norm_gradient_short": lambda: library.layer_norm_gradient(24, 40),
    "cross_entropy": lambda: library.cross_entropy(6, 200),
    "bias_residual": lambda: library.bias_residual(10, 80),
    "gelu": lambda: library.gelu(9, 50),
    "embedding_gradient": lambda: library.embedding_gradient(12, 130, 7),
    "crossed_rows": library.crossed_rows,
    "argmax": lambda: library.argmax(9, 300, 1, below_zero=True),
    "matrix_transpose": lambda: library.matrix_transpose(40, 23),
}


ELEMENTWISE = ("bias_residual", "gelu")
"""Fewer kinds apply: nothing is shared or waited for."""

EQUAL = {("crossed_rows", "a group left out"), ("clip_by_global_norm", "vectors at any address")}
EQUAL |= {("embedding_gradient", f"one iteration too {n}") for n in ("many", "few")}
EQUAL |= {("embedding_gradient", f"{n} that overlap") for n in ("turns", "neighbours")}
EQUAL |= {("embedding_gradient", "no waits in a group")}
"""What changes nothing: two rows are dealt to two blocks, whose second groups have none. Partial results are at an aligned address
anyway. A scatter tests whole rounds of indices; each thread adds to elements of its own, and begins with zeros, whichever element's
they are."""


def _each(pattern: str, change: Callable[[re.Match[str]], str]) -> Callable[[str], Iterator[str]]:
    def mutants(text: str) -> Iterator[str]:
        for match in list(re.finditer(pattern, text))[:PLACES]:
            yield text[: match.start()] + change(match) + text[match.end() :]

    return mutants


def _all(pattern: str, by: str) -> Callable[[str], Iterator[str]]:
    def mutants(text: str) -> Iterator[str]:
        if re.search(pattern, text):
            yield re.sub(pattern, by, text)

    return mutants


LONG_LOOP = r"(< )(\d\d\d+)(; \w+ \+= )(32|64|128|256)\) \{"
"""A distributed loop that takes every thread more than once."""

LOOP = r"(< )(\d+)(; \w+ \+= \d+\) \{)"
ROW_END = r"if \((k\w+) < (\d+)\) \{"


def _neighbours(variable: str) -> int:
    """Elements that a thread takes at once where the variable counts their firsts: with SMALL's rows of floats four at most."""
    return 4 if "_first" in variable else 1


KINDS: dict[str, Callable[[str], Iterator[str]]] = {
    "no grid barrier": _each(r"  stitch_grid_barrier\(semaphore\);\n", lambda m: ""),
    "no waits in a group": _all(r" *stitch_group_sync<\d+>\(\);\n", ""),
    "no wait before groups are added up": _each(r"__syncthreads\(\);\n( *if \(group <)", lambda m: m[1]),
    "a group left out": _each(
        r"distance = (\d+); distance > 0", lambda m: f"distance = {int(m[1]) // 2}; distance > 0"
    ),
    "a load one further": _each(r"(= b\d+)\[([^\]]+)\];", lambda m: f"{m[1]}[{m[2]} + 1];"),
    "a vector one further": _each(
        r"(NEIGHBOURS\([^;]*b\d+, [^,;]+)(, stored\d+)?(, \w+\);)", lambda m: f"{m[1]} + 1{m[2] or ''}{m[3]}"
    ),
    "a vector's last element left out": _each(r"element < (\d+);", lambda m: f"element < {int(m[1]) - 1};"),
    "vectors at any address": _each(r"(const bool aligned = )\(\(unsigned[^;?]*", lambda m: f"{m[1]}true"),
    "a store one further": _each(r"(\n\s+b\d+)\[([^\]]+)\] = ", lambda m: f"{m[1]}[{m[2]} + 1] = "),
    "one iteration too many": _each(LOOP, lambda m: f"{m[1]}{int(m[2]) + _neighbours(m[3])}{m[3]}"),
    "one iteration too few": _each(LOOP, lambda m: f"{m[1]}{int(m[2]) - _neighbours(m[3])}{m[3]}"),
    "a stride too long": _each(LONG_LOOP, lambda m: f"{m[1]}{m[2]}{m[3]}{int(m[4]) * 2}) {{"),
    "a turn left out": _each(r"(_turn < )(\d+); ", lambda m: f"{m[1]}{int(m[2]) - 1}; "),
    "a search that begins too late": _each(r"(_base = )r;", lambda m: f"{m[1]}r + 1;"),
    "a search past its end": _each(r"\(p_there & ", lambda m: "("),
    "a vote of the wrong turn": _each(r"_hits >> p_turn & 1", lambda m: "_hits >> p_turn + 1 & 1"),
    "a row's end one too far": _each(ROW_END, lambda m: f"if ({m[1]} < {int(m[2]) + _neighbours(m[1])}) {{"),
    "a row's end one too near": _each(ROW_END, lambda m: f"if ({m[1]} < {int(m[2]) - _neighbours(m[1])}) {{"),
    "turns that overlap": _each(r"(= \(?thread \+ \w+_turn \* )(\d+)(\)|;)", lambda m: f"{m[1]}{int(m[2]) // 2}{m[3]}"),
    "neighbours that overlap": _each(
        r"(_first = (?:thread|\([^)]*\)) \* )(\d+);", lambda m: f"{m[1]}{int(m[2]) // 2};"
    ),
    "a register for two": _each(r"(_turn \* )(\d+)( \+ element\])", lambda m: f"{m[1]}{int(m[2]) - 1}{m[3]}"),
    "a task's first row left out": _each(r"(for \(\w+ \w+ = first_row)\b", lambda m: f"{m[1]} + 1"),
    "a scheme's combine swapped": _each(r"return \(float\)\(\(a \+ b\)\);", lambda m: "return (float)((a - b));"),
    "a group's lanes apart": _each(r"stitch_group_reduce<(\d+)>", lambda m: f"stitch_group_reduce<{int(m[1]) // 2}>"),
    "every thread stores": _all(r"if \(thread == 0\) (\w+\[)", r"\1"),
    "work left out": _each(r"work < (?!1;|2;)(\d+); work \+= gridDim", lambda m: f"work < {m[1]}; work += 2 * gridDim"),
}


UNSET: tuple[Literal["pattern"], Literal["zero"]] = ("pattern", "zero")


@pytest.mark.costly
@pytest.mark.parametrize("name", KERNELS)
def test_every_mutant_of_a_generated_kernel_is_caught(name: str) -> None:
    graph = KERNELS[name]()
    kernel = plan_for_gpu(graph, SMALL, "kernel")[1]
    kinds = {kind: make for kind, make in KINDS.items() if (name, kind) not in EQUAL}
    mutants = [(kind, text) for kind, make in kinds.items() for text in make(kernel.text)]
    assert len({kind for kind, _ in mutants}) >= (4 if name in ELEMENTWISE else 6), (
        "the kinds no longer match the generated text"
    )
    assert all(text != kernel.text for _, text in mutants)
    # What reads a register that was never set may be right by chance: exp of the pattern is 0, and so may the right answer be.
    for unset in UNSET:
        mutants = [mutant for mutant, built in _built(graph, kernel, mutants, unset) if _passes(built)]
    assert [kind for kind, _ in mutants] == []


def test_every_kind_of_mutant_is_made_of_some_kernel() -> None:
    """A kind whose pattern no longer matches the generated text would be caught nowhere and missed by nobody."""
    texts = [plan_for_gpu(make(), SMALL, "kernel")[1].text for make in KERNELS.values()]
    assert [kind for kind, make in KINDS.items() if not any(any(make(text)) for text in texts)] == []


def _passes(one: BuiltForGpu) -> bool:
    return all(one.complaint(Regime.NORMAL, seed, most_blocks=2) is None for seed in (3, 4))


def _built(
    graph: Graph, kernel: CudaKernel, mutants: list[tuple[str, str]], unset: Literal["pattern", "zero"]
) -> Iterator[tuple[tuple[str, str], BuiltForGpu]]:
    """The mutants, each with its kernel, whose registers hold `unset` before they are set."""
    if not mutants:
        return
    named = [
        replace(kernel, symbol=f"mutant{number}", text=re.sub(r"\bkernel", f"mutant{number}", text))
        for number, (_, text) in enumerate(mutants)
    ]
    source = "\n".join([head(), *(one.text for one in named)])
    emulated = build(source, "\n".join(run_by(one) for one in named), unset)
    for mutant, one in zip(mutants, named, strict=True):
        yield mutant, BuiltForGpu(graph, one, emulated, f"run_{one.symbol}")
