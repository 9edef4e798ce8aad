"""Tests of compiler/ops."""
