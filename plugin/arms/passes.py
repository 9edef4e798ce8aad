"""In how many passes TensorFlow optimizes a graph before it runs: two, unless a ConfigProto asks for one (NumIterations in
meta_optimizer.cc).

A graph is rewritten after the last pass. If it were rewritten before, what TensorFlow fuses or folds only in its second pass would
differ between the arms, and with it the last place of numbers.
"""

from __future__ import annotations

from typing import Any

from ..native.library import PASSES


def passes_of(config: Any) -> int:
    """The number of passes that a ConfigProto asks for."""
    options = config.graph_options.rewrite_options
    return 1 if options.meta_optimizer_iterations == options.ONE else PASSES
