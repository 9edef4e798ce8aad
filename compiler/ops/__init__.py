"""One row per op.

table        the ops, with what they weigh; infer: shapes and dtypes; verify: a graph obeys them
reference    numpy's result; errors: bounds of its rounding; interpreter: a whole graph by it
c_text       the op in C
"""
