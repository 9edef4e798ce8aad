"""Shared by all workloads: the loop over batches. Plain TensorFlow, without any reference to stitching.

A workload defines a step (a tf.function that maps one batch to one number: a loss, or the score of an answer) and an iterable of
batches, and passes both to `run`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf
from distributed import Ranks
from loop import StepLog, make_parser, step_log

__all__ = ["StepLog", "feed", "make_parser", "run", "step_log"]


def run(
    step: Callable[..., Any],
    batches: Iterable[tuple[Any, ...]],
    arguments: argparse.Namespace,
    ranks: Ranks | None = None,
    after_first: Callable[[], None] = lambda: None,
) -> None:
    """Runs `arguments.steps` steps, each on the next batch: `step(*batch)`. A step ends when its result has become a Python float.

    ranks: in a job of several ranks, rank 0 prints and logs, and the others end when it does.
    after_first: called after the first step.
    """
    speaks = ranks is None or ranks.rank == 0
    with step_log(arguments.log if speaks else None, quiet=not speaks) as book:
        for number, batch in zip(range(arguments.steps), batches):
            try:
                book(lambda batch=batch: float(step(*batch)))  # type: ignore[misc]
            except tf.errors.OpError as error:
                if ranks is None or not ranks.has_ended(error):
                    raise
                return
            if number == 0:
                after_first()


def feed(batches: tf.data.Dataset) -> tf.data.Dataset:
    """`batches`, of which two are prefetched, without tf.data's autotuning: its thread sleeps for up to a minute, and a job that is
    ended early waits for it."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return batches.prefetch(2).with_options(options)
