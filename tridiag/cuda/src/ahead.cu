// What smoothers and gradients carry backwards, with covariances as they stand.
#pragma once
#include "series.cu"

// What an observation tells of itself, once those behind it are known: u, its variance, and N times its covariances with the states.
template <typename T, int M> struct Told {
  T error, variance, product[M];
};

// What the observations from a step on tell of the state that is predicted for it: r and N of a smoother.
template <typename T, int M> struct Ahead {
  Lane<T> r, next;  // in shared memory
  Triangle<T, M> N;

  __device__ __forceinline__ Ahead(const Lane<T>& memory) : r(memory), next(memory.from(M)) {
#pragma unroll
    for (int i = 0; i < M; i++) r[i] = T(0);
#pragma unroll
    for (int k = 0; k < M * (M + 1) / 2; k++) N.entry[k] = T(0);
  }
  // From scratch memory and back to it: r, N.
  __device__ __forceinline__ void recall(const Lane<T>& kept) {
#pragma unroll
    for (int i = 0; i < M; i++) r[i] = kept[i];
#pragma unroll
    for (int k = 0; k < M * (M + 1) / 2; k++) N.entry[k] = kept[M + k];
  }
  __device__ __forceinline__ void keep(const Lane<T>& kept) const {
#pragma unroll
    for (int i = 0; i < M; i++) kept[i] = r[i];
#pragma unroll
    for (int k = 0; k < M * (M + 1) / 2; k++) kept[M + k] = N.entry[k];
  }
  // As of the step before: F^T r, F^T N F, whose rows wait in memory.
  __device__ __forceinline__ void carry_back(const T* F) {
    T moved[M];
#pragma unroll
    for (int i = 0; i < M; i++) moved[i] = T(0);
#pragma unroll rows_at_once(M)
    for (int l = 0; l < M; l++) {
      const T own = r[l];
#pragma unroll
      for (int i = 0; i < M; i++) moved[i] = moved[i] + F[l * M + i] * own;
    }
#pragma unroll
    for (int i = 0; i < M; i++) r[i] = moved[i];
    int place = 0;
#pragma unroll rows_at_once(M)
    for (int i = 0; i < M; i++) {
      T column[M], product[M];
#pragma unroll
      for (int l = 0; l < M; l++) column[l] = F[l * M + i];
#pragma unroll
      for (int m = 0; m < M; m++) {
        product[m] = N(0, m) * column[0];
#pragma unroll
        for (int l = 1; l < M; l++) product[m] = product[m] + N(l, m) * column[l];
      }
#pragma unroll rows_at_once(M)
      for (int j = 0; j <= i; j++) {
#pragma unroll
        for (int m = 0; m < M; m++) column[m] = F[m * M + j];
        next[place++] = dot(product, column);
      }
    }
#pragma unroll
    for (int k = 0; k < M * (M + 1) / 2; k++) N.entry[k] = next[k];
  }
  // With an observation: L^T r + h u, L^T N L + h h^T / S, where L = I - (its covariances) h^T / S and u is what it tells.
  __device__ __forceinline__ Told<T, M> collect(const T (&load)[M], const T (&row)[M], T weight, T error) {
    const Told<T, M> told = tell(load, row, weight, error);
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
      for (int j = 0; j <= i; j++) {
        N(i, j) = N(i, j) + (told.variance * load[i] * load[j] - weight * (load[i] * told.product[j] + told.product[i] * load[j]));
      }
    return told;
  }
  // The same by products, a column of N L and L^T times that as it is rounded: where L takes most of N away, what is left keeps its digits.
  // A gradient by it has fewer: its sums want an N that goes with the variances that it tells.
  __device__ __forceinline__ void collect_by_products(const T (&load)[M], const T (&row)[M], T weight, T error) {
    const Told<T, M> told = tell(load, row, weight, error);
    int place = 0;
#pragma unroll
    for (int j = 0; j < M; j++) {
      T column[M];
#pragma unroll
      for (int i = 0; i < M; i++) column[i] = N(i, j) - told.product[i] * (weight * load[j]);
      const T own = weight * (load[j] - dot(row, column));
#pragma unroll
      for (int i = j; i < M; i++) next[place++] = column[i] + load[i] * own;
    }
    place = 0;
#pragma unroll
    for (int j = 0; j < M; j++)
#pragma unroll
      for (int i = j; i < M; i++) N(i, j) = next[place++];
  }

 private:
  __device__ __forceinline__ Told<T, M> tell(const T (&load)[M], const T (&row)[M], T weight, T error) {
    Told<T, M> told;
    told.error = error;
#pragma unroll
    for (int i = 0; i < M; i++) told.error = told.error - row[i] * r[i];
    told.error = told.error * weight;
#pragma unroll
    for (int i = 0; i < M; i++) {
      told.product[i] = N(i, 0) * row[0];
#pragma unroll
      for (int l = 1; l < M; l++) told.product[i] = told.product[i] + N(i, l) * row[l];
    }
    told.variance = weight + weight * weight * dot(told.product, row);
#pragma unroll
    for (int i = 0; i < M; i++) r[i] = r[i] + load[i] * told.error;
    return told;
  }
};
