"""Tests of compiler/ir."""
