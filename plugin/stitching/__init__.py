"""Rewrites the graphs that TensorFlow offers for optimization: preparation, then stitcher."""
