"""The TensorFlow operators in C++, and library.py, which builds and loads them.

op/      stitch_op, the Stitch and Update ops: registry of executables, a kernel's description, threads, variables
guard/   compare: two tensors within the guard's tolerance
gpu/     device_stitch_op, the same op on a GPU: CUDA's driver, a device kernel's image and launch
loop/    loop_op, a while loop as one op: TensorFlow's kernels inside an op, shortcuts, rows_product_op
graph/   graph_optimizer, which offers graphs to Python (gpu_optimizer: those with a GPU); random_stream and arm_mark, for two arms
"""
