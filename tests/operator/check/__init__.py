"""Tests of operator/check."""
