// Kalman filters of many series, a thread for each: its state is in registers, of up to 8 numbers.
//
// Covariances are carried as they stand, with the measure of `tridiag.algorithms.kalman_filter.Doubt`; series that may have lost
// digits go on a list, and the same kernel with square roots computes those again.
#include "doubt.cu"

[[maybe_unused]] const double LOG_TWO = 0.6931471805599453, LOG_TWO_PI = 1.8378770664093453;

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
      for (int i = 0; i < M; i++) places.spread(job, PREDICTED_MEAN, t)[i] = mean[i];
      cov.keep(places.spread(job, PREDICTED_COV, t));
    } else if (job.operand[PREDICTED_MEAN]) {
      write<T, M, Form>(places.spread(job, PREDICTED_MEAN, t), places.spread(job, PREDICTED_COV, t), mean, cov);
    }
    const Observations<T, M> observations(job, places, t, workspace.kept);
    if (job.time[R] != 0) correlated = observations.is_correlated();
    observe<T, M, Form>(observations, correlated, mean, cov, [&](int j, const Seen<T, M>& seen) {
      deviance.add(seen);
      if (!ROOTS) doubt.observe(j, seen.load, seen.variance);
    });
    if (job.operand[MEAN]) {
      write<T, M, Form>(places.spread(job, MEAN, t), places.spread(job, COV, t), mean, cov);
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
    put_on(job.doubtful, series);
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
