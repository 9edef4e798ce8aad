"""Tests of plugin/job."""
