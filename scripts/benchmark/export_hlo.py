"""Exports the steps of the workloads as HLO: the modules that TensorFlow passes to XLA, one text file for each step.

    python -m scripts.benchmark.export_hlo [--workloads bert,crnn] [--folder FOLDER] [--optimized FOLDER]

A workload passes its step and its batches to `steps.run`. Here another function takes the place of `steps.run` and keeps the two. The
step, compiled with --xla for the shapes of its first batch, is then asked for its HLO. No step runs.

The files are shortened (hlo_short) and contain no paths of this machine. --optimized also writes the output of XLA's CPU backend for
each, unchanged, which `xla_kernels` counts.
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
"""The steps of the five workloads like the paper's: training and inference, for those that have both."""


@dataclass(frozen=True)
class Exported:
    """A step's HLO, shortened. optimize(): the output of XLA's CPU backend for it, as XLA prints it; takes minutes."""

    hlo: str
    optimize: Callable[[], str]


def export(workload: Workload, extra: Sequence[str] = ()) -> Exported:
    """The HLO of the workload's step for its first batch. extra: further arguments for the workload.

    Raises RuntimeError unless the workload calls `steps.run` once, and TensorFlow's error for a step that XLA cannot compile.
    """
    with _gru_in_place():
        step, batches = _step_of(workload, extra)
        lowered = step.experimental_get_compiler_ir(*next(iter(batches)))
    text = short_form(lowered(stage="hlo"), lowered(stage="hlo_serialized"))
    return Exported(text, lambda: str(lowered(stage="optimized_hlo")))


def short_form(text: str, proto: bytes) -> str:
    """Shortens a module. text, proto: the module in both forms; only the proto has the constants' elements."""
    constants = {
        item.name.partition("#")[0]: item.literal  # without the id that the reader adds
        for computation in read_hlo_proto(proto).computations.values()
        for item in computation.instructions.values()
        if item.literal is not None
    }
    return shorten(text, constants)


@contextlib.contextmanager
def _gru_in_place() -> Iterator[None]:
    """A context in which Keras inlines the loop of a GRU.

    Keras calls this loop through a separate function. In training one of its results is a size that its gradient needs at compile
    time, so TensorFlow treats all its arguments as compile-time constants: DIEN's step would contain its tables and the first batch,
    and XLA would do the lookups while it compiles. The same loop without the call needs no such constants."""
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
    if folder not in sys.path:  # as Python does for a script
        sys.path.insert(0, folder)
    tf.keras.backend.clear_session()  # numbers in layers' names start again
    kept: list[tuple[Any, Iterable[tuple[Any, ...]]]] = []

    def keep(step: Callable[..., Any], batches: Iterable[tuple[Any, ...]], *_: object) -> None:
        kept.append((step, batches))

    words = [str(workload.script), *workload.arguments, *extra, "--xla"]
    with mock.patch.object(importlib.import_module("steps"), "run", keep), mock.patch.object(sys, "argv", words):
        runpy.run_path(str(workload.script), run_name="__main__")
    if len(kept) != 1:
        raise RuntimeError(f"{workload.name}: given {len(kept)} calls of steps.run, expected one")
    return kept[0]


def head(workload: Workload, text: str) -> str:
    """The comment at the head of an exported module. HLO has C's comments."""
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
    parser.add_argument("--optimized", type=pathlib.Path, metavar="FOLDER", help="also write XLA's optimized modules")
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
