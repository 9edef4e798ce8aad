"""kernel_text: a kernel in CUDA C, with cuda_prelude.h before it.

survey, layout  who does what of a nest, and where values lie, decided; body: written; vectors: several elements at once
reduction       sums across threads
"""
