"""Tests of operator/policy."""
