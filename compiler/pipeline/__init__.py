"""From a graph to a kernel in the cache.

pipeline      on a processor: stages, build, self-check; pipeline_cuda: for a GPU; launch: its block size and registers
cuda_runtime  runs a kernel on a GPU outside of TensorFlow; cuda_compare.h: the guard's comparison on the device
"""
