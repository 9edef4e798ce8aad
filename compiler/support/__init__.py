"""Helpers that know nothing of graphs.

union_find               disjoint sets
divisors                 the divisors of a number
free_memory              how much memory this process may still allocate
sequences, entry_points  what newer versions of Python have
"""
