"""text: positions, guards and constants in C; writer: the statements that all backends write the same way.

kernel_prelude.h, kernel_math.h, kernel_trigonometry.h, kernel_tables.h: the functions that the text calls.
"""
