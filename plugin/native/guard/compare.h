// Compares a kernel's output with TensorFlow's own, element by element, on the job's real tensors.

#ifndef STITCHFLEET_PLUGIN_NATIVE_GUARD_COMPARE_H_
#define STITCHFLEET_PLUGIN_NATIVE_GUARD_COMPARE_H_

#include <cstdint>

#include "guard/compare_elements.h"
#include "tensorflow/core/framework/tensor.h"

namespace stitchfleet {

// The tolerance for two sums of the same `terms` products, added in different orders: (terms + 16) times the unit roundoff of
// float64 (of float32 for any other dtype), relative to the largest result, since each addition rounds by at most half a unit
// in the last place of the partial sum. The 16 are for short sums. A bf16 is added up in float32: there is a unit roundoff of bf16 for
// the rounding of both results, relative to each, and one more for each further of the `parts` in which one of them was added up and
// rounded, relative to the largest.
Tolerance OfReorderedSums(int64_t terms, tensorflow::DataType dtype, int64_t parts = 1);

// Compares all elements of two tensors in the host's memory. NaN agrees only with NaN, and an infinity only with the same
// infinity. Integers and booleans must be equal. Tensors of different dtype or shape do not agree.
Comparison Compare(const tensorflow::Tensor& expected, const tensorflow::Tensor& actual, const Tolerance& tolerance);

}  // namespace stitchfleet

#endif  // STITCHFLEET_PLUGIN_NATIVE_GUARD_COMPARE_H_
