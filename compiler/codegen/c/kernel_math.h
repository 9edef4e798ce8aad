/* The kernels' own elementary functions: plain C++ for the whole range of float and double, without branches, so that the loop around
 * a call is vectorised with it, whatever the instruction set. No vector library is called (glibc's libmvec calls the scalar function
 * for each lane outside of its fast range: a mask of -1e9 makes its expf twelve times as slow), and no result depends on the version
 * of the C library. Vector and scalar code give the same bits. It follows kernel_prelude.h in a translation unit. sin, cos and tan
 * are in kernel_trigonometry.h, erf and pow of doubles in kernel_tables.h.
 *
 * Special values are those of C (Annex F) and IEEE 754: NaN in, NaN out (but pow(1, NaN) = pow(NaN, 0) = 1); signed zeros are kept;
 * overflow gives Inf; a subnormal result is rounded once. If the thread flushes subnormals, as TensorFlow's do, they are read and
 * written as zero.
 *
 * Largest errors in units in the last place, against 64-bit significands, with fused multiply-adds
 * (tests/compiler/codegen/test_math.py says which arguments it tries; float's exp and log at all bit patterns); without them, on a
 * baseline x86-64, up to 0.75 more:
 *
 *              float  double                float  double
 *   exp         0.91   0.95     tanh         2.45   2.65
 *   expm1       1.45   1.90     logistic     2.50   2.50    (a subnormal result may be 0)
 *   log         0.94   0.85     erf          1.05   1.60
 *   log1p       1.50   1.40     sin, cos     1.60   1.60
 *   cbrt        1.00   0.92     tan          3.25   3.25
 *   pow         0.51   1.15     atan2        1.60   1.80
 *
 * Compared with glibc 2.36's libmvec (scripts/bench --functions, a Zen 4 with AVX-512, ordinary numbers) double's log1p takes 1.15
 * times as long; sin and cos take 0.95 to 1.05 times as long, from run to run; double's erf and tan take 0.75 times, its cbrt 0.8
 * times, its pow 0.9 times; the others take as long or less. With AVX2 there sin and cos take 1.6 times as long, float's log and erf
 * 1.4 times, atan2 1.2 (float) and 1.35 times, double's log 1.2 times, the others up to 1.1 times. On an Intel core of 2023 (AVX-512)
 * double's log1p takes 1.1 times as long, float's and double's log 1.05 times; sin, cos, tan, cbrt and double's erf and pow have
 * changed since.
 *
 * The limit is the number of vector operations. A Zen 4 begins two of 512 bits per cycle, of which one may be a product, a fused
 * operation or a comparison whose result is a mask; each other one adds a quarter of a cycle. So sums and products that can be fused
 * are written so, and comparisons are avoided. A call of double's sin has 15 of the first, 2 comparisons and 11 others, of which 5
 * copy constants that a loop would keep in registers: 20 cycles for 8 numbers, as measured. log1p has 16, 4 comparisons and a
 * division (as much as 3). pow waits for results instead: no more than two vectors of them are in work at once (160 instructions
 * each). libmvec has tables in registers, and allows itself an error of four units.
 *
 * Tried, and no better: log's division as a reciprocal (a quadratic and two steps: more operations, and longer); for float's erf, one
 * polynomial with coefficients chosen by the argument (6% faster with AVX-512, 20% slower with AVX2), and a quotient of polynomials
 * in x^2 (with AVX2 1.8 times as fast, degrees 5 over 5, but 5.4 units: just below 1 each rounding counts double); for double's erf,
 * a table with step 1/128 (10% faster, but 2.2 units near 1/256); for sin and cos, chosen coefficients (the choices cost 40% more
 * than a second polynomial, because gcc copies each constant from an integer register), a reduction by pi (a sine would have to be
 * clipped at 1, and cos(0) is not 1), Estrin's scheme (6% slower with AVX-512, 5% faster with AVX2), and r (1 + z p) for r + r z p as
 * the last step (no faster, 1.95 units); for float's cbrt, a tail of degree 4 (5% faster, 1.17 units).
 *
 * Coefficients without another source come from scripts/minimax.py. */
#ifndef STITCHFLEET_KERNEL_MATH_H_
#define STITCHFLEET_KERNEL_MATH_H_

#if defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(STITCH_CUDA)
STITCH_INLINE float stitch_multiply_add(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
STITCH_INLINE double stitch_multiply_add(double a, double b, double c) { return __builtin_fma(a, b, c); }
#define STITCH_FUSED 1
#else
STITCH_INLINE float stitch_multiply_add(float a, float b, float c) { return a * b + c; }
STITCH_INLINE double stitch_multiply_add(double a, double b, double c) { return a * b + c; }
#define STITCH_FUSED 0
#endif

/* The polynomial of x with these coefficients, lowest first, by Horner's rule. */
template <class T> STITCH_INLINE T stitch_polynomial(T, T last) { return last; }
template <class T, class... Rest> STITCH_INLINE T stitch_polynomial(T x, T first, Rest... rest) {
  return stitch_multiply_add(stitch_polynomial(x, rest...), x, first);
}

STITCH_INLINE float stitch_size(float x) { return __builtin_fabsf(x); }
STITCH_INLINE double stitch_size(double x) { return __builtin_fabs(x); }
STITCH_INLINE float stitch_with_sign(float size, float sign) { return __builtin_copysignf(size, sign); }
STITCH_INLINE double stitch_with_sign(double size, double sign) { return __builtin_copysign(size, sign); }
/* In this form a NaN stays NaN, and a compiler makes one instruction of each. */
template <class T> STITCH_INLINE T stitch_at_most(T x, T most) { return x > most ? most : x; }
template <class T> STITCH_INLINE T stitch_at_least(T x, T least) { return x < least ? least : x; }

/* What differs between the two formats. `rounder` is 1.5 * 2^(digits - 1): adding it to a number rounds the number to an integer,
 * which is then in the low bits of the sum. */
template <class T> struct StitchFormat;
template <> struct StitchFormat<float> {
  typedef unsigned Bits;
  typedef int Signed;
  static constexpr int mantissa = 23, bias = 127;
  static constexpr float rounder = 12582912.0f, smallest_normal = 0x1p-126f;
  static constexpr float log2_e = 0x1.715476p+0f;
  /* ln 2 in two parts. The first has so few bits that its product with an exponent is exact (Cephes' expf, S. Moshier). */
  static constexpr float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
  static constexpr float two_over_pi = 0x1.45f306p-1f;
  static constexpr unsigned root_half = 0x3f3504f3u; /* the bits of sqrt(1/2) */
};
template <> struct StitchFormat<double> {
  typedef unsigned long long Bits;
  typedef long long Signed;
  static constexpr int mantissa = 52, bias = 1023;
  static constexpr double rounder = 6755399441055744.0, smallest_normal = 0x1p-1022;
  static constexpr double log2_e = 0x1.71547652b82fep+0;
  static constexpr double ln2_high = 0x1.62e42feep-1, ln2_low = 0x1.a39ef35793c76p-33; /* fdlibm's e_exp.c, Sun Microsystems */
  static constexpr double two_over_pi = 0x1.45f306dc9c883p-1;
  static constexpr unsigned long long root_half = 0x3fe6a09e667f3bcdull;
};

template <class T> STITCH_INLINE T stitch_infinity() { return T(__builtin_inf()); }
template <class T> STITCH_INLINE T stitch_nan() { return T(__builtin_nan("")); }

/* ---- exp and functions made of it ------------------------------------------------------------------------------------------ */

/* x = n ln 2 + rest with |rest| <= ln 2 / 2. `scaled` has n + offset in its low bits. */
template <class T> struct StitchReduced {
  T rest;
  typename StitchFormat<T>::Bits scaled;
};
template <class T> STITCH_INLINE StitchReduced<T> stitch_reduced_by(T x, T shifted, T rounder) {
  typedef StitchFormat<T> F;
  const T n = shifted - rounder;
  const T high = stitch_multiply_add(n, -F::ln2_high, x);
  return {stitch_multiply_add(n, -F::ln2_low, high), stitch_bits<typename F::Bits>(shifted)};
}
template <class T> STITCH_INLINE StitchReduced<T> stitch_reduce_exp(T x, int offset) {
  typedef StitchFormat<T> F;
  const T rounder = F::rounder + T(offset);
  return stitch_reduced_by(x, stitch_multiply_add(x, F::log2_e, rounder), rounder);
}

/* The same with n <= most: what is above it is left in the rest, whose polynomial then grows without end. One integer minimum, where
 * gcc 12 makes seven vector operations of a float's two limits (it has no minimum of floats that keeps NaN). */
STITCH_INLINE StitchReduced<float> stitch_reduce_exp_up_to(float x, int offset, int most) {
  typedef StitchFormat<float> F;
  const float rounder = F::rounder + float(offset);
  const int shifted = stitch_bits<int>(stitch_multiply_add(x, F::log2_e, rounder));
  const int limit = stitch_bits<int>(F::rounder) + offset + most;
  return stitch_reduced_by(x, stitch_bits<float>(shifted < limit ? shifted : limit), rounder);
}

STITCH_INLINE float stitch_exp_of_rest(float r) {
  return stitch_polynomial(r, 1.0f, 1.0f, 0x1.fffffcp-2f, 0x1.555492p-3f, 0x1.5558f2p-5f, 0x1.1239d4p-7f, 0x1.6a245p-10f);
}
STITCH_INLINE double stitch_exp_of_rest(double r) {
  return stitch_polynomial(r, 1.0, 1.0, 0x1.000000000000ap-1, 0x1.55555555554fap-3, 0x1.555555555088cp-5, 0x1.1111111127ba5p-7,
                           0x1.6c16c18426746p-10, 0x1.a01a012a66fe8p-13, 0x1.a0199a16cd55fp-16, 0x1.71df253f67fe4p-19,
                           0x1.28ad68b4f3fefp-22, 0x1.ad7f7387c3ce3p-26);
}

/* `p` times 2^n in two factors, so that a subnormal result is rounded once and an overflow gives Inf; `scaled` has n + 2 bias in its
 * low bits. */
template <class T> STITCH_INLINE T stitch_scale(T p, typename StitchFormat<T>::Bits scaled) {
  typedef StitchFormat<T> F;
  const typename F::Bits half = scaled >> 1;
  return p * stitch_bits<T>(half << F::mantissa) * stitch_bits<T>((scaled - half) << F::mantissa);
}

STITCH_INLINE float stitch_exp(float value) {
  const StitchReduced<float> r = stitch_reduce_exp_up_to(stitch_at_least(value, -104.0f), 2 * 127, 128);
  return stitch_scale(stitch_exp_of_rest(r.rest), r.scaled);
}
/* exp for callers that need no care at the ends of the range: x must be at least -87.3 (-708.3); from 88.4 (709.4) on the result is
 * Inf. */
template <class T> STITCH_INLINE T stitch_exp_within(T x) {
  typedef StitchFormat<T> F;
  const StitchReduced<T> r = stitch_reduce_exp(x, F::bias);
  return stitch_exp_of_rest(r.rest) * stitch_bits<T>(r.scaled << F::mantissa);
}

/* HLO's own definition: 1 / (1 + exp(-x)). */
STITCH_INLINE float stitch_logistic(float x) {
  const StitchReduced<float> r = stitch_reduce_exp_up_to(stitch_at_least(-x, -87.0f), 127, 128);
  return 1.0f / (1.0f + stitch_exp_of_rest(r.rest) * stitch_bits<float>(r.scaled << 23));
}

STITCH_INLINE float stitch_expm1_of_rest(float r) {
  const float p = stitch_polynomial(r, 0.5f, 0x1.555554p-3f, 0x1.5554b2p-5f, 0x1.11118ap-7f, 0x1.6d71e6p-10f, 0x1.a032bap-13f);
  return stitch_multiply_add(r * r, p, r);
}
STITCH_INLINE double stitch_expm1_of_rest(double r) {
  const double p = stitch_polynomial(r, 0.5, 0x1.5555555555559p-3, 0x1.555555555553fp-5, 0x1.111111110f6dfp-7, 0x1.6c16c16c1f05bp-10,
                                     0x1.a01a01afd1758p-13, 0x1.a01a017bcc9c4p-16, 0x1.71ddf8857d899p-19, 0x1.27e536250e2fcp-22,
                                     0x1.af5e682a4dcf5p-26, 0x1.1ee88993dc839p-29);
  return stitch_multiply_add(r * r, p, r);
}

/* expm1(2 |x|) / (expm1(2 |x|) + 2), which is 1 as soon as the 2 is lost in the sum. */
template <class T> STITCH_INLINE T stitch_tanh_up_to(T x, T most) {
  typedef StitchFormat<T> F;
  const T size = stitch_at_most(stitch_size(x), most);
  const StitchReduced<T> r = stitch_reduce_exp(size + size, F::bias);
  const T power = stitch_bits<T>(r.scaled << F::mantissa);
  const T grown = stitch_multiply_add(power, stitch_expm1_of_rest(r.rest), power - T(1));
  return stitch_with_sign(grown / (grown + T(2)), x);
}
STITCH_INLINE float stitch_tanh(float x) { return stitch_tanh_up_to(x, 10.0f); }

#ifdef STITCH_CUDA
/* The remaining functions are CUDA's own. */
STITCH_INLINE double stitch_exp(double x) { return exp(x); }
STITCH_INLINE double stitch_logistic(double x) { return 1 / (1 + exp(-x)); }
STITCH_INLINE double stitch_tanh(double x) { return tanh(x); }
#define STITCH_OF_CUDA(name)                                           \
  STITCH_INLINE float stitch_##name(float x) { return name##f(x); }    \
  STITCH_INLINE double stitch_##name(double x) { return name(x); }
#define STITCH_OF_CUDA_2(name)                                                      \
  STITCH_INLINE float stitch_##name(float x, float y) { return name##f(x, y); }     \
  STITCH_INLINE double stitch_##name(double x, double y) { return name(x, y); }
STITCH_OF_CUDA(expm1)
STITCH_OF_CUDA(log)
STITCH_OF_CUDA(log1p)
STITCH_OF_CUDA(cbrt)
STITCH_OF_CUDA(erf)
STITCH_OF_CUDA(sin)
STITCH_OF_CUDA(cos)
STITCH_OF_CUDA(tan)
STITCH_OF_CUDA_2(atan2)
STITCH_OF_CUDA_2(pow)
#else
STITCH_INLINE double stitch_exp(double value) {
  const double x = stitch_at_least(stitch_at_most(value, 710.0), -746.0);
  const StitchReduced<double> r = stitch_reduce_exp(x, 2 * 1023);
  return stitch_scale(stitch_exp_of_rest(r.rest), r.scaled);
}
STITCH_INLINE double stitch_logistic(double x) {
  return 1.0 / (1.0 + stitch_exp_within(stitch_at_least(stitch_at_most(-x, 710.0), -708.0)));
}
STITCH_INLINE double stitch_tanh(double x) { return stitch_tanh_up_to(x, 22.0); }

/* 2^n - 1 and 2^n expm1(rest), added once. They are halved until the end, since 2^n may be as large as twice the format's limit. */
template <class T> STITCH_INLINE T stitch_expm1_between(T value, T most, T least) {
  typedef StitchFormat<T> F;
  const T x = stitch_at_least(stitch_at_most(value, most), least);
  const StitchReduced<T> r = stitch_reduce_exp(x, F::bias - 1);
  const T half = stitch_bits<T>(r.scaled << F::mantissa);
  const T sum = stitch_multiply_add(half, stitch_expm1_of_rest(r.rest), half - T(0.5));
  return stitch_with_sign(sum + sum, value);
}
STITCH_INLINE float stitch_expm1(float x) { return stitch_expm1_between(x, 89.0f, -18.0f); }
STITCH_INLINE double stitch_expm1(double x) { return stitch_expm1_between(x, 710.0, -40.0); }

/* Up to 1 an odd polynomial, then 1 - exp(polynomial), where the polynomial approximates log(erfc) (the form of N. Juffa's erff). The
 * result is 1 exactly wherever 1 is the nearest number to erf (from 3.92 in float, from 5.93 in double, and at Inf), so that x (1 +
 * erf(x)) is 0 for x far below zero: TensorFlow's own kernel (Eigen) saturates in the same way. */
STITCH_INLINE float stitch_erf(float x) {
  const float size = stitch_at_most(stitch_size(x), 4.0f);
  const float near = stitch_polynomial(x * x, 0x1.06eba8p-3f, -0x1.81273ep-2f, 0x1.ce2ce6p-4f, -0x1.b7f71ap-6f,
                                       0x1.53f224p-8f, -0x1.a3515ep-11f, 0x1.4771fep-14f);
  const float far = stitch_polynomial(size, -0x1.661cf2p-12f, -0x1.2088eap+0f, -0x1.46bafp-1f, -0x1.a6531ep-4f, 0x1.65cb3p-6f,
                                      -0x1.825a52p-9f, 0x1.86db0cp-13f);
  const float beyond = stitch_with_sign(1.0f - stitch_exp_within(far), x);
  return size < 1.0f ? stitch_multiply_add(x, near, x) : beyond;
}

/* ---- log and log1p ------------------------------------------------------------------------------------------------------------ */

/* Writes a positive normal number as 2^exponent * (1 + fraction), sqrt(1/2) <= 1 + fraction < sqrt(2). The exponent is a number of
 * the format, and `inverse` = 2^-exponent, for exponents up to that of half the largest number. */
template <class T> struct StitchSplit {
  T exponent, fraction, inverse;
};
STITCH_INLINE StitchSplit<float> stitch_split(float x) {
  typedef StitchFormat<float> F;
  const unsigned bits = stitch_bits<unsigned>(x) - F::root_half;
  const int exponent = (int)bits >> F::mantissa;
  const float mantissa = stitch_bits<float>((bits & 0x7fffffu) + F::root_half);
  return {(float)exponent, mantissa - 1.0f, stitch_bits<float>((unsigned)(F::bias - exponent) << F::mantissa)};
}
STITCH_INLINE StitchSplit<double> stitch_split(double x) {
  typedef StitchFormat<double> F;
  const unsigned long long one = 0x3ff0000000000000ull, bits = stitch_bits<unsigned long long>(x) + (one - F::root_half);
  const unsigned long long biased = bits >> F::mantissa;
  const double mantissa = stitch_bits<double>((bits & 0xfffffffffffffull) + F::root_half);
  /* 2^52 + biased, reinterpreted from its bits: before AVX-512 there is no conversion of 64-bit integers. */
  const double exponent = stitch_bits<double>(0x4330000000000000ull | biased) - (0x1p52 + F::bias);
  return {exponent, mantissa - 1.0, stitch_bits<double>((2 * F::bias - biased) << F::mantissa)};
}

/* exponent ln 2 + log(1 + fraction). */
STITCH_INLINE float stitch_log_of_parts(float exponent, float f) {
  const float p = stitch_polynomial(f, 0x1.555554p-2f, -0x1.000226p-2f, 0x1.99a008p-3f, -0x1.547244p-3f, 0x1.22da1cp-3f, -0x1.0d854p-3f,
                                    0x1.055b72p-3f, -0x1.38b59ap-4f);
  /* ln 2 is within 2^-28 (relative) of a float. */
  return stitch_multiply_add(exponent, 0x1.62e43p-1f, stitch_multiply_add(f * f, stitch_multiply_add(f, p, -0.5f), f));
}
/* With s = f / (2 + f): log(1 + f) = f - f^2/2 + s (f^2/2 + R(s^2)), the form of fdlibm's e_log.c. Here it is written with s/2 and
 * f^2, so that each sum is one fused operation: 2 R is `half_s`^2 times the polynomial. */
STITCH_INLINE double stitch_log_of_parts(double exponent, double f) {
  typedef StitchFormat<double> F;
  const double half_s = f / stitch_multiply_add(f, 2.0, 4.0), z = half_s * half_s, square = f * f;
  const double p = stitch_polynomial(z, 0x1.555555555557cp+2, 0x1.9999999985748p+3, 0x1.2492493de0c05p+5, 0x1.c71c54e0f09d5p+6,
                                     0x1.7465ba8c89aa1p+8, 0x1.39adcd3223aabp+10, 0x1.2e95b1659107dp+12);
  const double tail = stitch_multiply_add(half_s, stitch_multiply_add(z, p, square), exponent * F::ln2_low);
  return stitch_multiply_add(exponent, F::ln2_high, f + stitch_multiply_add(square, -0.5, tail));
}

template <class T> STITCH_INLINE T stitch_log(T x) {
  typedef StitchFormat<T> F;
  const bool small = x < F::smallest_normal;
  const StitchSplit<T> split = stitch_split(small ? x * T(1ull << (F::mantissa + 1)) : x);
  T result = stitch_log_of_parts(small ? split.exponent - T(F::mantissa + 1) : split.exponent, split.fraction);
  result = x < stitch_infinity<T>() ? result : x;
  result = x == T(0) ? -stitch_infinity<T>() : result;
  return x < T(0) ? stitch_nan<T>() : result;
}

/* 1 + x is rounded: it gives the exponent, and the fraction is computed from x itself. From 2^60 on the 1 no longer counts. */
template <class T> STITCH_INLINE T stitch_log1p(T x) {
  const StitchSplit<T> split = stitch_split(x + T(1));
  const T fraction = stitch_multiply_add(x, split.inverse, split.inverse - T(1));
  T result = stitch_log_of_parts(split.exponent, x < T(1ull << 60) ? fraction : split.fraction);
  result = x < stitch_infinity<T>() ? result : x;
  result = x == T(-1) ? -stitch_infinity<T>() : result;
  return stitch_with_sign(x < T(-1) ? stitch_nan<T>() : result, x);
}

/* ---- cbrt ---------------------------------------------------------------------------------------------------------------------- */

/* size^(-1/3), good to 3.5%, from the bits of a normal number: a third of them, taken from a constant. The bits, less the last 8 (32
 * of a double's), are first a number in the mantissa of 2^23 (2^52). */
STITCH_INLINE float stitch_inverse_cube_root(float size) {
  const float bits = stitch_bits<float>(0x4b000000u | stitch_bits<unsigned>(size) >> 8);
  const float third = stitch_multiply_add(bits, -1.0f / 3, 16731281.0f);
  return stitch_bits<float>(stitch_bits<unsigned>(third) << 8);
}
/* The same, good to 5e-5. */
STITCH_INLINE double stitch_inverse_cube_root(double size) {
  const double bits = stitch_bits<double>(0x4330000000000000ull | stitch_bits<unsigned long long>(size) >> 32);
  const double third = stitch_multiply_add(bits, -1.0 / 3, 0x1p52 + (1430185835.0 + 0x1p52 / 3));
  const double r = stitch_bits<double>(stitch_bits<unsigned long long>(third) << 32);
  const double error = stitch_multiply_add(-(size * r * r), r, 1.0);
  return stitch_multiply_add(r * error, stitch_polynomial(error, 0x1.56bb0f3a5c99p-2, 0x1.c9eca2b8436c2p-3), r);
}

/* ((1 - e)^(-2/3) - 1) / e. The degree is odd, so that the root of Inf is Inf. */
STITCH_INLINE float stitch_cube_root_tail(float e) {
  return stitch_polynomial(e, 0x1.555556p-1f, 0x1.1c71cap-1f, 0x1.f9a404p-2f, 0x1.cf7e7cp-2f, 0x1.b7e5aep-2f, 0x1.a01cc4p-2f);
}
STITCH_INLINE double stitch_cube_root_tail(double e) { return stitch_polynomial(e, 2.0 / 3, 5.0 / 9, 40.0 / 81, 110.0 / 243); }

/* With r near size^(-1/3) and the error e = 1 - size r^3, the root is size r^2 (1 - e)^(-2/3). No division is needed. */
template <class T> STITCH_INLINE T stitch_cbrt(T x) {
  typedef StitchFormat<T> F;
  const bool small = stitch_size(x) < F::smallest_normal;
  const T up = T(1ull << (F::mantissa == 23 ? 24 : 54)), down = F::mantissa == 23 ? T(0x1p-8) : T(0x1p-18);
  const T size = small ? stitch_size(x) * up : stitch_size(x);
  const T r = stitch_inverse_cube_root(size), y = size * r * r, error = stitch_multiply_add(-y, r, T(1));
  const T root = stitch_multiply_add(y * error, stitch_cube_root_tail(error), y);
  return stitch_with_sign(small ? root * down : root, x);
}

/* ---- atan2 --------------------------------------------------------------------------------------------------------------------- */

STITCH_INLINE float stitch_atan_tail(float z) {
  return stitch_polynomial(z, -0x1.55553ep-2f, 0x1.9991e4p-3f, -0x1.242084p-3f, 0x1.c08c1ap-4f, -0x1.580814p-4f, 0x1.da24cap-5f,
                           -0x1.fd6fbcp-6f, 0x1.6410e6p-7f, -0x1.d32dbcp-10f);
}
STITCH_INLINE double stitch_atan_tail(double z) {
  return stitch_polynomial(z, -0x1.555555555544cp-2, 0x1.999999998410ep-3, -0x1.2492491fa20c6p-3, 0x1.c71c709e18b29p-4,
                           -0x1.745d0230f475cp-4, 0x1.3b12b2e854685p-4, -0x1.11089cff9ee1dp-4, 0x1.e178171aa80a5p-5,
                           -0x1.ad32b9fbb7d3ep-5, 0x1.7ee3f575441dep-5, -0x1.4f45209d9836ep-5, 0x1.1715d9a7329e7p-5,
                           -0x1.a726a71f6018p-6, 0x1.162c3d0d0a9adp-6, -0x1.2cf76d1f72969p-7, 0x1.f96ccdbc18244p-9,
                           -0x1.312a469e1d81dp-10, 0x1.d3bb238599a27p-13, -0x1.53e5dc0f10442p-16);
}

/* The arc tangent of the smaller over the larger, in [0, pi/4], which is then moved to its place in the circle. */
template <class T> STITCH_INLINE T stitch_atan2(T y, T x) {
  typedef StitchFormat<T> F;
  const T half_pi = T(0x1.921fb54442d18p+0), half_pi_low = F::mantissa == 23 ? T(-0x1.777a5cp-25) : T(0x1.1a62633145c07p-54);
  const T rise = stitch_size(y), run = stitch_size(x);
  const bool steep = rise > run;
  const T larger = steep ? rise : run, smaller = steep ? run : rise;
  T q = smaller / larger;
  q = smaller == larger ? T(1) : q; /* if both are Inf */
  q = larger == T(0) ? T(0) : q;
  const T z = q * q;
  T angle = stitch_multiply_add(q * z, stitch_atan_tail(z), q);
  angle = steep ? half_pi - (angle - half_pi_low) : angle;
  const bool backwards = stitch_bits<typename F::Bits>(x) >> (sizeof(T) * 8 - 1);
  angle = backwards ? 2 * half_pi - (angle - 2 * half_pi_low) : angle;
  angle = stitch_with_sign(angle, y);
  return x != x || y != y ? x + y : angle;
}

/* ---- pow ------------------------------------------------------------------------------------------------------------------------ */

/* C's rules for signs, zeros and infinities, applied to the power of the base's magnitude, which may be any number if an operand
 * is NaN. */
template <class T> STITCH_INLINE T stitch_power_of_sign(T x, T y, T power, T whole_y, T whole_half) {
  const bool whole = whole_y == y, odd = whole & (whole_half + whole_half != y);
  T result = odd ? stitch_with_sign(power, x) : power;
  const bool no_number = ((x < T(0)) & (x > -stitch_infinity<T>()) & !whole) | __builtin_isunordered(x, y);
  result = no_number ? stitch_nan<T>() : result;
  return (y == T(0)) | (x == T(1)) ? T(1) : result;
}

/* Computed in double, whose log2 (45 correct bits) and exp2 (34) leave one rounding to float: a subnormal result is rounded once too.
 * */
STITCH_INLINE float stitch_pow(float x, float y) {
  const double size = (double)__builtin_fabsf(x);
  const StitchSplit<double> split = stitch_split(size);
  const double s = split.fraction / (2.0 + split.fraction), z = s * s;
  double log2 = stitch_multiply_add(s,
                                    stitch_polynomial(z, 0x1.71547652b8251p+1, 0x1.ec709dc53cfd3p-1, 0x1.2776c29264b08p-1,
                                                      0x1.a61a2f8e60ae1p-2, 0x1.4795339327afp-2, 0x1.21b2ffcb88b28p-2),
                                    split.exponent);
  log2 = size < __builtin_inf() ? log2 : size;
  log2 = size == 0.0 ? -__builtin_inf() : log2;
  double t = (double)y * log2;
  t = size == 1.0 ? 0.0 : t;
  t = stitch_at_least(stitch_at_most(t, 130.0), -160.0);
  const double rounder = StitchFormat<double>::rounder + 1023.0, shifted = t + rounder, g = t - (shifted - rounder);
  const double p = stitch_polynomial(g, 0x1.ffffffffabbf4p-1, 0x1.62e42ff116428p-1, 0x1.ebfbe0a4be15fp-3, 0x1.c6b08aaf13a57p-5,
                                     0x1.3b29dc409f1abp-7, 0x1.5d8a709957415p-10, 0x1.446a202bd0e18p-13, 0x1.fe1776f067648p-17);
  const float power = (float)(p * stitch_bits<double>(stitch_bits<unsigned long long>(shifted) << 52));
  return stitch_power_of_sign(x, y, power, __builtin_truncf(y), __builtin_truncf(y * 0.5f));
}

/* a b = high + low exactly. */
struct StitchPair {
  double high, low;
};
STITCH_INLINE StitchPair stitch_product(double a, double b) {
  const double high = a * b;
#if STITCH_FUSED
  return {high, __builtin_fma(a, b, -high)};
#else /* Dekker's product, with Veltkamp's splitting */
  const double a_scaled = a * 134217729.0, a_high = a_scaled - (a_scaled - a), a_low = a - a_high;
  const double b_scaled = b * 134217729.0, b_high = b_scaled - (b_scaled - b), b_low = b - b_high;
  return {high, ((a_high * b_high - high) + a_high * b_low + a_low * b_high) + a_low * b_low};
#endif
}

#endif /* STITCH_CUDA */

#endif /* STITCHFLEET_KERNEL_MATH_H_ */
