"""What a workload adds to train on several ranks with Horovod, as its users write it: nothing here knows of stitching.

    horovodrun -np 4 python bert.py --horovod

Every rank has the same weights and batches of its own. Rank 0 prints and logs for all.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def add_option(parser: argparse.ArgumentParser) -> None:
    """Adds --horovod."""
    parser.add_argument("--horovod", action="store_true", help="train as one of the ranks that horovodrun starts")


class Ranks:
    """The ranks of a job: this process alone, or all that `horovodrun` has started. rank, size: as Horovod counts them."""

    def __init__(self, horovod: bool) -> None:
        self.rank, self.size = 0, 1
        self._hvd: Any = None
        if horovod:
            import horovod.tensorflow as hvd

            hvd.init()
            self._hvd, self.rank, self.size = hvd, hvd.rank(), hvd.size()

    def gradients(self, tape: tf.GradientTape, loss: tf.Tensor, variables: Sequence[Any], dense: bool = False) -> Any:
        """The gradients of `loss`, averaged over the ranks.

        dense: reduce sparse gradients as whole tensors. Otherwise their rows are gathered, as Horovod does by default.
        """
        if self._hvd is not None:
            tape = self._hvd.DistributedGradientTape(tape, sparse_as_dense=dense)
        return tape.gradient(loss, variables)

    def broadcast(self, model: tf.Module, optimizer: tf.Module) -> None:
        """Gives all ranks rank 0's values. It is called after the first step, when the optimizer's variables exist."""
        if self._hvd is not None:
            self._hvd.broadcast_variables([*model.variables, *optimizer.variables], root_rank=0)

    def has_ended(self, error: BaseException) -> bool:
        """Whether an error of a step says that another rank has ended the job."""
        return self.rank > 0 and "Horovod has been shut down" in str(error)
