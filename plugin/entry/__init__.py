"""The entry points: activation installs the hooks when TensorFlow is imported (bootstrap/ makes Python call it)."""
