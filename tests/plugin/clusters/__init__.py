"""Tests of plugin/clusters."""
