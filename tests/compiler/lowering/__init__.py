"""Tests of compiler/lowering."""
