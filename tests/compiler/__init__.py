"""Tests of the compiler, in a folder for each folder of compiler/.

ptx                     has no twin there: NVRTC's PTX of the kernels, executed without a GPU
library, strategies     graphs that many tests use, by name and at random; tensorflow_functions: the same from TensorFlow
native, emulated        build and judge kernels: for the CPU, and for the GPU in the emulator (cuda_emulator, emulated_driver_builder)
runner                  runs a kernel in a process of its own
"""
