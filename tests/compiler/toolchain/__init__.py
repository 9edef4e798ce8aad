"""Tests of compiler/toolchain."""
