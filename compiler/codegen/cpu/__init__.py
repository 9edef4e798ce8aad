"""kernel_text: a kernel in C++; many_shapes: one binary whose extents are parameters.

forms decides how each loop is written; body writes it.
"""
