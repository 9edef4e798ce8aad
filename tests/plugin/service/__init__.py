"""Tests of plugin/service."""
