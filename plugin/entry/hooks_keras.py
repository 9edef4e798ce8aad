"""Keras' `fit`: its steps are calls of a tf.function (hooks_function.py); a callback that we add books the epochs."""

from __future__ import annotations

from typing import Any

from ..base.containment import contained
from ..base.wrapping import wrap
from ..job.job import Job


def install(job: Job, keras: Any) -> None:
    """Wraps `Model.fit` of a Keras package to add our callback. A second call for the same package does nothing."""

    class EpochCallback(keras.callbacks.Callback):  # type: ignore[misc]
        """Books the beginning and end of each epoch."""

        @contained(None)
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            job.records.event("epoch", f"epoch {epoch + 1} ended")

    @contained(None)
    def callback() -> Any:
        return EpochCallback()

    def make(original: Any) -> Any:
        def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
            ours = callback()
            given = kwargs.get("callbacks")
            # A user's own CallbackList and callbacks given by position are left alone: steps are noticed without our callback.
            if ours is not None and len(args) < 6 and (given is None or isinstance(given, (list, tuple))):
                kwargs["callbacks"] = [*(given or []), ours]
            return original(self, *args, **kwargs)

        return fit

    wrap(keras.Model, "fit", make)
