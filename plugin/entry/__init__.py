"""Where TensorFlow meets us: activation puts the hooks in place when TensorFlow is imported (bootstrap/ brings Python here)."""
