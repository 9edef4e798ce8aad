"""reduce: within a row or over rows; combine: partial results of tasks; scan: sums of prefixes."""
