"""Tests of compiler/hlo."""
