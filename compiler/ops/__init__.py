"""One row per op.

table        the ops, with what they weigh; infer: shapes and dtypes; verify: a graph obeys them
propagation  which operand elements a result element is made of; slicing: what a share of a result needs; attributes
reference    numpy's result; errors: bounds of its rounding; interpreter: a whole graph by it
c_text       the op in C
"""
