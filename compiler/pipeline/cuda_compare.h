/* The guard's comparison on the device: what the plugin's compare.cc does on the CPU, done by many threads.
 *
 * It follows cuda_prelude.h and kernel_prelude.h in a kernel's text, so that a kernel's image contains its own comparison. Each
 * thread stores one result, and the CPU combines them: the result depends on no order of threads and no atomic operation. */
#ifndef STITCHFLEET_CUDA_COMPARE_H_
#define STITCHFLEET_CUDA_COMPARE_H_

/* Must match ComparedPart in plugin/native/gpu/device_kernel.h. worst_index -1: no element differs. */
struct StitchCompared {
  double largest, worst_ratio, largest_error, expected, actual;
  long long worst_index;
};

/* kind: 0 float, 1 double, 2 half, 3 bfloat16. */
STITCH_INLINE double stitch_compared_element(const void* data, long long i, int kind) {
  if (kind == 0) return ((const float*)data)[i];
  if (kind == 1) return ((const double*)data)[i];
  const unsigned short half = ((const unsigned short*)data)[i];
  return kind == 2 ? stitch_from_f16(half) : stitch_from_bf16(half);
}

STITCH_INLINE bool stitch_is_finite(double value) { return value - value == 0.0; }

/* For each thread, the largest |expected| among its elements that are finite. */
extern "C" __global__ void stitch_largest(const void* expected, long long count, int kind, StitchCompared* parts) {
  const long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x, stride = (long long)gridDim.x * blockDim.x;
  double largest = 0.0;
  for (long long i = first; i < count; i += stride) {
    const double magnitude = __builtin_fabs(stitch_compared_element(expected, i, kind));
    if (magnitude > largest && stitch_is_finite(magnitude)) largest = magnitude;
  }
  parts[first].largest = largest;
}

/* The worst of each thread's elements by |actual - expected| over relative * |expected| + floor; infinite if an element that must be
 * equal is not. A kind below 0: whole elements of -kind bytes, which must be equal to the last bit. */
extern "C" __global__ void stitch_compare(const void* expected, const void* actual, long long count, int kind, double relative,
                                          double floor, StitchCompared* parts) {
  const long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x, stride = (long long)gridDim.x * blockDim.x;
  StitchCompared worst = {0.0, 0.0, 0.0, 0.0, 0.0, -1};
  for (long long i = first; i < count; i += stride) {
    double e, a, ratio;
    if (kind < 0) {
      unsigned long long bits[2] = {0, 0};
      for (int byte = 0; byte < -kind; ++byte) {
        bits[0] |= (unsigned long long)((const unsigned char*)expected)[i * -kind + byte] << (8 * (byte & 7));
        bits[1] |= (unsigned long long)((const unsigned char*)actual)[i * -kind + byte] << (8 * (byte & 7));
      }
      if (bits[0] == bits[1]) continue;
      e = (double)(long long)bits[0];
      a = (double)(long long)bits[1];
      ratio = __builtin_inf();
    } else {
      e = stitch_compared_element(expected, i, kind);
      a = stitch_compared_element(actual, i, kind);
      if (e == a || (e != e && a != a)) continue;
      ratio = __builtin_inf();
      if (stitch_is_finite(e) && stitch_is_finite(a)) {
        const double error = __builtin_fabs(a - e), allowed = relative * __builtin_fabs(e) + floor;
        if (error > worst.largest_error) worst.largest_error = error;
        if (allowed > 0.0) ratio = error / allowed;
      }
    }
    if (ratio > worst.worst_ratio) {
      worst.worst_ratio = ratio;
      worst.worst_index = i;
      worst.expected = e;
      worst.actual = a;
    }
  }
  parts[first] = worst;
}

#endif /* STITCHFLEET_CUDA_COMPARE_H_ */
