"""Tests of compiler/codegen/cuda."""
