"""Tests of telemetry/reports."""
