"""The generated C++ and CUDA of a handful of telling graphs, word for word. After a change that is meant, write them anew with
STITCHFLEET_UPDATE_GOLDEN=1 and read the difference."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stitchfleet.compiler.codegen.cpu.kernel_text import render
from stitchfleet.compiler.codegen.cuda.kernel_text import plan_for_gpu
from stitchfleet.compiler.ir.graph import Graph
from stitchfleet.compiler.lowering.kernel_loops import lower
from stitchfleet.compiler.planning.plan import plan_graph
from stitchfleet.compiler.targets.targets import V100

from .. import library

FOLDER = Path(__file__).parent / "golden"
GOLDEN: dict[str, Callable[[], Graph]] = {
    "softmax": lambda: library.softmax(512, 128),
    "softmax_of_many_rows": lambda: library.softmax(65_536, 128),  # asks ahead for what later rows will read
    "layer_norm": lambda: library.layer_norm(1024, 256),
    "layer_norm_gradient": lambda: library.layer_norm_gradient(1024, 256),
    "drawn_dropout": lambda: library.drawn_dropout(1024, 256),
    "adam": lambda: library.adam([(256, 256), (256,), (64, 3)]),
    "many_tensors": lambda: library.many_tensors(),
    "clip_by_global_norm": lambda: library.clip_by_global_norm([(300, 300), (1000,)]),
    "attention_heads": lambda: library.attention_heads(8, 128, 4, 64),
    "matrix_transpose": lambda: library.matrix_transpose(1024, 256),
    "cumulative_sum": lambda: library.cumulative((64, 1000), 1, exclusive=True),
    "cumulative_sum_of_columns": lambda: library.cumulative((100, 64), 0),
    "max_pool": lambda: library.max_pool(8, 56, 64),
    "max_pool_few_channels": lambda: library.max_pool(8, 56, 3),
    "max_pool_gradient": lambda: library.max_pool_gradient(8, 56, 64),
    "gelu": lambda: library.gelu(1024, 1024),
    "bias_residual": lambda: library.bias_residual(1024, 256),
    "cross_entropy": lambda: library.cross_entropy(160, 8000),
    "batch_norm": lambda: library.batch_norm(8, 28, 28, 64),
    "embedding": lambda: library.embedding(1024, 256, 8000),
    "gru_cell": lambda: library.gru_cell(64, 36),
    "softmax_tiny_rows": lambda: library.softmax(10_000, 4),
    "embedding_gradient": lambda: library.embedding_gradient(64, 256, 1000),
    "column_sum_wide": lambda: library.column_sum(12, 30_720),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_source_is_as_it_was(name: str) -> None:
    graph = GOLDEN[name]()
    _compare(f"{name}.cc", graph, render(lower(plan_graph(graph)), "stitch_kernel"))


@pytest.mark.parametrize("name", GOLDEN)
def test_cuda_source_is_as_it_was(name: str) -> None:
    graph = GOLDEN[name]()
    _, kernel = plan_for_gpu(graph, V100, "stitch_kernel")
    launch = f"// {kernel.grid} blocks of {kernel.block} threads, {kernel.shared_bytes} bytes of shared memory\n\n"
    _compare(f"{name}.cu", graph, launch + kernel.text)


def _compare(file: str, graph: Graph, source: str) -> None:
    text = "\n".join(f"// {line}" for line in str(graph).splitlines()) + "\n\n" + source
    path = FOLDER / file
    if os.environ.get("STITCHFLEET_UPDATE_GOLDEN") == "1":
        FOLDER.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.read_text() == text
