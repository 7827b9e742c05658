// The gradient of a log-likelihood, step by step: what a thread keeps of it in scratch memory, and what observations add.
//
// The arithmetic is that of `tridiag.algorithms.kalman_adjoint`, one observed value after another.
#pragma once
#include "ahead.cu"
#include "back.cu"

__device__ constexpr int triangle(int rows) { return rows * (rows + 1) / 2; }
// of an entry of a symmetric matrix, in its lower triangle
__device__ constexpr int place_of(int i, int j) { return i < j ? triangle(j) + i : triangle(i) + j; }

// The scratch memory of a thread; `tridiag.cuda.kalman` counts it. What depends on M alone comes first, at places that are known.
template <typename T, int M, bool ROOTS> struct Sums {
  const int count;  // of values observed in a step
  const Lane<T> of_F, of_Q;  // the sums, of symmetric matrices the lower triangle
  const Lane<T> ahead;  // r and N of the step behind
  const Lane<T> NP;  // by square roots N P, of the state that is predicted
  const Return<T, M> back;  // ... and the way back, whose mean is the smoothed one
  const Lane<T> of_H, of_R;
  // of each value: what `Seen` keeps; the covariances of its u with r, and with the smoothed
  // state; u, and the covariances of u
  const Lane<T> seen, across, shared, u, spread;
  const Lane<T> observed;  // that of `Observations`
  const Lane<T> states;  // as they were predicted: in a part of the series, and at the beginning of each part

  __device__ __forceinline__ Sums(const Lane<T>& memory, int count)
      : count(count), of_F(memory), of_Q(of_F.from(M * M)), ahead(of_Q.from(triangle(M))), NP(ahead.from(M + triangle(M))),
        back(NP.from(ROOTS ? M * M : 0)), of_H(ROOTS ? back.left.from(M * M) : NP), of_R(of_H.from(count * M)),
        seen(of_R.from(triangle(count))), across(seen.from(count * Seen<T, M>::WORDS)), shared(ROOTS ? across.from(count * M) : across),
        u(shared.from(count * M)), spread(u.from(count)), observed(spread.from(triangle(count))),
        states(observed.from(count * (M + 1) + triangle(count))) {}

  __device__ __forceinline__ Lane<T> state(Index k) const { return {states.begin + k * ((M + triangle(M)) * 32)}; }

  // At the beginning: all sums, and what later steps tell.
  __device__ __forceinline__ void clear() const {
#pragma unroll 1
    for (int k = 0; k < M * M + M + 2 * triangle(M); k++) of_F[k] = T(0);
#pragma unroll 1
    for (int k = 0; k < count * M + triangle(count); k++) of_H[k] = T(0);
  }

  __device__ __forceinline__ void see(int j, const Seen<T, M>& one) const {
    one.keep(seen.from(j * Seen<T, M>::WORDS));
  }

  // The observations of a step, the last one first, with what later steps tell.
  __device__ __forceinline__ void pull(const Observations<T, M>& observations, bool correlated, Ahead<T, M>& later) const {
#pragma unroll 1
    for (int j = count - 1; j >= 0; j--) {
      if (!observations.is_there(j)) continue;
      const Lane<T> own = seen.from(j * Seen<T, M>::WORDS);
      T load[M], row[M], value, noise;
      observations.get(j, correlated, load, value, noise);
#pragma unroll
      for (int i = 0; i < M; i++) row[i] = own[i];
      const T weight = own[M];
      const Told<T, M> told = later.collect(load, row, weight, own[M + 1]);
      u[j] = told.error, spread[triangle(j) + j] = told.variance;
#pragma unroll
      for (int i = 0; i < M; i++) across[j * M + i] = load[i] * told.variance - weight * told.product[i];
#pragma unroll 1
      for (int i = j + 1; i < count; i++) {
        if (!observations.is_there(i)) continue;
        T found = T(0);
#pragma unroll
        for (int l = 0; l < M; l++) found = found - row[l] * across[i * M + l];
        spread[triangle(i) + j] = found = found * weight;
#pragma unroll
        for (int l = 0; l < M; l++) across[i * M + l] = across[i * M + l] + load[l] * found;
      }
      if (ROOTS) shrink(j, load, row, own);
    }
  }

  // The covariances of u with the smoothed state, and N P once the observation is known.
  __device__ __forceinline__ void shrink(int j, const T (&load)[M], const T (&row)[M], const Lane<T>& own) const {
#pragma unroll 1
    for (int l = 0; l < M; l++) {
      T found = row[0] * NP[l];
#pragma unroll
      for (int i = 1; i < M; i++) found = found + row[i] * NP[i * M + l];
      shared[j * M + l] = found = own[M] * (own[l] - found);
#pragma unroll
      for (int i = 0; i < M; i++) NP[i * M + l] = NP[i * M + l] + load[i] * found;
    }
  }

  // Where noise is correlated: of the values as they were observed, from those made independent. L^-T x for x = L^-1 y.
  __device__ __forceinline__ void rejoin(const Observations<T, M>& observations) const {
#pragma unroll 1
    for (int i = count - 1; i > 0; i--) {
      if (!observations.is_there(i)) continue;
#pragma unroll 1
      for (int j = 0; j < i; j++) {
        if (!observations.is_there(j)) continue;
        const T factor = observations.factor(i, j);
        u[j] = u[j] - factor * u[i];
#pragma unroll
        for (int l = 0; l < M; l++) shared[j * M + l] = shared[j * M + l] - factor * shared[i * M + l];
        const T own = spread[triangle(i) + i], both = spread[triangle(i) + j];
        spread[triangle(j) + j] = spread[triangle(j) + j] + factor * (factor * own - both - both);
#pragma unroll 1
        for (int m = 0; m < count; m++) {
          if (m == j || !observations.is_there(m)) continue;
          T& changed = spread[place_of(m, j)];
          changed = changed - factor * spread[place_of(m, i)];
        }
      }
    }
  }

  // What a step adds in H, R and y, whose smoothed state this is; in y at ``of_y``, where that is wanted.
  __device__ __forceinline__ void add(const Observations<T, M>& observations, const Lane<T>& smoothed, T* of_y) const {
#pragma unroll 1
    for (int i = 0; i < count; i++) {
      const bool is_there = observations.is_there(i);
      if (of_y) of_y[i] = is_there ? -u[i] : T(0);
      if (!is_there) continue;
#pragma unroll
      for (int l = 0; l < M; l++) of_H[i * M + l] = of_H[i * M + l] + (u[i] * smoothed[l] - shared[i * M + l]);
#pragma unroll 1
      for (int j = 0; j <= i; j++) {
        const int place = triangle(i) + j;
        if (observations.is_there(j)) of_R[place] = of_R[place] + T(0.5) * (u[i] * u[j] - spread[place]);
      }
    }
  }

  // What it adds in Q, from r and N of the step behind it.
  __device__ __forceinline__ void add_noise(const Ahead<T, M>& later) const {
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
      for (int j = 0; j <= i; j++) of_Q[triangle(i) + j] = of_Q[triangle(i) + j] + T(0.5) * (later.r[i] * later.r[j] - later.N(i, j));
  }

  // From a step to the one before, whose updated covariance is C: F^T r and F^T N F; r as it was is left in memory. Of what F adds
  // -N F C, a column after the other.
  __device__ __forceinline__ void carry_back(const T* F, const Triangle<T, M>& C, Ahead<T, M>& later, const Lane<T>& r) const {
#pragma unroll
    for (int i = 0; i < M; i++) r[i] = later.r[i];
#pragma unroll
    for (int k = 0; k < triangle(M); k++) later.next[k] = C.entry[k];
#pragma unroll rows_at_once(M)
    for (int j = 0; j < M; j++) {
      T column[M];
#pragma unroll
      for (int l = 0; l < M; l++) column[l] = later.next[place_of(l, j)];
      multiply(F, column);
#pragma unroll
      for (int i = 0; i < M; i++) {
        T found = later.N(i, 0) * column[0];
#pragma unroll
        for (int l = 1; l < M; l++) found = found + later.N(i, l) * column[l];
        of_F[i * M + j] = of_F[i * M + j] - found;
      }
    }
    later.carry_back(F);
  }

  // The rest of what F adds: r x^T.
  __device__ __forceinline__ void add_transition(const Lane<T>& r, const Lane<T>& smoothed) const {
#pragma unroll 1
    for (int i = 0; i < M; i++)
#pragma unroll
      for (int j = 0; j < M; j++) of_F[i * M + j] = of_F[i * M + j] + r[i] * smoothed[j];
  }

  // The smoothed mean, and the covariances of u with it, from the state that was predicted: mean + P r, P times those with r.
  __device__ __forceinline__ void smooth(
      const Observations<T, M>& observations, const Lane<T>& predicted, const Ahead<T, M>& later, const Lane<T>& smoothed) const {
    T r[M];
#pragma unroll
    for (int l = 0; l < M; l++) r[l] = later.r[l];
    spread_by(predicted.from(M), r, smoothed);
#pragma unroll
    for (int i = 0; i < M; i++) smoothed[i] = smoothed[i] + predicted[i];
#pragma unroll 1
    for (int j = 0; j < count; j++) {
      if (!observations.is_there(j)) continue;
#pragma unroll
      for (int l = 0; l < M; l++) r[l] = across[j * M + l];
      spread_by(predicted.from(M), r, shared.from(j * M));
    }
  }

  // A covariance in memory times a vector.
  static __device__ __forceinline__ void spread_by(const Lane<T>& cov, const T (&x)[M], const Lane<T>& found) {
#pragma unroll 1
    for (int i = 0; i < M; i++) {
      T sum = T(0);
#pragma unroll
      for (int l = 0; l < M; l++) sum = sum + cov[place_of(i, l)] * x[l];
      found[i] = sum;
    }
  }

  // By square roots: from a step to the one before, whose updated state is given; behind the last step nothing is known.
  __device__ __forceinline__ void return_by_roots(
      bool is_last, const T* F, const T* Q, T (&state)[M], const Triangle<T, M>& root) const {
    if (!is_last) {
      back.template find_gain<false>(F, Q, root);
      back.move(F, state);
    }
#pragma unroll
    for (int i = 0; i < M; i++) back.mean[i] = state[i];
    if (!is_last) return;
#pragma unroll 1
    for (int k = 0; k < M * M; k++) NP[k] = T(0);
  }

  // ... F^T r and F^T N F; N P of the updated state, and what F adds: r x^T - N F C.
  __device__ __forceinline__ void carry_back_by_roots(const T* F, Ahead<T, M>& later) const {
    const Lane<T> moved = back.joined;  // N F C
#pragma unroll 1
    for (int i = 0; i < M; i++)
#pragma unroll 1
      for (int l = 0; l < M; l++) {
        T found = T(0);
#pragma unroll
        for (int j = 0; j < M; j++) found = found + NP[i * M + j] * back.gain[j * M + l];
        moved[i * M + l] = found;
        of_F[i * M + l] = of_F[i * M + l] + (later.r[i] * back.mean[l] - found);
      }
#pragma unroll 1
    for (int i = 0; i < M; i++)
#pragma unroll 1
      for (int l = 0; l < M; l++) {
        T found = T(0);
#pragma unroll
        for (int j = 0; j < M; j++) found = found + F[j * M + i] * moved[j * M + l];
        NP[i * M + l] = found;
      }
    later.carry_back(F);
  }

  // All of it, in the order of the parameters; of the first state r, (r r^T - N) / 2.
  __device__ __forceinline__ void give(T* to) const {
    to = give_all(to, of_F, M * M), to = give_all(to, of_H, count * M);
    to = give_symmetric(to, of_Q, M), to = give_symmetric(to, of_R, count);
    const Lane<T> r = ahead, N = ahead.from(M);
#pragma unroll 1
    for (int i = 0; i < M; i++)
      for (int j = 0; j <= i; j++) N[triangle(i) + j] = T(0.5) * (r[i] * r[j] - N[triangle(i) + j]);
    to = give_all(to, r, M), give_symmetric(to, N, M);
  }
  static __device__ __forceinline__ T* give_all(T* to, const Lane<T>& from, int words) {
#pragma unroll 1
    for (int k = 0; k < words; k++) to[k] = from[k];
    return to + words;
  }
  static __device__ __forceinline__ T* give_symmetric(T* to, const Lane<T>& from, int rows) {
#pragma unroll 1
    for (int i = 0; i < rows; i++)
#pragma unroll 1
      for (int j = 0; j <= i; j++) to[i * rows + j] = to[j * rows + i] = from[triangle(i) + j];
    return to + rows * rows;
  }
};
