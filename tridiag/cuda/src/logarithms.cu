// Sums of exponentials, of any size: the arithmetic of `tridiag.algorithms.logsumexp`, where it is told.
#pragma once
#include "numbers.cu"

// log(2) in two parts: products of the first with exponents are exact
template <typename T> struct Ln2;
template <> struct Ln2<float> {
  static __device__ __forceinline__ float high() { return 0.693359375f; }
  static __device__ __forceinline__ float low() { return -2.12194440054690583e-4f; }
};
template <> struct Ln2<double> {
  static __device__ __forceinline__ double high() { return 6.93147180369123816490e-01; }
  static __device__ __forceinline__ double low() { return 1.90821492927058770002e-10; }
};

__device__ __forceinline__ float nearest(float x) { return rintf(x); }
__device__ __forceinline__ double nearest(double x) { return rint(x); }
template <typename T> __device__ __forceinline__ T minus_infinity() { return T(__int_as_float(int(0xff800000u))); }

// Polynomials through Chebyshev's points, so that products and sums have a constant for an operand: of (e^r - 1 - r) / r^2 for r
// up to 0.36 in size, with errors of e^r below 1e-18 and 1e-9; and of (log((1 + s) / (1 - s)) - 2 s) / s^3 in s^2 up to 0.04.
__constant__ double EXPONENTIAL_DOUBLE[] = {
  0.5, 0.16666666666666674, 0.04166666666666667, 0.008333333333323584, 0.0013888888888881927, 0.0001984126988339433,
  2.4801587331670256e-05, 2.7557244942221745e-06, 2.7557266175047446e-07, 2.5109404672957823e-08, 2.091767738180507e-09};
__constant__ float EXPONENTIAL_FLOAT[] = {0.5f,           0.1666666716337204f,    0.041666433215141296f,
                                          0.008333307690918446f, 0.0013937181793153286f, 0.00019894912838935852f};
__constant__ double LOGARITHM_DOUBLE[] = {0.6666666666666666, 0.4000000000000794,  0.28571428567275936, 0.2222222304835159,
                                          0.18181737626302938, 0.15388867805613718, 0.13209708242059462, 0.13609030262858499};
__constant__ float LOGARITHM_FLOAT[] = {0.6666666865348816f, 0.4000031352043152f, 0.28532543778419495f, 0.23751342296600342f};

template <typename T, int N> __device__ __forceinline__ T polynomial(const T (&c)[N], T x) {
  T found = c[N - 1];
#pragma unroll
  for (int k = N - 2; k >= 0; k--) found = fused(found, x, c[k]);
  return found;
}

template <typename T> __device__ __forceinline__ T exponential(T r, T q) { return fused(fused(q, r, T(1)), r, T(1)); }
__device__ __forceinline__ float exponential(float r) { return exponential(r, polynomial(EXPONENTIAL_FLOAT, r)); }
__device__ __forceinline__ double exponential(double r) { return exponential(r, polynomial(EXPONENTIAL_DOUBLE, r)); }

// 1 / x, nearly rounded, of an x about 2
__device__ __forceinline__ float reciprocal(float x) { return __fdividef(1.0f, x); }
__device__ __forceinline__ double reciprocal(double x) {
#ifdef __CUDA_CPU_SHIM__
  return 1 / x;
#else
  double r;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(r) : "d"(x));  // 20 bits
  const double error = fused(-x, r, 1.0);
  return fused(r, fused(error, error, error), r);
#endif
}

// log(m) of an m from 3/4 to 3/2: log(1 + f) = f - (f^2 / 2 - s (f^2 / 2 + s^2 p(s^2))) with s = f / (2 + f), as in fdlibm
template <typename T, int N> __device__ __forceinline__ T logarithm(T m, const T (&c)[N]) {
  const T f = m - T(1), s = f * reciprocal(T(2) + f), square = s * s, half = T(0.5) * f * f;
  return f - (half - s * (half + square * polynomial(c, square)));
}
__device__ __forceinline__ float logarithm(float m) { return logarithm(m, LOGARITHM_FLOAT); }
__device__ __forceinline__ double logarithm(double m) { return logarithm(m, LOGARITHM_DOUBLE); }

// 2^exponent of an integer in the range of normal numbers
__device__ __forceinline__ float exact_power(float exponent) {
  return __int_as_float(int((unsigned(__float_as_int(exponent + 12582912.0f)) << 23) + 0x3f800000u));  // the sum ends in the integer's bits
}
__device__ __forceinline__ double exact_power(double exponent) {
  return __hiloint2double(int((unsigned(__double2loint(exponent + 6755399441055744.0)) << 20) + 0x3ff00000u), 0);
}

// An integer as a number of 22 bits, or of 32: converting takes longer
__device__ __forceinline__ float exact_number(float, int k) { return __int_as_float(int(0x4b400000u + unsigned(k))) - 12582912.0f; }
__device__ __forceinline__ double exact_number(double, int k) {
  return __hiloint2double(0x43380000 + (k >> 31), k) - 6755399441055744.0;
}

// x 2^exponent, of normal numbers both
__device__ __forceinline__ float times_power(float x, int exponent) { return __int_as_float(__float_as_int(x) + exponent * (1 << 23)); }
__device__ __forceinline__ double times_power(double x, int exponent) {
  return __hiloint2double(__double2hiint(x) + exponent * (1 << 20), __double2loint(x));
}

// x = m 2^exponent with m from 3/4 to 3/2, of a normal number
__device__ __forceinline__ float parts_of(float x, int& exponent) {
  const int bits = __float_as_int(x);
  exponent = (bits - 0x3f400000) >> 23;
  return __int_as_float(int(unsigned(bits) - (unsigned(exponent) << 23)));
}
__device__ __forceinline__ double parts_of(double x, int& exponent) {
  const int bits = __double2hiint(x);
  exponent = (bits - 0x3fe80000) >> 20;
  return __hiloint2double(int(unsigned(bits) - (unsigned(exponent) << 20)), __double2loint(x));
}

// x = m 2^exponent with m from 1 to 2, of a normal positive number
__device__ __forceinline__ int exponent_of(float x) { return (__float_as_int(x) >> 23) - 127; }
__device__ __forceinline__ int exponent_of(double x) { return (__double2hiint(x) >> 20) - 1023; }

// Results of such a size are the larger of two.
template <typename T> __device__ __forceinline__ T far() { return T(64) / Limits<T>::eps(); }
template <typename T> __device__ __forceinline__ bool is_far(T x) { return size(x) >= far<T>(); }

template <typename T> __device__ __forceinline__ T clamp(T x, T limit) { return x > limit ? limit : x < -limit ? -limit : x; }
template <typename T> __device__ __forceinline__ T larger(T x, T y) { return x > y ? x : y; }  // y where any is NaN

// 2^exponent of an integer that is not positive; 0 below the normal range, and for NaN.
template <typename T> __device__ __forceinline__ T power_of_two(T exponent) {
  const T least = sizeof(T) == 4 ? T(-126) : T(-1022);
  return exponent >= least ? exact_power(exponent) : T(0);
}

// exp(y) = (high + low) 2^scale exp(shift + shift_low); ``largest`` is y where it is far.
template <typename T> struct Exponential {
  T scale, high, low, largest, shift, shift_low;
};

template <typename T> __device__ __forceinline__ Exponential<T> no_exponential() {
  return {T(-4) * far<T>(), T(0), T(0), minus_infinity<T>(), T(0), T(0)};
}

template <typename T> __device__ __forceinline__ Exponential<T> exponential_of(T y) {
  return {T(0), y == y ? T(1) : y, T(0), y, y, T(0)};
}

// x + y and its rounding error
template <typename T> __device__ __forceinline__ T two_sum(T x, T y, T& error) {
  const T total = x + y, part = total - x;
  error = (x - (total - part)) + (y - part);
  return total;
}

// x - k log(2)
template <typename T> __device__ __forceinline__ T without_power(T x, T k) {
  return fused(-k, Ln2<T>::low(), fused(-k, Ln2<T>::high(), x));
}

// x = r + k log(2) with an integer k
template <typename T> __device__ __forceinline__ T reduced(T x, T& k) {
  k = nearest(x * T(1.44269504088896340736));
  return without_power(x, k);
}

// The integer that is nearest to x / log(2), of an x that fits into 22 bits, or into 32; as ``k`` too, whatever it is of others.
__device__ __forceinline__ float nearest_power(float x, int& k) {
  const float found = fused(x, 1.44269504088896340736f, 12582912.0f);  // which ends in the integer's bits
  k = int(unsigned(__float_as_int(found)) - 0x4b400000u);
  return found - 12582912.0f;
}
__device__ __forceinline__ double nearest_power(double x, int& k) {
  const double found = fused(x, 1.44269504088896340736, 6755399441055744.0);
  k = __double2loint(found);
  return found - 6755399441055744.0;
}

[[maybe_unused]] const double ROOM = 0.36, FINE = 1.0 / 16384;  // of `tridiag.algorithms.logsumexp`

// m and k with exp(x + correction) = m 2^k
template <typename T> __device__ __forceinline__ T mantissa(T x, T correction, T& k) {
  const T r = reduced(clamp(x, far<T>()), k) + correction;
  return exponential(clamp(r, T(ROOM)));
}

// exp(y) + m 2^k exp(shift), which is exp(x); an exponent that is NaN leaves no trace, its mantissa does
template <typename T> __device__ __forceinline__ Exponential<T> added(Exponential<T> y, T m, T k, T x) {
  const T scale = larger(y.scale, k), kept = power_of_two(y.scale - scale);
  T error;
  y.high = two_sum(y.high * kept, m * power_of_two(k - scale), error);
  y.low = y.low * kept + error;
  y.scale = scale;
  y.largest = larger(x, y.largest);
  return y;
}

// exp(y) + exp(x)
template <typename T> __device__ __forceinline__ Exponential<T> plus_exponential(Exponential<T> y, T x) {
  T error, k;
  const T move = two_sum(x, -y.shift, error);
  const T lost = is_far(move) || move != move ? T(0) : error - y.shift_low;
  const T m = mantissa(move, lost, k);
  return added(y, m, k, x);
}

// exp(log_a + low + y): whole powers of two to the scale, the rest to the shift
template <typename T> __device__ __forceinline__ Exponential<T> times_exponential(Exponential<T> y, T log_a, T low = T(0)) {
  const bool away = is_far(y.largest) && y.high == y.high;
  T error, k;
  const T total = two_sum(away ? y.largest : y.shift, log_a, error);
  error = is_far(total) || total != total ? T(0) : error + low + (away ? T(0) : y.shift_low);
  T shift = total + error;  // as in the text in Python: what is left is small beside what ROOM leaves
  error = size(shift) < T(FINE) * far<T>() ? error - (shift - total) : T(0);
  shift = reduced(clamp(shift, T(2) * far<T>()), k);  // from one end of what is not far beyond the other
  y.scale = (away ? T(0) : y.scale) + k;
  y.high = away ? T(1) : y.high;
  y.low = away ? T(0) : y.low;
  y.largest = y.largest + log_a;
  y.shift = clamp(shift, T(ROOM));
  y.shift_low = error;
  return y;
}

// exp(y) + exp(z)
template <typename T> __device__ __forceinline__ Exponential<T> merged(Exponential<T> y, const Exponential<T>& z) {
  y = added(y, z.high, z.scale, z.largest);
  y.low = y.low + z.low * power_of_two(z.scale - y.scale);
  return y;
}

// exp(z) with the shift of y
template <typename T> __device__ __forceinline__ Exponential<T> shifted_as(const Exponential<T>& y, Exponential<T> z) {
  T error, k;
  const T move = two_sum(z.shift, -y.shift, error), m = mantissa(move, error + (z.shift_low - y.shift_low), k);
  z.high = z.high * m;
  z.low = z.low * m;
  z.scale = z.scale + k;
  return z;
}

// log(x 2^scale), of a normal number; ``more`` is added
template <typename T> __device__ __forceinline__ T logarithm_of(T x, T scale, T more = T(0)) {
  int exponent;
  const T log_m = logarithm(parts_of(x, exponent)), e = scale + exact_number(T(0), exponent);
  return e * Ln2<T>::high() + (e * Ln2<T>::low() + (log_m + more));
}

// y
template <typename T> __device__ __forceinline__ T logarithm_of(Exponential<T> y) {
  const T total = y.high + y.low;  // 0, no number, or a normal one: one of the terms has the scale
  const T value = logarithm_of(total, y.scale, y.shift + y.shift_low);
  return total != total ? total : is_far(y.largest) ? y.largest : total == T(0) ? minus_infinity<T>() : value;
}
