"""What becomes of a graph that TensorFlow offers: stitcher, after preparation."""
