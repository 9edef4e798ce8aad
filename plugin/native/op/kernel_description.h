// The description of a kernel that Python passes to the op. library.py has the same struct (KernelDescription), field by field; their
// sizes are compared when the library is loaded.

#ifndef STITCHFLEET_PLUGIN_NATIVE_OP_KERNEL_DESCRIPTION_H_
#define STITCHFLEET_PLUGIN_NATIVE_OP_KERNEL_DESCRIPTION_H_

#include <cstdint>

extern "C" {

struct StitchfleetKernel {
  const char* symbol;
  const char* library;  // CPU: the shared library's path; nullptr for a GPU kernel
  const char* image;    // GPU: the image that the driver loads
  int64_t image_bytes;
  int64_t scratch_bytes;
  int64_t parallel_phases;  // number of phases that threads may share
  int64_t input_count;
  const int64_t* inputs;  // numbers of the op's inputs that the kernel takes, in its order
  int64_t output_count;
  const int64_t* output_dtypes;  // DataType numbers
  const int64_t* output_shapes;  // per output: rank, then extents
  const double* tolerances;      // per output: relative, of_largest (compare.h)
  int64_t alias_count;
  const int64_t* aliases;  // pairs (output, op input whose buffer it may use)
  int64_t parameter_count;
  const int64_t* parameters;  // this shape's parameters of a binary for many shapes
  int64_t grid, block, shared_bytes, cooperative, by_table;  // GPU: the launch (device_kernel.h)
  int64_t tensor_count;
  const int64_t* tensors;  // GPU: pairs (kind, number) of the tensors that the kernel takes (device_kernel.h)
};

}  // extern "C"

#endif  // STITCHFLEET_PLUGIN_NATIVE_OP_KERNEL_DESCRIPTION_H_
