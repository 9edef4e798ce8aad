"""Tests of plugin/stitching."""
