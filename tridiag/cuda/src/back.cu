// The same by square roots: a state from the next one.
#pragma once
#include "series.cu"

// From the smoothed state of a step to that of the step before. A smoother has them in coordinates z of the updated state, x = L z: by how
// much later steps move their mean, and the root of their covariance, which are kept in memory for the step before. A gradient has the mean.
template <typename T, int M> struct Return {
  Lane<T> mean, root, weights, gain, parts, found, joined;

  // The words of it: 5 M + 8 M^2, and the triangles of M and 2 M rows.
  __device__ __forceinline__ Return(const Lane<T>& memory)
      : mean(memory), root(mean.from(M)), weights(root.from(M * (M + 1) / 2)), gain(weights.from(3 * M)),
        parts(gain.from(M * M)), found(parts.from(4 * M * M)), joined(found.from(M * (2 * M + 1))) {}

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
    T change[M];
#pragma unroll
    for (int i = 0; i < M; i++) change[i] = state[i];
    multiply(F, change);
#pragma unroll
    for (int i = 0; i < M; i++) change[i] = mean[i] - change[i];
#pragma unroll
    for (int j = 0; j < M; j++)
#pragma unroll
      for (int i = 0; i < M; i++) state[i] = state[i] + gain[j * M + i] * change[j];
  }

  // From the coordinates of the next state, as before its observations, to those of a step whose updated root is given.
  __device__ __forceinline__ void go(const T* F, const T* Q, const Triangle<T, M>& cov) const {
    find_gain<true>(F, Q, cov);
#pragma unroll 1
    for (int i = 0; i < M; i++) {  // what later steps tell, and the columns of gain L
      T change = gain[i] * mean[0];
      for (int l = 1; l < M; l++) change = change + gain[l * M + i] * mean[l];
      found[i] = change;
#pragma unroll 1
      for (int m = 0; m < M; m++) {
        T entry = gain[m * M + i];
        for (int l = m + 1; l < M; l++) entry = entry + gain[l * M + i] * root[l * (l + 1) / 2 + m];
        joined[m * M + i] = entry;
      }
      for (int m = 0; m < 2 * M; m++) joined[(M + m) * M + i] = parts[m * (2 * M) + M + i];
    }
#pragma unroll 1
    for (int i = 0; i < M; i++) mean[i] = found[i];
#pragma unroll 1
    for (int m = 2 * M - 1; m >= 0; m--) weights[M + m] = weights[m];
#pragma unroll 1
    for (int m = 0; m < M; m++) weights[m] = root[m * (m + 1) / 2 + m];
    Roots<T, M>::template orthogonal<M, 3 * M>(weights, joined, found);
#pragma unroll
    for (int k = 0; k < M * (M + 1) / 2; k++) root[k] = found[k];
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

  // Of a state, or of its coordinates, from the next one, column by column; the covariance of both, the next one first, is made
  // triangular halfway.
  template <bool COORDINATES>
  __device__ __forceinline__ void find_gain(const T* F, const T* Q, const Triangle<T, M>& cov) const {
    Roots<T, M>::template spread_out<2 * M>(F, Q, cov, weights, parts);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
      for (int i = 0; i < M; i++) {
        parts[m * (2 * M) + M + i] = i == m ? T(1) : i < m || COORDINATES ? T(0) : cov(i, m);
        parts[(M + m) * (2 * M) + M + i] = T(0);
      }
    Roots<T, M>::template orthogonal<2 * M, 2 * M>(weights, parts, found);
#pragma unroll 1
    for (int j = M - 1; j >= 0; j--)
#pragma unroll 1
      for (int i = 0; i < M; i++) {
        T entry = found[(M + i) * (M + i + 1) / 2 + j];
        for (int a = j + 1; a < (COORDINATES ? 0 : M); a++) entry = entry - found[a * (a + 1) / 2 + j] * gain[a * M + i];
        gain[j * M + i] = entry;
      }
  }
};
