// The comparison of two arrays of floats, without TensorFlow's headers.
//
// A step in which a kernel is compared should not take long: the arrays are as large as activations. So a block of elements is first
// looked at in vectors, in the arrays' own precision and with a margin for its rounding: whether any of its elements can be worse than
// the worst so far. Only then are its elements taken one by one, in float64. On random errors that is so for as many blocks as the
// logarithm of their number.

#ifndef STITCHFLEET_PLUGIN_NATIVE_GUARD_COMPARE_ELEMENTS_H_
#define STITCHFLEET_PLUGIN_NATIVE_GUARD_COMPARE_ELEMENTS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace stitchfleet {

// |actual - expected| <= relative * |expected| + of_largest * max|expected| + absolute, for each element; the maximum is over the
// finite elements. If all three are zero, the values must be equal.
struct Tolerance {
  double relative = 0.0;
  double of_largest = 0.0;
  double absolute = 0.0;
};

// The outcome of a comparison. worst_index: flat index of the element with the worst ratio, -1 if none differs; expected,
// actual: its two values.
struct Comparison {
  bool agree = true;
  int64_t worst_index = -1;
  double expected = 0.0, actual = 0.0;
  double largest_error = 0.0;  // largest |actual - expected| over finite elements
  double worst_ratio = 0.0;    // largest |actual - expected| / tolerance of the element; above 1: mismatch
};

namespace elements {

constexpr int64_t kBlock = 1024;

// Vectors of 16 bytes, which every processor has.
template <typename T> struct Lanes;
template <> struct Lanes<float> {
  typedef float Vector __attribute__((vector_size(16)));
  typedef int32_t Bits __attribute__((vector_size(16)));
  static constexpr int32_t kMagnitude = 0x7fffffff, kInfinity = 0x7f800000;
  static constexpr double kMargin = 1e-5;
};
template <> struct Lanes<double> {
  typedef double Vector __attribute__((vector_size(16)));
  typedef int64_t Bits __attribute__((vector_size(16)));
  static constexpr int64_t kMagnitude = 0x7fffffffffffffff, kInfinity = 0x7ff0000000000000;
  static constexpr double kMargin = 1e-12;
};

template <typename T> inline typename Lanes<T>::Vector Load(const T* place) {
  typename Lanes<T>::Vector loaded;
  std::memcpy(&loaded, place, sizeof loaded);
  return loaded;
}

// The largest magnitude of the finite elements of a block.
template <typename T> double LargestFinite(const T* x, int64_t count) {
  typedef typename Lanes<T>::Bits Bits;
  constexpr int64_t kWidth = sizeof(Bits) / sizeof(T);
  Bits largest = {};
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    Bits bits = (Bits)Load(x + i) & Lanes<T>::kMagnitude;
    bits &= bits < Lanes<T>::kInfinity;
    const Bits larger = bits > largest;
    largest = (bits & larger) | (largest & ~larger);
  }
  T lanes[kWidth];
  std::memcpy(lanes, &largest, sizeof lanes);
  double found = 0.0;
  for (T lane : lanes) found = std::max(found, static_cast<double>(lane));
  for (; i < count; ++i) {
    const double magnitude = std::fabs(static_cast<double>(x[i]));
    if (std::isfinite(magnitude)) found = std::max(found, magnitude);
  }
  return found;
}

// Whether surely no element of a block has a larger ratio or error than those in `so_far`. floor: the tolerance of a zero.
template <typename T>
bool IsNoWorse(const T* expected, const T* actual, int64_t count, double relative, double floor, const Comparison& so_far) {
  typedef typename Lanes<T>::Vector Vector;
  typedef typename Lanes<T>::Bits Bits;
  constexpr int64_t kWidth = sizeof(Bits) / sizeof(T);
  constexpr double kBelow = 1.0 - Lanes<T>::kMargin;
  const bool is_worst = std::isinf(so_far.worst_ratio);
  const T of_expected = is_worst ? T(0) : static_cast<T>(so_far.worst_ratio * relative * kBelow);
  const T least = is_worst ? std::numeric_limits<T>::infinity() : static_cast<T>(so_far.worst_ratio * floor * kBelow);
  const T most = static_cast<T>(so_far.largest_error * kBelow);
  Bits worse = {};
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    const Vector e = Load(expected + i), a = Load(actual + i);
    const Bits differs = e != a;  // of equal infinities the difference is NaN
    const Vector error = (Vector)((Bits)(a - e) & Lanes<T>::kMagnitude & differs);
    const Vector magnitude = (Vector)((Bits)e & Lanes<T>::kMagnitude);
    worse |= ~((error <= magnitude * of_expected + least) & (error <= most));
  }
  T lanes[kWidth];
  std::memcpy(lanes, &worse, sizeof lanes);
  static const T kNone[kWidth] = {};
  if (std::memcmp(lanes, kNone, sizeof lanes) != 0) return false;
  for (; i < count; ++i) {
    const T error = expected[i] == actual[i] ? T(0) : std::fabs(actual[i] - expected[i]);
    if (!(error <= std::fabs(expected[i]) * of_expected + least) || !(error <= most)) return false;
  }
  return true;
}

// Takes the elements of a block one by one. first: flat index of its first element.
template <typename T>
void CompareEach(const T* expected, const T* actual, int64_t count, int64_t first, double relative, double floor, Comparison* result) {
  for (int64_t i = 0; i < count; ++i) {
    const double e = static_cast<double>(expected[i]), a = static_cast<double>(actual[i]);
    double ratio = 0.0;
    if (e == a) continue;
    if (std::isfinite(e) && std::isfinite(a)) {
      const double error = std::fabs(a - e);
      if (error > result->largest_error) result->largest_error = error;
      const double allowed = relative * std::fabs(e) + floor;
      ratio = allowed > 0.0 ? error / allowed : std::numeric_limits<double>::infinity();
    } else if (!(std::isnan(e) && std::isnan(a))) {
      ratio = std::numeric_limits<double>::infinity();
    }
    if (ratio > result->worst_ratio) {
      result->worst_ratio = ratio;
      result->worst_index = first + i;
      result->expected = e;
      result->actual = a;
    }
  }
}

// A block of an array in the type in which it is compared: its own, or float32 for 16 bits. `room` has place for kBlock elements.
inline const float* Block(const float* x, int64_t, float*) { return x; }
inline const double* Block(const double* x, int64_t, double*) { return x; }
template <typename Narrow> const float* Block(const Narrow* x, int64_t count, float* room) {
  for (int64_t i = 0; i < count; ++i) room[i] = static_cast<float>(x[i]);
  return room;
}
template <typename T> struct Wide { typedef float Type; };
template <> struct Wide<double> { typedef double Type; };

}  // namespace elements

// Compares `count` floating-point numbers. NaN agrees only with NaN, and an infinity only with the same infinity.
template <typename T>
Comparison CompareFloats(const T* expected, const T* actual, int64_t count, const Tolerance& tolerance) {
  typedef typename elements::Wide<T>::Type Wide;
  Wide room_e[elements::kBlock], room_a[elements::kBlock];
  const auto each_block = [&](auto&& visit) {
    for (int64_t first = 0; first < count; first += elements::kBlock) {
      visit(first, std::min(elements::kBlock, count - first));
    }
  };
  double largest = 0.0;
  each_block([&](int64_t first, int64_t size) {
    largest = std::max(largest, elements::LargestFinite(elements::Block(expected + first, size, room_e), size));
  });
  const double floor = tolerance.of_largest * largest + tolerance.absolute;
  Comparison result;
  each_block([&](int64_t first, int64_t size) {
    const Wide* const e = elements::Block(expected + first, size, room_e);
    const Wide* const a = elements::Block(actual + first, size, room_a);
    if (elements::IsNoWorse(e, a, size, tolerance.relative, floor, result)) return;
    elements::CompareEach(e, a, size, first, tolerance.relative, floor, &result);
  });
  result.agree = result.worst_ratio <= 1.0;
  return result;
}

// The flat index of the first byte in which two arrays differ; -1 if they are equal.
inline int64_t FirstDifferent(const char* expected, const char* actual, int64_t bytes) {
  for (int64_t first = 0; first < bytes; first += elements::kBlock) {
    const int64_t size = std::min(elements::kBlock, bytes - first);
    if (std::memcmp(expected + first, actual + first, size) == 0) continue;
    int64_t at = first;
    while (expected[at] == actual[at]) ++at;
    return at;
  }
  return -1;
}

}  // namespace stitchfleet

#endif  // STITCHFLEET_PLUGIN_NATIVE_GUARD_COMPARE_ELEMENTS_H_
