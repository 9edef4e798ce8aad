"""Tests of telemetry/statistics."""
