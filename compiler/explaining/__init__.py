"""Prints a plan in words, and draws it."""
