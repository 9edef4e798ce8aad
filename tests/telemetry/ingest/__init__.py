"""Tests of telemetry/ingest."""
