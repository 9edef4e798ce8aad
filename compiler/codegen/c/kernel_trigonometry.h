/* sin, cos and tan for kernels that call them, on a CPU. It follows kernel_math.h.
 *
 * Ordinary arguments are reduced by a multiple of pi/2, which is stored in three parts. That works up to 2^16 (float) and 2^27
 * (double); beyond, Payne and Hanek's reduction uses as many digits of 2/pi as the exponent requires. A branch would keep the loop
 * around a call from being vectorised. So gcc on x86 calls functions of a whole vector, as it would call a vector library's: they are
 * defined here under the names that the vector function ABI gives them, and they test once whether any element is beyond the limit.
 * Other compilers do it element by element. */
#ifndef STITCHFLEET_KERNEL_TRIGONOMETRY_H_
#define STITCHFLEET_KERNEL_TRIGONOMETRY_H_

enum StitchTurn { STITCH_SIN, STITCH_COS, STITCH_TAN };

/* pi/2 in parts. With fused multiply-adds all digits of a part count; without them the products with n must be exact, which takes a
 * fourth part. Arguments are ordinary up to `limit`. */
template <class T> struct StitchHalfPi;
#if STITCH_FUSED
template <> struct StitchHalfPi<float> {
  static constexpr float first = 0x1.921fb4p+0f, second = 0x1.4442dp-24f, third = 0x1.846988p-48f, fourth = 0, limit = 0x1p16f;
};
template <> struct StitchHalfPi<double> {
  static constexpr double first = 0x1.921fb54442d18p+0, second = 0x1.1a62633145c06p-54, third = 0x1.c1cd129024e08p-107, fourth = 0;
  static constexpr double limit = 0x1p27;
};
#else
template <> struct StitchHalfPi<float> {
  static constexpr float first = 0x1.92p+0f, second = 0x1.fb4p-12f, third = 0x1.444p-24f, fourth = 0x1.68c234p-39f, limit = 0x1p12f;
};
template <> struct StitchHalfPi<double> {
  static constexpr double first = 0x1.921fb54p+0, second = 0x1.10b46118p-30, third = 0x1.313198ap-61, fourth = 0x1.701b839a25204p-92;
  static constexpr double limit = 0x1p20;
};
#endif

STITCH_INLINE float stitch_sin_tail(float z) { return stitch_polynomial(z, -0x1.555544p-3f, 0x1.1106c6p-7f, -0x1.991c26p-13f); }
STITCH_INLINE double stitch_sin_tail(double z) {
  return stitch_polynomial(z, -0x1.5555555555548p-3, 0x1.111111110f6f7p-7, -0x1.a01a019bddee3p-13, 0x1.71de354917128p-19,
                           -0x1.ae5e40b1ce112p-26, 0x1.5d87e367a25cbp-33);
}
/* tan r = (r + r z stitch_tan_above(z)) / stitch_tan_below(z), z = r^2. */
STITCH_INLINE float stitch_tan_above(float) { return -0x1.886168p-4f; }
STITCH_INLINE float stitch_tan_below(float z) { return stitch_polynomial(z, 1.0f, -0x1.b76dd4p-2f, 0x1.3e5492p-7f); }
STITCH_INLINE double stitch_tan_above(double z) {
  return stitch_polynomial(z, -0x1.06b95a230c882p-3, 0x1.6fc60cc4e7c67p-9, -0x1.f633267b096dep-18);
}
STITCH_INLINE double stitch_tan_below(double z) {
  return stitch_polynomial(z, 1.0, -0x1.d8b20266db971p-2, 0x1.7e7af089f8998p-6, -0x1.b523850a9e869p-13);
}

/* The function of x, where |x| = n pi/2 + r and |r| is at most slightly above pi/4; `quadrant` has n in its low bits. A cosine is
 * 1 - 2 sin(r/2)^2, so that one polynomial serves both. Whether a quadrant is odd is read from a sign: AVX-512 tests that without a
 * constant. */
template <StitchTurn turn, class T> STITCH_INLINE T stitch_of_quadrant(T x, T r, typename StitchFormat<T>::Bits quadrant) {
  typedef typename StitchFormat<T>::Bits Bits;
  typedef typename StitchFormat<T>::Signed Signed;
  constexpr int top = sizeof(T) * 8 - 1;
  T result;
  Bits sign;
  if (turn == STITCH_TAN) {
    sign = quadrant << top;
    const bool odd = (Signed)sign < 0;
    const T z = r * r, above = stitch_multiply_add(z * r, stitch_tan_above(z), r), below = stitch_tan_below(z);
    result = (odd ? below : above) / (odd ? above : below);
  } else {
    sign = (turn == STITCH_COS ? quadrant + 1 : quadrant) << (top - 1);
    const bool odd = (Signed)(sign + sign) < 0;
    const T angle = odd ? r * T(0.5) : r, z = angle * angle;
    const T sine = stitch_multiply_add(z * angle, stitch_sin_tail(z), angle);
    result = odd ? stitch_multiply_add(sine * T(-2), sine, T(1)) : sine;
  }
  if (turn != STITCH_COS) sign ^= stitch_bits<Bits>(x);
  return stitch_bits<T>(stitch_bits<Bits>(result) ^ (sign & Bits(1) << top));
}

template <StitchTurn turn, class T> STITCH_INLINE T stitch_turn_near(T x) {
  typedef StitchFormat<T> F;
  const T size = stitch_size(x), shifted = stitch_multiply_add(size, F::two_over_pi, F::rounder);
  const T n = shifted - F::rounder;
  T r = stitch_multiply_add(n, -StitchHalfPi<T>::first, size);
  r = stitch_multiply_add(n, -StitchHalfPi<T>::second, r);
  r = stitch_multiply_add(n, -StitchHalfPi<T>::third, r);
  if (!STITCH_FUSED) r = stitch_multiply_add(n, -StitchHalfPi<T>::fourth, r);
  return stitch_of_quadrant<turn>(x, r, stitch_bits<typename F::Bits>(shifted));
}

/* The function of any |x| >= 2, without a branch. M. Payne and R. Hanek, "Radian reduction for trigonometric functions" (1983): for
 * x = m 2^e, those bits of 2/pi whose product with 2^e is a multiple of 4 do not count. So many of the bits after them are used that
 * the fraction of a quarter turn has more correct digits than the result, however close to a multiple x is. For smaller x the result
 * is meaningless. */
typedef unsigned long long StitchTurnWord;
/* The lower half of `word`, and a 32-bit number, as doubles: before AVX-512 there is no conversion of 64-bit integers. */
STITCH_INLINE StitchTurnWord stitch_lower_half(StitchTurnWord word) { return word & 0xffffffffull; }
STITCH_INLINE double stitch_word_value(StitchTurnWord half) { return stitch_bits<double>(0x4330000000000000ull | half) - 0x1p52; }

/* 96 bits of 2/pi, times a significand that is shifted within a byte (the form of ARM's optimized routines, sincosf). The product
 * gives 62 bits of the fraction, and no float is closer to a multiple of pi/2 than about 2^-30 of it. */
static const unsigned stitch_two_over_pi_by_bytes[] = {
    0x000000a2, 0x0000a2f9, 0x00a2f983, 0xa2f9836e, 0xf9836e4e, 0x836e4e44, 0x6e4e4415, 0x4e441529, 0x441529fc, 0x1529fc27, 0x29fc2757,
    0xfc2757d1, 0x2757d1f5, 0x57d1f534, 0xd1f534dd, 0xf534ddc0, 0x34ddc0db, 0xddc0db62, 0xc0db6295, 0xdb629599, 0x6295993c, 0x95993c43,
    0x993c4390, 0x3c439041};
template <StitchTurn turn> STITCH_INLINE float stitch_turn_far(float x) {
  typedef StitchTurnWord Word;
  const unsigned bits = stitch_bits<unsigned>(x), place = bits >> 26 & 15;
  const Word m = ((bits & 0x7fffffu) | 0x800000u) << (bits >> 23 & 7);
  const Word first = m * stitch_two_over_pi_by_bytes[place], second = m * stitch_two_over_pi_by_bytes[place + 4];
  const Word turned = (first << 32) + second + (m * stitch_two_over_pi_by_bytes[place + 8] >> 32);
  const Word quadrant = (turned + (1ull << 61)) >> 62, rest = turned - (quadrant << 62);
  const double high = stitch_word_value(rest >> 32 ^ 0x80000000ull) - 0x1p31; /* its sign is that of the 64-bit number */
  const float r = (float)((high * 0x1p32 + stitch_word_value(stitch_lower_half(rest))) * 0x1.921fb54442d18p-62);
  const float result = stitch_of_quadrant<turn>(x, r, (unsigned)quadrant);
  return stitch_size(x) < stitch_infinity<float>() ? result : x - x;
}

/* 192 bits of 2/pi, after 64 zeros. The products are made of halves, of which a vector multiplication gives 64 bits. */
static const StitchTurnWord stitch_two_over_pi[] = {
    0, 0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561, 0xb7246e3a424dd2e0, 0x06492eea09d1921c,
    0xfe1deb1cb129a73e, 0xe88235f52ebb4484, 0xe99c7026b45f7e41, 0x3991d639835339f4, 0x9c845f8bbdf9283b, 0x1ff897ffde05980f,
    0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d, 0x7527bac7ebe5f17b, 0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08,
    0x56033046fc7b6bab, 0xf0cfbc209af4361d};
template <StitchTurn turn> STITCH_INLINE double stitch_turn_far(double x) {
  typedef StitchTurnWord Word;
  const Word bits = stitch_bits<Word>(x), field = bits >> 52 & 0x7ff;
  const Word start = (field < 1024 ? 1024 : field) - 1013; /* position of the first bit that counts, less one, after the 64 zeros */
  const Word word = start >> 6, shift = start & 63;
  const Word a = stitch_two_over_pi[word], b = stitch_two_over_pi[word + 1], c = stitch_two_over_pi[word + 2];
  const Word d = stitch_two_over_pi[word + 3];
  const Word part0 = a << shift | b >> 1 >> (63 - shift), part1 = b << shift | c >> 1 >> (63 - shift);
  const Word part2 = c << shift | d >> 1 >> (63 - shift);
  const Word m_high = (bits >> 32 & 0xfffff) | 0x100000, m_low = stitch_lower_half(bits);
  const Word high0 = part0 >> 32, low0 = stitch_lower_half(part0), high1 = part1 >> 32, low1 = stitch_lower_half(part1);
  const Word last = (m_low * (part2 >> 32) >> 32) + m_high * (part2 >> 32) + (m_high * stitch_lower_half(part2) >> 32);
  const Word low_low = m_low * low1, low_high = m_low * high1, high_low = m_high * low1;
  const Word units = stitch_lower_half(low_low) + stitch_lower_half(last);
  const Word middle = (low_low >> 32) + stitch_lower_half(low_high) + stitch_lower_half(high_low) + (last >> 32) + (units >> 32);
  const Word upper = m_low * low0 + ((m_low * high0 + m_high * low0) << 32) + m_high * high1 + (low_high >> 32) + (high_low >> 32) +
                     (middle >> 32);
  const Word lower = middle << 32 | stitch_lower_half(units);
  /* (upper, lower) / 2^126 is |x| 2/pi modulo 4, to the nearest quadrant. */
  const Word above = upper >> 61 & 1, quadrant = (upper >> 62) + above, flipped = 0 - above;
  const Word fraction = (upper << 2 | lower >> 62) ^ flipped, after = (lower << 2) ^ flipped;
  const double first = stitch_word_value(fraction >> 32) * 0x1p-32, second = stitch_word_value(stitch_lower_half(fraction)) * 0x1p-64;
  const double third = stitch_word_value(after >> 32) * 0x1p-96 + stitch_word_value(stitch_lower_half(after)) * 0x1p-128;
  const double sum = first + second, sum_low = (second - (sum - first)) + third;
  const double high = sum + sum_low, low = (sum - high) + sum_low;
  const StitchPair product = stitch_product(high, 0x1.921fb54442d18p+0);
  const double r = product.high + (product.low + (high * 0x1.1a62633145c07p-54 + low * 0x1.921fb54442d18p+0));
  const double result = stitch_of_quadrant<turn>(x, stitch_bits<double>(stitch_bits<Word>(r) ^ above << 63), quadrant);
  return stitch_size(x) < stitch_infinity<double>() ? result : x - x;
}

template <StitchTurn turn, class T> STITCH_INLINE T stitch_turn(T x) {
  return stitch_size(x) <= StitchHalfPi<T>::limit ? stitch_turn_near<turn>(x) : stitch_turn_far<turn>(x);
}

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__)
template <class T, int lanes> struct StitchTurned { typedef T Vector __attribute__((vector_size(lanes * sizeof(T)))); };

/* Whether any element of `size` is larger than `limit`. The reduction for ordinary arguments gives NaN for NaN and for Inf too. */
template <class T, int lanes, class V> STITCH_INLINE bool stitch_any_beyond(V size, const T& limit) {
#ifdef __AVX512F__ /* before gcc 13 a comparison's result goes through a vector of integers */
  if constexpr (sizeof(V) == 64) {
    unsigned short found;
    if constexpr (sizeof(T) == 4) __asm__("vcmpps $30, %2%{1to16%}, %1, %0" : "=k"(found) : "v"(size), "m"(limit));
    else __asm__("vcmppd $30, %2%{1to8%}, %1, %0" : "=k"(found) : "v"(size), "m"(limit));
    return found;
  }
#endif
  const auto beyond = size > V{} + limit;
#ifdef __AVX__
  if constexpr (sizeof(V) == 32) {
    if constexpr (sizeof(T) == 4) return __builtin_ia32_movmskps256((V)beyond);
    else return __builtin_ia32_movmskpd256((V)beyond);
  }
#endif
  if constexpr (sizeof(V) == 16) {
    if constexpr (sizeof(T) == 4) return __builtin_ia32_movmskps((V)beyond);
    else return __builtin_ia32_movmskpd((V)beyond);
  }
}

/* Up to two elements beyond the limit are computed one by one. If there are more, all elements are computed as if they were beyond
 * it, which takes as long as two or three single ones. */
template <StitchTurn turn, class T, int lanes, class V> static __attribute__((noinline)) V stitch_turn_beyond(V x, V near) {
  alignas(sizeof(V)) T given[lanes], found[lanes];
  __builtin_memcpy(given, &x, sizeof given);
  __builtin_memcpy(found, &near, sizeof found);
  const auto is_beyond = [](T one) { return stitch_size(one) > StitchHalfPi<T>::limit && stitch_size(one) < stitch_infinity<T>(); };
  int beyond = 0;
  for (int i = 0; i < lanes; ++i) beyond += is_beyond(given[i]);
  if (beyond == 0) return near; /* Inf */
  if (beyond <= 2) {
    for (int i = 0; i < lanes; ++i) {
      if (is_beyond(given[i])) found[i] = stitch_turn_far<turn>(given[i]);
    }
  } else {
#pragma omp simd
    for (int i = 0; i < lanes; ++i) {
      const T far = stitch_turn_far<turn>(given[i]);
      found[i] = stitch_size(given[i]) <= StitchHalfPi<T>::limit ? found[i] : far;
    }
  }
  __builtin_memcpy(&near, found, sizeof near);
  return near;
}

template <StitchTurn turn, class T, int lanes, class V> STITCH_INLINE V stitch_turn_all(V x) {
  alignas(sizeof(V)) T given[lanes], sizes[lanes], found[lanes];
  __builtin_memcpy(given, &x, sizeof given);
#pragma omp simd
  for (int i = 0; i < lanes; ++i) {
    sizes[i] = stitch_size(given[i]);
    found[i] = stitch_turn_near<turn>(given[i]);
  }
  V size, near;
  __builtin_memcpy(&size, sizes, sizeof size);
  __builtin_memcpy(&near, found, sizeof near);
  if (__builtin_expect(stitch_any_beyond<T, lanes>(size, StitchHalfPi<T>::limit), 0)) {
    return stitch_turn_beyond<turn, T, lanes>(x, near);
  }
  return near;
}

/* A vector function of the x86_64 vector function ABI: its name contains `isa` and the number of lanes. */
#define STITCH_TURN_ALL(turn, name, T, isa, lanes)                                                                             \
  static __attribute__((used)) StitchTurned<T, lanes>::Vector stitch_all_##isa##_##name(StitchTurned<T, lanes>::Vector x)      \
      __asm__("_ZGV" #isa "N" #lanes "v_" #name);                                                                              \
  static StitchTurned<T, lanes>::Vector stitch_all_##isa##_##name(StitchTurned<T, lanes>::Vector x) {                          \
    return stitch_turn_all<turn, T, lanes>(x);                                                                                 \
  }
#ifdef __AVX512F__
#define STITCH_TURN_512(turn, name, T, lanes) STITCH_TURN_ALL(turn, name, T, e, lanes)
#else
#define STITCH_TURN_512(turn, name, T, lanes)
#endif
#ifdef __AVX2__
#define STITCH_TURN_256(turn, name, T, lanes) STITCH_TURN_ALL(turn, name, T, d, lanes)
#else
#define STITCH_TURN_256(turn, name, T, lanes)
#endif
#ifdef __AVX__
#define STITCH_TURN_AVX(turn, name, T, lanes) STITCH_TURN_ALL(turn, name, T, c, lanes)
#else
#define STITCH_TURN_AVX(turn, name, T, lanes)
#endif
/* Declared as a library's function would be, with vector variants, and defined under another name for the same symbol: for a
 * definition with the attribute gcc would make the variants itself, and would always compute both reductions. */
#define STITCH_TURN_FUNCTION(turn, name, function, T, least, half, most)                                                             \
  extern "C" __attribute__((simd("notinbranch"), visibility("hidden"))) T name(T) noexcept;                                   \
  static __attribute__((used)) T stitch_one_##name(T x) __asm__(#name);                                                       \
  static T stitch_one_##name(T x) { return stitch_turn<turn>(x); }                                                            \
  STITCH_TURN_512(turn, name, T, most)                                                                                        \
  STITCH_TURN_256(turn, name, T, half)                                                                          \
  STITCH_TURN_AVX(turn, name, T, half)                                                                          \
  STITCH_TURN_ALL(turn, name, T, b, least)                                                                                    \
  STITCH_INLINE T function(T x) { return name(x); }
#else
#define STITCH_TURN_FUNCTION(turn, name, function, T, least, half, most) \
  STITCH_INLINE T function(T x) { return stitch_turn<turn>(x); }
#endif

#ifdef STITCH_CALLS_stitch_sin
STITCH_TURN_FUNCTION(STITCH_SIN, stitch_sin_f32, stitch_sin, float, 4, 8, 16)
STITCH_TURN_FUNCTION(STITCH_SIN, stitch_sin_f64, stitch_sin, double, 2, 4, 8)
#endif
#ifdef STITCH_CALLS_stitch_cos
STITCH_TURN_FUNCTION(STITCH_COS, stitch_cos_f32, stitch_cos, float, 4, 8, 16)
STITCH_TURN_FUNCTION(STITCH_COS, stitch_cos_f64, stitch_cos, double, 2, 4, 8)
#endif
#ifdef STITCH_CALLS_stitch_tan
STITCH_TURN_FUNCTION(STITCH_TAN, stitch_tan_f32, stitch_tan, float, 4, 8, 16)
STITCH_TURN_FUNCTION(STITCH_TAN, stitch_tan_f64, stitch_tan, double, 2, 4, 8)
#endif
#endif /* STITCHFLEET_KERNEL_TRIGONOMETRY_H_ */
