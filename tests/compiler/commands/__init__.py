"""Tests of compiler/commands."""
