// Positive numbers as a mantissa and an exponent of its own, m 2^e: sums neither overflow nor underflow.
//
// As `tridiag.kernels.simd.powers`. A number may carry derivatives, which share its exponent.
#pragma once
#include "logarithms.cu"

template <typename T> struct Range;
template <> struct Range<float> {
  typedef int Exponent;
  static constexpr int highest = 1 << 28;  // log2 of a product of exponentials at most
  static constexpr int lowest = 5 << 26;  // minus log2 of the smallest exponential: what is smaller counts as that
  static constexpr int nothing = -(1 << 29);  // the exponent of what counts as zero
  static constexpr int least = 100;  // powers of two by which a term counts in a sum
};
template <> struct Range<double> {
  typedef Index Exponent;
  static constexpr Index highest = Index(1) << 50, lowest = Index(5) << 48, nothing = -(Index(1) << 59), least = 900;
};

template <typename T> using Exponent = typename Range<T>::Exponent;

// m 2^e, and N derivatives d 2^e
template <typename T, int N> struct Number {
  static const int derivatives = N;
  T m;
  Exponent<T> e;
  T d[N > 0 ? N : 1];
};

template <typename T, int N = 0> __device__ __forceinline__ Number<T, N> number_of(T m, Exponent<T> e) {
  Number<T, N> found;
  found.m = m, found.e = e;
#pragma unroll
  for (int k = 0; k < (N > 0 ? N : 1); k++) found.d[k] = T(0);
  return found;
}
// Part by part: whole structs go through the stack
template <typename T, int N> __device__ __forceinline__ Number<T, N> loaded(const Number<T, N>& from) {
  Number<T, N> found = number_of<T, N>(from.m, from.e);
#pragma unroll
  for (int k = 0; k < N; k++) found.d[k] = from.d[k];
  return found;
}
template <typename T, int N> __device__ __forceinline__ void store(Number<T, N>& to, const Number<T, N>& x) {
  to.m = x.m, to.e = x.e;
#pragma unroll
  for (int k = 0; k < N; k++) to.d[k] = x.d[k];
}
template <typename T, int N>
__device__ __forceinline__ Number<T, N> either(bool is_first, const Number<T, N>& x, const Number<T, N>& y) {
  Number<T, N> found = number_of<T, N>(is_first ? x.m : y.m, is_first ? x.e : y.e);
#pragma unroll
  for (int k = 0; k < N; k++) found.d[k] = is_first ? x.d[k] : y.d[k];
  return found;
}
template <typename T, int N = 0> __device__ __forceinline__ Number<T, N> one() { return number_of<T, N>(T(1), 0); }
template <typename T, int N = 0> __device__ __forceinline__ Number<T, N> nothing() {
  return number_of<T, N>(T(1), Range<T>::nothing);
}

// 2^-by; 0 where that is too small to count
__device__ __forceinline__ float negative_power(int by) {
  return by > Range<float>::least ? 0.0f : __int_as_float((127 - by) << 23);
}
__device__ __forceinline__ double negative_power(Index by) {
  return by > Range<double>::least ? 0.0 : __hiloint2double((1023 - int(by)) << 20, 0);
}

template <typename T, int N> __device__ __forceinline__ Number<T, N> plus(Number<T, N> x, const Number<T, N>& y) {
  const bool first = x.e >= y.e;
  const T small = negative_power(first ? x.e - y.e : y.e - x.e), of_x = first ? T(1) : small, of_y = first ? small : T(1);
  x.m = x.m * of_x + y.m * of_y;
#pragma unroll
  for (int k = 0; k < N; k++) x.d[k] = x.d[k] * of_x + y.d[k] * of_y;
  x.e = first ? x.e : y.e;
  return x;
}

template <typename T, int N> __device__ __forceinline__ Number<T, N> times(const Number<T, 0>& factor, Number<T, N> x) {
  x.m = factor.m * x.m;
#pragma unroll
  for (int k = 0; k < N; k++) x.d[k] = factor.m * x.d[k];
  x.e = factor.e + x.e;
  return x;
}

// The same number with 1 <= m < 2
template <typename T, int N> __device__ __forceinline__ Number<T, N> normal(Number<T, N> x) {
  const int k = exponent_of(x.m);
  const T scale = negative_power(Exponent<T>(k));
  x.m = x.m * scale;
#pragma unroll
  for (int i = 0; i < N; i++) x.d[i] = x.d[i] * scale;
  x.e = x.e + k;
  return x;
}

// A whole number of a size below 2^51, or in single precision 2^31
__device__ __forceinline__ int whole_exponent(float x) { return int(x); }
__device__ __forceinline__ Index whole_exponent(double x) {
  const double shift = 6755399441055744.0;
  return __double_as_longlong(x + shift) - __double_as_longlong(shift);
}

// exp(x / T) of a temperature, for scores from ``lowest`` to ``highest``; what lies outside counts as these, NaN as the former.
template <typename T> struct Boltzmann {
  T factor, lowest, highest;

  // ``steps``: so many exponentials are multiplied at most
  __device__ __forceinline__ Boltzmann(T temperature, T steps) {
    factor = T(1.44269504088896340736) / temperature;
    lowest = -T(Range<T>::lowest) / factor;
    highest = T(3) * T(Range<T>::highest) / steps / factor;  // 2 are the most for which all exponents stay in their range
  }
  __device__ __forceinline__ T within(T x) const { return x > lowest ? (x < highest ? x : highest) : lowest; }
  // of a number in that range
  __device__ __forceinline__ Number<T, 0> operator()(T x) const {
    const T whole = nearest(x * factor), rest = fused(x, factor, -whole), more = nearest(rest);  // the product has more digits
    return number_of(exponential((rest - more) * T(0.69314718055994530942)), whole_exponent(whole) + whole_exponent(more));
  }
};
