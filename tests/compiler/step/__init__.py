"""Tests of compiler/step."""
