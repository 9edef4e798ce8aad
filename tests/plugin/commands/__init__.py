"""Tests of plugin/commands."""
