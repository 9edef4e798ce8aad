"""`stitchfleet run` and `stitchfleet doctor` (run); process is the job's process under the first, and its signals."""
