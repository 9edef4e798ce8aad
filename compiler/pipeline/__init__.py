"""From a graph to a kernel in the cache.

backend       the interface of a backend: identity, stages, compile; backends: the table of them
cpu           C++ for a CPU: build, self-check; cuda: CUDA C for a GPU; launch: searches a kernel's block size and registers
cuda_runtime  runs a kernel on a GPU outside of TensorFlow; cuda_compare.h: the guard's comparison on the device
"""
