/* A row of a matrix product: target[j] = sum over k of left(k) * right(k)[j] for j in [0, columns). The sums of a strip of columns are in
 * registers while k is walked once; left(k) is a number, right(k) points to `columns` numbers side by side. The last vector of a row
 * overlaps the one before it instead of being masked: the sums that both compute are the same.
 *
 * Each sum begins at 0 and adds its terms in order of k, by fused multiply-adds if the processor has them. Strips of few vectors have
 * CHAINS sums for each result, which take turns at k, since each addition would wait four cycles or more for the one before it.
 *
 * A kernel that calls none of this does not include it. */
#ifndef STITCHFLEET_KERNEL_PRODUCT_H_
#define STITCHFLEET_KERNEL_PRODUCT_H_

#if defined(__AVX512F__)
#define STITCH_VECTOR_BYTES 64
#define STITCH_STRIP 24 /* vectors of sums, of 32 registers */
#elif defined(__AVX__)
#define STITCH_VECTOR_BYTES 32
#define STITCH_STRIP 12 /* of 16 registers */
#else
#define STITCH_VECTOR_BYTES 16
#define STITCH_STRIP 12
#endif

template <class T, int LANES> struct StitchVector {
  typedef T Type __attribute__((vector_size(LANES * sizeof(T)), aligned(sizeof(T)), may_alias));
};

/* a * b + c, rounded once if the processor can; -ffp-contract=off keeps compilers from doing so on their own. */
template <class T, int LANES> struct StitchFused {
  typedef typename StitchVector<T, LANES>::Type V;
  STITCH_INLINE V apply(V a, V b, V c) {
#if defined(__clang__) && __has_builtin(__builtin_elementwise_fma)
    return __builtin_elementwise_fma(a, b, c);
#elif defined(__FMA__) && !defined(__clang__)
    if constexpr (sizeof(V) == 16 && sizeof(T) == 4) return __builtin_ia32_vfmaddps(a, b, c);
    if constexpr (sizeof(V) == 16 && sizeof(T) == 8) return __builtin_ia32_vfmaddpd(a, b, c);
    if constexpr (sizeof(V) == 32 && sizeof(T) == 4) return __builtin_ia32_vfmaddps256(a, b, c);
    if constexpr (sizeof(V) == 32 && sizeof(T) == 8) return __builtin_ia32_vfmaddpd256(a, b, c);
#if defined(__AVX512F__)
    if constexpr (sizeof(V) == 64 && sizeof(T) == 4) return __builtin_ia32_vfmaddps512_mask(a, b, c, (unsigned short)-1, 4);
    if constexpr (sizeof(V) == 64 && sizeof(T) == 8) return __builtin_ia32_vfmaddpd512_mask(a, b, c, (unsigned char)-1, 4);
#endif
#else
    return a * b + c;
#endif
  }
};

/* The widest vector of a row: a power of two of at most `columns` lanes. 1: there is none. */
template <class T> constexpr int stitch_product_lanes(int columns) {
  int lanes = STITCH_VECTOR_BYTES / (int)sizeof(T);
  while (lanes > columns) lanes /= 2;
  return lanes * (int)sizeof(T) < 16 ? 1 : lanes;
}

/* The sums of COUNT vectors of columns, of which `place(v)` is the first column of vector v. */
template <class T, int LANES, int COUNT, class Left, class Right, class Place>
STITCH_INLINE void stitch_product_strip(int terms, T* target, Left left, Right right, Place place) {
  typedef typename StitchVector<T, LANES>::Type V;
  constexpr int CHAINS = COUNT <= 2 ? 4 : COUNT <= 4 ? 2 : 1;
  V sums[CHAINS][COUNT];
#pragma GCC unroll 4
  for (int c = 0; c < CHAINS; ++c)
#pragma GCC unroll 24
    for (int v = 0; v < COUNT; ++v) sums[c][v] = V{};
  int k = 0;
  for (; k + CHAINS <= terms; k += CHAINS) {
#pragma GCC unroll 4
    for (int c = 0; c < CHAINS; ++c) {
      const V factor = V{} + left(k + c);
      const T* const row = right(k + c);
#pragma GCC unroll 24
      for (int v = 0; v < COUNT; ++v)
        sums[c][v] = StitchFused<T, LANES>::apply(factor, *(const V*)(row + place(v)), sums[c][v]);
    }
  }
  if constexpr (CHAINS > 1) {
    for (; k < terms; ++k) {
      const V factor = V{} + left(k);
      const T* const row = right(k);
#pragma GCC unroll 24
      for (int v = 0; v < COUNT; ++v)
        sums[0][v] = StitchFused<T, LANES>::apply(factor, *(const V*)(row + place(v)), sums[0][v]);
    }
  }
#pragma GCC unroll 24
  for (int v = 0; v < COUNT; ++v) {
    V sum = sums[0][v];
    if constexpr (CHAINS == 2) sum = sum + sums[1][v];
    if constexpr (CHAINS == 4) sum = (sum + sums[1][v]) + (sums[2][v] + sums[3][v]);
    *(V*)(target + place(v)) = sum;
  }
}

/* Vectors FIRST, FIRST + 1, ... of a row of COLUMNS columns, in strips of nearly the same size. */
template <int COLUMNS, int FIRST, class T, class Left, class Right>
STITCH_INLINE void stitch_product_strips(int terms, T* target, Left left, Right right) {
  constexpr int LANES = stitch_product_lanes<T>(COLUMNS);
  constexpr int VECTORS = (COLUMNS + LANES - 1) / LANES - FIRST;
  if constexpr (VECTORS > 0) {
    constexpr int STRIPS = (VECTORS + STITCH_STRIP - 1) / STITCH_STRIP;
    constexpr int COUNT = (VECTORS + STRIPS - 1) / STRIPS;
    stitch_product_strip<T, LANES, COUNT>(terms, target, left, right, [](int v) __attribute__((always_inline)) {
      const int column = (FIRST + v) * LANES;
      return column < COLUMNS - LANES ? column : COLUMNS - LANES;
    });
    stitch_product_strips<COLUMNS, FIRST + COUNT>(terms, target, left, right);
  }
}

template <class T, class Left, class Right>
STITCH_INLINE void stitch_product_single(int first, int last, int terms, T* target, Left left, Right right) {
  for (int j = first; j < last; ++j) {
    T sum = 0;
    for (int k = 0; k < terms; ++k) {
#if defined(__FMA__)
      sum = sizeof(T) == 4 ? (T)__builtin_fmaf(left(k), right(k)[j], sum) : (T)__builtin_fma(left(k), right(k)[j], sum);
#else
      sum = left(k) * right(k)[j] + sum;
#endif
    }
    target[j] = sum;
  }
}

template <int COLUMNS, class T, class Left, class Right>
STITCH_INLINE void stitch_product(int terms, T* target, Left left, Right right) {
  if constexpr (stitch_product_lanes<T>(COLUMNS) == 1) {
    stitch_product_single(0, COLUMNS, terms, target, left, right);
  } else {
    stitch_product_strips<COLUMNS, 0>(terms, target, left, right);
  }
}

/* The same if the number of columns is known at run time only. */
template <class T, class Left, class Right>
STITCH_INLINE void stitch_product_open(int columns, int terms, T* target, Left left, Right right) {
  constexpr int LANES = STITCH_VECTOR_BYTES / (int)sizeof(T), COUNT = 8;
  if (columns < LANES) return stitch_product_single(0, columns, terms, target, left, right);
  int first = 0;
  for (; first + COUNT * LANES <= columns; first += COUNT * LANES) {
    stitch_product_strip<T, LANES, COUNT>(terms, target, left, right, [=](int v) __attribute__((always_inline)) { return first + v * LANES; });
  }
  for (; first < columns; first += LANES) {
    const int place = first + LANES <= columns ? first : columns - LANES;
    stitch_product_strip<T, LANES, 1>(terms, target, left, right, [=](int) __attribute__((always_inline)) { return place; });
  }
}

#endif
