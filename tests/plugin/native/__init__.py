"""Tests of plugin/native."""
