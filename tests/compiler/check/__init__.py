"""Tests of compiler/check."""
