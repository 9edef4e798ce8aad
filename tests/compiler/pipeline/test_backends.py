"""What every backend of the table does: its stages print and feed each other, and its kernels are found under their keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from stitchfleet.compiler.kernel.cache import KernelCache
from stitchfleet.compiler.pipeline.backend import KernelRequest, stop_after
from stitchfleet.compiler.pipeline.backends import BACKENDS, Effort, backend_for

from ..library import gelu, softmax

LAST_STAGE = {"cpu": ("source", 'extern "C"'), "cuda": ("ptx", ".target sm_90")}
"""The last stage of each backend, and a word of its text."""

EVERY = pytest.mark.parametrize("name", BACKENDS)


@EVERY
@pytest.mark.parametrize("search", [False, True])
def test_every_stage_of_a_backend_prints_and_feeds_the_next(name: str, search: bool) -> None:
    kind = BACKENDS[name]
    made = kind.make(kind.targets[kind.usual], Effort(search=search))
    graph = softmax(8, 40)
    value: object = graph
    assert tuple(stage.name for stage in made.stages()) == kind.stages
    assert kind.stages[:4] == ("graph", "plan", "loops", "source")
    for stage in made.stages():
        value = stage.run(value)
        assert stage.text(value) == stop_after(made, graph, stage.name)
    last, word = LAST_STAGE[name]
    assert stage.name == last
    assert word in stage.text(value)
    with pytest.raises(ValueError, match="no stage 'machine'; there are graph, plan"):
        stop_after(made, graph, "machine")


@EVERY
@pytest.mark.parametrize("search", [False, True])
def test_a_backend_finds_its_kernel_under_its_key(name: str, search: bool, tmp_path: Path) -> None:
    kind, graph, cache = BACKENDS[name], gelu(5, 7), KernelCache(tmp_path)
    made = kind.make(kind.targets[kind.usual], Effort(search=search))
    told: list[str] = []
    (outcome,) = made.compile([KernelRequest("gelu", graph)], cache, told.append)
    assert outcome.entry is not None, outcome.failure
    assert outcome.entry.key == made.key(graph)
    assert cache.find(made.key(graph)) is not None
    assert told[-1] == ""
    (again,) = made.compile([KernelRequest("gelu", graph)], cache)
    assert again.entry == outcome.entry
    assert not again.notes


def test_backends_for_different_devices_share_no_kernel() -> None:
    made = [kind.make(target, Effort()) for kind in BACKENDS.values() for target in kind.targets.values()]
    keys = {backend.key(gelu(5, 7)) for backend in made}
    assert len(keys) == len(made) == len({backend.identity() for backend in made})
    assert backend_for(None).key(gelu(5, 7)) in keys
