"""Tests of telemetry/pod."""
