"""Helpers that know nothing of graphs: disjoint sets, divisors, free memory."""
