"""Tests of compiler/pipeline."""
