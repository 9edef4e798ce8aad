"""A bundle: a folder with all that is needed to examine a failed comparison offline (`stitchfleet explain BUNDLE`).

bundle.json   cluster, arguments, kernel's metadata, the step, and the worst element of the first output that differs
body.pb       the cluster's FunctionDefLibrary
body.hlo.pb   the HLO that it was lowered to for the kernel, if that still exists
tensors.npz   the inputs, TensorFlow's results ("expected") and the kernel's ("actual")
kernel.so     the kernel's library, for a GPU kernel.cubin, if it still exists
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stitchfleet.compiler.ir.graph import BFLOAT16
from stitchfleet.compiler.support.sequences import zip_strict

from ..graph.to_hlo import Argument
from ..native.library import MismatchReport
from .messages import Judged

Array = npt.NDArray[np.generic]
KEPT_HLO: Final = "body.hlo.pb"


def write_bundle(
    folder: pathlib.Path,
    cluster: str,
    body: bytes,
    arguments: Sequence[Argument],
    report: MismatchReport,
    kernel_library: pathlib.Path | None,
    facts: dict[str, Any],
    hlo: pathlib.Path | None = None,
) -> pathlib.Path:
    """Writes a bundle and returns its folder, which must not exist yet. Raises OSError.

    body: the cluster's FunctionDefLibrary, serialized. arguments: the op's inputs. facts: further entries of bundle.json.
    hlo: the file of the HLO that the kernel was made of.
    """
    folder.mkdir(parents=True, mode=0o700)
    (folder / "body.pb").write_bytes(body)
    tensors: dict[str, Array] = {}
    dtypes: dict[str, str] = {}
    for kind, arrays in (("input", report.inputs), ("expected", report.expected), ("actual", report.actual)):
        for i, array in enumerate(arrays):
            name = f"{kind}_{i}"
            dtypes[name] = str(array.dtype)
            # numpy's file format has no bfloat16: its bits are stored, its name is in the JSON
            tensors[name] = array.view(np.uint16) if array.dtype.name == "bfloat16" else array
    np.savez(folder / "tensors.npz", **tensors)
    if kernel_library is not None and kernel_library.exists():
        shutil.copy(kernel_library, folder / kernel_library.name)
    if hlo is not None:
        with contextlib.suppress(OSError):  # the judge lowers the body again
            shutil.copy(hlo, folder / KEPT_HLO)
    (folder / "bundle.json").write_text(
        json.dumps(
            {
                "format": 1,
                "cluster": cluster,
                "arguments": [argument.to_json() for argument in arguments],
                "dtypes": dtypes,
                "output": report.output,
                "step": report.step,
                "index": report.index,
                "expected": report.expected_value,
                "actual": report.actual_value,
                "largest_error": report.largest_error,
                **facts,
            },
            indent=2,
        )
    )
    return folder


def size_of(folder: pathlib.Path) -> int:
    """Size of a bundle's files in bytes; 0 if it cannot be read."""
    try:
        return sum(path.stat().st_size for path in folder.iterdir())
    except OSError:
        return 0


def delete_bundle(folder: pathlib.Path) -> None:
    """Deletes a bundle. Never raises; files that cannot be deleted stay."""
    shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Bundle:
    """A bundle's contents. expected: TensorFlow's results; actual: the kernel's."""

    facts: dict[str, Any]
    body: bytes
    arguments: list[Argument]
    inputs: list[Array]
    expected: list[Array]
    actual: list[Array]


def read_bundle(folder: pathlib.Path) -> Bundle:
    """Reads a bundle. Raises OSError, ValueError or KeyError if the folder is not one."""
    facts = json.loads((folder / "bundle.json").read_text())
    arrays: dict[str, list[Array]] = {"input": [], "expected": [], "actual": []}
    with np.load(folder / "tensors.npz") as stored:
        for kind, found in arrays.items():
            i = 0
            while f"{kind}_{i}" in stored:
                array = stored[f"{kind}_{i}"]
                if facts["dtypes"][f"{kind}_{i}"] == "bfloat16":
                    if BFLOAT16 is None:
                        raise ValueError("it has tensors of bf16, for which the package ml_dtypes is needed")
                    array = array.view(BFLOAT16)
                found.append(array)
                i += 1
    arguments = [Argument.from_json(described) for described in facts["arguments"]]
    return Bundle(
        facts, (folder / "body.pb").read_bytes(), arguments, arrays["input"], arrays["expected"], arrays["actual"]
    )


def judge_bundle(folder: pathlib.Path) -> Judged:
    """The float64 oracle's verdict on a bundle. If the kernel is right, `bounds` says by how much two right results may differ:
    by the oracle's bound; if TensorFlow's own result is farther from the oracle (its BiasAddGrad adds up bf16 in bf16), by
    judge.REFERENCE_FACTOR times that distance; and, for elements that differ and that the oracle cannot decide, by a multiple of
    the distance by which TensorFlow's own result moves if the inputs move in their last place. The guard widens its tolerance by
    it; otherwise a sum with cancellation would fail its comparison, and be judged, in each call.

    Imports TensorFlow, which takes seconds, only if the bundle has no HLO, or to move the inputs. Raises what `read_bundle`,
    `to_hlo.lower` and the importer raise."""
    from stitchfleet.compiler.check import judge
    from stitchfleet.compiler.check.conditioning import SLACK, largest_moves
    from stitchfleet.compiler.check.oracle import evaluate_with_bounds
    from stitchfleet.compiler.hlo.importer import import_hlo_proto

    from ..graph import to_hlo
    from .framework import reference

    read = read_bundle(folder)
    kept = folder / KEPT_HLO
    hlo = kept.read_bytes() if kept.exists() else to_hlo.lower(read.body, read.arguments)
    graph = import_hlo_proto(hlo).graph
    inputs = [read.inputs[i] for i in to_hlo.kernel_inputs(read.arguments)]
    oracle = evaluate_with_bounds(graph, inputs)
    verdict = judge.judge_by(graph, oracle, read.actual, reference=read.expected)
    bounds: dict[int, float] = {}
    undecided: dict[int, npt.NDArray[np.bool_]] = {}
    for number, (expected, ours, theirs) in enumerate(zip_strict(oracle, read.actual, read.expected)):
        if expected.value.dtype.kind != "f":
            continue
        is_decided = np.isfinite(expected.bound) & np.isfinite(expected.value) & np.isfinite(theirs)
        if is_decided.any():
            bound = expected.bound[is_decided]
            error = np.abs(theirs[is_decided].astype(np.float64) - expected.value[is_decided])
            beyond = judge.REFERENCE_FACTOR * float(error[error > bound].max(initial=0.0))
            bounds[number] = max(float(bound.max()), beyond)
        differs = np.isfinite(ours) & np.isfinite(theirs) & (ours != theirs)
        undecided[number] = np.asarray(differs & ~np.isfinite(expected.bound))
    if verdict.ok and any(elements.any() for elements in undecided.values()):
        computed = reference(read.body, read.arguments, len(graph.outputs))
        moves = largest_moves(graph, inputs, computed, read.expected, np.random.default_rng(0))
        for number, elements in undecided.items():
            far = moves[number][elements]
            far = far[np.isfinite(far)]
            if far.size:
                bounds[number] = max(bounds.get(number, 0.0), SLACK * float(far.max()))
    return Judged(verdict.ok, str(verdict), bounds)
