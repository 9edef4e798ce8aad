"""Tests of telemetry/totals."""
