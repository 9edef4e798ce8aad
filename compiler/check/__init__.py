"""Whether a kernel is right. It shares nothing with the planner that it judges.

oracle         float64 with running error bounds; slices: of a part of the outputs
random_inputs  what a kernel is tried on; input_ranges: which values an input may have
judge          a result against the oracle; the guard's tolerances
selfcheck      a kernel tried before a job loads it; checkers: several beside each other
"""
