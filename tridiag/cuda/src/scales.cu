// Powers of 2 that bring the entries of a matrix together: where they are wide apart, multipliers of rows
// overflow or lose digits to underflow, and pivots are chosen among numbers that cannot be compared.
#pragma once
#include "pivoting.cu"

// x times a power of 2.
template <typename R> __device__ __forceinline__ R shifted(R x, int by) { return ldexp(x, by); }
template <typename R> __device__ __forceinline__ Complex<R> shifted(Complex<R> x, int by) {
  return Complex<R>(ldexp(x.re, by), ldexp(x.im, by));
}

// Whether x has an exponent, and which.
template <typename T> __device__ __forceinline__ bool exponent_of(T x, int& exponent) {
  const Real<T> found = size(x);
  if (!(found > Real<T>(0) && found - found == Real<T>(0))) return false;
  frexp(found, &exponent);
  return true;
}

// Exponents, one by one: their mean and their bounds.
struct Exponents {
  int count, sum, least, most;

  __device__ __forceinline__ Exponents() : count(0), sum(0), least(0), most(0) {}
  // That of x, and what is added to it.
  template <typename T> __device__ __forceinline__ void take(T x, int more = 0) {
    int own;
    if (!exponent_of(x, own)) return;
    own += more;
    least = count && least < own ? least : own, most = count && most > own ? most : own;
    sum += own, count++;
  }
  __device__ __forceinline__ int mean() const {
    return count ? (sum < 0 ? sum - count / 2 : sum + count / 2) / count : 0;
  }
};

// Whether the entries of a matrix span more than twice the binary digits of a number.
template <typename T> __device__ __forceinline__ bool is_wide(const System<T>& system) {
  Exponents all;
#pragma unroll 1
  for (Index i = 0; i < system.job.n; i++) {
    const Entries<T> row = system.row(i);
    all.sum = 0;
    all.take(row.lower), all.take(row.diagonal), all.take(row.upper);
  }
  int digits;
  frexp(Limits<T>::eps(), &digits);
  return all.most - all.least > -2 * digits;
}

// The matrix of a system, whose rows and columns are multiplied by powers of 2: exponents of row i and of column i are
// kept together in a word of the scratch. Of rows and of columns in turn they are the best in the sense of least
// squares of what is left (Curtis and Reid, On the automatic scaling of matrices for Gaussian elimination, 1972); last
// the largest entry of a row comes near 1.
template <typename T, int WORD> struct Scales {
  enum { SIDE = 4096, MOST = SIDE / 2 - 1, SWEEPS = 64 };
  const System<T>& system;
  const Scratch<T>& kept;

  __device__ __forceinline__ int both(Index i) const { return int(size(kept.at(system.around(i), WORD))); }
  __device__ __forceinline__ int of_row(Index i) const { return both(i) / SIDE - SIDE / 2; }
  __device__ __forceinline__ int of_column(Index i) const { return both(i) % SIDE - SIDE / 2; }
  __device__ __forceinline__ void set(Index i, int row, int column) const {
    row = within(row, -int(MOST), int(MOST)), column = within(column, -int(MOST), int(MOST));
    kept.at(i, WORD) = T(Real<T>((row + SIDE / 2) * SIDE + column + SIDE / 2));
  }

  // The exponents of a row, and of a column, times the scales of the others.
  __device__ __forceinline__ Exponents along_row(Index i) const {
    const Entries<T> row = system.row(i);
    Exponents found;
    found.take(row.lower, of_column(i - 1)), found.take(row.diagonal, of_column(i));
    found.take(row.upper, of_column(i + 1));
    return found;
  }
  __device__ __forceinline__ Exponents along_column(Index i) const {
    Exponents found;
    if (system.coupled(i, i - 1)) found.take(system.upper(system.around(i - 1)), of_row(i - 1));
    found.take(system.diagonal(i), of_row(i));
    if (system.coupled(i, i + 1)) found.take(system.lower(system.around(i + 1)), of_row(i + 1));
    return found;
  }

  __device__ __forceinline__ void find() const {
#pragma unroll 1
    for (Index i = 0; i < system.job.n; i++) set(i, 0, 0);
#pragma unroll 1
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
#pragma unroll 1
      for (Index i = 0; i < system.job.n; i++) set(i, -along_row(i).mean(), of_column(i));
#pragma unroll 1
      for (Index i = 0; i < system.job.n; i++) set(i, of_row(i), -along_column(i).mean());
    }
#pragma unroll 1
    for (Index i = 0; i < system.job.n; i++) set(i, -along_row(i).most, of_column(i));
  }

  __device__ __forceinline__ Entries<T> row(Index i) const {
    const Entries<T> found = system.row(i);
    const int own = of_row(i);
    return {shifted(found.lower, own + of_column(i - 1)), shifted(found.diagonal, own + of_column(i)),
            shifted(found.upper, own + of_column(i + 1))};
  }

  // Right sides in word Y as those of the scaled matrix, and by which power of 2 they are all divided then.
  template <int Y> __device__ __forceinline__ int scale_right() const {
    Exponents all;
#pragma unroll 1
    for (Index i = 0; i < system.job.n; i++) {
      all.sum = 0;
      all.take(kept.at(i, Y), of_row(i));
    }
#pragma unroll 1
    for (Index i = 0; i < system.job.n; i++) kept.at(i, Y) = shifted(kept.at(i, Y), of_row(i) - all.most);
    return all.most;
  }
  // The solution of the scaled matrix in word Y as that of the system.
  template <int Y> __device__ __forceinline__ void restore(int divided) const {
#pragma unroll 1
    for (Index i = 0; i < system.job.n; i++) kept.at(i, Y) = shifted(kept.at(i, Y), of_column(i) + divided);
  }
};
