// Rows of a cyclic matrix, or some consecutive ones of any: columns are eliminated among the three rows that hold them, and two
// rows are left in the outermost unknowns and those beside them.
#pragma once
#include "pivoting.cu"

// A row of a cyclic matrix: columns k, k + 1, k + 2, n - 1 and 0. ``rounding``: as much of any entry may be no more than that.
template <typename T, int N = 5> struct CyclicRow {
  T v[N];
  Real<T> rounding;
};

template <typename T, int N> __device__ __forceinline__ void exchange(bool swap, CyclicRow<T, N>& x, CyclicRow<T, N>& y) {
#pragma unroll
  for (int k = 0; k < N; k++) exchange(swap, x.v[k], y.v[k]);
  exchange(swap, x.rounding, y.rounding);
}

template <typename T, int N> __device__ __forceinline__ Real<T> largest(const CyclicRow<T, N>& row) {
  Real<T> found = size(row.v[0]);
#pragma unroll
  for (int k = 1; k < N; k++) found = size(row.v[k]) > found ? size(row.v[k]) : found;
  return found;
}

// Whether the other row's entry of the column is larger beside its largest one, or is one at all:
// `tridiag.algorithms.elimination`.
template <typename T, int N>
__device__ __forceinline__ bool better_pivot(const CyclicRow<T, N>& row, const CyclicRow<T, N>& other, int column = 0) {
  const Real<T> here = size(row.v[column]), there = size(other.v[column]);
  return there / largest(other) > here / largest(row) || (here == Real<T>(0) && there > Real<T>(0));
}

// What may be rounding in a row less a multiple of the pivot row: what it was, and that of this step, which is no more than what is
// taken away. Where the multiplier is large, errors are not multiplied by it: they cancel as the numbers that bear them, but bounds
// of them would grow from row to row.
template <typename T, int N>
__device__ __forceinline__ Real<T> rounding_of(const CyclicRow<T, N>& row, Real<T> m, const CyclicRow<T, N>& q) {
  typedef Real<T> S;
  const S taken = m * largest(q), rounded = S(2 * Limits<T>::parts) * Limits<T>::eps() * (largest(row) + taken);
  const S others = m > S(1) ? q.rounding : m * q.rounding;
  return (row.rounding > others ? row.rounding : others) + (taken < rounded ? taken : rounded);
}

// A row less a multiple of the pivot row.
template <typename T, int N>
__device__ __forceinline__ CyclicRow<T, N> less(const CyclicRow<T, N>& row, T m, const CyclicRow<T, N>& q) {
  CyclicRow<T, N> found;
#pragma unroll
  for (int k = 0; k < N; k++) found.v[k] = row.v[k] - m * q.v[k];
  found.rounding = rounding_of(row, size(m), q);
  return found;
}

// Whether a pivot may be no more than rounding, and the matrix singular.
template <typename R> __device__ __forceinline__ bool is_doubtful(R pivot, R rounding) { return !(pivot > R(16) * rounding); }

// One column eliminated: the pivot row, the multipliers of the two others, and whether the first was exchanged with the
// second (1) and then with the added one (2).
template <typename T> struct CyclicPivot {
  CyclicRow<T> row;
  T first, second;
  int swaps;
};

// Of the two rows that are carried and the one that is added two are left.
template <typename T>
__device__ __forceinline__ CyclicPivot<T> eliminate_column(CyclicRow<T>& first, CyclicRow<T>& second, CyclicRow<T> added) {
  CyclicPivot<T> pivot;
  const bool swap1 = better_pivot(first, second);
  exchange(swap1, first, second);
  const bool swap2 = better_pivot(first, added);
  exchange(swap2, first, added);
  pivot.row = first, pivot.swaps = (swap1 ? 1 : 0) + (swap2 ? 2 : 0);
  pivot.first = over(second.v[0], first.v[0]), pivot.second = over(added.v[0], first.v[0]);
  const CyclicRow<T> rest1 = less(second, pivot.first, pivot.row), rest2 = less(added, pivot.second, pivot.row);
  first = {{rest1.v[1], rest1.v[2], T(0), rest1.v[3], rest1.v[4]}, rest1.rounding};
  second = {{rest2.v[1], rest2.v[2], T(0), rest2.v[3], rest2.v[4]}, rest2.rounding};
  return pivot;
}

// So many rows from ``begin`` on, two at least. Row i of the scratch holds the pivot of the column of their unknown i - 1. The
// two rows that are left hold, in this order, the last unknown, the one after it, the one before the first, and the first.
template <typename T> struct Stretch {
  enum { WORDS = 8, ROW = 0, FIRST = 5, SECOND, SWAPS };
  const System<T>& system;
  const Scratch<T>& kept;
  Index begin, rows;

  // ``visit(i, pivot)`` looks at the pivots. The rows are those of the system, or its scaled ones.
  template <typename Rows, typename Visit>
  __device__ __forceinline__ void eliminate(Rows& matrix, CyclicRow<T>& first, CyclicRow<T>& second,
                                            const Visit& visit) const {
    const T none = T(0);
    const Entries<T> here = matrix.row(begin), next = matrix.row(begin + 1);
    first = {{here.upper, none, none, here.lower, here.diagonal}, Real<T>(0)};
    second = {{next.diagonal, next.upper, none, none, next.lower}, Real<T>(0)};
#pragma unroll 1
    for (Index i = 2; i < rows; i++) {
      const Entries<T> row = matrix.row(begin + i);
      const CyclicRow<T> added = {{row.lower, row.diagonal, row.upper, none, none}, Real<T>(0)};
      const CyclicPivot<T> pivot = eliminate_column(first, second, added);
      visit(i, pivot);
#pragma unroll
      for (int k = 0; k < 5; k++) kept.at(i, ROW + k) = pivot.row.v[k];
      kept.at(i, FIRST) = pivot.first;
      kept.at(i, SECOND) = pivot.second;
      kept.at(i, SWAPS) = T(pivot.swaps);
    }
  }

  // The right side in word Y of the scratch, eliminated; what it is of the two rows that are left.
  template <int Y> __device__ __forceinline__ void forward(T& first, T& second) const {
    first = kept.at(0, Y), second = kept.at(1, Y);
#pragma unroll 1
    for (Index i = 2; i < rows; i++) {
      T row = kept.at(i, Y);
      const T swaps = kept.at(i, SWAPS);
      exchange(swaps == T(1) || swaps == T(3), first, second);
      exchange(swaps == T(2) || swaps == T(3), first, row);
      kept.at(i, Y) = first;
      const T rest = second - kept.at(i, FIRST) * first;
      second = row - kept.at(i, SECOND) * first;
      first = rest;
    }
  }

  // Word Y becomes the solution, where the outermost unknowns and those beside them are known.
  template <int Y> __device__ __forceinline__ void back(T before, T first, T last, T after) const {
    T x1 = last, x2 = after;
#pragma unroll 1
    for (Index i = rows - 1; i > 1; i--) {
      const T q = kept.at(i, Y);
      kept.at(i, Y) = system.keep(begin + i) ? x1 : T(0);
      const T rest = q - kept.at(i, ROW + 1) * x1 - kept.at(i, ROW + 2) * x2 - kept.at(i, ROW + 3) * before
                     - kept.at(i, ROW + 4) * first;
      x2 = x1;
      x1 = over(rest, kept.at(i, ROW));
    }
    kept.at(1, Y) = system.keep(begin + 1) ? x1 : T(0);
    kept.at(0, Y) = system.keep(begin) ? first : T(0);
  }
};

// The last 2 x 2 matrix, in x[n-1] and x[0], of the two rows that the elimination of all has left.
template <typename T> struct Corner {
  bool swap, doubtful;
  T multiplier, q0, q1, rest;

  Corner() = default;
  __device__ __forceinline__ Corner(const CyclicRow<T>& first, const CyclicRow<T>& second) {
    CyclicRow<T, 2> pivot = {{first.v[0] + first.v[3], first.v[1] + first.v[4]}, first.rounding};
    CyclicRow<T, 2> other = {{second.v[0] + second.v[3], second.v[1] + second.v[4]}, second.rounding};
    swap = size(other.v[0]) > size(pivot.v[0]);
    exchange(swap, pivot, other);
    multiplier = over(other.v[0], pivot.v[0]), q0 = pivot.v[0], q1 = pivot.v[1];
    const CyclicRow<T, 2> left = less(other, multiplier, pivot);
    rest = left.v[1];
    doubtful = is_doubtful(size(q0), pivot.rounding) || is_doubtful(size(rest), left.rounding);
  }

  __device__ __forceinline__ void solve(T first, T second, T& x_last, T& x_zero) const {
    exchange(swap, first, second);
    x_zero = over(second - multiplier * first, rest);
    x_last = over(first - q1 * x_zero, q0);
  }
};
