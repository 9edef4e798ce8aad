"""`stitchfleet run` (process: starts its job, and passes on its signals) and `stitchfleet doctor`."""
