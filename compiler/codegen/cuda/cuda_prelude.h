/* What generated CUDA kernels begin with, in front of kernel_prelude.h: device versions of the builtins that its helpers use, how
 * buffers are declared, and what a group of threads does together. Needs no header of the CUDA toolkit.
 *
 * A buffer is declared by a macro with its number of elements. On a device that is a pointer; an emulator that executes the same text
 * defines the macros before, and checks every access. */
#ifndef STITCHFLEET_CUDA_PRELUDE_H_
#define STITCHFLEET_CUDA_PRELUDE_H_

#define STITCH_CUDA 1
#define STITCH_INLINE static __device__ __forceinline__

/* Neighbouring elements that one instruction moves. */
template <class T, int N> struct alignas(sizeof(T) * N) StitchVector { T value[N]; };

#ifndef STITCH_EMULATOR
#define STITCH_LOAD_VECTOR(T, N, name, buffer, index) \
  const StitchVector<T, N> name = *(const StitchVector<T, N>*)((buffer) + (index))
/* The compiler must not see how one turn's address follows from the last one's: it would count from the middle of a vector, and then
 * no longer see that the four stores are one. */
#define STITCH_STORE_VECTOR(T, N, buffer, index, vector)  \
  {                                                       \
    long long place = (index);                            \
    asm("" : "+l"(place));                                \
    *(StitchVector<T, N>*)((buffer) + place) = vector;    \
  }
#define STITCH_GLOBAL(T, name, pointer, elements) T* const name = (T*)(pointer)
#define STITCH_GLOBAL_CONST(T, name, pointer, elements) const T* const __restrict__ name = (const T*)(pointer)
#define STITCH_SHARED(T, name, offset, elements) T* const name = (T*)(stitch_shared + (offset))
#define STITCH_GRID_BARRIER_BEGIN()
#define STITCH_GRID_BARRIER_END()

extern __shared__ __align__(16) unsigned char stitch_shared[];

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
#endif

/* The same where the buffer's address may not be a vector's, which `aligned` says: the very elements one by one. */
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

/* Which threads of the warp are in this thread's group of T. */
template <int T> STITCH_INLINE unsigned stitch_group_mask() {
  return T >= 32 ? 0xffffffffu : ((1u << (T & 31)) - 1u) << (threadIdx.x & 31u & ~(unsigned)(T - 1));
}

/* What the threads of a group wrote is visible to all of them, and all have read what they wanted to. */
template <int T> STITCH_INLINE void stitch_group_sync() {
  if (T > 32) __syncthreads();
  else if (T > 1) __syncwarp(stitch_group_mask<T>());
}

/* Shuffles have no small types. */
template <class V> struct StitchShuffled { typedef V Type; };
template <> struct StitchShuffled<bool> { typedef int Type; };
template <> struct StitchShuffled<signed char> { typedef int Type; };
template <> struct StitchShuffled<unsigned char> { typedef int Type; };
template <> struct StitchShuffled<short> { typedef int Type; };
template <> struct StitchShuffled<unsigned short> { typedef int Type; };

/* The `value` of another thread of a group of W <= 32: of the one whose number differs by the bits of `distance`, of the first. */
template <int W, class V> STITCH_INLINE V stitch_shuffle_xor(V value, int distance) {
  typedef typename StitchShuffled<V>::Type S;
  return (V)__shfl_xor_sync(stitch_group_mask<W>(), (S)value, distance);
}
template <int W, class V> STITCH_INLINE V stitch_shuffle_first(V value) {
  typedef typename StitchShuffled<V>::Type S;
  return (V)__shfl_sync(stitch_group_mask<W>(), (S)value, (threadIdx.x & 31u) & ~(unsigned)(W - 1));
}

/* `value` of all threads of the group combined, in an order that is always the same; every thread has the same bits of it after.
 * `scratch`: the byte in shared memory from which on there is room for a value of each warp; used by groups of several. */
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
  /* The two of an exchange combine in opposite orders: of a maximum of 0 and -0 they keep different ones. */
  return W > 1 ? stitch_shuffle_first<W>(value) : value;
}

/* `value` combined with those of the threads before it in the group; `total`: that of all. The order is always the same. Within a warp
 * each thread takes what the one 1, 2, 4, ... before it has. scratch: as for a reduction. */
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
 * launch, is left with all but its top bit 0, and belongs to one launch at a time: block 0 adds what makes the sum over all blocks
 * 2^31, so that the top bit turns when the last one has come (the form of Inductor's x_grid_barrier). */
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
