"""Tests of compiler/passes."""
