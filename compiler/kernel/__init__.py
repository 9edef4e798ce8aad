"""A built kernel as a file.

metadata     what a caller must know of a kernel
host_kernel  loads and calls one; stitch_abi.h is the interface, test_runtime.c the thread pool that checks use
cache        kernels on disk by content, shared by processes
"""
