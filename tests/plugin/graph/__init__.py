"""Tests of plugin/graph."""
