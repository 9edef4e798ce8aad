"""Tests of plugin/reporting."""
