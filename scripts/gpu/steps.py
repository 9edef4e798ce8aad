"""Inputs of whole steps, which XLA compiles as they are and with our kernels in place of each stitch op."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from stitchfleet.compiler.hlo.importer import read_hlo_file
from stitchfleet.compiler.ir.graph import Array, DType

from .cases import Case

SMALL_INDEX = 30
"""Integers are drawn below this: an index into a table or a class, for every table and class of the workloads."""


def step_inputs(case: Case, folder: Path) -> list[Array]:
    """Inputs of a step's entry: floats in (0.05, 0.95), which are valid as weights and as variances, small integers, and
    booleans."""
    module = read_hlo_file(case.hlo(folder))
    rng = np.random.default_rng(case.seed())
    found: list[Any] = []
    for parameter in module.computations[module.entry].parameters:
        shape, dtype = parameter.shape.dimensions, DType(parameter.shape.element_type)
        if dtype is DType.PRED:
            found.append(rng.random(shape) < 0.5)
        elif dtype.is_float:
            found.append(np.asarray(rng.uniform(0.05, 0.95, shape)).astype(dtype.numpy))
        else:
            found.append(np.asarray(rng.integers(0, SMALL_INDEX, shape)).astype(dtype.numpy))
    return found
