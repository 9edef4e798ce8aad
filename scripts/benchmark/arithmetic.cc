// How many floating-point operations a core does per second, from registers alone: loops of independent multiply-adds on one thread.
// arithmetic.py compiles and calls it. Each function returns the number of operations that it did, 0 if this processor or the
// system has no such arithmetic.

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(__AMX_BF16__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace {

volatile float sink;

// Enough independent sums to hide the latency of a multiply-add (4 cycles) on two units, few enough for the registers.
#if defined(__AVX512F__)
constexpr int kSums = 24;
using Vector = __m512;
inline Vector Spread(float x) { return _mm512_set1_ps(x); }
inline Vector MultiplyAdd(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
inline float Any(Vector a) { return _mm512_cvtss_f32(a); }
#elif defined(__FMA__)
constexpr int kSums = 12;
using Vector = __m256;
inline Vector Spread(float x) { return _mm256_set1_ps(x); }
inline Vector MultiplyAdd(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
inline float Any(Vector a) { return _mm256_cvtss_f32(a); }
#else
constexpr int kSums = 12;
typedef float Vector __attribute__((vector_size(16)));
inline Vector Spread(float x) { return Vector{x, x, x, x}; }
inline Vector MultiplyAdd(Vector a, Vector b, Vector c) { return a * b + c; }
inline float Any(Vector a) { return a[0]; }
#endif

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

// float32 by the widest vectors.
EXPORT double float32(long turns) {
  Vector sums[kSums];
  for (int i = 0; i < kSums; ++i) sums[i] = Spread(0.1f * i);
  const Vector factor = Spread(0.999f), term = Spread(0.001f);
  for (long turn = 0; turn < turns; ++turn) {
#pragma GCC unroll 24
    for (int i = 0; i < kSums; ++i) sums[i] = MultiplyAdd(sums[i], factor, term);
  }
  for (int i = 1; i < kSums; ++i) sums[0] = sums[0] + sums[i];
  sink = Any(sums[0]);
  return 2.0 * turns * kSums * (sizeof(Vector) / sizeof(float));
}

// bfloat16 by AMX's tiles: 16 x 16 sums of 32 products each per instruction.
EXPORT double bfloat16_tiles(long turns) {
#if defined(__AMX_BF16__)
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // Linux, arch/x86/include/uapi/asm/prctl.h
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0) return 0;
  struct alignas(64) {
    unsigned char palette = 1, start = 0, reserved[14] = {};
    unsigned short row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    unsigned char rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } tiles;
  // gcc 12 takes _tile_loadconfig for a read of eight bytes, and would not store the rest.
  asm volatile("" : : "r"(&tiles) : "memory");
  _tile_loadconfig(&tiles);
  _tile_zero(0); _tile_zero(1); _tile_zero(2); _tile_zero(3);
  _tile_zero(4); _tile_zero(5); _tile_zero(6); _tile_zero(7);
  for (long turn = 0; turn < turns; ++turn) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 5, 6);
    _tile_dpbf16ps(2, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
  return 2.0 * turns * 4 * 16 * 16 * 32;
#else
  return 0.0 * turns;
#endif
}
