"""Tests of compiler/support."""
