// The way back of Kalman smoothers of many series, a thread for each, from the states that a filter has predicted: in their place.
//
// With covariances as they stand that of Bryson and Frazier, by square roots that of Rauch, Tung and Striebel; no covariance of states is
// inverted.
#include "ahead.cu"
#include "back.cu"

// The state once all observations are known, in the place of the one that was predicted: mean + P r, P - P N P.
template <typename T, int M>
__device__ __forceinline__ T smooth(
    const Spread<T>& mean, const Spread<T>& cov, const T (&state)[M], const Triangle<T, M>& P, const Ahead<T, M>& ahead) {
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
    RowAndColumn<T, M> place(cov, i);
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
      place.put(found = P(i, j) - found);
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
    put_on(job.doubtful, series);
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
    read(mean, places.spread(job, PREDICTED_MEAN, t));
    cov.recall(places.spread(job, PREDICTED_COV, t));
#pragma unroll
    for (int i = 0; i < M; i++) before[i] = cov(i, i);
    const Observations<T, M> observations(job, places, t, workspace.kept);
    if (job.time[R] != 0) correlated = observations.is_correlated();
    const Lane<T> kept = observations.behind();
    observe<T, M, Entries<T, M>>(observations, correlated, mean, cov, [&](int j, const Seen<T, M>& seen) {
      seen.keep(kept.from(j * Seen<T, M>::WORDS));
    });
#pragma unroll
    for (int i = 0; i < M; i++) loss = maximum(share_of_digits<T>() * before[i] - cov(i, i), loss);
    const Index now = forgotten(t);
    loss = maximum(
        smooth(places.spread(job, PREDICTED_MEAN, now), places.spread(job, PREDICTED_COV, now), mean, cov, ahead), loss);
#pragma unroll 1
    for (int j = observations.count - 1; j >= 0; j--) {
      if (!observations.is_there(j)) continue;
      const Lane<T> own = kept.from(j * Seen<T, M>::WORDS);
      T load[M], row[M], value, noise;
      observations.get(j, correlated, load, value, noise);
#pragma unroll
      for (int i = 0; i < M; i++) row[i] = own[i];
      ahead.collect_by_products(load, row, own[M], own[M + 1]);
    }
  }
  if (!(loss <= T(0))) put_on(job.doubtful, series);
}

// The same by square roots: what is known of the state behind it is in scratch memory.
template <typename T, int M>
__device__ __forceinline__ void smooth_series_by_roots(const Job& job, Index series, const Workspace<T>& workspace) {
  const Places<T>& places = workspace.places;
  places.find(job, series);
  bool correlated = Observations<T, M>(job, places, 0, workspace.kept).is_correlated();
#pragma unroll 1
  for (Index t = job.n - 1; t >= 0; t--) {
    T mean[M];
    Triangle<T, M> root;
    read(mean, places.spread(job, PREDICTED_MEAN, t));
    root.recall(places.spread(job, PREDICTED_COV, t));
    const Observations<T, M> observations(job, places, t, workspace.kept);
    if (job.time[R] != 0) correlated = observations.is_correlated();
    const Lane<T> turns = observations.behind();
    observe<T, M, Roots<T, M>>(observations, correlated, mean, root, [&](int j, const Seen<T, M>& seen) {
      seen.keep_turn(turns.from(j * Seen<T, M>::TURN));
    });
    // its place is not known beforehand: addresses of all its parts would take registers
    const Return<T, M> back({forgotten(turns.from(observations.count * Seen<T, M>::TURN).begin)});
    const Index now = forgotten(t);
    if (t + 1 == job.n) {
      back.begin(root);
    } else {  // meanwhile the updated state lies where the smoothed one will: registers are few
      const Spread<T> mean_kept = places.spread(job, PREDICTED_MEAN, t), root_kept = places.spread(job, PREDICTED_COV, t);
#pragma unroll
      for (int i = 0; i < M; i++) mean_kept[i] = mean[i];
      root.keep(root_kept);
      back.go(places.at(job, F, t), places.at(job, Q, t), root);
      read(mean, places.spread(job, PREDICTED_MEAN, now));
      root.recall(places.spread(job, PREDICTED_COV, now));
    }
    back.smooth(mean, root);
    write<T, M, Roots<T, M>>(places.spread(job, PREDICTED_MEAN, now), places.spread(job, PREDICTED_COV, now), mean, root);
#pragma unroll 1
    for (int j = observations.count - 1; j >= 0; j--)
      if (observations.is_there(j)) back.turn(turns.from(j * Seen<T, M>::TURN));
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
