"""Graph-to-graph passes. simplify: removes what does nothing; written_out: recognises functions written out in primitive ops;
transposes_last: moves transposes behind reductions."""
