"""Tests of plugin/guard."""
