"""reduce: reductions within a row or over rows; combine: the partial results of tasks; scan: prefix sums."""
