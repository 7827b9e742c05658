// What kernels that pivot have in common: the rows of a system, residuals and corrections.
#pragma once
#include "systems.cu"

// The scratch of a thread: ``word`` of row i.
template <typename T> struct Scratch {
  T* begin;
  Index words, stride;
  __device__ __forceinline__ T& at(Index i, int word) const { return begin[(i * words + word) * stride]; }
};

// The entries of a row.
template <typename T> struct Entries { T lower, diagonal, upper; };

// The rows of one system, of its matrix or of the transpose, as they are eliminated.
template <typename T> struct System {
  const Job& job;
  const T *a, *b, *c, *d;
  const unsigned char* mask;
  T* x;

  __device__ __forceinline__ System(const Job& job, Index system)
      : job(job),
        a(start<T>(job, A) + offset(job, A, system)),
        b(start<T>(job, B) + offset(job, B, system)),
        c(start<T>(job, C) + offset(job, C, system)),
        d(job.operand[D] ? start<T>(job, D) + offset(job, D, system) : 0),
        mask(mask_of(job, system)),
        x(job.operand[X] ? static_cast<T*>(job.operand[X]) + offset(job, X, system) : 0) {}

  __device__ __forceinline__ bool keep(Index i) const { return keeps(job, mask, i); }
  __device__ __forceinline__ Index around(Index i) const { return i < 0 ? i + job.n : i >= job.n ? i - job.n : i; }
  __device__ __forceinline__ bool coupled(Index i, Index j) const {
    return (job.periodic || (j >= 0 && j < job.n)) && keep(i) && keep(around(j));
  }
  __device__ __forceinline__ T lower(Index i) const {
    if (!coupled(i, i - 1)) return T(0);
    return job.transpose ? c[around(i - 1) * job.row[C]] : a[i * job.row[A]];
  }
  __device__ __forceinline__ T diagonal(Index i) const { return keep(i) ? b[i * job.row[B]] : T(1); }
  __device__ __forceinline__ T upper(Index i) const {
    if (!coupled(i, i + 1)) return T(0);
    return job.transpose ? a[around(i + 1) * job.row[A]] : c[i * job.row[C]];
  }
  __device__ __forceinline__ Entries<T> row(Index i) const { return {lower(i), diagonal(i), upper(i)}; }
  __device__ __forceinline__ T right(Index i) const { return keep(i) ? d[i * job.row[D]] : T(0); }
  __device__ __forceinline__ T& solution(Index i) const { return x[i * job.row[X]]; }
};

template <typename T> __device__ __forceinline__ void exchange(bool swap, T& x, T& y) {
  const T first = swap ? y : x, second = swap ? x : y;
  x = first, y = second;
}

// The residual of row i where it is more than rounding, and the row's backward error, of what an iterate is there and beside it.
template <typename T>
__device__ __forceinline__ T residual(const System<T>& system, Index i, int step, T before, T own, T after, T d, Real<T>& error) {
  typedef Real<T> S;
  const T a = system.lower(i), b = system.diagonal(i), c = system.upper(i);
  const T r = d - (a * before + b * own + c * after);
  const S sizes = size(a) * size(before) + size(b) * size(own) + size(c) * size(after) + size(d);
  const S scale = sizes / Limits<T>::parts;  // a product of complex numbers can be half that of their sizes
  const S eps = Limits<T>::eps(), floor = S(4) * Limits<T>::tiny() / eps;
  const S beside = scale > floor ? scale : floor, least = size(a) * floor + size(b) * floor + size(c) * floor;
  const S most = S(UNREACHED) * eps;
  error = size(r) / beside;
  if (error > most) {
    const S reached = size(r) / (beside > least ? beside : least);
    error = reached > most ? reached : most;
  }
  return error > (step >= ZEROS_AFTER ? S(LEAVE_LATE) : S(LEAVE_BELOW)) * Limits<T>::parts * eps ? r : T(0);
}

// The iterate corrected; an exact zero where the two cancel, which no finite number of corrections would reach, and late
// where the correction leaves no digit, or nothing that a row feels (`tridiag.algorithms.elimination.correct`).
template <typename T> __device__ __forceinline__ T corrected(T x, T correction, int step) {
  const T y = x + correction;
  const Real<T> eps = Limits<T>::eps(), found = size(y);
  const bool lost = found <= Real<T>(LOST) * size(correction) || found <= Limits<T>::tiny() / eps;
  const bool late = step >= ZEROS_AFTER && (step < RETURN_AFTER || !(x == T(0)));
  return (late && lost) || found <= Real<T>(VANISHED) * eps * size(x) ? T(0) : y;
}

