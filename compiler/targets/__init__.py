"""The devices that kernels are built for.

targets          processors and GPUs, and the figures that planning uses of each
cuda_attributes  the attributes that are read from a CUDA device; the stitch op (C++) includes the same table, cuda_attributes.def
"""
