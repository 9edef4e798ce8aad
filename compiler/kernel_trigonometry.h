/* sin, cos and tan, in kernels that call them; on a processor; comes after kernel_math.h.
 *
 * Ordinary arguments are reduced by a multiple of pi/2 that is known in three parts. That ends at 2^16 (float) and 2^27 (double); beyond
 * lies Payne and Hanek's reduction with as many digits of 2/pi as the exponent asks for, element by element. A branch would keep the loop
 * around a call from being vectorised. gcc on x86 therefore calls functions of a whole vector, as it would call a vector library's: they
 * are defined here under the names that the vector function ABI gives them, and look once whether any element lies beyond. Other compilers
 * do it element by element. */
#ifndef STITCHFLEET_KERNEL_TRIGONOMETRY_H_
#define STITCHFLEET_KERNEL_TRIGONOMETRY_H_

enum StitchTurn { STITCH_SIN, STITCH_COS, STITCH_TAN };

/* pi/2 in parts. With fused multiply-adds all digits of a part count; without, the products with n must be exact, which takes a fourth. Arguments are ordinary up to `limit`. */
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
STITCH_INLINE float stitch_cos_tail(float z) { return stitch_polynomial(z, 0x1.55554ap-5f, -0x1.6c0c2p-10f, 0x1.99e428p-16f); }
STITCH_INLINE double stitch_sin_tail(double z) {
  return stitch_polynomial(z, -0x1.5555555555548p-3, 0x1.111111110f6f7p-7, -0x1.a01a019bddee3p-13, 0x1.71de354917128p-19,
                           -0x1.ae5e40b1ce112p-26, 0x1.5d87e367a25cbp-33);
}
STITCH_INLINE double stitch_cos_tail(double z) {
  return stitch_polynomial(z, 0x1.5555555555553p-5, -0x1.6c16c16c15e45p-10, 0x1.a01a019dbac84p-16, -0x1.27e4f8ac88339p-22,
                           0x1.1eea4b537492ap-29, -0x1.8fd9ca826a9dcp-37);
}

/* The function of x = n pi/2 + r, |r| <= pi/4 and a little; `quadrant` has n in its low bits. */
template <StitchTurn turn, class T> STITCH_INLINE T stitch_of_quadrant(T r, typename StitchFormat<T>::Bits quadrant) {
  typedef typename StitchFormat<T>::Bits Bits;
  const T z = r * r;
  const T sine = stitch_multiply_add(z * r, stitch_sin_tail(z), r);
  const T cosine = stitch_multiply_add(stitch_multiply_add(z, stitch_cos_tail(z), T(-0.5)), z, T(1));
  constexpr int top = sizeof(T) * 8 - 1;
  if (turn == STITCH_TAN) {
    const bool odd = quadrant & 1;
    const T result = (odd ? cosine : sine) / (odd ? sine : cosine);
    return stitch_bits<T>(stitch_bits<Bits>(result) ^ (quadrant << top));
  }
  const Bits place = turn == STITCH_COS ? quadrant + 1 : quadrant;
  const T result = (place & 1) ? cosine : sine;
  return stitch_bits<T>(stitch_bits<Bits>(result) ^ ((place << (top - 1)) & Bits(1) << top));
}

template <StitchTurn turn, class T> STITCH_INLINE T stitch_turn_near(T x) {
  typedef StitchFormat<T> F;
  const T shifted = stitch_multiply_add(x, F::two_over_pi, F::rounder);
  const T n = shifted - F::rounder;
  T r = stitch_multiply_add(n, -StitchHalfPi<T>::first, x);
  r = stitch_multiply_add(n, -StitchHalfPi<T>::second, r);
  r = stitch_multiply_add(n, -StitchHalfPi<T>::third, r);
  if (!STITCH_FUSED) r = stitch_multiply_add(n, -StitchHalfPi<T>::fourth, r);
  const T result = stitch_of_quadrant<turn>(r, stitch_bits<typename F::Bits>(shifted));
  return turn == STITCH_COS || x != T(0) ? result : x; /* of -0 the polynomial makes 0 */
}

/* x = n pi/2 + *rest for 2^12 <= |x| < Inf; returns n mod 4. M. Payne and R. Hanek, "Radian reduction for trigonometric functions" (1983):
 * of x = m 2^e, bits of 2/pi whose product with 2^e is a multiple of 4 do not count; the 192 bits after them leave more than 64 right ones
 * of the fraction, whatever x is. */
static __attribute__((noinline, unused)) unsigned stitch_reduce_far(double x, double* rest) {
  typedef unsigned long long Word;
  typedef unsigned __int128 Wide;
  static const Word two_over_pi[] = { /* after 64 zeros */
      0, 0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561, 0xb7246e3a424dd2e0, 0x06492eea09d1921c,
      0xfe1deb1cb129a73e, 0xe88235f52ebb4484, 0xe99c7026b45f7e41, 0x3991d639835339f4, 0x9c845f8bbdf9283b, 0x1ff897ffde05980f,
      0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d, 0x7527bac7ebe5f17b, 0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08,
      0x56033046fc7b6bab, 0xf0cfbc209af4361d};
  const Word bits = stitch_bits<Word>(x);
  const Word m = (bits & 0xfffffffffffffull) | 0x10000000000000ull;
  const int e = (int)((bits >> 52) & 0x7ff) - 1075;
  const int start = e - 2 + 64, word = start >> 6, shift = start & 63;
  Word part[3];
  for (int i = 0; i < 3; ++i) {
    const Word low = shift ? two_over_pi[word + i + 1] >> (64 - shift) : 0;
    part[i] = two_over_pi[word + i] << shift | low;
  }
  const Wide last = (Wide)m * part[2], middle = (Wide)m * part[1] + (Word)(last >> 64);
  const Wide product = ((Wide)(m * part[0] + (Word)(middle >> 64)) << 64) | (Word)middle;
  /* product / 2^126 is x 2/pi modulo 4, to the nearest quadrant. */
  unsigned quadrant = (unsigned)(product >> 126);
  Wide fraction = (product << 2) | ((Word)last >> 62);
  const bool above = (Word)(fraction >> 127);
  quadrant += above;
  fraction = above ? -fraction : fraction;
  const Word top = (Word)(fraction >> 64);
  const int zeros = top ? __builtin_clzll(top) : 64;
  const Word digits = (Word)(fraction << (zeros & 63) >> 64);
  const double scale = stitch_bits<double>((Word)(1023 - 64 - zeros) << 52);
  const double high = (double)(digits & ~0x7ffull), low = (double)(digits & 0x7ff);
  const StitchPair turned = stitch_product(high, 0x1.921fb54442d18p+0);
  const double r = (turned.high + (turned.low + (high * 0x1.1a62633145c07p-54 + low * 0x1.921fb54442d18p+0))) * scale;
  const bool negative = bits >> 63;
  *rest = above != negative ? -r : r;
  return negative ? 4 - quadrant : quadrant;
}

template <StitchTurn turn, class T> static __attribute__((noinline, unused)) T stitch_turn_far(T x) {
  if (!(stitch_size(x) < stitch_infinity<T>())) return x - x;
  double rest;
  const unsigned quadrant = stitch_reduce_far((double)x, &rest);
  return stitch_of_quadrant<turn>((T)rest, quadrant);
}

template <StitchTurn turn, class T> STITCH_INLINE T stitch_turn(T x) {
  return stitch_size(x) <= StitchHalfPi<T>::limit ? stitch_turn_near<turn>(x) : stitch_turn_far<turn>(x);
}

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__)
template <class T, int lanes> struct StitchTurned { typedef T Vector __attribute__((vector_size(lanes * sizeof(T)))); };

/* Whether any element is larger than `limit`, or a NaN. */
template <class T, int lanes, class V> STITCH_INLINE bool stitch_any_beyond(V x, T limit) {
  typedef typename StitchFormat<T>::Bits Bits;
  typedef Bits Words __attribute__((vector_size(lanes * sizeof(T))));
  const V size = (V)((Words)x & (~Bits(0) >> 1));
#ifdef __AVX512F__ /* before gcc 13 a comparison's result goes through a vector of integers */
  if constexpr (sizeof(V) == 64) {
    unsigned short found;
    if constexpr (sizeof(T) == 4) __asm__("vcmpps $22, %2, %1, %0" : "=k"(found) : "v"(size), "v"(V{} + limit));
    else __asm__("vcmppd $22, %2, %1, %0" : "=k"(found) : "v"(size), "v"(V{} + limit));
    return found;
  }
#endif
  const auto beyond = ~(size <= V{} + limit);
  unsigned long long words[sizeof(V) / 8], any = 0;
  __builtin_memcpy(words, &beyond, sizeof words);
  for (unsigned long long word : words) any |= word;
  return any;
}

template <StitchTurn turn, class T, int lanes, class V> static __attribute__((noinline, cold)) V stitch_turn_beyond(V x, V near) {
  T given[lanes], found[lanes];
  __builtin_memcpy(given, &x, sizeof given);
  __builtin_memcpy(found, &near, sizeof found);
  for (int i = 0; i < lanes; ++i) {
    if (!(stitch_size(given[i]) <= StitchHalfPi<T>::limit)) found[i] = stitch_turn_far<turn>(given[i]);
  }
  __builtin_memcpy(&near, found, sizeof near);
  return near;
}

template <StitchTurn turn, class T, int lanes, class V> STITCH_INLINE V stitch_turn_all(V x) {
  alignas(sizeof(V)) T given[lanes], found[lanes];
  __builtin_memcpy(given, &x, sizeof given);
#pragma omp simd
  for (int i = 0; i < lanes; ++i) found[i] = stitch_turn_near<turn>(given[i]);
  V near;
  __builtin_memcpy(&near, found, sizeof near);
  if (__builtin_expect(stitch_any_beyond<T, lanes>(x, StitchHalfPi<T>::limit), 0)) return stitch_turn_beyond<turn, T, lanes>(x, near);
  return near;
}

/* A vector function by the x86_64 vector function ABI: `isa` and the number of lanes are in its name. */
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
/* Declared as a library's function would be, with vector variants, and defined under another name for the same symbol: of a definition
 * with the attribute gcc would make the variants itself, and compute both reductions always. */
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
