#include "guard/compare.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "tensorflow/core/framework/types.h"

namespace stitchfleet {
namespace {

Comparison CompareBytes(const tensorflow::Tensor& expected, const tensorflow::Tensor& actual) {
  Comparison result;
  const auto e = expected.tensor_data(), a = actual.tensor_data();
  const size_t width = std::max(1, tensorflow::DataTypeSize(expected.dtype()));
  const int64_t at = FirstDifferent(e.data(), a.data(), e.size());
  if (at < 0) return result;
  result.agree = false;
  result.worst_index = at / static_cast<int64_t>(width);
  result.worst_ratio = std::numeric_limits<double>::infinity();
  int64_t whole[2] = {0, 0};  // little-endian: the low bytes of the element
  const size_t start = result.worst_index * width;
  std::memcpy(&whole[0], e.data() + start, std::min<size_t>(width, 8));
  std::memcpy(&whole[1], a.data() + start, std::min<size_t>(width, 8));
  result.expected = static_cast<double>(whole[0]);
  result.actual = static_cast<double>(whole[1]);
  return result;
}

}  // namespace

Tolerance OfReorderedSums(int64_t terms, tensorflow::DataType dtype, int64_t parts) {
  const int bits = dtype == tensorflow::DT_DOUBLE ? 53 : 24;
  const double rounding = dtype == tensorflow::DT_BFLOAT16 ? std::ldexp(1.0, -8) : 0.0;
  return {rounding, std::ldexp(static_cast<double>(terms + 16), -bits) + static_cast<double>(parts - 1) * rounding, 0.0};
}

Comparison Compare(const tensorflow::Tensor& expected, const tensorflow::Tensor& actual, const Tolerance& tolerance) {
  if (expected.dtype() != actual.dtype() || expected.shape() != actual.shape()) {
    Comparison result;
    result.agree = false;
    result.worst_ratio = std::numeric_limits<double>::infinity();
    return result;
  }
  const int64_t count = expected.NumElements();
  const char* e = expected.tensor_data().data();
  const char* a = actual.tensor_data().data();
  switch (expected.dtype()) {
    case tensorflow::DT_FLOAT:
      return CompareFloats(reinterpret_cast<const float*>(e), reinterpret_cast<const float*>(a), count, tolerance);
    case tensorflow::DT_DOUBLE:
      return CompareFloats(reinterpret_cast<const double*>(e), reinterpret_cast<const double*>(a), count, tolerance);
    case tensorflow::DT_HALF:
      return CompareFloats(reinterpret_cast<const Eigen::half*>(e), reinterpret_cast<const Eigen::half*>(a), count, tolerance);
    case tensorflow::DT_BFLOAT16:
      return CompareFloats(reinterpret_cast<const Eigen::bfloat16*>(e), reinterpret_cast<const Eigen::bfloat16*>(a), count, tolerance);
    default:
      return CompareBytes(expected, actual);
  }
}

}  // namespace stitchfleet
