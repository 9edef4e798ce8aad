"""Kernels on a real GPU beside XLA's and TorchInductor's: `scripts/bench-gpu`."""
