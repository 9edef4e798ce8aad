"""Tests of telemetry/shipping."""
