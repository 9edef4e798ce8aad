"""Tests of telemetry/commands."""
