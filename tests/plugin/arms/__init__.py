"""Tests of plugin/arms."""
