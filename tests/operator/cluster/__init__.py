"""Tests of operator/cluster."""
