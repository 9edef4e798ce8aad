"""Tests of compiler/codegen/cpu."""
