"""A plan to loops: each nest as the plan says that it is executed.

kernel_loops  all nests of a plan; context, passes, values, tiles: what they share
rows, lanes   a nest row by row, or element by element; ahead: rows that are loaded early
reduction/    reductions, and what combines their parts
scatter, transpose   nests of these; alias: outputs that may lie where inputs do
gpu_cost      bytes, blocks and threads of a kernel's loops
"""
