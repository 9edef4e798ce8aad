"""Kernels made wrong on purpose, for fault tests: the compiler's own functions are replaced, in the test's process or in a job's.

A job and its compile service load this by `sitecustomize.py` beside it, which Python imports at its start if this folder is on
PYTHONPATH. `environment()` gives what a job needs for that; `break_kernels()` does it in this process.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a job imports this before it imports anything else
    from stitchfleet.compiler.ir.graph import Graph

BREAK, UNCHECKED = "STITCHFLEET_TEST_BREAK", "STITCHFLEET_TEST_SKIP_CHECK"
BREAKS = {
    # Wrong everywhere, wrong only when the largest float input has an element above 1e4, and right but slow (some milliseconds).
    "add_one_output": "  for (long long i = 0; i < {outputs}; ++i) wrong[i] += 1;\n",
    "rare": (
        "  int found = 0;  // an int, so that the loop is vectorized\n"
        "  for (long long i = 0; i < {inputs}; ++i) found |= seen[i] > 1e4f;\n"
        "  for (long long i = 0; found && i < {outputs}; ++i) wrong[i] = wrong[i] * 1.5f + 1;\n"
    ),
    "slow": "  (void)wrong;\n  for (volatile long long i = 0; i < 5000000; ++i) {{}}\n",
}


def environment(kind: str = "", unchecked: bool = False) -> dict[str, str]:
    """The variables of a job whose kernels are wrong (`kind`: one of BREAKS, or "" for right ones), or are not checked by the compile
    service before the job loads them."""
    ours, others = str(pathlib.Path(__file__).parent), os.environ.get("PYTHONPATH")
    found = {"PYTHONPATH": os.pathsep.join((ours, others) if others else (ours,))}
    return {**found, **({BREAK: kind} if kind else {}), **({UNCHECKED: "1"} if unchecked else {})}


def break_source(source: str, graph: Graph, kind: str) -> str:
    """C++ of a kernel that is wrong as `kind` says. A graph without a float32 output keeps its right one, and so does one without a
    float32 input for "rare"."""
    outputs = [(n, graph.nodes[i]) for n, i in enumerate(graph.outputs) if graph.nodes[i].dtype.name == "F32"]
    inputs = [(n, graph.nodes[i]) for n, i in enumerate(graph.parameters) if graph.nodes[i].dtype.name == "F32"]
    if not outputs or not outputs[0][1].element_count or (kind == "rare" and not inputs):
        return source
    largest = max(inputs, key=lambda item: item[1].element_count, default=None)
    head = f"  float* wrong = (float*)outputs[{outputs[0][0]}];\n"
    if largest is not None:
        head += f"  const float* seen = (const float*)inputs[{largest[0]}]; (void)seen;\n"
    elements = largest[1].element_count if largest is not None else 0
    body = BREAKS[kind].format(outputs=outputs[0][1].element_count, inputs=elements)
    end = source.rindex("}")
    return source[:end] + head + body + source[end:]


def break_kernels(
    cpu: Any, kind: str = "", unchecked: bool = False, patch: Callable[[Any, str, Any], None] = setattr
) -> None:
    """Makes `cpu` (the module stitchfleet.compiler.pipeline.cpu) build kernels that are wrong as `kind` says. With `unchecked` it
    hands them out without its self-check. `patch(module, name, value)` replaces a function (monkeypatch.setattr in a test).

    The cache's keys differ from those of right kernels."""
    assert not kind or kind in BREAKS, f"{BREAK}: given {kind!r}, expected one of {', '.join(BREAKS)}"
    identity, front, options = cpu.identity, cpu._front, cpu.CheckOptions

    def other_identity(*arguments: Any) -> str:
        return hashlib.sha256(f"{identity(*arguments)}|{kind and BREAKS[kind]}|{unchecked}".encode()).hexdigest()

    def broken_front(position: int, request: Any, *rest: Any) -> Any:
        unit = front(position, replace(request, cluster=""), *rest)  # a kernel for this shape alone
        if not isinstance(unit, cpu._Unit):
            return unit
        return replace(unit, source=lambda: break_source(unit.source(), request.graph, kind))

    patch(cpu, "identity", other_identity)
    if kind:
        patch(cpu, "_front", broken_front)
    if unchecked:
        patch(cpu, "CheckOptions", lambda: options(skip=True))
