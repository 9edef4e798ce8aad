"""A plan to loops: each nest is lowered in the mode that the plan has chosen.

kernel_loops  all nests of a plan; context, passes, values, tiles: what the lowerings share
rows, lanes   a nest row by row, or with rows as lanes; ahead: what is computed before the rows, or before a loop
product       rows of matrix products; row_blocks: several rows at once, and what is expensive in rows as vectors
reduction/    reductions, and the combination of their partial results
turned_rows   what is read across memory copied, transposed, for a block of rows; turned_lanes: the same for rows that are lanes
scatter, transpose   such nests; spread: more rows for a GPU; alias: outputs that may use an input's memory
gpu_cost      cost model of a kernel on a GPU
"""
