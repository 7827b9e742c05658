// Whether a filter that carries covariances as they stand has lost digits: `tridiag.algorithms.kalman_filter.Doubt`.
#pragma once
#include "series.cu"

// Whether covariances as they stand may have lost digits: where ``loss`` is above 0.
template <typename T, int M> struct Doubt {
  Lane<T> spread, before, next, reach;  // in shared memory
  T loss;

  __device__ __forceinline__ Doubt(const Lane<T>& memory, const Triangle<T, M>& cov, int observed)
      : spread(memory), before(memory.from(M)), next(memory.from(2 * M)), reach(next.from(M > 3 ? M * (M + 1) / 2 : 2 * M)), loss(0) {
#pragma unroll
    for (int i = 0; i < M; i++) spread[i] = before[i] = cov(i, i);
    for (int j = 0; j < observed; j++) reach[j] = T(0);
  }
  // Once observation j counts: its row of H where its noise is separated from that of those before it.
  __device__ __forceinline__ void observe(int j, const T (&load)[M], T variance) {
    T scale = T(0);
#pragma unroll
    for (int i = 0; i < M; i++) scale = scale + load[i] * spread[i] * load[i];
    reach[j] = scale = maximum(scale, reach[j]);
    loss = maximum(share_of_digits<T>() * scale - variance, loss);
  }
  // That a variance is much smaller than that of the state before it.
  __device__ __forceinline__ void compare(const Triangle<T, M>& cov) {
#pragma unroll
    for (int i = 0; i < M; i++) loss = maximum(share_of_digits<T>() * before[i] - cov(i, i), loss);
  }
  // A step on, to a state that was predicted.
  __device__ __forceinline__ void carry(const T* F, const T* Q, const Triangle<T, M>& cov) {
    bool counts = false;  // of most models nothing that is older does
#pragma unroll
    for (int i = 0; i < M; i++) counts = counts || spread[i] > T(16) * before[i];
#pragma unroll rows_at_once(M)
    for (int i = 0; i < M; i++) {
      T moved = T(0), older = T(0);
#pragma unroll
      for (int j = 0; j < M; j++) {
        const T entry = F[i * M + j];  // whose square might leave the range
        moved = moved + entry * before[j] * entry;
        older = older + entry * maximum(spread[j], before[j]) * entry;
      }
      const T noise = Q[i * M + i];
      moved = moved + noise, older = older + noise;
      next[i] = moved, next[M + i] = older;
    }
#pragma unroll
    for (int i = 0; i < M; i++) {
      const T moved = next[i], older = next[M + i], now = cov(i, i);
      spread[i] = moved, before[i] = now;
      if (counts) {
        const T share = moved > older * Limits<T>::eps() ? now / moved : T(1);
        spread[i] = maximum(older * share, moved);
      }
    }
  }
};
