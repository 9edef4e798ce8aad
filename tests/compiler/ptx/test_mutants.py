"""Mutants of generated kernels' PTX, a few of each kind, are caught: what the checks and the oracle together can see.

Only what the kernel executes is changed: much is unrolled for lengths that these tensors do not have. Some mutants are equal to the
kernel and survive: a barrier that another one makes superfluous, a bound that no number meets. So each kind has a share that must be
caught, in all kernels together.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from stitchfleet.compiler.check.random_inputs import Regime
from stitchfleet.compiler.codegen.cuda.kernel_text import plan_for_gpu
from stitchfleet.compiler.ir.graph import Graph
from stitchfleet.compiler.toolchain import nvrtc

from .. import library
from ..emulated import SMALL
from .executable import Schedule, built, ptx_of
from .module import Label, Module, parse
from .translate import Mutant

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not nvrtc.is_installed(), reason="NVRTC makes the PTX"),
]

PLACES = 12
"""Mutants of one kind in one kernel, at most; those that are executed are tried."""
SCHEDULES = (Schedule(2, 30), Schedule(3, 3, starve=True))

KERNELS: dict[str, Callable[[], Graph]] = {
    "softmax": lambda: library.softmax(9, 300),
    "layer_norm_gradient": lambda: library.layer_norm_gradient(24, 300),
    "clip_by_global_norm": lambda: library.clip_by_global_norm([(31, 21), (101,)]),
    "crossed_rows": library.crossed_rows,
    "matrix_transpose": lambda: library.matrix_transpose(40, 23),
    "embedding_gradient": lambda: library.embedding_gradient(12, 130, 7),
}

_COMPARISON = {"lt": "le", "le": "lt", "gt": "ge", "ge": "gt"}

KINDS: dict[str, tuple[str, Callable[[re.Match[str]], str]]] = {
    "a barrier left out": (r"bar\.sync 0$", lambda m: ""),
    "warp barriers left out": (r"bar\.warp\.sync .*", lambda m: ""),
    "a fence left out": (r"membar\.gl$", lambda m: ""),
    "an arrival left out": (r"atom\.global\.add\.u32 (%r\d+), \[(%rd\d+)\], %r\d+$", lambda m: f"mov.u32 {m[1]}, 0"),
    "a shuffle of oneself": (r"shfl\.sync\.\w+\.b32 (%r\d+)\|%p\d+, (%r\d+), .*", lambda m: f"mov.b32 {m[1]}, {m[2]}"),
    "a vote of one": (r"(vote\.sync\.ballot\.b32 %r\d+), %p\d+, (.*)", lambda m: f"mov.b32 {m[1].split()[1]}, 1"),
    "a vector's elements swapped": (
        r"(st\.(?:global|shared)\.v[24]\.\w+ \[[^\]]*\]), \{(%\w+), (?!\2\b)(%\w+)(.*)\}",
        lambda m: f"{m[1]}, {{{m[3]}, {m[2]}{m[4]}}}",
    ),
    "a vector further": (
        r"(ld\.global(?:\.nc)?\.v[24]\.f32 \{.*\}), \[(%rd\d+)\]",
        lambda m: f"{m[1]}, [{m[2]}+16]",
    ),
    "a load further": (r"(ld\.global(?:\.nc)?\.f32 %f\d+), \[(%rd\d+)\]", lambda m: f"{m[1]}, [{m[2]}+4]"),
    "a store further": (r"st\.global\.f32 \[(%rd\d+)\], (%f\d+)", lambda m: f"st.global.f32 [{m[1]}+4], {m[2]}"),
    "an addend left out": (r"add\.rn\.f32 (%f\d+), (%f\d+), %f\d+", lambda m: f"mov.f32 {m[1]}, {m[2]}"),
    "a bound one off": (
        r"setp\.(lt|le|gt|ge)\.(s32|u32|s64) (.*)",
        lambda m: f"setp.{_COMPARISON[m[1]]}.{m[2]} {m[3]}",
    ),
}

TOGETHER = {"warp barriers left out"}
"""Kinds of which all places are changed at once: one often makes another superfluous."""

LEAST = {
    **dict.fromkeys(KINDS, 0.8),
    "a barrier left out": 0.4,
    "warp barriers left out": 0.5,
    "a shuffle of oneself": 0.5,
    "a vote of one": 0.3,
    "a bound one off": 0.3,
}
"""Shares. A softmax is nearly the same whatever is subtracted, and a maximum that misses some threads is as good; of most bounds the
numbers are even."""


def mutants(module: Module) -> Iterator[Mutant]:
    """At most PLACES of each kind, at random places."""
    for kind, (pattern, change) in KINDS.items():
        found = []
        for place, one in enumerate(module.statements):
            if isinstance(one, Label) or one.guard:
                continue
            match = re.fullmatch(pattern, one.text)
            if match is not None:
                found.append((place, change(match)))
        if kind in TOGETHER:
            yield from [Mutant(kind, dict(found))] if found else []
        else:
            some = random.Random(kind).sample(found, min(PLACES, len(found)))
            yield from (Mutant(kind, {place: text}) for place, text in some)


def test_most_mutants_of_each_kind_are_caught() -> None:
    made, caught, survivors = Counter[str](), Counter[str](), []
    for name, make in KERNELS.items():
        graph = make()
        kernel = plan_for_gpu(graph, SMALL, "kernel")[1]
        ptx = ptx_of(kernel)
        module = parse(ptx)
        some = list(mutants(module))
        one = built(graph, kernel, ptx, some)
        assert [one.complaint(Regime.NORMAL, schedule, 3) for schedule in SCHEDULES] == [None, None]
        for number, mutant in enumerate(some, 1):
            if not one.library.reached[number]:
                continue
            made[mutant.kind] += 1
            changed = one.mutated(number)
            if any(changed.complaint(Regime.NORMAL, schedule, 3, 1 << 22) for schedule in SCHEDULES):
                caught[mutant.kind] += 1
            else:
                survivors.append((name, mutant.kind, [module.statements[place] for place in mutant.changes]))
    assert set(made) == set(KINDS), "a kind no longer matches what NVRTC writes"
    few = {kind: f"{caught[kind]} of {made[kind]}" for kind in made if caught[kind] < LEAST[kind] * made[kind]}
    assert few == {}, survivors
