// Covariances of M states in the registers of a thread: as they stand (`Entries`), or as L D L^T (`Roots`).
//
// The arithmetic is that of `tridiag.algorithms.kalman_filter` and `tridiag.algorithms.kalman_square_roots`: Bierman's update,
// Gentleman's rotations without square roots, Thornton's weighted Gram-Schmidt. Observations count one after another.
#pragma once
#include "access.cu"

// Numbers of a thread in memory, beside those of the other threads of its warp.
template <typename T> struct Lane {
  T* begin;
  __device__ __forceinline__ T& operator[](int k) const { return begin[k * 32]; }
  __device__ __forceinline__ Lane from(int k) const { return {begin + k * 32}; }
};

// Numbers of a thread that lie apart, where those of other threads may be in between.
template <typename T> struct Spread {
  T* begin;
  Index apart;
  __device__ __forceinline__ T& operator[](int k) const { return begin[k * apart]; }
};

// Where the entries of row i of a symmetric matrix go, up to its diagonal one after another, and those of the column above that.
template <typename T, int M> struct RowAndColumn {
  T *across, *down;
  const Index apart;

  __device__ __forceinline__ RowAndColumn(const Spread<T>& matrix, int i)
      : across(&matrix[i * M]), down(&matrix[i]), apart(matrix.apart) {}
  __device__ __forceinline__ void put(T entry) {
    *across = *down = entry;
    across = forgotten(across + apart), down = forgotten(down + M * apart);
  }
};

// The lower triangle of a symmetric matrix; of L D L^T the entries of L below its diagonal, which is D.
template <typename T, int M> struct Triangle {
  T entry[M * (M + 1) / 2];
  __device__ __forceinline__ T& operator()(int i, int j) { return entry[i < j ? j * (j + 1) / 2 + i : i * (i + 1) / 2 + j]; }
  __device__ __forceinline__ T operator()(int i, int j) const {
    return entry[i < j ? j * (j + 1) / 2 + i : i * (i + 1) / 2 + j];
  }
  // from the upper one of a matrix in memory, as on the CPU
  __device__ __forceinline__ void load(const T* matrix) {
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
      for (int j = 0; j <= i; j++) (*this)(i, j) = matrix[j * M + i];
  }
  // in the lower one
  __device__ __forceinline__ void keep(const Spread<T>& matrix) const {
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
      for (int j = 0; j <= i; j++) matrix[i * M + j] = (*this)(i, j);
  }
  __device__ __forceinline__ void recall(const Spread<T>& matrix) {
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
      for (int j = 0; j <= i; j++) (*this)(i, j) = matrix[i * M + j];
  }
};

// What a thread knows of an observation that is independent of those before it.
template <typename T, int M> struct Seen {
  T load[M], row[M];  // its row of H, and its covariances with the states
  T shares[M], sights[M];  // with `Roots`: how coordinates before it follow from those after it, as `Return` turns them
  T variance, weight, error;

  static constexpr int WORDS = M + 2;  // of what the way back needs: the covariances, the weight and the error
  __device__ __forceinline__ void keep(const Lane<T>& own) const {
#pragma unroll
    for (int i = 0; i < M; i++) own[i] = row[i];
    own[M] = weight, own[M + 1] = error;
  }

  static constexpr int TURN = 2 * M + 1;  // of what turns coordinates back: these, and the error times the weight
  __device__ __forceinline__ void keep_turn(const Lane<T>& own) const {
#pragma unroll
    for (int i = 0; i < M; i++) own[i] = shares[i], own[M + i] = sights[i];
    own[2 * M] = weight * error;
  }
};

template <typename T> __device__ __forceinline__ T maximum(T x, T y) { return x > y ? x : y; }  // y where x is NaN
template <typename T> __device__ __forceinline__ T not_infinite(T x) { return x + (x - x); }  // NaN where it is infinite
template <typename T> __device__ __forceinline__ T inverse_or_0(T x) { return x == T(0) ? T(0) : T(1) / not_infinite(x); }
// of an observation: NaN where it is not positive, or infinite
template <typename T> __device__ __forceinline__ T positive(T x) {
  return x > T(0) && x - x == T(0) ? x : not_a_number(x);
}
// x - y, or 0 where that is rounding alone
template <typename T> __device__ __forceinline__ T difference(T x, T y) {
  const T found = x - y;
  return size(found) <= T(64) * Limits<T>::eps() * (size(x) + size(y)) ? T(0) : found;
}

template <typename T, int M> __device__ __forceinline__ T dot(const T (&x)[M], const T (&y)[M]) {
  T found = x[0] * y[0];
#pragma unroll
  for (int k = 1; k < M; k++) found = found + x[k] * y[k];
  return found;
}

template <typename T, int M, typename Place> __device__ __forceinline__ void read(T (&x)[M], const Place& from) {
#pragma unroll
  for (int k = 0; k < M; k++) x[k] = from[k];
}

// How many turns of a loop over rows are written out: of larger matrices none, so that few numbers are in registers at a time.
__device__ constexpr int rows_at_once(int m) { return m <= 4 ? m : 1; }

// F x, in its place.
template <typename T, int M> __device__ __forceinline__ void multiply(const T* F, T (&x)[M]) {
  T found[M];
#pragma unroll
  for (int i = 0; i < M; i++) {
    T row[M];
    read(row, F + i * M);
    found[i] = dot(row, x);
  }
#pragma unroll
  for (int i = 0; i < M; i++) x[i] = found[i];
}

template <typename T, int M> struct Entries {
  static __device__ __forceinline__ void start(Triangle<T, M>&) {}

  // The state once an observation is known, whose ``load``, value and noise are given.
  static __device__ __forceinline__ void observe(Triangle<T, M>& cov, Seen<T, M>& seen, T noise) {
#pragma unroll
    for (int i = 0; i < M; i++) {
      seen.row[i] = cov(i, 0) * seen.load[0];
#pragma unroll
      for (int l = 1; l < M; l++) seen.row[i] = seen.row[i] + cov(i, l) * seen.load[l];
    }
    seen.variance = positive(dot(seen.row, seen.load) + noise);
    seen.weight = T(1) / seen.variance;
#pragma unroll
    for (int i = 0; i < M; i++) {
      const T gain = seen.row[i] * seen.weight;
#pragma unroll
      for (int j = 0; j <= i; j++) cov(i, j) = cov(i, j) - gain * seen.row[j];
    }
  }

  // F P F^T + Q, whose rows wait in ``next``.
  static __device__ __forceinline__ void predict(
      const T* F, const T* Q, T (&mean)[M], Triangle<T, M>& cov, const Lane<T>& next) {
    multiply(F, mean);
    int place = 0;
#pragma unroll rows_at_once(M)
    for (int i = 0; i < M; i++) {
      T row[M], product[M];
      read(row, F + i * M);
#pragma unroll
      for (int l = 0; l < M; l++) {
        product[l] = row[0] * cov(0, l);
#pragma unroll
        for (int m = 1; m < M; m++) product[l] = product[l] + row[m] * cov(m, l);
      }
#pragma unroll rows_at_once(M)
      for (int j = 0; j <= i; j++) {
        read(row, F + j * M);
        next[place++] = dot(product, row) + Q[j * M + i];
      }
    }
#pragma unroll
    for (int k = 0; k < M * (M + 1) / 2; k++) cov.entry[k] = next[k];
  }

  // A row of the lower triangle of the covariance.
  static __device__ __forceinline__ void row(const Triangle<T, M>& cov, int i, T (&found)[M]) {
#pragma unroll
    for (int j = 0; j <= i; j++) found[j] = cov(i, j);
  }
};

// Rotations that turn a vector into the columns of a root, one after another: the weight of what is left of it shrinks, and not its
// entries by cancellation. Of each the entry of the vector that becomes 0, how much is kept of the column, and taken of the vector.
template <typename T, int M> struct Rotations {
  T vector[M], keep[M], take[M];

  // A row more of the columns, M numbers from one to the next, and of the vector, of which it returns what is left.
  __device__ __forceinline__ T turn(const Lane<T>& columns, T own) const {
#pragma unroll
    for (int j = 0; j < M; j++) {
      const T before = own, column = columns[j * M];
      own = before - vector[j] * column;  // by what is left nothing is divided
      columns[j * M] = keep[j] * column + take[j] * before;
    }
    return own;
  }
};

template <typename T, int M> struct Roots {
  // L and D of a covariance, in its place. A variance that is 0 but for rounding is 0.
  static __device__ __forceinline__ void start(Triangle<T, M>& cov) {
    T least[M];
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
      for (int j = 0; j <= i; j++) cov(i, j) = not_infinite(cov(i, j));
#pragma unroll
    for (int i = 0; i < M; i++) least[i] = T(4 * M) * Limits<T>::eps() * cov(i, i);
#pragma unroll
    for (int j = 0; j < M; j++) {
      cov(j, j) = cov(j, j) <= least[j] ? T(0) : cov(j, j);
      const T inverse = inverse_or_0(cov(j, j));
#pragma unroll
      for (int i = M - 1; i > j; i--) {
        const T factor = cov(i, j) * inverse;
#pragma unroll
        for (int m = j + 1; m <= i; m++) cov(i, m) = cov(i, m) - factor * cov(m, j);
      }
#pragma unroll
      for (int i = j + 1; i < M; i++) cov(i, j) = cov(i, j) * inverse;
    }
  }

  static __device__ __forceinline__ void observe(Triangle<T, M>& root, Seen<T, M>& seen, T noise) {
    T variance = noise, known = inverse_or_0(noise);
#pragma unroll
    for (int j = M - 1; j >= 0; j--) {
      T sight = seen.load[j];
#pragma unroll
      for (int i = j + 1; i < M; i++) sight = sight + root(i, j) * seen.load[i];
      const T common = root(j, j) * sight, more = variance + common * sight, inverse = inverse_or_0(more);
      seen.shares[j] = common, seen.sights[j] = known * sight;
      root(j, j) = more == T(0) ? root(j, j) : root(j, j) * (variance * inverse);
#pragma unroll
      for (int i = j + 1; i < M; i++) {
        const T before = root(i, j);
        root(i, j) = before - seen.row[i] * seen.sights[j];
        seen.row[i] = seen.row[i] + before * common;
      }
      seen.row[j] = common;
      variance = more, known = inverse;
    }
    seen.variance = positive(variance);
    seen.weight = T(1) / seen.variance;
  }

  // That of F P F^T + Q: the root of Q, and the columns of F L turned into it.
  static __device__ __forceinline__ void predict(
      const T* F, const T* Q, T (&mean)[M], Triangle<T, M>& root, const Lane<T>& memory) {
    const Lane<T> next = memory, weights = next.from(M), moved = weights.from(M);
    spread_out(F, root, weights, moved, [&](int i, const T (&row)[M]) { next[i] = dot(row, mean); });
    read(mean, next);
    Triangle<T, M> sum;
    sum.load(Q);
    start(sum);
#pragma unroll 1
    for (int m = 0; m < M; m++) {  // as on the way back, whose root of the next state is this one to the last bit
      Rotations<T, M> rotations;
      read(rotations.vector, moved.from(m * M));
      rotate(sum, weights[m], rotations);
    }
    root = sum;
  }

  // The columns of F L, and their weights; ``visit(i, row)`` looks at each row of F.
  template <typename Visit>
  static __device__ __forceinline__ void spread_out(
      const T* F, const Triangle<T, M>& root, const Lane<T>& weights, const Lane<T>& moved, const Visit& visit) {
#pragma unroll rows_at_once(M)
    for (int i = 0; i < M; i++) {
      T row[M];
      read(row, F + i * M);
      visit(i, row);
#pragma unroll
      for (int m = 0; m < M; m++) {
        T found = row[m];
#pragma unroll
        for (int l = m + 1; l < M; l++) found = found + row[l] * root(l, m);
        moved[m * M + i] = found;
      }
    }
#pragma unroll
    for (int m = 0; m < M; m++) weights[m] = root(m, m);
  }

  // The root once a vector of a weight is added; what is left of that weight.
  static __device__ __forceinline__ T rotate(Triangle<T, M>& root, T weight, Rotations<T, M>& rotations) {
#pragma unroll
    for (int j = 0; j < M; j++) {
      const T own = rotations.vector[j], scaled = weight * own;
      T variance = root(j, j) + scaled * own;
      // of what cancels no more is left than underflows: its inverse may overflow
      variance = variance < Limits<T>::tiny() ? T(0) : variance;
      const T inverse = inverse_or_0(variance), keep = root(j, j) * inverse, take = scaled * inverse;
#pragma unroll
      for (int i = j + 1; i < M; i++) {
        const T before = rotations.vector[i];
        rotations.vector[i] = difference(before, own * root(i, j));
        root(i, j) = keep * root(i, j) + take * before;
      }
      weight = variance > T(0) ? weight * keep : weight;
      root(j, j) = variance;
      rotations.keep[j] = keep, rotations.take[j] = take;
    }
    return weight;
  }

  // Weighted Gram-Schmidt of COUNT vectors: their root, as rows of its lower triangle.
  template <int COUNT>
  static __device__ __forceinline__ void orthogonal(const Lane<T>& weights, const Lane<T>& parts, const Lane<T>& found) {
#pragma unroll rows_at_once(M)
    for (int j = 0; j < M; j++) {
      T first[COUNT], scaled[COUNT], variance = T(0);
#pragma unroll
      for (int m = 0; m < COUNT; m++) {
        first[m] = parts[m * M + j];
        scaled[m] = first[m] * weights[m];
        variance = variance + first[m] * scaled[m];
      }
      // of parts that cancel no more is left than underflows: its inverse may overflow
      variance = variance < Limits<T>::tiny() ? T(0) : variance;
      const T inverse = inverse_or_0(variance);
#pragma unroll
      for (int m = 0; m < COUNT; m++) scaled[m] = scaled[m] * inverse;
      found[j * (j + 1) / 2 + j] = variance;
#pragma unroll rows_at_once(M)
      for (int i = j + 1; i < M; i++) {
        T column = T(0);
#pragma unroll
        for (int m = 0; m < COUNT; m++) column = column + parts[m * M + i] * scaled[m];
#pragma unroll
        for (int m = 0; m < COUNT; m++) {
          T& part = parts[m * M + i];
          part = difference(part, column * first[m]);
        }
        found[i * (i + 1) / 2 + j] = column;
      }
    }
  }

  static __device__ __forceinline__ void row(const Triangle<T, M>& root, int i, T (&found)[M]) {
#pragma unroll
    for (int j = 0; j <= i; j++) {
      found[j] = T(0);
#pragma unroll
      for (int m = 0; m <= j; m++) {
        const T scaled = m == i ? root(m, m) : root(i, m) * root(m, m);
        found[j] = found[j] + (m == j ? scaled : scaled * root(j, m));
      }
    }
  }
};
