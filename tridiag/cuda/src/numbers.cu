// Real and complex numbers, alike to the kernels. The bounds of a promise (GROWTH and so on) come as compiler options.
#pragma once

typedef long long Index;

template <typename R> struct Complex {
  R re, im;
  Complex() = default;
  __device__ __forceinline__ explicit Complex(R real) : re(real), im(R(0)) {}
  __device__ __forceinline__ Complex(R real, R imaginary) : re(real), im(imaginary) {}
};

template <typename R> __device__ __forceinline__ Complex<R> operator+(Complex<R> x, Complex<R> y) {
  return Complex<R>(x.re + y.re, x.im + y.im);
}
template <typename R> __device__ __forceinline__ Complex<R> operator-(Complex<R> x, Complex<R> y) {
  return Complex<R>(x.re - y.re, x.im - y.im);
}
template <typename R> __device__ __forceinline__ Complex<R> operator-(Complex<R> x) { return Complex<R>(-x.re, -x.im); }
template <typename R> __device__ __forceinline__ Complex<R> operator*(Complex<R> x, Complex<R> y) {
  return Complex<R>(x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re);
}
template <typename R> __device__ __forceinline__ bool operator==(Complex<R> x, Complex<R> y) {
  return x.re == y.re && x.im == y.im;
}

template <typename T> struct Limits;
template <> struct Limits<float> {
  typedef float Real;
  static __device__ __forceinline__ float eps() { return 1.1920928955078125e-07f; }
  static constexpr int parts = 1;
  static __device__ __forceinline__ float tiny() { return 1.17549435082228751e-38f; }
};
template <> struct Limits<double> {
  typedef double Real;
  static __device__ __forceinline__ double eps() { return 2.220446049250313e-16; }
  static constexpr int parts = 1;
  static __device__ __forceinline__ double tiny() { return 2.2250738585072014e-308; }
};
template <typename R> struct Limits<Complex<R>> : Limits<R> {
  static constexpr int parts = 2;
};

template <typename T> using Real = typename Limits<T>::Real;

// |Re x| + |Im x|, LAPACK's measure of a pivot
__device__ __forceinline__ float size(float x) { return fabsf(x); }
__device__ __forceinline__ double size(double x) { return fabs(x); }
template <typename R> __device__ __forceinline__ R size(Complex<R> x) { return size(x.re) + size(x.im); }

// x y + z, its products fused wherever it is compiled: so one formula gives the same bits everywhere.
__device__ __forceinline__ float fused(float x, float y, float z) { return __fmaf_rn(x, y, z); }
__device__ __forceinline__ double fused(double x, double y, double z) { return __fma_rn(x, y, z); }
template <typename R> __device__ __forceinline__ Complex<R> fused(Complex<R> x, Complex<R> y, Complex<R> z) {
  return Complex<R>(fused(x.re, y.re, fused(-x.im, y.im, z.re)), fused(x.re, y.im, fused(x.im, y.re, z.im)));
}

__device__ __forceinline__ float one_over(float x) { return 1.0f / x; }
__device__ __forceinline__ double one_over(double x) { return 1.0 / x; }
// Smith's division, which overflows only where the result does
template <typename R> __device__ __forceinline__ Complex<R> one_over(Complex<R> x) {
  const bool wide = size(x.re) >= size(x.im);
  const R large = wide ? x.re : x.im, ratio = (wide ? x.im : x.re) / large;
  const R scale = R(1) / (large + ratio * (wide ? x.im : x.re));
  return wide ? Complex<R>(scale, -ratio * scale) : Complex<R>(ratio * scale, -scale);
}

// ------------------------------------------------------------------------------------------------ without branches

// 1 / x to the last bit but rarely, without a branch, so that divisions which do not wait for each other overlap. NaN where x
// is 0 or infinite, 0 where x or 1 / x is beyond the range of the device's approximation, which ``beyond`` then says.
__device__ __forceinline__ float approximate_reciprocal(float x) {
#ifdef __CUDA_CPU_SHIM__
  return size(x) < Limits<float>::tiny() ? 0.0f : 1.0f / x;
#else
  float found;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(found) : "f"(x));
  return found;
#endif
}
__device__ __forceinline__ double approximate_reciprocal(double x) {
#ifdef __CUDA_CPU_SHIM__
  return size(x) < Limits<double>::tiny() ? 0.0 : 1.0 / x;
#else
  double found;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(found) : "d"(x));
  const double error = __fma_rn(-x, found, 1.0);  // 2^-20
  return __fma_rn(found, __fma_rn(error, error, error), found);
#endif
}
template <typename R> __device__ __forceinline__ R refined_reciprocal(R x, bool& beyond) {
  const R found = approximate_reciprocal(x), error = fused(-x, found, R(1));
  beyond = beyond | (size(error) >= R(0.5));  // 1, or tiny; NaN where x is 0 or infinite
  return fused(found, error, found);
}
__device__ __forceinline__ float one_over(float x, bool& beyond) { return refined_reciprocal(x, beyond); }
__device__ __forceinline__ double one_over(double x, bool& beyond) { return refined_reciprocal(x, beyond); }
template <typename R> __device__ __forceinline__ Complex<R> one_over(Complex<R> x, bool&) { return one_over(x); }

// ----------------------------------------------------------------------------------------------------- as they stand

__device__ __forceinline__ float over(float x, float y) { return x / y; }
__device__ __forceinline__ double over(double x, double y) { return x / y; }
// divided, not multiplied by a reciprocal: what pivoting promises is LAPACK's error
template <typename R> __device__ __forceinline__ Complex<R> over(Complex<R> x, Complex<R> y) {
  // of subnormal numbers the sums below have no digits
  const R bound = Limits<R>::tiny() / Limits<R>::eps(), large_scale = R(1) / Limits<R>::eps();
  const R below = size(y) < bound ? large_scale : R(1), above = size(x) < bound ? large_scale : R(1);
  const R scale = below / above;
  y = Complex<R>(y.re * below, y.im * below);
  x = Complex<R>(x.re * above, x.im * above);
  const bool wide = size(y.re) >= size(y.im);
  const R large = wide ? y.re : y.im, ratio = (wide ? y.im : y.re) / large;
  const R length = large + ratio * (wide ? y.im : y.re);
  const Complex<R> found = wide ? Complex<R>((x.re + x.im * ratio) / length, (x.im - x.re * ratio) / length)
                                : Complex<R>((x.re * ratio + x.im) / length, (x.im * ratio - x.re) / length);
  return Complex<R>(found.re * scale, found.im * scale);
}

__device__ __forceinline__ float magnitude(float x) { return fabsf(x); }
__device__ __forceinline__ double magnitude(double x) { return fabs(x); }
__device__ __forceinline__ float magnitude(Complex<float> x) { return hypotf(x.re, x.im); }
__device__ __forceinline__ double magnitude(Complex<double> x) { return hypot(x.re, x.im); }

// x / |x|; NaN where x is NaN, 0 where it is 0
__device__ __forceinline__ float sign_of(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x; }
__device__ __forceinline__ double sign_of(double x) { return x > 0 ? 1.0 : x < 0 ? -1.0 : x; }
template <typename R> __device__ __forceinline__ Complex<R> sign_of(Complex<R> x) {
  const R length = magnitude(x);
  return length == R(0) ? x : Complex<R>(x.re / length, x.im / length);
}

__device__ __forceinline__ float not_a_number(float) { return nanf(""); }
__device__ __forceinline__ double not_a_number(double) { return nan(""); }
template <typename R> __device__ __forceinline__ Complex<R> not_a_number(Complex<R> x) {
  return Complex<R>(not_a_number(x.re), not_a_number(x.re));
}

// Whether a quotient of x has all its digits: none was lost to underflow.
template <typename T> __device__ __forceinline__ bool lossless(T quotient, T x) {
  return (size(quotient) >= Limits<T>::tiny()) | (x == T(0));
}

// Whether plain elimination of a row was harmless: |l c| + |pivot| <= GROWTH |b|, and the pivot no mere rounding; ``grown``
// is l c. As `tridiag.algorithms.elimination.certify`: an overflow is not harmless, and the bound must not overflow with it.
// Without a branch, for the sake of `one_over`.
template <typename T> __device__ __forceinline__ bool certifies(T grown, T pivot, T diagonal) {
  typedef Real<T> R;
  const R left = size(pivot), bound = size(diagonal);
  return ((size(grown) + left) * R(1 / GROWTH) <= bound) & (left > R(CANCELLATION) * Limits<T>::eps() * bound)
         & (left > Limits<T>::tiny());
}
