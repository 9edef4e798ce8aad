"""kernel_text: a kernel in C++; many_shapes: one binary whose extents are parameters; kernel_product.h: rows of matrix products.

forms decides how each loop is written; masks: vector loops without conditions; narrow: vector loops of small elements; body writes
them.
"""
