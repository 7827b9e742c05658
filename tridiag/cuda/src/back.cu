// The same by square roots: a state from the next one.
#pragma once
#include "series.cu"

// From the smoothed state of a step to that of the step before, which is kept in memory for the one before that.
template <typename T, int M> struct Return {
  Lane<T> mean, root, weights, gain, parts, found, joined;

  // The words of it: 5 M + 8 M^2, and the triangles of M and 2 M rows.
  __device__ __forceinline__ Return(const Lane<T>& memory)
      : mean(memory), root(mean.from(M)), weights(root.from(M * (M + 1) / 2)), gain(weights.from(3 * M)),
        parts(gain.from(M * M)), found(parts.from(4 * M * M)), joined(found.from(M * (2 * M + 1))) {}

  __device__ __forceinline__ void begin(const T (&state)[M], const Triangle<T, M>& cov) const {
#pragma unroll
    for (int i = 0; i < M; i++) mean[i] = state[i];
#pragma unroll
    for (int k = 0; k < M * (M + 1) / 2; k++) root[k] = cov.entry[k];
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

  // An updated state becomes the smoothed one: x = gain (next - F x) + what is independent of the next one.
  __device__ __forceinline__ void go(const T* F, const T* Q, T (&state)[M], Triangle<T, M>& cov) const {
    find_gain(F, Q, cov);
    move(F, state);
#pragma unroll 1
    for (int i = 0; i < M; i++) {  // the columns of gain L
#pragma unroll 1
      for (int m = 0; m < M; m++) {
        T entry = gain[m * M + i];
        for (int l = m + 1; l < M; l++) entry = entry + gain[l * M + i] * root[l * (l + 1) / 2 + m];
        joined[m * M + i] = entry;
      }
      for (int m = 0; m < 2 * M; m++) joined[(M + m) * M + i] = parts[m * (2 * M) + M + i];
    }
#pragma unroll 1
    for (int m = 2 * M - 1; m >= 0; m--) weights[M + m] = weights[m];
#pragma unroll 1
    for (int m = 0; m < M; m++) weights[m] = root[m * (m + 1) / 2 + m];
    Roots<T, M>::template orthogonal<M, 3 * M>(weights, joined, found);
#pragma unroll
    for (int k = 0; k < M * (M + 1) / 2; k++) cov.entry[k] = found[k];
    begin(state, cov);
  }

  // Of a state from the next one, column by column; that of both, the next one first, is made triangular halfway.
  __device__ __forceinline__ void find_gain(const T* F, const T* Q, const Triangle<T, M>& cov) const {
    Roots<T, M>::template spread_out<2 * M>(F, Q, cov, weights, parts);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
      for (int i = 0; i < M; i++) {
        parts[m * (2 * M) + M + i] = i < m ? T(0) : i == m ? T(1) : cov(i, m);
        parts[(M + m) * (2 * M) + M + i] = T(0);
      }
    Roots<T, M>::template orthogonal<2 * M, 2 * M>(weights, parts, found);
#pragma unroll 1
    for (int j = M - 1; j >= 0; j--)
#pragma unroll 1
      for (int i = 0; i < M; i++) {
        T entry = found[(M + i) * (M + i + 1) / 2 + j];
        for (int a = j + 1; a < M; a++) entry = entry - found[a * (a + 1) / 2 + j] * gain[a * M + i];
        gain[j * M + i] = entry;
      }
  }
};
