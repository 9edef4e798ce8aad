"""The micro cases of the GPU benchmark, and their export as HLO from TensorFlow.

    python -m scripts.gpu.micro     # writes scripts/gpu/hlo/NAME.hlo for each; needs TensorFlow, unlike the benchmark

Each case is a pattern that the papers measure, or one of which XLA makes several kernels (a reduction whose consumer needs all of it,
a normalization's backward pass, many small tensors). To add one, add a row to CASES, and PyTorch's function to torch_functions.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from scripts.benchmark import kernel_cases

FOLDER: Final = Path(__file__).parent / "hlo"
SMALL: Final = FOLDER / "small"
BERT_BYTES: Final = 100 << 20
"""Weights of the Adam case: 26 million, in the proportions of a BERT's 75 variables."""


@dataclass(frozen=True)
class Micro:
    """One case. function: also the key of torch_functions.FUNCTIONS. shapes: of the arguments, each with its dtype."""

    name: str
    function: str
    arguments: tuple[tuple[str, tuple[int, ...]], ...]


def _norm(rows: int, columns: int, dtype: str = "float32") -> Micro:
    short = "_bf16" if dtype == "bfloat16" else ""
    shapes = ((rows, columns), (columns,), (columns,))
    return Micro(f"layer_norm{short}-{rows}x{columns}", "layer_norm", tuple((dtype, shape) for shape in shapes))


def _norm_gradient(rows: int, columns: int) -> Micro:
    shapes = ((rows, columns), (rows, columns), (columns,), (rows, 1), (rows, 1))
    name = f"layer_norm_gradient-{rows}x{columns}"
    return Micro(name, "layer_norm_gradient", tuple(("float32", shape) for shape in shapes))


def _one(function: str, *shape: int, dtype: str = "float32") -> Micro:
    short = "_bf16" if dtype == "bfloat16" else ""
    return Micro(f"{function}{short}-{'x'.join(map(str, shape))}", function, ((dtype, shape),))


def _adam() -> Micro:
    whole = sum(math.prod(shape) for shape in kernel_cases.BERT_SHAPES)
    sizes = [round(math.prod(shape) * (BERT_BYTES / 4) / whole) for shape in kernel_cases.BERT_SHAPES]
    tensors = tuple(("float32", (size,)) for size in sizes for _ in range(4))
    return Micro("adam-bert", "adam", (("float32", ()), *tensors))


def _floats(name: str, function: str, *shapes: tuple[int, ...]) -> Micro:
    return Micro(name, function, tuple(("float32", shape) for shape in shapes))


CASES: Final = (
    _norm(8192, 1024),
    _norm(4096, 4096),
    _norm_gradient(8192, 1024),
    _norm_gradient(4096, 4096),
    _one("softmax", 262144, 128),
    _one("softmax", 32768, 1024),
    _one("softmax", 4096, 8192),
    _one("softmax", 1024, 32768),
    _one("softmax", 256, 131072),
    _adam(),
    _one("row_mean", 750000, 32),
    _one("row_mean", 64, 30000),
    _one("column_mean", 65536, 1024),
    _floats("batch_norm-64x56x56x64", "batch_norm", (64, 56, 56, 64), (64,), (64,)),
    _floats("power_broadcast_add-262144x128", "power_broadcast_add", (262144,), (262144,), (262144, 128)),
    _floats("chains-64", "chains", *[(1024,)] * 64),
    _floats("bias_gelu-8192x4096", "bias_gelu", (8192, 4096), (4096,)),
    Micro("cross_entropy-4096x8000", "cross_entropy", (("float32", (4096, 8000)), ("int32", (4096,)))),
    Micro(
        "dropout_bias_residual-8192x1024",
        "dropout_bias_residual",
        (("float32", (8192, 1024)), ("float32", (1024,)), ("bool", (8192, 1024)), ("float32", (8192, 1024))),
    ),
    _one("column_sum", 65536, 1024),
    _one("full_sum", 8192, 4096),
    _norm(8192, 4096, "bfloat16"),
    _one("softmax", 32768, 1024, dtype="bfloat16"),
)


def _functions() -> dict[str, Callable[..., Any]]:
    import tensorflow as tf

    def row_mean(x: Any) -> Any:
        return x - tf.reduce_mean(x, -1, keepdims=True)

    def column_mean(x: Any) -> Any:
        return x - tf.reduce_mean(x, 0)

    def batch_norm(x: Any, scale: Any, shift: Any) -> Any:
        mean = tf.reduce_mean(x, [0, 1, 2])
        centred = x - mean
        variance = tf.reduce_mean(tf.square(centred), [0, 1, 2])
        return centred * (tf.math.rsqrt(variance + 1e-3) * scale) + shift, mean, variance

    def power_broadcast_add(a: Any, b: Any, x: Any) -> Any:
        return tf.pow(a, b)[:, None] + x

    def chains(*tensors: Any) -> Any:
        return [tf.tanh(one * 2.0 + 1.0) * one for one in tensors]

    def bias_gelu(x: Any, bias: Any) -> Any:
        return tf.nn.gelu(x + bias, approximate=True)

    names = "layer_norm layer_norm_gradient softmax adam cross_entropy dropout_bias_residual column_sum full_sum"
    ours = (row_mean, column_mean, batch_norm, power_broadcast_add, chains, bias_gelu)
    return {
        **{name: getattr(kernel_cases, name) for name in names.split()},
        **{one.__name__: one for one in ours},
    }


def small(case: Micro) -> Micro:
    """The case with tensors of a few hundred elements, for a rehearsal without a GPU. Equal extents stay equal."""
    shrunk = tuple(
        (dtype, tuple(extent if extent <= 48 else 8 + extent % 37 for extent in shape))
        for dtype, shape in case.arguments
    )
    return replace(case, arguments=shrunk)


def exported(cases: Sequence[Micro]) -> Iterator[tuple[Micro, str]]:
    """Each case and the text of its HLO. Raises RuntimeError if a case is not one stitch op."""
    import tensorflow as tf

    from scripts.benchmark.export_hlo import short_form
    from stitchfleet.compiler.hlo.text import read_hlo_text
    from stitchfleet.compiler.step.partition import stitch_ops_of

    from .hlo_text import hlo_text

    functions = _functions()
    for case in cases:
        signature = [tf.TensorSpec(shape, dtype) for dtype, shape in case.arguments]
        traced = tf.function(functions[case.function], jit_compile=True).experimental_get_compiler_ir(*signature)
        module = read_hlo_text(short_form(traced(stage="hlo"), traced(stage="hlo_serialized")))
        step = stitch_ops_of(module)
        if not step.is_one_op:
            raise RuntimeError(f"{case.name}: {step}")
        yield case, hlo_text(step.stitch_ops[0].graph)


def main() -> int:
    for folder, cases in ((FOLDER, CASES), (SMALL, [small(case) for case in CASES])):
        folder.mkdir(exist_ok=True)
        for case, text in exported(cases):
            (folder / f"{case.name}.hlo").write_text(text)
            print(f"{folder.name}/{case.name}: {len(text)} bytes", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
