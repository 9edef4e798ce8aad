"""`stitchfleet jobs | report | db` (reporting) and `stitchfleet ingest` (ingest)."""
