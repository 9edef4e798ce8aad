"""kernel_text: a kernel in C++; many_shapes: one whose extents are parameters.

forms         how each loop is written, decided; body: written
"""
