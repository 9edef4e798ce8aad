"""Tests of plugin/base."""
