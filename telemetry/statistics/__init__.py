"""From pairs of blocks of steps to a saving with its confidence interval. Pure mathematics.

savings      paired blocks, a job's saving, and sums of savings
student      quantiles of Student's t distribution
"""
