"""Jobs under every supported version of TensorFlow, each in an environment of its own (matrix)."""
