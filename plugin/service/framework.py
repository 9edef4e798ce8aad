"""A cluster's function as TensorFlow's own operators compute it, to compare a kernel with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stitchfleet.compiler.check.conditioning import Reference, RefusedInputsError

from ..graph import to_hlo
from ..graph.to_hlo import Argument


def reference(body: bytes, arguments: Sequence[Argument], outputs: int) -> Reference:
    """A function that maps the kernel's inputs to TensorFlow's own results. It raises RefusedInputsError if TensorFlow's operators
    raise an error.

    body: a serialized FunctionDefLibrary. arguments: the op's. outputs: the number of the kernel's results.
    """
    made: list[Any] = []

    def run(inputs: Sequence[Any]) -> list[Any]:
        import tensorflow as tf

        if not made:
            made.append(tf.function(to_hlo.body_function(body), autograph=False))
        given = iter(inputs)
        values = [argument.constant() if argument.value is not None else next(given) for argument in arguments]
        refusals = (tf.errors.InvalidArgumentError, tf.errors.OutOfRangeError, tf.errors.FailedPreconditionError)
        try:
            results = made[0](*map(tf.constant, values))
        except refusals as error:
            raise RefusedInputsError(f"{type(error).__name__}: {' '.join(error.message.split())[:300]}") from error
        found = [result.numpy() for result in results]
        # The compiled function has one more result if its operators have demands: that these are met.
        return found + [np.array(True)] * (outputs - len(found))

    return run
