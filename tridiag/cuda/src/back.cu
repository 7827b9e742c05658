// The same by square roots: a state from the next one.
#pragma once
#include "series.cu"

// From the smoothed state of a step to that of the step before. A smoother has them in coordinates z of the updated state, x = L z: by how
// much later steps move their mean, and the root of their covariance, which are kept in memory for the step before. A gradient has the mean.
template <typename T, int M> struct Return {
  Lane<T> mean, root, weights, gain;
  Lane<T> joined, left;  // columns side by side: those of F L and then of gain L, and what rotations leave of the coordinates

  // The words of it: 3 M + 3 M^2, and a triangle of M rows.
  __device__ __forceinline__ Return(const Lane<T>& memory)
      : mean(memory), root(mean.from(M)), weights(root.from(M * (M + 1) / 2)), gain(weights.from(2 * M)), joined(gain.from(M * M)),
        left(joined.from(M * M)) {}

  // Behind the last step nothing is known.
  __device__ __forceinline__ void begin(const Triangle<T, M>& cov) const {
#pragma unroll
    for (int i = 0; i < M; i++) mean[i] = T(0);
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
      for (int j = 0; j <= i; j++) root[i * (i + 1) / 2 + j] = i == j ? cov(i, i) : T(0);
  }

  // An updated mean becomes the smoothed one, once the gain is known: x + gain (next - F x).
  __device__ __forceinline__ void move(const T* F, T (&state)[M]) const {
    T moved[M];
#pragma unroll
    for (int i = 0; i < M; i++) moved[i] = state[i];
#pragma unroll rows_at_once(M)
    for (int j = 0; j < M; j++) {
      T row[M];
      read(row, F + j * M);
      const T change = mean[j] - dot(row, state);
#pragma unroll
      for (int i = 0; i < M; i++) moved[i] = moved[i] + gain[j * M + i] * change;
    }
#pragma unroll
    for (int i = 0; i < M; i++) state[i] = moved[i];
  }

  // From the coordinates of the next state, as before its observations, to those of a step whose updated root is given.
  __device__ __forceinline__ void go(const T* F, const T* Q, const Triangle<T, M>& cov) const {
    find_gain<true>(F, Q, cov);
    T moved[M];
#pragma unroll
    for (int i = 0; i < M; i++) moved[i] = T(0);
#pragma unroll 1
    for (int l = 0; l < M; l++)  // what later steps tell
#pragma unroll
      for (int i = 0; i < M; i++) moved[i] = moved[i] + gain[l * M + i] * mean[l];
#pragma unroll
    for (int i = 0; i < M; i++) mean[i] = moved[i];
#pragma unroll 1
    for (int m = 0; m < M; m++) {  // the columns of gain L
      weights[m] = root[m * (m + 1) / 2 + m];
#pragma unroll 1
      for (int i = 0; i < M; i++) {
        T entry = gain[m * M + i];
        for (int l = m + 1; l < M; l++) entry = entry + gain[l * M + i] * root[l * (l + 1) / 2 + m];
        joined[m * M + i] = entry;
      }
    }
    Roots<T, M>::template orthogonal<2 * M>(weights, joined, root);
  }

  // An updated state and its root become the smoothed ones: x + L z, and L times the root of the coordinates.
  __device__ __forceinline__ void smooth(T (&state)[M], Triangle<T, M>& cov) const {
#pragma unroll
    for (int i = M - 1; i >= 0; i--) {  // the rows before it are still those of L
#pragma unroll
      for (int m = 0; m <= i; m++) {
        if (m < i) state[i] = state[i] + cov(i, m) * mean[m];
        T entry = m < i ? cov(i, m) + root[i * (i + 1) / 2 + m] : root[i * (i + 1) / 2 + i];
#pragma unroll
        for (int l = m + 1; l < i; l++) entry = entry + cov(i, l) * root[l * (l + 1) / 2 + m];
        cov(i, m) = entry;
      }
      state[i] = state[i] + mean[i];
    }
  }

  // The coordinates as before an observation, which `Seen` has kept.
  __device__ __forceinline__ void turn(const Lane<T>& turn) const {
#pragma unroll 1
    for (int m = 0; m <= M; m++) {  // the columns of the root, and what is told of the mean
      T told = m < M ? turn[M + m] : T(0);
#pragma unroll 1
      for (int i = m < M ? m + 1 : 0; i < M; i++) {
        T& place = m < M ? root[i * (i + 1) / 2 + m] : mean[i];
        const T own = place;
        place = own - turn[i] * told;
        told = told + turn[M + i] * own;
      }
    }
#pragma unroll
    for (int i = 0; i < M; i++) mean[i] = mean[i] + turn[i] * turn[2 * M];
  }

  // Of a state, or of its coordinates, from the next one, column by column: the columns of F L are turned into the root of Q, and
  // with them those of L, or of the coordinates, into what is 0 at first.
  template <bool COORDINATES>
  __device__ __forceinline__ void find_gain(const T* F, const T* Q, const Triangle<T, M>& cov) const {
    const Lane<T> rest = weights.from(M);
    Roots<T, M>::spread_out(F, cov, rest, joined, [](int, const T (&)[M]) {});
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
      for (int i = 0; i < M; i++) {
        left[m * M + i] = i == m ? T(1) : i < m || COORDINATES ? T(0) : cov(i, m);
        gain[m * M + i] = T(0);
      }
    Triangle<T, M> next;
    next.load(Q);
    Roots<T, M>::start(next);
#pragma unroll 1
    for (int m = 0; m < M; m++) {
      Rotations<T, M> rotations;
      read(rotations.vector, joined.from(m * M));
      rest[m] = Roots<T, M>::rotate(next, rest[m], rotations);
#pragma unroll 1
      for (int i = 0; i < (COORDINATES ? m + 1 : M); i++) {  // of coordinates behind it all are 0
        T& own = left[m * M + i];
        own = rotations.turn(gain.from(i), own);
      }
    }
#pragma unroll 1
    for (int i = 0; i < (COORDINATES ? 0 : M); i++)  // from what is new in each entry of the next state: times the inverse of its L
#pragma unroll
      for (int j = M - 2; j >= 0; j--) {
        T entry = gain[j * M + i];
#pragma unroll
        for (int a = j + 1; a < M; a++) entry = entry - next(a, j) * gain[a * M + i];
        gain[j * M + i] = entry;
      }
  }
};
