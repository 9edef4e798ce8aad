"""The op table: one row per op.

table        the rows, with each op's cost class; infer: shape and dtype rules; verify: checks that a graph obeys them
propagation  which operand elements a result element is computed from; slicing: what a slice of a result needs; attributes
reference    the result in numpy; errors: bounds of its rounding error; interpreter: runs a whole graph with the references
c_text       the op in C++
"""
