"""Tests of compiler/loops."""
