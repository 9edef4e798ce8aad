"""`stitchfleet compile` and `stitchfleet explain`."""
