"""Tests of plugin/while_loops."""
