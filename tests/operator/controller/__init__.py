"""Tests of operator/controller."""
