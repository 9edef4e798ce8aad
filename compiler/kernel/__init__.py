"""A kernel as a file.

metadata     what is known of one
host_kernel  loading and calling one; stitch_abi.h is the interface, test_runtime.c the thread pool that checks use
cache        kernels by content, shared by processes
"""
