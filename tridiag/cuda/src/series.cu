// Series of Kalman filters, a thread for each: where they and their models lie, and what a step observes.
//
// Models that series share come from the caches. Covariances are carried as they stand; series that may have lost digits go on a list.
#pragma once
#include "covariances.cu"

enum Operand { Y, F, H, Q, R, M0, P0, LIKELIHOOD, MEAN, COV, PREDICTED_MEAN, PREDICTED_COV, OPERANDS };
enum OfGradient { OF_MODEL = LIKELIHOOD, OF_Y = PREDICTED_COV };  // what has these places

// All words of 8 bytes; `tridiag.cuda.kalman` writes them in this order.
struct Job {
  void* operand[OPERANDS];  // matrices are contiguous; null: not there
  void* kept;  // scratch memory of the threads at work
  Index* doubtful;  // how many series may have lost digits, and then which
  int* lost;  // of a smoother: whether each has on the way; null: there is no way back
  Index room, words;  // numbers that a thread has there, and in shared memory
  Index n, series, observed;
  Index stretch;  // of a gradient: the steps of a part of a series
  Index along[OPERANDS], time[OPERANDS];  // strides in elements: of y and of states, within a step; from step to step,
  Index length[RANK], step[RANK][OPERANDS];  // and along the batch axes, outermost first
};

// eps^(1/3), below which part of it a variance has lost digits
template <typename T> __device__ __forceinline__ T share_of_digits() {
  return sizeof(T) == 4 ? T(0.004921566601151848) : T(6.055454452393343e-06);
}

// Where the operands of a series begin: in shared memory, since registers are few.
template <typename T> struct Places {
  Lane<T*> begin;

  __device__ __forceinline__ void find(const Job& job, Index series) const {
#pragma unroll 1
    for (int k = 0; k < OPERANDS; k++) begin[k] = static_cast<T*>(job.operand[k]) + offset(job, k, series);
  }
  __device__ __forceinline__ T* at(const Job& job, int operand, Index t) const { return begin[operand] + t * job.time[operand]; }
  __device__ __forceinline__ Spread<T> spread(const Job& job, int operand, Index t) const {
    return {at(job, operand, t), forgotten(job.along[operand])};
  }
};

// The observations of a step, made independent of each other. Where R has entries beside its diagonal it is L D L^T, of what is not
// missing, and the rows of L^-1 H and L^-1 y lie in scratch memory, the rows of L and D behind them.
template <typename T, int M> struct Observations {
  const Job& job;
  const Places<T> places;
  const Index t;
  const Lane<T> kept;
  const int count;

  __device__ __forceinline__ Observations(const Job& job, const Places<T>& places, Index t, const Lane<T>& kept)
      : job(job), places(places), t(t), kept(kept), count(int(job.observed)) {}

  __device__ __forceinline__ T value(int j) const { return places.at(job, Y, t)[j * job.along[Y]]; }
  __device__ __forceinline__ const T* design(int j) const { return places.at(job, H, t) + j * M; }
  __device__ __forceinline__ T noise(int i, int j) const { return places.at(job, R, t)[j * count + i]; }
  __device__ __forceinline__ bool is_there(int j) const { return value(j) == value(j); }
  __device__ __forceinline__ Lane<T> row(int j) const { return kept.from(j * (M + 1)); }
  __device__ __forceinline__ T& factor(int i, int j) const { return kept[count * (M + 1) + i * (i + 1) / 2 + j]; }
  __device__ __forceinline__ Lane<T> behind() const { return kept.from(count * (M + 1) + count * (count + 1) / 2); }

  __device__ __forceinline__ bool is_correlated() const {
    bool found = false;
    for (int i = 1; i < count; i++)
      for (int j = 0; j < i; j++) found = found || noise(i, j) != T(0);
    return found;
  }

  // Observation j: its row of H, its value and its variance beside that of the states.
  __device__ __forceinline__ void get(int j, bool correlated, T (&load)[M], T& observed, T& variance) const {
    if (!correlated) {
      read(load, design(j));
      observed = value(j), variance = noise(j, j);
      return;
    }
#pragma unroll
    for (int k = 0; k < M; k++) load[k] = row(j)[k];
    observed = row(j)[M], variance = factor(j, j);
  }

  __device__ __forceinline__ void separate() const {
#pragma unroll 1
    for (int i = 0; i < count; i++) {
      if (!is_there(i)) continue;
#pragma unroll 1
      for (int k = 0; k < M; k++) row(i)[k] = design(i)[k];
      row(i)[M] = value(i);
      T rest = not_infinite(noise(i, i));
      const T least = T(4 * count) * Limits<T>::eps() * rest;
#pragma unroll 1
      for (int j = 0; j < i; j++) {
        if (!is_there(j)) continue;
        T entry = not_infinite(noise(i, j));
#pragma unroll 1
        for (int m = 0; m < j; m++)
          if (is_there(m)) entry = entry - factor(i, m) * (factor(m, m) * factor(j, m));
        const T found = entry * inverse_or_0(factor(j, j));
        factor(i, j) = found;
        rest = rest - found * entry;
#pragma unroll 1
        for (int k = 0; k <= M; k++) row(i)[k] = row(i)[k] - found * row(j)[k];
      }
      factor(i, i) = rest <= least ? T(0) : rest;
    }
  }
};

// What a thread has beside registers: ``memory`` and ``places`` are in shared memory, ``kept`` is not.
template <typename T> struct Workspace {
  Places<T> places;
  Lane<T> memory, kept;

  __device__ __forceinline__ Workspace(const Job& job, unsigned char* shared) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const Index number = blockIdx.x * Index(blockDim.x / 32) + warp;
    T** const pointers = reinterpret_cast<T**>(shared);
    places.begin = {pointers + warp * (OPERANDS * 32) + lane};
    memory = {reinterpret_cast<T*>(pointers + OPERANDS * blockDim.x) + warp * (int(job.words) * 32) + lane};
    kept = {job.room ? static_cast<T*>(job.kept) + number * (job.room * 32) + lane : nullptr};
  }
};

// The state, its log-likelihood and its `Doubt` once the observations of a step count; ``visit(j, seen)`` looks at each of them.
template <typename T, int M, typename Form, typename Visit>
__device__ __forceinline__ void observe(
    const Observations<T, M>& observations, bool correlated, T (&mean)[M], Triangle<T, M>& cov, const Visit& visit) {
  if (correlated) observations.separate();
#pragma unroll 1
  for (int j = 0; j < observations.count; j++) {
    if (!observations.is_there(j)) continue;
    Seen<T, M> seen;
    T value, noise;
    observations.get(j, correlated, seen.load, value, noise);
    Form::observe(cov, seen, noise);
    seen.error = value - dot(seen.load, mean);
    const T scaled = seen.weight * seen.error;
#pragma unroll
    for (int i = 0; i < M; i++) mean[i] = mean[i] + seen.row[i] * scaled;
    visit(j, seen);
  }
}

template <typename T, int M, typename Form>
__device__ __forceinline__ void write(
    const Spread<T>& mean, const Spread<T>& cov, const T (&state)[M], const Triangle<T, M>& carried) {
#pragma unroll
  for (int i = 0; i < M; i++) mean[i] = state[i];
#pragma unroll
  for (int i = 0; i < M; i++) {
    T row[M];
    Form::row(carried, i, row);
    RowAndColumn<T, M> place(cov, i);
#pragma unroll
    for (int j = 0; j <= i; j++) place.put(row[j]);
  }
}

// All series, or those on the list, one after another.
template <bool LISTED, typename Function> __device__ __forceinline__ void for_each_series(const Job& job, const Function& function) {
  const Index count = LISTED ? job.doubtful[0] : job.series;
#pragma unroll 1
  for (Index k = blockIdx.x * Index(blockDim.x) + threadIdx.x; k < count; k += Index(gridDim.x) * blockDim.x) {
    function(LISTED ? job.doubtful[1 + k] : k);
  }
}
