// The way back of Kalman smoothers of many series, a thread for each, from the states that a filter has predicted: in their place.
//
// With covariances as they stand that of Bryson and Frazier, by square roots that of Rauch, Tung and Striebel; no covariance of states is
// inverted.
#include "series.cu"

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
  // With an observation: L^T r + h e / S, L^T N L + h h^T / S, where L = I - (its covariances) h^T / S.
  __device__ __forceinline__ void collect(const T (&load)[M], const T (&row)[M], T weight, T error) {
    T news = error;
#pragma unroll
    for (int i = 0; i < M; i++) news = news - row[i] * r[i];
    news = news * weight;
    T product[M];
#pragma unroll
    for (int i = 0; i < M; i++) {
      product[i] = N(i, 0) * row[0];
#pragma unroll
      for (int l = 1; l < M; l++) product[i] = product[i] + N(i, l) * row[l];
    }
    const T more = weight + weight * weight * dot(product, row);
#pragma unroll
    for (int i = 0; i < M; i++) {
      r[i] = r[i] + load[i] * news;
#pragma unroll
      for (int j = 0; j <= i; j++) {
        N(i, j) = N(i, j) + (more * load[i] * load[j] - weight * (load[i] * product[j] + product[i] * load[j]));
      }
    }
  }
};

// The state once all observations are known, in the place of the one that was predicted: mean + P r, P - P N P.
template <typename T, int M>
__device__ __forceinline__ T smooth(T* mean, T* cov, const T (&state)[M], const Triangle<T, M>& P, const Ahead<T, M>& ahead) {
  T loss = T(0);
#pragma unroll
  for (int i = 0; i < M; i++) {
    T found = state[i];
#pragma unroll
    for (int l = 0; l < M; l++) found = found + P(i, l) * ahead.r[l];
    mean[i] = found;
  }
#pragma unroll
  for (int i = 0; i < M; i++) {
    T product[M], found;
#pragma unroll
    for (int l = 0; l < M; l++) {
      product[l] = P(i, 0) * ahead.N(0, l);
#pragma unroll
      for (int m = 1; m < M; m++) product[l] = product[l] + P(i, m) * ahead.N(m, l);
    }
#pragma unroll
    for (int j = 0; j <= i; j++) {
      found = product[0] * P(0, j);
#pragma unroll
      for (int l = 1; l < M; l++) found = found + product[l] * P(l, j);
      cov[i * M + j] = cov[j * M + i] = found = P(i, j) - found;
    }
    loss = maximum(share_of_digits<T>() * P(i, i) - found, loss);
  }
  return loss;
}

// The way back through the states that were predicted. What is kept of each observation: its covariances with the states, its weight
// and its error.
template <typename T, int M>
__device__ __forceinline__ void smooth_series(const Job& job, Index series, const Workspace<T>& workspace) {
  if (job.lost[series]) {
    put_on_list(job, series);
    return;
  }
  const Places<T>& places = workspace.places;
  places.find(job, series);
  const Lane<T> before = workspace.memory;
  Ahead<T, M> ahead(before.from(M));
  bool correlated = Observations<T, M>(job, places, 0, workspace.kept).is_correlated();
  T loss = T(0);
#pragma unroll 1
  for (Index t = job.n - 1; t >= 0; t--) {
    if (t + 1 < job.n) ahead.carry_back(places.at(job, F, t));
    T mean[M];
    Triangle<T, M> cov;
    read(mean, places.at(job, PREDICTED_MEAN, t));
    cov.recall(places.at(job, PREDICTED_COV, t));
#pragma unroll
    for (int i = 0; i < M; i++) before[i] = cov(i, i);
    const Observations<T, M> observations(job, places, t, workspace.kept);
    if (job.time[R] != 0) correlated = observations.is_correlated();
    const Lane<T> kept = observations.behind();
    observe<T, M, Entries<T, M>>(observations, correlated, mean, cov, [&](int j, const Seen<T, M>& seen) {
      const Lane<T> own = kept.from(j * (M + 2));
#pragma unroll
      for (int i = 0; i < M; i++) own[i] = seen.row[i];
      own[M] = seen.weight, own[M + 1] = seen.error;
    });
#pragma unroll
    for (int i = 0; i < M; i++) loss = maximum(share_of_digits<T>() * before[i] - cov(i, i), loss);
    loss = maximum(smooth(places.at(job, PREDICTED_MEAN, t), places.at(job, PREDICTED_COV, t), mean, cov, ahead), loss);
#pragma unroll 1
    for (int j = observations.count - 1; j >= 0; j--) {
      if (!observations.is_there(j)) continue;
      const Lane<T> own = kept.from(j * (M + 2));
      T load[M], row[M], value, noise;
      observations.get(j, correlated, load, value, noise);
#pragma unroll
      for (int i = 0; i < M; i++) row[i] = own[i];
      ahead.collect(load, row, own[M], own[M + 1]);
    }
  }
  if (!(loss <= T(0))) put_on_list(job, series);
}

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

  // An updated state becomes the smoothed one: x = gain (next - F x) + what is independent of the next one.
  __device__ __forceinline__ void go(const T* F, const T* Q, T (&state)[M], Triangle<T, M>& cov) const {
    find_gain(F, Q, cov);
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

// The same by square roots: that of the state behind it is in scratch memory.
template <typename T, int M>
__device__ __forceinline__ void smooth_series_by_roots(const Job& job, Index series, const Workspace<T>& workspace) {
  const Places<T>& places = workspace.places;
  places.find(job, series);
  bool correlated = Observations<T, M>(job, places, 0, workspace.kept).is_correlated();
#pragma unroll 1
  for (Index t = job.n - 1; t >= 0; t--) {
    T *const mean_at = places.at(job, PREDICTED_MEAN, t), *const cov_at = places.at(job, PREDICTED_COV, t);
    T mean[M];
    Triangle<T, M> root;
    read(mean, mean_at);
    root.recall(cov_at);
    const Observations<T, M> observations(job, places, t, workspace.kept);
    if (job.time[R] != 0) correlated = observations.is_correlated();
    observe<T, M, Roots<T, M>>(observations, correlated, mean, root, [](int, const Seen<T, M>&) {});
    const Return<T, M> back(observations.behind());
    if (t + 1 == job.n) {
      back.begin(mean, root);
    } else {
      back.go(places.at(job, F, t), places.at(job, Q, t), mean, root);
    }
    write<T, M, Roots<T, M>>(mean_at, cov_at, mean, root);
  }
}

template <typename T, int M, bool ROOTS> __global__ void __launch_bounds__(ROOTS ? 32 : 64, 1) smoother(Job job) {
  SHARED_MEMORY(shared);
  const Workspace<T> workspace(job, shared);
  for_each_series<ROOTS>(job, [&](Index series) {
    if constexpr (ROOTS) {
      smooth_series_by_roots<T, M>(job, series, workspace);
    } else {
      smooth_series<T, M>(job, series, workspace);
    }
  });
}
