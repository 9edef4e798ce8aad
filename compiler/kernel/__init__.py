"""A kernel as a file.

host_kernel  metadata, loading and calling one; stitch_abi.h is the interface, test_runtime.c the thread pool that checks use
cache        kernels by content, shared by processes
"""
