"""Tests of telemetry, in a folder for each folder of telemetry/. hostile has no twin there: it attacks the whole of it."""
