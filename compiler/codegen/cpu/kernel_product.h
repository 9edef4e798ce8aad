/* Rows of a matrix product: target[i * stride + j] = sum over k of left(i, k) * right(k)[j], for some rows i at once and for j in
 * [0, columns). The sums of a strip of columns are in registers while k is walked once; left(i, k) is a number, right(k) points to
 * `columns` numbers side by side. The last vector of a row overlaps the one before it instead of being masked: the sums that both compute
 * are the same.
 *
 * Each sum begins at 0 and adds its terms in order of k, by fused multiply-adds if the processor has them. Strips of few sums have CHAINS
 * sums for each result, which take turns at k, since each addition would wait four cycles or more for the one before it.
 *
 * A kernel that calls none of this does not include it. */
#ifndef STITCHFLEET_KERNEL_PRODUCT_H_
#define STITCHFLEET_KERNEL_PRODUCT_H_

#if defined(__AVX512F__)
#define STITCH_VECTOR_BYTES 64
#define STITCH_SUMS 24 /* vectors of sums, of 32 registers */
#elif defined(__AVX__)
#define STITCH_VECTOR_BYTES 32
#define STITCH_SUMS 12 /* of 16 registers */
#else
#define STITCH_VECTOR_BYTES 16
#define STITCH_SUMS 12
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

/* The sums of ROWS rows and COUNT vectors of columns, of which `place(v)` is the first column of vector v. */
template <class T, int LANES, int ROWS, int COUNT, class Left, class Right, class Place>
STITCH_INLINE void stitch_product_strip(int terms, long long stride, T* target, Left left, Right right, Place place) {
  typedef typename StitchVector<T, LANES>::Type V;
  constexpr int CHAINS = ROWS * COUNT <= 3 ? 4 : ROWS * COUNT <= 6 ? 2 : 1;
  V sums[CHAINS][ROWS][COUNT];
#pragma GCC unroll 4
  for (int c = 0; c < CHAINS; ++c)
#pragma GCC unroll 6
    for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 24
      for (int v = 0; v < COUNT; ++v) sums[c][i][v] = V{};
  const auto add = [&](V(&to)[ROWS][COUNT], int k) __attribute__((always_inline)) {
    const T* const row = right(k);
    V factors[COUNT];
#pragma GCC unroll 24
    for (int v = 0; v < COUNT; ++v) factors[v] = *(const V*)(row + place(v));
#pragma GCC unroll 6
    for (int i = 0; i < ROWS; ++i) {
      const V factor = left(i, k) - V{}; /* x - 0 is x, also for -0: all lanes are x, without an addition */
#pragma GCC unroll 24
      for (int v = 0; v < COUNT; ++v) to[i][v] = StitchFused<T, LANES>::apply(factor, factors[v], to[i][v]);
    }
  };
  int k = 0;
  for (; k + CHAINS <= terms; k += CHAINS) {
#pragma GCC unroll 4
    for (int c = 0; c < CHAINS; ++c) add(sums[c], k + c);
  }
  if constexpr (CHAINS > 1) {
    for (; k < terms; ++k) add(sums[0], k);
  }
#pragma GCC unroll 6
  for (int i = 0; i < ROWS; ++i) {
#pragma GCC unroll 24
    for (int v = 0; v < COUNT; ++v) {
      V sum = sums[0][i][v];
      if constexpr (CHAINS == 2) sum = sum + sums[1][i][v];
      if constexpr (CHAINS == 4) sum = (sum + sums[1][i][v]) + (sums[2][i][v] + sums[3][i][v]);
      *(V*)(target + i * stride + place(v)) = sum;
    }
  }
}

/* Rows of COLUMNS columns, in strips of nearly the same size. */
template <int COLUMNS, int ROWS, class T, class Left, class Right>
STITCH_INLINE void stitch_product_strips(int terms, long long stride, T* target, Left left, Right right) {
  constexpr int LANES = stitch_product_lanes<T>(COLUMNS), VECTORS = (COLUMNS + LANES - 1) / LANES;
  constexpr int MOST = STITCH_SUMS / ROWS, STRIPS = (VECTORS + MOST - 1) / MOST, COUNT = (VECTORS + STRIPS - 1) / STRIPS;
  constexpr int WHOLE = COLUMNS / LANES / COUNT, REST = VECTORS - WHOLE * COUNT;
  for (int first = 0; first < WHOLE * COUNT * LANES; first += COUNT * LANES)
    stitch_product_strip<T, LANES, ROWS, COUNT>(terms, stride, target, left, right, [=](int v) __attribute__((always_inline)) {
      return first + v * LANES;
    });
  if constexpr (REST > 0)
    stitch_product_strip<T, LANES, ROWS, REST>(terms, stride, target, left, right, [](int v) __attribute__((always_inline)) {
      const int column = (WHOLE * COUNT + v) * LANES;
      return column < COLUMNS - LANES ? column : COLUMNS - LANES;
    });
}

/* Columns [first, last) of a row, one by one. */
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

/* One row; left(k). */
template <int COLUMNS, class T, class Left, class Right>
STITCH_INLINE void stitch_product(int terms, T* target, Left left, Right right) {
  if constexpr (stitch_product_lanes<T>(COLUMNS) == 1) {
    stitch_product_single(0, COLUMNS, terms, target, left, right);
  } else {
    const auto of_row = [&](int, int k) __attribute__((always_inline)) { return left(k); };
    stitch_product_strips<COLUMNS, 1>(terms, 0, target, of_row, right);
  }
}

/* `rows` rows, by six, then by four, then one by one; left(i, k). */
template <int COLUMNS, class T, class Left, class Right>
STITCH_INLINE void stitch_product_rows(int terms, int rows, long long stride, T* target, Left left, Right right) {
  int first = 0;
  const auto from_first = [&](int i, int k) __attribute__((always_inline)) { return left(first + i, k); };
  if constexpr (stitch_product_lanes<T>(COLUMNS) > 1) {
    for (; first + 6 <= rows; first += 6)
      stitch_product_strips<COLUMNS, 6>(terms, stride, target + first * stride, from_first, right);
    for (; first + 4 <= rows; first += 4)
      stitch_product_strips<COLUMNS, 4>(terms, stride, target + first * stride, from_first, right);
  }
  for (; first < rows; ++first) {
    const auto of_row = [&](int k) __attribute__((always_inline)) { return left(first, k); };
    stitch_product<COLUMNS>(terms, target + first * stride, of_row, right);
  }
}

/* The same if the number of columns is known at run time only. */
template <class T, int ROWS, class Left, class Right>
STITCH_INLINE void stitch_product_some_rows_open(int columns, int terms, long long stride, T* target, Left left, Right right) {
  constexpr int LANES = STITCH_VECTOR_BYTES / (int)sizeof(T), COUNT = STITCH_SUMS / ROWS;
  int first = 0;
  for (; first + COUNT * LANES <= columns; first += COUNT * LANES) {
    stitch_product_strip<T, LANES, ROWS, COUNT>(terms, stride, target, left, right, [=](int v) __attribute__((always_inline)) {
      return first + v * LANES;
    });
  }
  for (; first < columns; first += LANES) {
    const int place = first + LANES <= columns ? first : columns - LANES;
    stitch_product_strip<T, LANES, ROWS, 1>(terms, stride, target, left, right, [=](int) __attribute__((always_inline)) {
      return place;
    });
  }
}

template <class T, class Left, class Right>
STITCH_INLINE void stitch_product_open(int columns, int terms, T* target, Left left, Right right) {
  const auto of_row = [&](int, int k) __attribute__((always_inline)) { return left(k); };
  if (columns < STITCH_VECTOR_BYTES / (int)sizeof(T)) return stitch_product_single(0, columns, terms, target, left, right);
  stitch_product_some_rows_open<T, 1>(columns, terms, 0, target, of_row, right);
}

template <class T, class Left, class Right>
STITCH_INLINE void stitch_product_rows_open(int columns, int terms, int rows, long long stride, T* target, Left left, Right right) {
  int first = 0;
  const auto from_first = [&](int i, int k) __attribute__((always_inline)) { return left(first + i, k); };
  if (columns >= STITCH_VECTOR_BYTES / (int)sizeof(T)) {
    for (; first + 6 <= rows; first += 6)
      stitch_product_some_rows_open<T, 6>(columns, terms, stride, target + first * stride, from_first, right);
    for (; first + 4 <= rows; first += 4)
      stitch_product_some_rows_open<T, 4>(columns, terms, stride, target + first * stride, from_first, right);
  }
  for (; first < rows; ++first) {
    const auto of_row = [&](int k) __attribute__((always_inline)) { return left(first, k); };
    stitch_product_open(columns, terms, target + first * stride, of_row, right);
  }
}

#endif
