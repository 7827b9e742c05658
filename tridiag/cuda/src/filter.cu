// Kalman filters of many series, a thread for each: its state is in registers, of up to 8 numbers.
//
// Covariances are carried as they stand, with the measure of `tridiag.algorithms.kalman_filter.Doubt`; series that may have lost
// digits go on a list, and the same kernel with square roots computes those again.
#include "series.cu"

[[maybe_unused]] const double LOG_TWO = 0.6931471805599453, LOG_TWO_PI = 1.8378770664093453;

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
  // Once observation j counts, whose row of H this is.
  __device__ __forceinline__ void observe(int j, const T* design, T variance) {
    T scale = T(0);
#pragma unroll
    for (int i = 0; i < M; i++) scale = scale + design[i] * design[i] * spread[i];
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
        const T square = F[i * M + j] * F[i * M + j];
        moved = moved + square * before[j];
        older = older + square * maximum(spread[j], before[j]);
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

// The logarithm of a product of variances, and the squares that are added to it.
template <typename T> struct Deviance {
  T quadratic, mantissa;
  int exponent, count;

  __device__ __forceinline__ Deviance() : quadratic(0), mantissa(1), exponent(0), count(0) {}
  template <int M> __device__ __forceinline__ void add(const Seen<T, M>& seen) {
    quadratic = quadratic + seen.error * seen.error * seen.weight;
    int first, second;
    mantissa = frexp(mantissa * frexp(seen.variance, &first), &second);
    exponent += first + second, count++;
  }
  __device__ __forceinline__ T likelihood() const {
    const double logarithm = log(double(mantissa)) + exponent * LOG_TWO + count * LOG_TWO_PI;
    return T(-0.5 * (double(quadratic) + logarithm));
  }
};

// ``ROOTS``: of the series on the list.
template <typename T, int M, bool ROOTS, typename Form>
__device__ __forceinline__ void filter_series(const Job& job, Index series, const Workspace<T>& workspace) {
  const Places<T>& places = workspace.places;
  places.find(job, series);
  Triangle<T, M> cov;
  T mean[M];
  read(mean, places.at(job, M0, 0));
  cov.load(places.at(job, P0, 0));
  Doubt<T, M> doubt(workspace.memory, cov, ROOTS ? 0 : int(job.observed));
  if (ROOTS) Form::start(cov);
  bool correlated = Observations<T, M>(job, places, 0, workspace.kept).is_correlated();
  Deviance<T> deviance;
#pragma unroll 1
  for (Index t = 0;; t++) {
    if (job.lost) {
#pragma unroll
      for (int i = 0; i < M; i++) places.at(job, PREDICTED_MEAN, t)[i] = mean[i];
      cov.keep(places.at(job, PREDICTED_COV, t));
    } else if (job.operand[PREDICTED_MEAN]) {
      write<T, M, Form>(places.at(job, PREDICTED_MEAN, t), places.at(job, PREDICTED_COV, t), mean, cov);
    }
    const Observations<T, M> observations(job, places, t, workspace.kept);
    if (job.time[R] != 0) correlated = observations.is_correlated();
    observe<T, M, Form>(observations, correlated, mean, cov, [&](int j, const Seen<T, M>& seen) {
      deviance.add(seen);
      if (!ROOTS) doubt.observe(j, observations.design(j), seen.variance);
    });
    if (job.operand[MEAN]) {
      write<T, M, Form>(places.at(job, MEAN, t), places.at(job, COV, t), mean, cov);
      if (!ROOTS) doubt.compare(cov);
    }
    if (t + 1 == job.n) break;
    const T *move = places.at(job, F, t), *noise = places.at(job, Q, t);
    Form::predict(move, noise, mean, cov, ROOTS ? workspace.memory : doubt.next);
    if (!ROOTS) doubt.carry(move, noise, cov);
  }
  *places.at(job, LIKELIHOOD, 0) = deviance.likelihood();
  if (ROOTS) return;
  const bool lost = !(doubt.loss <= T(0) && deviance.quadratic == deviance.quadratic);
  if (job.lost) {
    job.lost[series] = lost;
  } else if (lost) {
    put_on_list(job, series);
  }
}

template <typename T, int M, bool ROOTS> __global__ void __launch_bounds__(ROOTS ? 32 : 64, 1) filter(Job job) {
  SHARED_MEMORY(shared);
  const Workspace<T> workspace(job, shared);
  for_each_series<ROOTS>(job, [&](Index series) {
    if constexpr (ROOTS) {
      filter_series<T, M, true, Roots<T, M>>(job, series, workspace);
    } else {
      filter_series<T, M, false, Entries<T, M>>(job, series, workspace);
    }
  });
}
