"""text: positions, guards and constants as C; writer: the statements that all backends write alike.

kernel_prelude.h, kernel_math.h, kernel_trigonometry.h: what the text calls.
"""
