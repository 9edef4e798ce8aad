"""Tests of scripts/benchmark. stepper: a workload without TensorFlow."""
