"""`stitchfleet run` and `stitchfleet doctor` (both in run); process: starts the job of `run`, and passes on its signals."""
