"""kernel_text: a kernel in CUDA C, with cuda_prelude.h before it.

survey, text  the loops by a group of threads; places: where values lie; vectors: several elements at once
reduction     sums across threads
"""
