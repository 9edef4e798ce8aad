// Comparing a kernel's output with TensorFlow's own, element by element, on the job's real tensors.

#ifndef STITCHFLEET_PLUGIN_NATIVE_GUARD_COMPARE_H_
#define STITCHFLEET_PLUGIN_NATIVE_GUARD_COMPARE_H_

#include <cstdint>

#include "tensorflow/core/framework/tensor.h"

namespace stitchfleet {

// |actual - expected| <= relative * |expected| + of_largest * max|expected| + absolute, elementwise; all zero means bit for bit.
struct Tolerance {
  double relative = 0.0;
  double of_largest = 0.0;
  double absolute = 0.0;
};

struct Comparison {
  bool agree = true;
  int64_t worst_index = -1;
  double expected = 0.0, actual = 0.0;
  double largest_error = 0.0;  // largest |actual - expected| over finite elements
  double worst_ratio = 0.0;    // largest error over what was allowed there; above 1 means a mismatch
};

// NaN agrees with NaN and an infinity with the same infinity only. Integers and booleans must be equal.
Comparison Compare(const tensorflow::Tensor& expected, const tensorflow::Tensor& actual, const Tolerance& tolerance);

}  // namespace stitchfleet

#endif  // STITCHFLEET_PLUGIN_NATIVE_GUARD_COMPARE_H_
