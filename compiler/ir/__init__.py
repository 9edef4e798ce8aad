"""The graph of a cluster (graph), and affine maps from positions to elements (index_maps)."""
