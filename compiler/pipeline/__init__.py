"""From a graph to a kernel in the cache.

backend       what a backend is: identity, stages, compile; backends: which there are
cpu           C++ for a processor: build, self-check; cuda: for a GPU; launch: its block size and registers
cuda_runtime  runs a kernel on a GPU outside of TensorFlow; cuda_compare.h: the guard's comparison on the device
"""
