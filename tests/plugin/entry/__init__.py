"""Tests of plugin/entry."""
