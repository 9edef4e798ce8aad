"""Helpers that know nothing of graphs.

union_find               disjoint sets
divisors                 the divisors of a number
free_memory              how much memory this process may still allocate
whole_files              files that others may be reading while they are written
sequences, entry_points  what newer versions of Python have
"""
