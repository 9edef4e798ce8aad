"""What kernels are made for.

targets          processors and GPUs, and what planning knows of each
cuda_attributes  what a CUDA device is asked for; the table, cuda_attributes.def, is also the stitch op's
"""
