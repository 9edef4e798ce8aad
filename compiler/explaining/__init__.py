"""Prints a plan in words (words), and draws it (picture)."""
