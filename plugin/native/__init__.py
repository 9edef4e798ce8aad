"""The TensorFlow ops in C++; library.py builds, loads and calls them.

op/      stitch_op: the Stitch and Update ops; hand_on_op: what it makes ready runs first; registry of executables, a kernel's
         description, threads, variables; interface.def: fields and numbers that Python reads too; large_buffers: memory for large
         results, kept from step to step
guard/   compare: compares two tensors within the guard's tolerance
gpu/     device_stitch_op: the same ops on a GPU; CUDA's driver, a device kernel's image and launch
products/  two_kernels: the faster one of two of TensorFlow's kernels, for convolution_gradient_op and batch_product_op
loop/    loop_op: a while loop as one op, by TensorFlow's kernels and shortcuts; rows_product_op
graph/   graph_optimizer: offers graphs to Python (gpu_optimizer: graphs with a GPU); random_stream and arm_mark, for the two arms
"""
