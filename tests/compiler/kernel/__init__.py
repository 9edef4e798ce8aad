"""Tests of compiler/kernel."""
