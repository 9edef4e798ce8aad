"""Tests of plugin/ranks."""
