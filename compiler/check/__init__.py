"""Checks whether a kernel is right. This room shares nothing with the planner whose kernels it judges.

oracle         the outputs in float64, with running error bounds; slices: computes a graph slice by slice
random_inputs  the inputs on which a kernel is tried; input_ranges: which values an input may have
judge          compares a result with the oracle; the guard's tolerances
selfcheck      tries a kernel before a job loads it; checkers: several checks side by side
conditioning   how far two right results of an ill-conditioned graph may be apart
"""
