"""Graph to graph: simplify; written_out: patterns that are one op."""
