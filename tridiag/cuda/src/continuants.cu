// Determinants without a division: of the leading blocks D[i] = b[i] D[i-1] - a[i] c[i-1] D[i-2], with exponents apart. Each is
// that of a matrix whose entries differ from the given ones in their last bits, whatever their sizes (Wilkinson, The Algebraic
// Eigenvalue Problem, 1965): `tridiag.kernels.thomas.continuants`.
#pragma once
#include "scales.cu"

__device__ __forceinline__ float fraction_of(float x, int& exponent) { return frexp(x, &exponent); }
__device__ __forceinline__ double fraction_of(double x, int& exponent) { return frexp(x, &exponent); }
template <typename R> __device__ __forceinline__ Complex<R> fraction_of(Complex<R> x, int& exponent) {
  frexp(size(x), &exponent);
  return shifted(x, -exponent);
}

// A fraction times a power of 2: no product is too large or too small.
template <typename T> struct Apart {
  enum { FAR = 1 << 12 };  // powers of 2 that leave nothing of a fraction
  T fraction;
  Index exponent;

  static __device__ __forceinline__ Apart of(T x, Index exponent = 0) {
    int own;
    const T found = fraction_of(x, own);
    return {found, exponent + (x - x == T(0) ? own : 0)};  // infinity and NaN stay what they are
  }
  __device__ __forceinline__ bool is_zero() const { return fraction == T(0); }
  // That of its size.
  __device__ __forceinline__ Real<T> logarithm() const {
    return Real<T>(log(double(magnitude(fraction))) + double(exponent) * 0.6931471805599453);
  }
  // What it is over a power of 2 that is no smaller.
  __device__ __forceinline__ T over(Index power) const {
    const Index by = exponent - power;
    return is_zero() ? T(0) : shifted(fraction, by < -FAR ? -FAR : int(by));
  }
};

// Of fractions that are not brought back to between 1/2 and 1.
template <typename T> __device__ __forceinline__ Apart<T> product(Apart<T> x, Apart<T> y) {
  return {x.fraction * y.fraction, x.exponent + y.exponent};
}

// x - y, and whether half of its digits have cancelled, but not all.
template <typename T> __device__ __forceinline__ Apart<T> difference(Apart<T> x, Apart<T> y, bool& doubtful) {
  const Index top = y.is_zero() || (!x.is_zero() && x.exponent > y.exponent) ? x.exponent : y.exponent;
  const T less = y.over(top), found = x.over(top) - less;
  doubtful = doubtful || (!(size(found) > sqrt(Limits<T>::eps()) * size(less)) && !(found == T(0)));
  return Apart<T>::of(found, top);
}

// The determinants of consecutive rows, one after another.
template <typename T> struct Continuants {
  Apart<T> last, before, above;  // D of the last row and of the one before it, and c of the last

  __device__ __forceinline__ Continuants() : last({T(1), 0}), before({T(0), 0}), above({T(0), 0}) {}
  __device__ __forceinline__ void take(Apart<T> a, Apart<T> b, Apart<T> c, bool& doubtful) {
    const Apart<T> found = difference(product(b, last), product(product(a, above), before), doubtful);
    before = last, last = found, above = c;
  }
};

// The determinant of a matrix; of a cyclic one two couplings go around, and two cycles: a[0] c[n-1] times the determinant of
// all rows but the outermost, and the products of all a and of all c. And whether it may be that of a singular matrix.
template <typename T, bool CYCLIC>
__device__ __forceinline__ Apart<T> determinant_of(const System<T>& system, bool& doubtful) {
  const Index n = system.job.n;
  Continuants<T> all, inner;
  Apart<T> lower = {T(1), 0}, upper = lower, first = lower;
#pragma unroll 1
  for (Index i = 0; i < n; i++) {
    const Entries<T> row = system.row(i);
    const Apart<T> a = Apart<T>::of(row.lower), b = Apart<T>::of(row.diagonal), c = Apart<T>::of(row.upper);
    all.take(a, b, c, doubtful);
    if (!CYCLIC) continue;
    bool unused = false;
    if (i > 0 && i < n - 1) inner.take(a, b, c, unused);
    first = i == 0 ? a : first;
    const Apart<T> longer = product(lower, a), other = product(upper, c);
    lower = Apart<T>::of(longer.fraction, longer.exponent), upper = Apart<T>::of(other.fraction, other.exponent);
  }
  if (!CYCLIC) return all.last;
  const Apart<T> around = product(product(first, all.above), inner.last);
  if (n % 2 == 1) lower.fraction = -lower.fraction, upper.fraction = -upper.fraction;
  return difference(difference(difference(all.last, around, doubtful), lower, doubtful), upper, doubtful);
}
