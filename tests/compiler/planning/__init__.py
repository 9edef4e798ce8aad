"""Tests of compiler/planning."""
