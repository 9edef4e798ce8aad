/* What all generated kernels share: the helpers that the op table's text (ops/c_text.py) calls. Every kernel includes it as text, so
 * it has no includes of its own: C++17 and compiler builtins only. A function is branch-free if the loop around it should be
 * vectorised. If C++ leaves a result undefined (division by zero, wide shifts, float to integer out of range), it follows HLO.
 *
 * f16 and bf16 are stored in memory as their bits (unsigned short) and in registers as float, rounded after each operation. */
#ifndef STITCHFLEET_KERNEL_PRELUDE_H_
#define STITCHFLEET_KERNEL_PRELUDE_H_

#ifndef STITCH_INLINE /* cuda_prelude.h defines its own */
#define STITCH_INLINE static inline __attribute__((always_inline, unused))
#endif

typedef unsigned short StitchHalfBits;

template <class T> struct StitchUnsigned;
template <> struct StitchUnsigned<signed char> { typedef unsigned char Type; };
template <> struct StitchUnsigned<unsigned char> { typedef unsigned char Type; };
template <> struct StitchUnsigned<short> { typedef unsigned short Type; };
template <> struct StitchUnsigned<unsigned short> { typedef unsigned short Type; };
template <> struct StitchUnsigned<int> { typedef unsigned int Type; };
template <> struct StitchUnsigned<unsigned int> { typedef unsigned int Type; };
template <> struct StitchUnsigned<long long> { typedef unsigned long long Type; };
template <> struct StitchUnsigned<unsigned long long> { typedef unsigned long long Type; };
template <> struct StitchUnsigned<float> { typedef unsigned int Type; };
template <> struct StitchUnsigned<double> { typedef unsigned long long Type; };

template <class T> struct StitchInteger {
  static constexpr int width = sizeof(T) * 8;
  static constexpr bool is_signed = T(-1) < T(0);
  static constexpr T smallest = is_signed ? T(1ull << (width - 1)) : T(0);
  static constexpr T largest = T(~smallest);
  /* Narrow integers are multiplied as unsigned int: C++ would promote unsigned short to signed int, in which the product could
   * overflow. */
};

template <class To, class From> STITCH_INLINE To stitch_bits(From value) { return __builtin_bit_cast(To, value); }

/* A value where `keep` is -1, all bits zero where it is 0; and one of two values, where all bits of the other are zero. */
template <class T> STITCH_INLINE T stitch_masked(T value, int keep) { return (T)(value & (T)keep); }
STITCH_INLINE float stitch_masked(float value, int keep) { return stitch_bits<float>(stitch_bits<int>(value) & keep); }
STITCH_INLINE double stitch_masked(double value, int keep) {
  return stitch_bits<double>(stitch_bits<long long>(value) & (long long)keep);
}
template <class T> STITCH_INLINE T stitch_either(T a, T b) { return (T)(a | b); }
STITCH_INLINE float stitch_either(float a, float b) { return stitch_bits<float>(stitch_bits<unsigned>(a) | stitch_bits<unsigned>(b)); }
STITCH_INLINE double stitch_either(double a, double b) {
  return stitch_bits<double>(stitch_bits<unsigned long long>(a) | stitch_bits<unsigned long long>(b));
}

/* ---- f16 and bf16 ---------------------------------------------------------------------------------------------------------- */

#ifndef STITCH_CONVERTS_F16 /* else the device has instructions for it: cuda_prelude.h */
/* Bit form after F. Giesen, "half_to_float_fast"; exact. gcc 12 vectorises this, but not conversions of _Float16. */
STITCH_INLINE float stitch_from_f16(StitchHalfBits half) {
  const unsigned magnitude = (half & 0x7fffu) << 13;
  const unsigned normal = magnitude + (112u << 23);
  const unsigned infinite = magnitude + (224u << 23);
  /* A subnormal half is computed as the normal number 2^-14 + m minus 2^-14, which no flush-to-zero mode affects. */
  const float subnormal = stitch_bits<float>(magnitude + (113u << 23)) - stitch_bits<float>(113u << 23);
  unsigned bits = magnitude >= (0x7c00u << 13) ? infinite : normal;
  bits = magnitude < (0x0400u << 13) ? stitch_bits<unsigned>(subnormal) : bits;
  return stitch_bits<float>(bits | ((half & 0x8000u) << 16));
}

/* Bit form after F. Giesen, "float_to_half_fast3_rtne": to nearest, ties to even. */
STITCH_INLINE StitchHalfBits stitch_to_f16(float value) {
  const unsigned bits = stitch_bits<unsigned>(value);
  const unsigned magnitude = bits & 0x7fffffffu;
  const unsigned not_finite = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  const float shifted = stitch_bits<float>(magnitude) + 0.5f;
  const unsigned subnormal = stitch_bits<unsigned>(shifted) - 0x3f000000u;
  const unsigned normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  unsigned half = magnitude < (113u << 23) ? subnormal : normal;
  half = magnitude >= (143u << 23) ? not_finite : half;
  return (StitchHalfBits)(half | ((bits >> 16) & 0x8000u));
}
#endif

STITCH_INLINE float stitch_round_f16(float value) { return stitch_from_f16(stitch_to_f16(value)); }

STITCH_INLINE float stitch_from_bf16(StitchHalfBits bits) { return stitch_bits<float>((unsigned)bits << 16); }

#ifndef STITCH_CONVERTS_BF16
STITCH_INLINE float stitch_round_bf16(float value) {
  const unsigned bits = stitch_bits<unsigned>(value);
  const unsigned rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
  return stitch_bits<float>(value != value ? (bits | 0x00400000u) & 0xffff0000u : rounded);
}
#endif

/* The same for a sum, difference, product, quotient or square root of bf16 values. On a CPU such a NaN is an operand's or the default
 * one: its lower half is 0, so that rounding leaves it as it is. A GPU's NaN is 0x7fffffff. */
STITCH_INLINE float stitch_round_bf16_result(float value) {
#ifdef STITCH_CUDA
  return stitch_round_bf16(value);
#else
  const unsigned bits = stitch_bits<unsigned>(value);
  return stitch_bits<float>((bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u);
#endif
}

/* The upper half of a value that is a bf16 already, as every value in a register is. */
STITCH_INLINE StitchHalfBits stitch_to_bf16(float value) { return (StitchHalfBits)(stitch_bits<unsigned>(value) >> 16); }

/* ---- floats ---------------------------------------------------------------------------------------------------------------- */

/* If either operand is NaN, the result is NaN. From this form gcc makes a max, an unordered compare and a blend. */
template <class T> STITCH_INLINE T stitch_max(T a, T b) {
  const T larger = a > b ? a : b;
  return a != a ? a : larger;
}
template <class T> STITCH_INLINE T stitch_min(T a, T b) {
  const T smaller = a < b ? a : b;
  return a != a ? a : smaller;
}

/* ---- the lanes of a reduction ---------------------------------------------------------------------------------------------- */

/* Folds lanes into one: the upper half onto the lower half, until one lane is left. If this were written as loops over parts of an
 * array, gcc would do it element by element, which took a fifth of a LayerNorm of 256; with vectors, a halving is one instruction and
 * one shuffle. */
#if !defined(STITCH_CUDA) && defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define STITCH_SHUFFLES 1
#endif
#endif

#ifdef STITCH_SHUFFLES
template <class T> constexpr bool stitch_is_float = T(0.5) != T(0) && T(0.5) != T(1); /* as an integer 0.5 is 0, as a bool 1 */
template <class T, int lanes> struct StitchLanes { typedef T Vector __attribute__((vector_size(lanes * sizeof(T)), may_alias)); };

template <class V, class Combine> STITCH_INLINE auto stitch_fold2(V v, Combine combine) { return combine(v[0], v[1]); }
template <class V, class Combine> STITCH_INLINE auto stitch_fold4(V v, Combine combine) {
  return stitch_fold2(combine(v, __builtin_shufflevector(v, v, 2, 3, 2, 3)), combine);
}
template <class V, class Combine> STITCH_INLINE auto stitch_fold8(V v, Combine combine) {
  return stitch_fold4(combine(__builtin_shufflevector(v, v, 0, 1, 2, 3), __builtin_shufflevector(v, v, 4, 5, 6, 7)), combine);
}
template <class V, class Combine> STITCH_INLINE auto stitch_fold16(V v, Combine combine) {
  return stitch_fold8(combine(__builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7),
                              __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15)), combine);
}
#endif

/* stitch_widen_*: to[i] = from[i] for i in [0, count), small elements as ints or floats; stitch_narrow_*: the other way (codegen/cpu/
 * narrow.py). Of __builtin_convertvector g++ 12 makes code element by element. */
#ifndef STITCH_CUDA
#if defined(STITCH_SHUFFLES) && defined(__AVX2__) && defined(__F16C__)
#ifdef __AVX512F__
#define STITCH_WIDENED(count) ((count) >= 16 ? 16 : (count) >= 8 ? 8 : 4)
#else
#define STITCH_WIDENED(count) ((count) >= 8 ? 8 : 4)
#endif
/* g++ keeps fewer values in registers beside an asm that writes memory: stitch_narrow's makes a vector. */
template <int bytes> struct StitchBytes { typedef unsigned char Vector __attribute__((vector_size(bytes < 16 ? 16 : bytes), may_alias)); };
#define STITCH_WIDEN(name, Wide, Small, text)                                                                  \
  template <int count> STITCH_INLINE void stitch_widen_##name(Wide* to, const Small* from) {                   \
    constexpr int lanes = STITCH_WIDENED(count);                                                               \
    if constexpr (count >= lanes) {                                                                            \
      typename StitchLanes<Wide, lanes>::Vector wide;                                                          \
      __asm__(text : "=v"(wide) : "m"(*(const Small(*)[lanes])from));                                          \
      __builtin_memcpy(to, &wide, sizeof wide);                                                                \
      stitch_widen_##name<count - lanes>(to + lanes, from + lanes);                                            \
    } else {                                                                                                   \
      for (int i = 0; i < count; ++i) to[i] = stitch_from_##name(from[i]);                                     \
    }                                                                                                          \
  }
#else
#define STITCH_WIDEN(name, Wide, Small, text)                                                                  \
  template <int count> STITCH_INLINE void stitch_widen_##name(Wide* to, const Small* from) {                   \
    for (int i = 0; i < count; ++i) to[i] = stitch_from_##name(from[i]);                                       \
  }
#endif
#if defined(STITCH_WIDENED) && defined(__AVX512VL__)
#define STITCH_NARROW(name, Small, Wide, text)                                                                 \
  template <int count> STITCH_INLINE void stitch_narrow_##name(Small* to, const Wide* from) {                  \
    constexpr int lanes = STITCH_WIDENED(count);                                                               \
    if constexpr (count >= lanes) {                                                                            \
      typename StitchLanes<Wide, lanes>::Vector wide;                                                          \
      typename StitchBytes<lanes * sizeof(Small)>::Vector small;                                               \
      __builtin_memcpy(&wide, from, sizeof wide);                                                              \
      __asm__(text : "=v"(small), "+v"(wide));                                                                 \
      __builtin_memcpy(to, &small, lanes * sizeof(Small));                                                     \
      stitch_narrow_##name<count - lanes>(to + lanes, from + lanes);                                           \
    } else {                                                                                                   \
      for (int i = 0; i < count; ++i) to[i] = stitch_to_##name(from[i]);                                       \
    }                                                                                                          \
  }
#else
#define STITCH_NARROW(name, Small, Wide, text)                                                                 \
  template <int count> STITCH_INLINE void stitch_narrow_##name(Small* to, const Wide* from) {                  \
    for (int i = 0; i < count; ++i) to[i] = stitch_to_##name(from[i]);                                         \
  }
#endif
STITCH_INLINE int stitch_from_pred(unsigned char value) { return value != 0; }
STITCH_INLINE unsigned char stitch_to_pred(int value) { return (unsigned char)value; }
STITCH_WIDEN(pred, int, unsigned char, "vpmovzxbd %1, %0")
STITCH_WIDEN(bf16, float, StitchHalfBits, "vpmovzxwd %1, %0\n\tvpslld $16, %0, %0")
STITCH_WIDEN(f16, float, StitchHalfBits, "vcvtph2ps %1, %0")
STITCH_NARROW(pred, unsigned char, int, "vpmovdb %1, %0")
STITCH_NARROW(bf16, StitchHalfBits, float, "vpsrld $16, %1, %1\n\tvpmovdw %1, %0")
STITCH_NARROW(f16, StitchHalfBits, float, "vcvtps2ph $0, %1, %0")
#endif

/* Folds the `lanes` elements of `lane` (a power of two) into one. `lane` is aligned to 64 bytes and may be overwritten. Floats are
 * folded as vectors, integers if `of_vectors`: most of their `combine` are texts with casts, which cannot be applied to vectors. */
template <int lanes, bool of_vectors = false, class T, class Combine> STITCH_INLINE T stitch_fold(T* lane, Combine combine) {
#ifdef STITCH_SHUFFLES
  constexpr bool as_vector = stitch_is_float<T> || of_vectors;
  if constexpr (lanes == 16 && as_vector) return stitch_fold16(*(const typename StitchLanes<T, 16>::Vector*)lane, combine);
  if constexpr (lanes == 8 && as_vector) return stitch_fold8(*(const typename StitchLanes<T, 8>::Vector*)lane, combine);
  if constexpr (lanes == 4 && as_vector) return stitch_fold4(*(const typename StitchLanes<T, 4>::Vector*)lane, combine);
#endif
  if constexpr (lanes == 1) {
    return lane[0];
  } else {
    for (int i = 0; i < lanes / 2; ++i) lane[i] = combine(lane[i], lane[i + lanes / 2]);
    return stitch_fold<lanes / 2, of_vectors>(lane, combine);
  }
}

/* The same for a number of lanes that is not a power of two. */
template <int lanes, bool of_vectors = false, class T, class Combine> STITCH_INLINE T stitch_fold_rest(T* lane, Combine combine) {
  constexpr int first = lanes >= 8 ? 8 : lanes >= 4 ? 4 : lanes >= 2 ? 2 : 1;
  const T folded = stitch_fold<first, of_vectors>(lane, combine);
  if constexpr (lanes == first) {
    return folded;
  } else {
    return combine(folded, stitch_fold_rest<lanes - first, of_vectors>(lane + first, combine));
  }
}

/* Zeros of both signs give 0: HLO keeps the sign, TensorFlow documents 0. */
template <class T> STITCH_INLINE T stitch_sign(T value) {
  const T zero = value != value ? value : T(0);
  return value > 0 ? T(1) : (value < 0 ? T(-1) : zero);
}

/* Negative if a value is NaN. */
STITCH_INLINE int stitch_nan_flag(float value) { return 0x7f800000 - (stitch_bits<int>(value) & 0x7fffffff); }

#if defined(STITCH_SHUFFLES) && defined(__AVX__)
STITCH_INLINE int stitch_any_flag(StitchLanes<int, 8>::Vector flags) {
  return __builtin_ia32_movmskps256((StitchLanes<float, 8>::Vector)flags);
}
STITCH_INLINE int stitch_any_nan(StitchLanes<float, 8>::Vector v) { return stitch_any_flag(v != v); }
#ifdef __AVX512F__
STITCH_INLINE int stitch_any_nan(StitchLanes<float, 16>::Vector v) {
  unsigned short any;
  __asm__("vcmpps $3, %1, %1, %0" : "=k"(any) : "v"(v));
  return any;
}
STITCH_INLINE int stitch_any_flag(StitchLanes<int, 16>::Vector flags) {
  const auto sign = flags - flags - 0x7fffffff - 1;
  unsigned short any;
  __asm__("vptestmd %2, %1, %0" : "=k"(any) : "v"(flags), "v"(sign));
  return any;
}
#endif
#endif

/* One step of a long maximum or minimum in lanes. stitch_max would wait for the compare with the accumulator in each step; here only
 * a max is between two steps, and `nan`, negative once a value was NaN, is no part of that chain: a row of 4096 takes half as long with
 * AVX-512, and as long as before with AVX2. The results are the same to the bit, including the sign of a zero. (If the flag came from
 * a compare, g++ 12 would make no vectors of a loop whose value is a select with a constant.) */
template <bool largest> STITCH_INLINE void stitch_extreme(float& lane, int& nan, float value) {
  lane = (largest ? lane > value : lane < value) ? lane : value;
  nan |= stitch_nan_flag(value);
}

/* stitch_fold for a maximum or minimum of floats. stitch_max tests in each step, one after the other, whether the left operand is NaN;
 * here all lanes are tested once. nan: the flags of stitch_extreme; without them, a lane that was NaN is. The results are the same to
 * the bit. */
template <int lanes, bool largest> STITCH_INLINE float stitch_fold_extreme(const float* lane, const int* nan = nullptr) {
  const auto further = [](auto a, auto b) { return largest ? (a > b ? a : b) : (a < b ? a : b); };
#if defined(STITCH_SHUFFLES) && defined(__AVX__)
#ifdef __AVX512F__
  constexpr int width = lanes == 16 || lanes == 32 ? 16 : 8;
#else
  constexpr int width = 8;
#endif
  if constexpr (lanes == 8 || lanes == 16 || lanes == 32) {
    typedef typename StitchLanes<float, width>::Vector V;
    typedef typename StitchLanes<int, width>::Vector Flags;
    V part[lanes / width];
    Flags flags[lanes / width];
    int any = 0;
    __builtin_memcpy(part, lane, sizeof part);
    if (nan) __builtin_memcpy(flags, nan, sizeof flags);
    for (int i = 0; i < lanes / width; ++i) any |= nan ? stitch_any_flag(flags[i]) : stitch_any_nan(part[i]);
    for (int count = lanes / width / 2; count; count /= 2) {
      for (int i = 0; i < count; ++i) part[i] = further(part[i], part[i + count]);
    }
    if constexpr (width == 16) return any ? __builtin_nanf("") : stitch_fold16(part[0], further);
    else return any ? __builtin_nanf("") : stitch_fold8(part[0], further);
  }
#endif
  float part[lanes];
  int any = 0;
  for (int i = 0; i < lanes; ++i) part[i] = lane[i], any |= nan ? nan[i] : stitch_nan_flag(lane[i]);
  for (int count = lanes / 2; count; count /= 2) {
    for (int i = 0; i < count; ++i) part[i] = further(part[i], part[i + count]);
  }
  return any < 0 ? __builtin_nanf("") : part[0];
}

/* ---- scans -----------------------------------------------------------------------------------------------------------------
 * Lanes are scanned by adding each lane to the lane 1, 2, 4, ... further on; then the total of the previous lanes is added to all. */

struct StitchSum {
  static constexpr bool can_vanish = false;
  template <class V> STITCH_INLINE V of(V a, V b) { return a + b; }
};
struct StitchProduct {
  static constexpr bool can_vanish = true;
  template <class V> STITCH_INLINE V of(V a, V b) { return a * b; }
};
struct StitchMax { template <class V> STITCH_INLINE V of(V a, V b) { return ((a > b) | (a != a)) ? a : b; } };
struct StitchMin { template <class V> STITCH_INLINE V of(V a, V b) { return ((a < b) | (a != a)) ? a : b; } };
struct StitchAnd { template <class V> STITCH_INLINE V of(V a, V b) { return a & b; } };
struct StitchOr { template <class V> STITCH_INLINE V of(V a, V b) { return a | b; } };

#if defined(STITCH_SHUFFLES) && defined(__AVX2__)
#define STITCH_SCANS 1
#ifdef __AVX512F__
#define STITCH_VECTOR_BYTES 64
#else
#define STITCH_VECTOR_BYTES 32
#endif

/* The lanes of `v`, moved up by some places; the lowest lanes come from `fill`. */
template <int lanes, int places> struct StitchUp;
#define STITCH_UP(lanes, places, ...)                                 \
  template <> struct StitchUp<lanes, places> {                        \
    template <class V> STITCH_INLINE V of(V v, V fill) { return __builtin_shufflevector(v, fill, __VA_ARGS__); } \
  }
STITCH_UP(16, 1, 16, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14);
STITCH_UP(16, 2, 16, 16, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13);
STITCH_UP(16, 4, 16, 16, 16, 16, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);
STITCH_UP(16, 8, 16, 16, 16, 16, 16, 16, 16, 16, 0, 1, 2, 3, 4, 5, 6, 7);
STITCH_UP(8, 1, 8, 0, 1, 2, 3, 4, 5, 6);
STITCH_UP(8, 2, 8, 8, 0, 1, 2, 3, 4, 5);
STITCH_UP(8, 4, 8, 8, 8, 8, 0, 1, 2, 3);
STITCH_UP(4, 1, 4, 0, 1, 2);
STITCH_UP(4, 2, 4, 4, 0, 1);

template <class Op, int lanes, int places, class V> STITCH_INLINE V stitch_scan_lanes(V v, V fill) {
  if constexpr (places >= lanes) {
    return v;
  } else {
    return stitch_scan_lanes<Op, lanes, 2 * places>(Op::of(StitchUp<lanes, places>::of(v, fill), v), fill);
  }
}

/* The state of a scan of many elements, 16 at a time: the total so far, in a type that may be wider, and whether any sum or product
 * came close to where one in order might overflow or vanish; the scan then has to be done in order. */
template <class Op, class T, class Total, bool is_float> struct StitchScan {
  static constexpr int lanes = STITCH_VECTOR_BYTES / sizeof(T);
  typedef typename StitchLanes<T, lanes>::Vector V;
  Total total;
  V fill;
  decltype(V() < V()) steady;

  __attribute__((always_inline)) StitchScan(Total start, T identity) : total(start), fill(identity - V{}), steady(V{} == V{}) {}

  __attribute__((always_inline)) void step(T* value) {
#pragma GCC unroll 4
    for (int part = 0; part < 16; part += lanes) {
      V* const place = (V*)(value + part);
      const V scanned = stitch_scan_lanes<Op, lanes, 1>(*place, fill);
      const V result = Op::of((V)((T)total - V{}), scanned);
      total = Op::of(total, (Total)scanned[lanes - 1]);
      if constexpr (is_float) {
        const T limit = sizeof(T) == 4 ? T(0x1p125) : T(0x1p1021), least = sizeof(T) == 4 ? T(0x1p-120) : T(0x1p-1000);
        steady &= (result < limit) & (result > -limit);
        if constexpr (Op::can_vanish) steady &= (result > least) | (result < -least);
      }
      *place = result;
    }
  }
  __attribute__((always_inline)) bool is_steady() const {
    unsigned long long words[sizeof(V) / 8], all = ~0ull;
    __builtin_memcpy(words, &steady, sizeof words);
    for (unsigned long long word : words) all &= word;
    return all == ~0ull;
  }
};
#endif

/* ---- squares that are transposed --------------------------------------------------------------------------------------------- */

/* to[pitch j + i] = from[i stride + j] for i, j < 16, elements of four bytes. Rows are read in memory's order, and halves are exchanged
 * between rows 8, 4, 2 and 1 apart: one shuffle each, whereas a strided loop has one load per element. */
#ifdef STITCH_SHUFFLES
#define STITCH_LIST(...) __VA_ARGS__
template <class V, int apart> struct StitchExchange16;
template <class V, int apart> struct StitchExchange8;
#define STITCH_EXCHANGE(lanes, apart, low, high)                                                       \
  template <class V> struct StitchExchange##lanes<V, apart> {                                         \
    STITCH_INLINE V upper(V a, V b) { return __builtin_shufflevector(a, b, STITCH_LIST low); }               \
    STITCH_INLINE V lower(V a, V b) { return __builtin_shufflevector(a, b, STITCH_LIST high); }              \
  };
STITCH_EXCHANGE(16, 8, (0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23),
                (8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31))
STITCH_EXCHANGE(16, 4, (0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27),
                (4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31))
STITCH_EXCHANGE(16, 2, (0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29),
                (2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31))
STITCH_EXCHANGE(16, 1, (0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30),
                (1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31))
STITCH_EXCHANGE(8, 4, (0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15))
STITCH_EXCHANGE(8, 2, (0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15))
STITCH_EXCHANGE(8, 1, (0, 8, 2, 10, 4, 12, 6, 14), (1, 9, 3, 11, 5, 13, 7, 15))

template <class Exchange, int lanes, int apart, class V> STITCH_INLINE void stitch_exchange(V* row) {
#pragma GCC unroll 16
  for (int i = 0; i < lanes; ++i) {
    if (i & apart) continue;
    const V upper = Exchange::upper(row[i], row[i + apart]), lower = Exchange::lower(row[i], row[i + apart]);
    row[i] = upper, row[i + apart] = lower;
  }
}
#endif

#if defined(STITCH_SHUFFLES) && defined(__AVX__)
template <class V> STITCH_INLINE void stitch_exchange_eight(V (&row)[8]) {
  stitch_exchange<StitchExchange8<V, 4>, 8, 4>(row);
  stitch_exchange<StitchExchange8<V, 2>, 8, 2>(row);
  stitch_exchange<StitchExchange8<V, 1>, 8, 1>(row);
}

/* The same for i, j < 8. */
template <class T> STITCH_INLINE void stitch_turn_eight(const T* from, long long stride, T* to, long long pitch) {
  typedef float V __attribute__((vector_size(32)));
  V row[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) __builtin_memcpy(&row[i], from + i * stride, sizeof(V));
  stitch_exchange_eight(row);
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) __builtin_memcpy(to + pitch * i, &row[i], sizeof(V));
}
#endif

template <class T> STITCH_INLINE void stitch_turn_square(const T* from, long long stride, T* to, long long pitch = 16) {
#if defined(STITCH_SHUFFLES) && defined(__AVX512F__)
  typedef float V __attribute__((vector_size(64)));
  V row[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) __builtin_memcpy(&row[i], from + i * stride, sizeof(V));
  stitch_exchange<StitchExchange16<V, 8>, 16, 8>(row);
  stitch_exchange<StitchExchange16<V, 4>, 16, 4>(row);
  stitch_exchange<StitchExchange16<V, 2>, 16, 2>(row);
  stitch_exchange<StitchExchange16<V, 1>, 16, 1>(row);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) __builtin_memcpy(to + pitch * i, &row[i], sizeof(V));
#elif defined(STITCH_SHUFFLES) && defined(__AVX__)
  for (int part = 0; part < 4; ++part) {
    const int down = part / 2 * 8, right = part % 2 * 8;
    stitch_turn_eight(from + down * stride + right, stride, to + right * pitch + down, pitch);
  }
#else
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 16; ++j) to[pitch * j + i] = from[i * stride + j];
  }
#endif
}

#ifndef STITCH_CUDA
/* stitch_turn in squares of SIDE by SIDE elements: the last square of a row or column of them overlaps the one before it. */
template <int SIDE, class T, class Square>
STITCH_INLINE void stitch_turn_by(T* to, long long pitch, const T* from, long long stride, int down, int along, Square square) {
  for (int left = 0; left < along; left += SIDE) {
    const int j = left + SIDE < along ? left : along - SIDE;
    for (int top = 0; top < down; top += SIDE) {
      const int i = top + SIDE < down ? top : down - SIDE;
      square(from + i + j * stride, stride, to + i * pitch + j, pitch);
    }
  }
}

#if defined(STITCH_SHUFFLES) && defined(__AVX__)
/* stitch_turn for rows of few elements, eight rows at a time. Those that are read are read with what follows them, and those that are
 * written are written with what is then written over by the next row; so the last rows are left. Returns the number of rows turned. */
template <class T>
STITCH_INLINE int stitch_turn_from_rows(T* to, long long pitch, const T* from, long long stride, int down, int along) {
  typedef float V __attribute__((vector_size(32)));
  int j = 0;
  for (; (j + 7) * stride + 8 <= (along - 1) * stride + down; j += 8) {
    V row[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) __builtin_memcpy(&row[i], from + (j + i) * stride, sizeof(V));
    stitch_exchange_eight(row);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      if (i < down) __builtin_memcpy(to + i * pitch + j, &row[i], sizeof(V));
    }
  }
  return j;
}
template <class T>
STITCH_INLINE int stitch_turn_into_rows(T* to, const T* from, long long stride, int down, int along) {
  typedef float V __attribute__((vector_size(32)));
  int i = 0;
  for (; (i + 7) * along + 8 <= down * along; i += 8) {
    V row[8] = {};
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      if (j < along) __builtin_memcpy(&row[j], from + j * stride + i, sizeof(V));
    }
    stitch_exchange_eight(row);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) __builtin_memcpy(to + (long long)(i + j) * along, &row[j], sizeof(V));
  }
  return i;
}
#endif

/* to[i pitch + j] = from[i + j stride] for i < down, j < along, elements of four bytes. */
template <class T>
static __attribute__((noinline)) void stitch_turn(T* __restrict__ to, long long pitch, const T* __restrict__ from, long long stride,
                                                  int down, int along) {
  static_assert(sizeof(T) == 4, "squares are of elements of four bytes");
  if (down >= 16 && along >= 16) return stitch_turn_by<16>(to, pitch, from, stride, down, along, stitch_turn_square<T>);
#if defined(STITCH_SHUFFLES) && defined(__AVX__)
  if (down >= 8 && along >= 8) return stitch_turn_by<8>(to, pitch, from, stride, down, along, stitch_turn_eight<T>);
  const int first_i = along < 8 && pitch == along ? stitch_turn_into_rows(to, from, stride, down, along) : 0;
  const int first_j = first_i == 0 && down < 8 ? stitch_turn_from_rows(to, pitch, from, stride, down, along) : 0;
#else
  const int first_i = 0, first_j = 0;
#endif
  for (int j = first_j; j < along; ++j) {
    for (int i = first_i; i < down; ++i) to[i * pitch + j] = from[i + j * stride];
  }
}
#endif

/* ---- rounding, order and conversion ----------------------------------------------------------------------------------------- */

/* Rounds half away from zero: adds the largest number below a half, away from zero, then truncates (as gcc expands round()). */
STITCH_INLINE float stitch_round_away(float value) {
  return __builtin_truncf(value + __builtin_copysignf(0x1.fffffep-2f, value));
}
STITCH_INLINE double stitch_round_away(double value) {
  return __builtin_trunc(value + __builtin_copysign(0x1.fffffffffffffp-2, value));
}

/* An integer that is ordered as IEEE 754's total order: -NaN < -Inf < ... < -0 < +0 < ... < Inf < NaN. */
STITCH_INLINE int stitch_total_order(float value) {
  const int bits = stitch_bits<int>(value);
  return bits ^ (int)((unsigned)(bits >> 31) >> 1);
}
STITCH_INLINE long long stitch_total_order(double value) {
  const long long bits = stitch_bits<long long>(value);
  return bits ^ (long long)((unsigned long long)(bits >> 63) >> 1);
}

/* XLA's reduce-precision (EmitReducePrecisionIR): rounds to `mantissa` bits, ties to even. If the exponent is too large for
 * `exponent` bits, the result is Inf; if it is too small, zero. NaN stays NaN. */
template <class T, int source_exponent, int source_mantissa>
STITCH_INLINE T stitch_reduce_precision_of(T value, int exponent, int mantissa) {
  typedef typename StitchUnsigned<T>::Type Bits;
  const Bits sign_mask = Bits(1) << (source_exponent + source_mantissa);
  const Bits exponent_mask = ((Bits(1) << source_exponent) - 1) << source_mantissa;
  const Bits source = stitch_bits<Bits>(value);
  Bits bits = source;
  if (mantissa < source_mantissa) {
    const Bits last = Bits(1) << (source_mantissa - mantissa);
    const Bits bias = ((bits & last) ? Bits(1) : Bits(0)) + (last >> 1) - 1;
    bits = (bits + bias) & ~(last - 1);
  }
  if (exponent < source_exponent) {
    const Bits source_bias = (Bits(1) << (source_exponent - 1)) - 1;
    const Bits bias = (Bits(1) << (exponent - 1)) - 1;
    const Bits field = bits & exponent_mask;
    const Bits sign = source & sign_mask;
    const Bits kept = bits;
    bits = field > ((source_bias + bias) << source_mantissa) ? (sign | exponent_mask) : kept;
    bits = field <= ((source_bias - bias) << source_mantissa) ? sign : bits;
  }
  return value != value ? value : stitch_bits<T>(bits);
}
STITCH_INLINE float stitch_reduce_precision(float value, int exponent, int mantissa) {
  return stitch_reduce_precision_of<float, 8, 23>(value, exponent, mantissa);
}
STITCH_INLINE double stitch_reduce_precision(double value, int exponent, int mantissa) {
  return stitch_reduce_precision_of<double, 11, 52>(value, exponent, mantissa);
}

/* Float to integer as in XLA: towards zero; out of range to the nearest end; NaN to 0. */
template <class To, class From> STITCH_INLINE To stitch_to_integer(From value) {
  typedef StitchInteger<To> I;
  constexpr From above = From(1ull << (I::width - 1)) * From(I::is_signed ? 1 : 2);
  constexpr From below = I::is_signed ? -above : From(0);
  /* Masks, because gcc 12 splits the choice of three ends into branches if the value was itself chosen, as TensorFlow's Cast has it,
   * and then finds no vectors. */
  const To converted = (To)stitch_masked(value, -(int)((value > below) & (value < above)));
  return converted | (I::largest & -(To)(value >= above)) | (I::smallest & -(To)(value <= below));
}

/* ---- integers -------------------------------------------------------------------------------------------------------------- */

template <class T> STITCH_INLINE T stitch_divide(T a, T b) {
  if (b == T(0)) return T(-1); /* all bits one, for unsigned types too */
  if (StitchInteger<T>::is_signed && b == T(-1)) return T(0ull - (unsigned long long)a);
  return T(a / b);
}
template <class T> STITCH_INLINE T stitch_remainder(T a, T b) {
  if (b == T(0)) return a;
  if (StitchInteger<T>::is_signed && b == T(-1)) return T(0);
  return T(a % b);
}
/* A negative or too large amount shifts everything out. */
template <class T> STITCH_INLINE T stitch_shift_left(T a, T b) {
  typedef typename StitchUnsigned<T>::Type U;
  constexpr U width = StitchInteger<T>::width;
  const U amount = U(b) < width ? U(b) : U(0);
  const T shifted = T((unsigned long long)U(a) << amount);
  return U(b) < width ? shifted : T(0);
}
template <class T> STITCH_INLINE T stitch_shift_right_logical(T a, T b) {
  typedef typename StitchUnsigned<T>::Type U;
  constexpr U width = StitchInteger<T>::width;
  const U amount = U(b) < width ? U(b) : U(0);
  const T shifted = T(U(U(a) >> amount));
  return U(b) < width ? shifted : T(0);
}
/* The sign bit is repeated for unsigned T too: the op decides how to shift, not the type. */
template <class T> STITCH_INLINE T stitch_shift_right_arithmetic(T a, T b) {
  typedef typename StitchUnsigned<T>::Type U;
  constexpr U width = StitchInteger<T>::width;
  const U amount = U(b) < width ? U(b) : U(width - 1);
  const long long widened = (long long)((unsigned long long)U(a) << (64 - width));
  return T((widened >> (64 - width)) >> amount);
}
template <class T> STITCH_INLINE T stitch_popcount(T value) {
  return T(__builtin_popcountll((unsigned long long)(typename StitchUnsigned<T>::Type)value));
}
template <class T> STITCH_INLINE T stitch_count_leading_zeros(T value) {
  typedef typename StitchUnsigned<T>::Type U;
  return value == T(0) ? T(StitchInteger<T>::width)
                       : T(__builtin_clzll((unsigned long long)U(value)) - (64 - StitchInteger<T>::width));
}

/* ---- positions -------------------------------------------------------------------------------------------------------------- */

/* An element of an index tensor as a position: unchanged (an unsigned one beyond the range stays out of range), or clamped. */
template <class T> STITCH_INLINE long long stitch_index(T value) {
  const bool above = T(-1) > T(0) && (unsigned long long)value > 0x3fffffffffffffffull;
  return above ? 0x3fffffffffffffffll : (long long)value;
}
template <class T> STITCH_INLINE long long stitch_clamp_index(T value, long long high) {
  const long long index = stitch_index(value);
  return index < 0 ? 0 : index > high ? high : index;
}
/* The same as an int, compared in the type that the element has. */
template <class T> STITCH_INLINE int stitch_clamp_to_int(T value, int high) {
  typedef decltype(T() + T()) Wide;
  const Wide index = value;
  return index < 0 ? 0 : index > Wide(high) ? high : int(index);
}
STITCH_INLINE long long stitch_floor_divide(long long a, long long b) { return a / b - (a % b < 0); }
STITCH_INLINE long long stitch_floor_modulo(long long a, long long b) { return a % b + (a % b < 0 ? b : 0); }

/* ---- random numbers ---------------------------------------------------------------------------------------------------------
 * The Philox 4x32-10 stream of `key` that starts at the 128-bit counter (low, high); ops/reference.py's philox gives source and
 * order. */

typedef unsigned long long StitchWide;

/* The block of four words of one counter. */
STITCH_INLINE void stitch_philox_block(StitchWide key, StitchWide low, StitchWide high, unsigned* words) {
  unsigned a = (unsigned)low, b = (unsigned)(low >> 32), c = (unsigned)high, d = (unsigned)(high >> 32);
  unsigned k0 = (unsigned)key, k1 = (unsigned)(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const StitchWide first = 0xD2511F53ull * a, second = 0xCD9E8D57ull * c;
    const unsigned next_a = (unsigned)(second >> 32) ^ b ^ k0, next_c = (unsigned)(first >> 32) ^ d ^ k1;
    a = next_a, b = (unsigned)second, c = next_c, d = (unsigned)first;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  words[0] = a, words[1] = b, words[2] = c, words[3] = d;
}

/* Word `index` alone. */
STITCH_INLINE unsigned stitch_philox(StitchWide key, StitchWide low, StitchWide high, StitchWide index) {
  unsigned words[4];
  const StitchWide counter = low + (index >> 2);
  stitch_philox_block(key, counter, high + (counter < low), words);
  return words[index & 3];
}

#ifdef __has_builtin
#if __has_builtin(__builtin_shufflevector) && defined(__AVX512F__)
#define STITCH_PHILOX_LANES 16
#elif __has_builtin(__builtin_shufflevector) && defined(__AVX2__)
#define STITCH_PHILOX_LANES 8
#endif
#endif

#ifdef STITCH_PHILOX_LANES
typedef unsigned StitchWords __attribute__((vector_size(STITCH_PHILOX_LANES * 4)));
typedef StitchWide StitchWides __attribute__((vector_size(STITCH_PHILOX_LANES * 4)));

/* The 64-bit products of the even lanes. In assembly, because gcc 12 uses the whole 64-bit multiplication, which costs three times as
 * much, even where it sees that only 32 bits of each factor count. */
STITCH_INLINE StitchWides stitch_even_products(StitchWides x, StitchWides y) {
  StitchWides product;
  __asm__("vpmuludq %2, %1, %0" : "=v"(product) : "v"(x), "v"(y));
  return product;
}
/* The upper halves of x times y, lane by lane. */
STITCH_INLINE StitchWords stitch_high_products(StitchWords x, StitchWides y) {
  const StitchWides even = stitch_even_products((StitchWides)x, y), odd = stitch_even_products((StitchWides)x >> 32, y);
  return (StitchWords)(even >> 32 | (odd & 0xFFFFFFFF00000000ull));
}

/* STITCH_PHILOX_LANES blocks, in order, for counters that start at (low, high) and do not carry into the counter's upper half. */
STITCH_INLINE void stitch_philox_blocks(StitchWide key, StitchWide low, StitchWide high, unsigned* words) {
  const StitchWides first = (StitchWides){} + 0xD2511F53ull, second = (StitchWides){} + 0xCD9E8D57ull;
  StitchWords a = {}, b, c = a + (unsigned)high, d = a + (unsigned)(high >> 32);
  for (int lane = 0; lane < STITCH_PHILOX_LANES; ++lane) a[lane] = (unsigned)lane;
  a += (unsigned)low;
  b = (StitchWords)(a < (unsigned)low) & 1u;  /* the carry within the lower half */
  b += (unsigned)(low >> 32);
  unsigned k0 = (unsigned)key, k1 = (unsigned)(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const StitchWords next_a = stitch_high_products(c, second) ^ b ^ k0, next_c = stitch_high_products(a, first) ^ d ^ k1;
    b = c * 0xCD9E8D57u, d = a * 0xD2511F53u;
    a = next_a, c = next_c;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
#if STITCH_PHILOX_LANES == 16
#define STITCH_LOW(x, y) __builtin_shufflevector(x, y, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define STITCH_HIGH(x, y) __builtin_shufflevector(x, y, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define STITCH_LOW_PAIRS(x, y) __builtin_shufflevector(x, y, 0, 1, 16, 17, 2, 3, 18, 19, 4, 5, 20, 21, 6, 7, 22, 23)
#define STITCH_HIGH_PAIRS(x, y) __builtin_shufflevector(x, y, 8, 9, 24, 25, 10, 11, 26, 27, 12, 13, 28, 29, 14, 15, 30, 31)
#else
#define STITCH_LOW(x, y) __builtin_shufflevector(x, y, 0, 8, 1, 9, 2, 10, 3, 11)
#define STITCH_HIGH(x, y) __builtin_shufflevector(x, y, 4, 12, 5, 13, 6, 14, 7, 15)
#define STITCH_LOW_PAIRS(x, y) __builtin_shufflevector(x, y, 0, 1, 8, 9, 2, 3, 10, 11)
#define STITCH_HIGH_PAIRS(x, y) __builtin_shufflevector(x, y, 4, 5, 12, 13, 6, 7, 14, 15)
#endif
  const StitchWords low_ab = STITCH_LOW(a, b), high_ab = STITCH_HIGH(a, b);
  const StitchWords low_cd = STITCH_LOW(c, d), high_cd = STITCH_HIGH(c, d);
  const StitchWords in_order[4] = {STITCH_LOW_PAIRS(low_ab, low_cd), STITCH_HIGH_PAIRS(low_ab, low_cd),
                                   STITCH_LOW_PAIRS(high_ab, high_cd), STITCH_HIGH_PAIRS(high_ab, high_cd)};
  __builtin_memcpy(words, in_order, sizeof in_order);
}
#endif

#ifndef STITCH_CUDA
/* Writes words `index` to `index` + count - 1 into `room`, which has space for 4 * 16 + 4 words more, and returns where they begin.
 * */
static __attribute__((noinline, unused)) const unsigned* stitch_philox_words(unsigned* room, long long count, StitchWide key,
                                                                             StitchWide low, StitchWide high, StitchWide index) {
  const long long skipped = (long long)(index & 3), blocks = (skipped + count + 3) / 4;
  StitchWide counter = low + (index >> 2);
  StitchWide above = high + (counter < low);
  long long block = 0;
#ifdef STITCH_PHILOX_LANES
  for (; block < blocks && counter + STITCH_PHILOX_LANES > counter; block += STITCH_PHILOX_LANES, counter += STITCH_PHILOX_LANES) {
    stitch_philox_blocks(key, counter, above, room + 4 * block);
  }
#endif
  for (; block < blocks; ++block) {
    stitch_philox_block(key, counter, above, room + 4 * block);
    counter += 1;
    above += counter == 0;
  }
  return room + skipped;
}
#endif

/* Wraps. A negative exponent gives the integer part of the true power: 1 and -1 give +-1, other bases 0 (base 0 too, as in XLA). */
template <class T> STITCH_INLINE T stitch_integer_power(T base, T exponent) {
  if (StitchInteger<T>::is_signed && exponent < T(0)) {
    if (base == T(1)) return T(1);
    if (base == T(-1)) return (exponent & 1) ? T(-1) : T(1);
    return T(0);
  }
  unsigned long long factor = (unsigned long long)base, result = 1;
  for (unsigned long long rest = (unsigned long long)exponent; rest; rest >>= 1) {
    result = (rest & 1) ? result * factor : result;
    factor *= factor;
  }
  return T(result);
}

#endif /* STITCHFLEET_KERNEL_PRELUDE_H_ */
