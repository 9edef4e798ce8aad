"""Helpers that know nothing of graphs: disjoint sets, divisors, free memory; sequences, entry_points: what newer versions of
Python have."""
