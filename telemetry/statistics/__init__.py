"""From pairs of blocks of steps to a saving with its interval. Pure mathematics.

savings      the paired blocks, a job's saving, and sums of savings
student      the t distribution's quantiles
"""
