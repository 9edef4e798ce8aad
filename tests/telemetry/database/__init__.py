"""Tests of telemetry/database."""
