/* The beginning of generated CUDA kernels, before kernel_prelude.h: device versions of the builtins that its helpers use,
 * declarations of buffers, and what a group of threads does together. It needs no header of the CUDA toolkit.
 *
 * A buffer is declared by a macro, with its number of elements. On a device it becomes a pointer; an emulator that executes the same
 * text defines the macros first, and checks every access. */
#ifndef STITCHFLEET_CUDA_PRELUDE_H_
#define STITCHFLEET_CUDA_PRELUDE_H_

#define STITCH_CUDA 1
#define STITCH_INLINE static __device__ __forceinline__

/* Neighbouring elements that one instruction moves. */
template <class T, int N> struct alignas(sizeof(T) * N) StitchVector { T value[N]; };

#ifndef STITCH_EMULATOR
#define STITCH_LOAD_VECTOR(T, N, name, buffer, index) \
  const StitchVector<T, N> name = *(const StitchVector<T, N>*)((buffer) + (index))
/* The compiler must not see how the address of one step follows from that of the previous step: it would count from the middle of a
 * vector, and then no longer see that the four stores are one. */
#define STITCH_STORE_VECTOR(T, N, buffer, index, vector)  \
  {                                                       \
    long long place = (index);                            \
    asm("" : "+l"(place));                                \
    *(StitchVector<T, N>*)((buffer) + place) = vector;    \
  }
#define STITCH_ATOMIC(kind, buffer, index, value) atomic##kind((buffer) + (index), value)
#define STITCH_GLOBAL(T, name, pointer, elements) T* const name = (T*)(pointer)
#define STITCH_GLOBAL_CONST(T, name, pointer, elements) const T* const __restrict__ name = (const T*)(pointer)
#define STITCH_SHARED(T, name, offset, elements) T* const name = (T*)(stitch_shared + (offset))
#define STITCH_GRID_BARRIER_BEGIN()
#define STITCH_GRID_BARRIER_END()

extern __shared__ __align__(16) unsigned char stitch_shared[];

#define __builtin_memcpy memcpy
#define __builtin_fabs fabs
#define __builtin_fabsf fabsf
#define __builtin_sqrt sqrt
#define __builtin_sqrtf sqrtf
#define __builtin_floor floor
#define __builtin_floorf floorf
#define __builtin_ceil ceil
#define __builtin_ceilf ceilf
#define __builtin_rint rint
#define __builtin_rintf rintf
#define __builtin_trunc trunc
#define __builtin_truncf truncf
#define __builtin_copysign copysign
#define __builtin_copysignf copysignf
#define __builtin_fmaf fmaf
#define __builtin_fma fma
#define __builtin_popcountll __popcll
#define __builtin_clzll __clzll
#define __builtin_inf() __longlong_as_double(0x7ff0000000000000ll)
#define __builtin_inff() __int_as_float(0x7f800000)
#define __builtin_nan(text) __longlong_as_double(0x7ff8000000000000ll)
#define __builtin_nanf(text) __int_as_float(0x7fc00000)

/* f16 and bf16 by the device's own instructions, to nearest, ties to even: the results of kernel_prelude.h's bit forms, but for the
 * bits of a NaN. Those take about eight instructions for each rounding, and there is one after every operation. */
#define STITCH_CONVERTS_F16 1
STITCH_INLINE float stitch_from_f16(unsigned short half) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
  return value;
}
STITCH_INLINE unsigned short stitch_to_f16(float value) {
  unsigned short half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
  return half;
}
#if __CUDA_ARCH__ >= 800
#define STITCH_CONVERTS_BF16 1
/* A bf16 is the upper half of a float, so that a pair of bf16 whose lower one is 0 is the rounded float. */
STITCH_INLINE float stitch_round_bf16(float value) {
  unsigned pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(value), "f"(0.0f));
  return __uint_as_float(pair);
}
#endif
#endif

/* Elements of a vector of bf16, taken and put in pairs, which are what registers hold: a bf16 is the upper half of a float, so one
 * instruction makes a float of either half, and one makes a pair of two floats. Element by element it is two instructions each. An
 * element is put after the one before it. */
template <int N> STITCH_INLINE float stitch_take_bf16(const StitchVector<unsigned short, N>& vector, int element) {
  unsigned pair;
  __builtin_memcpy(&pair, &vector.value[element & ~1], sizeof pair);
  return __builtin_bit_cast(float, element & 1 ? pair & 0xffff0000u : pair << 16);
}
template <int N> STITCH_INLINE void stitch_put_bf16(StitchVector<unsigned short, N>& vector, int element, float value) {
  unsigned pair = 0;
  if (element & 1) __builtin_memcpy(&pair, &vector.value[element & ~1], sizeof pair);
  const unsigned bits = __builtin_bit_cast(unsigned, value);
  pair = element & 1 ? pair >> 16 | (bits & 0xffff0000u) : bits;
  __builtin_memcpy(&vector.value[element & ~1], &pair, sizeof pair);
}

/* The same if the buffer's address may not be aligned to a vector (`aligned` says whether it is): the same elements, one by one. */
#define STITCH_LOAD_NEIGHBOURS(T, N, name, buffer, index, aligned)                               \
  StitchVector<T, N> name;                                                                       \
  if (aligned) {                                                                                 \
    STITCH_LOAD_VECTOR(T, N, whole, buffer, index);                                              \
    name = whole;                                                                                \
  } else {                                                                                       \
    _Pragma("unroll") for (int one = 0; one < N; ++one) name.value[one] = (buffer)[(index) + one]; \
  }
#define STITCH_STORE_NEIGHBOURS(T, N, buffer, index, vector, aligned)                              \
  if (aligned) {                                                                                   \
    STITCH_STORE_VECTOR(T, N, buffer, index, vector);                                              \
  } else {                                                                                         \
    _Pragma("unroll") for (int one = 0; one < N; ++one) (buffer)[(index) + one] = (vector).value[one]; \
  }

/* The mask of the threads of the warp that are in this thread's group of T. */
template <int T> STITCH_INLINE unsigned stitch_group_mask() {
  return T >= 32 ? 0xffffffffu : ((1u << (T & 31)) - 1u) << (threadIdx.x & 31u & ~(unsigned)(T - 1));
}

/* Makes what the threads of a group wrote visible to all of them, after all of them have finished their reads. */
template <int T> STITCH_INLINE void stitch_group_sync() {
  if (T > 32) __syncthreads();
  else if (T > 1) __syncwarp(stitch_group_mask<T>());
}

/* Shuffles do not exist for small types. */
template <class V> struct StitchShuffled { typedef V Type; };
template <> struct StitchShuffled<bool> { typedef int Type; };
template <> struct StitchShuffled<signed char> { typedef int Type; };
template <> struct StitchShuffled<unsigned char> { typedef int Type; };
template <> struct StitchShuffled<short> { typedef int Type; };
template <> struct StitchShuffled<unsigned short> { typedef int Type; };

/* The `value` of another thread of a group of W <= 32: the thread whose number differs in the bits of `distance`, or the first
 * thread. */
template <int W, class V> STITCH_INLINE V stitch_shuffle_xor(V value, int distance) {
  typedef typename StitchShuffled<V>::Type S;
  return (V)__shfl_xor_sync(stitch_group_mask<W>(), (S)value, distance);
}
template <int W, class V> STITCH_INLINE V stitch_shuffle_first(V value) {
  typedef typename StitchShuffled<V>::Type S;
  return (V)__shfl_sync(stitch_group_mask<W>(), (S)value, (threadIdx.x & 31u) & ~(unsigned)(W - 1));
}

/* A mask with one bit per thread of the warp: 1 if the thread's `value` is not 0. All threads of the warp must take part. */
STITCH_INLINE unsigned stitch_ballot(unsigned value) { return __ballot_sync(0xffffffffu, value != 0); }

/* Combines `value` of all threads of the group, always in the same order; every thread gets the same bits. `scratch`: offset, in
 * bytes of shared memory, of room for one value per warp; used only by groups of several warps. */
template <int T, class V, class F> STITCH_INLINE V stitch_group_reduce(V value, F combine, int scratch) {
  constexpr int W = T < 32 ? T : 32;
  for (int distance = W / 2; distance > 0; distance /= 2) {
    value = combine(value, stitch_shuffle_xor<W>(value, distance));
  }
  if (T > 32) {
    STITCH_SHARED(V, parts, scratch, T / 32);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    V total = parts[0];
    for (int warp = 1; warp < T / 32; ++warp) total = combine(total, parts[warp]);
    __syncthreads();
    return total;
  }
  /* The two threads of an exchange combine in opposite orders: for a maximum of 0 and -0 they keep different zeros. */
  return W > 1 ? stitch_shuffle_first<W>(value) : value;
}

/* Combines `value` with the values of the threads before it in the group; `total` is that of all threads. The order is always the
 * same. Within a warp, each thread adds the value of the thread 1, 2, 4, ... before it. scratch: as for a reduction. */
template <int T, class V, class F> STITCH_INLINE V stitch_group_scan(V value, V& total, F combine, int scratch) {
  typedef typename StitchShuffled<V>::Type S;
  constexpr int W = T < 32 ? T : 32;
  const unsigned mask = stitch_group_mask<W>();
  const int in_warp = threadIdx.x & 31, lane = in_warp & (W - 1);
  for (int distance = 1; distance < W; distance *= 2) {
    const V before = (V)__shfl_sync(mask, (S)value, lane >= distance ? in_warp - distance : in_warp);
    value = lane >= distance ? combine(before, value) : value;
  }
  total = W > 1 ? (V)__shfl_sync(mask, (S)value, in_warp - lane + W - 1) : value;
  if (T > 32) {
    STITCH_SHARED(V, parts, scratch, T / 32);
    const int warp = threadIdx.x / 32;
    if (in_warp == 31) parts[warp] = value;
    __syncthreads();
    V before = parts[0];
    total = before;
    for (int other = 1; other < T / 32; ++other) {
      before = other == warp ? total : before;
      total = combine(total, parts[other]);
    }
    value = warp > 0 ? combine(before, value) : value;
    __syncthreads();
  }
  return value;
}

/* All blocks of the grid wait for each other. They must be co-resident (cooperative launch). `semaphore` is 0 before the first
 * launch; afterwards all of its bits except the top one are 0; it belongs to one launch at a time. Block 0 adds the number that makes
 * the sum over all blocks 2^31, so that the top bit flips when the last block has arrived (the form of Inductor's x_grid_barrier). */
STITCH_INLINE void stitch_grid_barrier(unsigned* semaphore) {
  STITCH_GRID_BARRIER_BEGIN();
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    const unsigned before = atomicAdd(semaphore, blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1u) : 1u);
    while (((*(volatile unsigned*)semaphore ^ before) & 0x80000000u) == 0) {
#if defined(STITCH_EMULATOR) || __CUDA_ARCH__ >= 700
      __nanosleep(20);
#endif
    }
    __threadfence();
  }
  __syncthreads();
  STITCH_GRID_BARRIER_END();
}

#endif /* STITCHFLEET_CUDA_PRELUDE_H_ */
