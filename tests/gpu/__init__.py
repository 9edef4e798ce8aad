"""scripts/bench-gpu, rehearsed without a GPU."""
