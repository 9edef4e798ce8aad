"""Tests of plugin/versions."""
