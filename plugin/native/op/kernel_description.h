// A kernel as Python describes it to the op. library.py has the same struct (KernelDescription), field by field; that both have the
// same size is looked at when the library is loaded.

#ifndef STITCHFLEET_PLUGIN_NATIVE_OP_KERNEL_DESCRIPTION_H_
#define STITCHFLEET_PLUGIN_NATIVE_OP_KERNEL_DESCRIPTION_H_

#include <cstdint>

extern "C" {

struct StitchfleetKernel {
  const char* symbol;
  const char* library;  // the file of a processor's; nullptr for a GPU's
  const char* image;    // of a GPU's, what the driver loads
  int64_t image_bytes;
  int64_t scratch_bytes;
  int64_t parallel_phases;  // phases that threads may share
  int64_t input_count;
  const int64_t* inputs;  // which of the op's inputs are the kernel's, in order
  int64_t output_count;
  const int64_t* output_dtypes;  // DataType
  const int64_t* output_shapes;  // of each its rank, then its extents
  const double* tolerances;      // of each: relative, of the largest
  int64_t alias_count;
  const int64_t* aliases;  // pairs: output, op input
  int64_t parameter_count;
  const int64_t* parameters;  // of a binary for many shapes: what makes it this shape's
  int64_t grid, block, shared_bytes, cooperative, by_table;  // of a GPU's: how it is launched
  int64_t tensor_count;
  const int64_t* tensors;  // of a GPU's: pairs of what it takes: kind (device_kernel.h), number
};

}  // extern "C"

#endif  // STITCHFLEET_PLUGIN_NATIVE_OP_KERNEL_DESCRIPTION_H_
