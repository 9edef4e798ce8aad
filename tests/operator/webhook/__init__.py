"""Tests of operator/webhook."""
