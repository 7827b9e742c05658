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
__device__ __forceinline__ float exponential(float x) { return expf(x); }
__device__ __forceinline__ double exponential(double x) { return exp(x); }
__device__ __forceinline__ float natural_logarithm(float x) { return logf(x); }
__device__ __forceinline__ double natural_logarithm(double x) { return log(x); }
__device__ __forceinline__ float times_power(float x, int exponent) { return ldexpf(x, exponent); }
__device__ __forceinline__ double times_power(double x, int exponent) { return ldexp(x, exponent); }
__device__ __forceinline__ float parts_of(float x, int& exponent) { return frexpf(x, &exponent); }
__device__ __forceinline__ double parts_of(double x, int& exponent) { return frexp(x, &exponent); }

// Results of such a size are the larger of two.
template <typename T> __device__ __forceinline__ T far() { return T(64) / Limits<T>::eps(); }
template <typename T> __device__ __forceinline__ bool is_far(T x) { return size(x) >= far<T>(); }

template <typename T> __device__ __forceinline__ T clamp(T x, T limit) { return x > limit ? limit : x < -limit ? -limit : x; }
template <typename T> __device__ __forceinline__ T larger(T x, T y) { return x > y ? x : y; }  // y where any is NaN

// 2^exponent of an integer that is not positive; 0 below the normal range, and for NaN.
template <typename T> __device__ __forceinline__ T power_of_two(T exponent) {
  const T least = sizeof(T) == 4 ? T(-126) : T(-1022);
  return exponent >= least ? times_power(T(1), int(exponent)) : T(0);
}

// exp(y) = (high + low) 2^scale exp(shift + shift_low); ``largest`` is y where it is far.
template <typename T> struct Exponential {
  T scale, high, low, largest, shift, shift_low;
};

template <typename T> __device__ __forceinline__ Exponential<T> no_exponential() {
  return {T(-4) * far<T>(), T(0), T(0), natural_logarithm(T(0)), T(0), T(0)};
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

// x = r + k log(2) with an integer k
template <typename T> __device__ __forceinline__ T reduced(T x, T& k) {
  k = nearest(x * T(1.44269504088896340736));
  return fused(-k, Ln2<T>::low(), fused(-k, Ln2<T>::high(), x));
}

const double ROOM = 0.36;  // above log(2) / 2

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
  T shift = two_sum(away ? y.largest : y.shift, log_a, error);
  error = is_far(shift) || shift != shift ? T(0) : error + low + (away ? T(0) : y.shift_low);
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

// y
template <typename T> __device__ __forceinline__ T logarithm_of(Exponential<T> y) {
  const T total = y.high + y.low;
  int exponent = 0;
  T m = parts_of(total, exponent);
  if (m < T(0.75)) m *= T(2), exponent -= 1;  // from 3/4 to 3/2
  const T e = y.scale + T(exponent);
  const T value = e * Ln2<T>::high() + (e * Ln2<T>::low() + (natural_logarithm(m) + (y.shift + y.shift_low)));
  return total != total ? total : is_far(y.largest) ? y.largest : value;
}
