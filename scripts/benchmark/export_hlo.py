"""Exports the steps of the workloads as HLO: what TensorFlow hands to XLA, one text file for each step.

    python -m scripts.benchmark.export_hlo [--workloads bert,crnn] [--folder FOLDER] [--optimized FOLDER]

A workload hands its step and its batches to `steps.run`, which is all that it knows of who runs it. Here a function stands in that
place that keeps the two, and the step, compiled with --xla for the shapes of its first batch, is asked for its HLO. No step runs.

The files are short (hlo_short) and free of this machine's paths. --optimized writes beside what XLA's CPU backend made of each, as it
is, which `xla_kernels` counts.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import pathlib
import runpy
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

from stitchfleet.compiler.hlo.proto import read_hlo_proto

from .contestants import UnknownNameError, Workload, find_workload
from .hlo_short import shorten
from .xla_kernels import FIXTURES

EXPORTED = ("bert", "bert-infer", "transformer", "transformer-infer", "dien", "dien-infer", "crnn", "asr")
"""Of the five workloads of the paper's kind, a training and an inference step where they have both."""


@dataclass(frozen=True)
class Exported:
    """A step's HLO, short, and how to get what XLA's CPU backend makes of it, as XLA prints that; it takes minutes."""

    hlo: str
    optimize: Callable[[], str]


def export(workload: Workload, extra: Sequence[str] = ()) -> Exported:
    """The HLO of the workload's step for its first batch; `extra`: further arguments of the workload's.

    Raises RuntimeError when the workload runs no step, and what TensorFlow raises for a step that XLA cannot compile.
    """
    with _gru_in_place():
        step, batches = _step_of(workload, extra)
        lowered = step.experimental_get_compiler_ir(*next(iter(batches)))
    text = short_form(lowered(stage="hlo"), lowered(stage="hlo_serialized"))
    return Exported(text, lambda: str(lowered(stage="optimized_hlo")))


def short_form(text: str, proto: bytes) -> str:
    """A module short; its constants' elements are in the proto alone."""
    constants = {
        item.name.partition("#")[0]: item.literal  # without the id that the reader adds
        for computation in read_hlo_proto(proto).computations.values()
        for item in computation.instructions.values()
        if item.literal is not None
    }
    return shorten(text, constants)


@contextlib.contextmanager
def _gru_in_place() -> Iterator[None]:
    """Keras calls the loop of a GRU through a function of its own. In training one of that function's results is a size that its
    gradient needs when it is compiled, so that TensorFlow takes all its arguments for compile-time constants: DIEN's step would hold
    its tables and the first batch, and XLA would look these up while it compiles. The same loop in place of the call needs none."""
    import tensorflow as tf

    gru: Any = tf.keras.layers.GRU
    build = gru.build

    def build_in_place(layer: Any, shape: Any) -> None:
        layer._could_use_gpu_kernel = False
        build(layer, shape)

    with mock.patch.object(gru, "build", build_in_place):
        yield


def _step_of(workload: Workload, extra: Sequence[str]) -> tuple[Any, Iterable[tuple[Any, ...]]]:
    """The tf.function and the batches that the workload would run."""
    import tensorflow as tf

    folder = str(workload.script.parent)
    if folder not in sys.path:  # as for a script that is started itself
        sys.path.insert(0, folder)
    tf.keras.backend.clear_session()  # names of layers count from the start
    kept: list[tuple[Any, Iterable[tuple[Any, ...]]]] = []

    def keep(step: Callable[..., Any], batches: Iterable[tuple[Any, ...]], _: argparse.Namespace) -> None:
        kept.append((step, batches))

    words = [str(workload.script), *workload.arguments, *extra, "--xla"]
    with mock.patch.object(importlib.import_module("steps"), "run", keep), mock.patch.object(sys, "argv", words):
        runpy.run_path(str(workload.script), run_name="__main__")
    if len(kept) != 1:
        raise RuntimeError(f"{workload.name}: given {len(kept)} calls of steps.run, expected one")
    return kept[0]


def head(workload: Workload, text: str) -> str:
    """The comment above the exported module `text`; HLO's comments are C's."""
    import tensorflow as tf

    words = " ".join([workload.script.name, *workload.arguments])
    lines = [
        f"The step of scripts/workloads/{words} as TensorFlow {tf.__version__} lowers it (stage=hlo), made short.",
        "Made by scripts/benchmark/export_hlo.py; not to be edited.",
    ]
    if "%elided_" in text:
        lines.append("Parameters named elided_constant are constants, too large to be written out.")
    return "".join(f"// {line}\n" for line in lines)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", default=",".join(EXPORTED), help=f"default {','.join(EXPORTED)}")
    parser.add_argument("--folder", type=pathlib.Path, default=FIXTURES, help="default tests/fixtures/hlo")
    parser.add_argument("--optimized", type=pathlib.Path, metavar="FOLDER", help="what XLA made of them, too")
    arguments = parser.parse_args(words)
    try:
        workloads = [find_workload(name.strip()) for name in arguments.workloads.split(",") if name.strip()]
    except UnknownNameError as error:
        parser.error(f"--workloads: {error}")
    for folder in filter(None, (arguments.folder, arguments.optimized)):
        folder.mkdir(parents=True, exist_ok=True)
    for workload in workloads:
        exported = export(workload)
        text = head(workload, exported.hlo) + exported.hlo
        (arguments.folder / f"{workload.name}.hlo").write_text(text)
        print(f"{workload.name}: {len(text) / 1024:.0f} KiB", flush=True)
        if arguments.optimized is not None:
            (arguments.optimized / f"{workload.name}.hlo").write_text(exported.optimize())
    return 0


if __name__ == "__main__":
    sys.exit(main())
