// Kalman filters of many series, a thread for each: its state is in registers, of up to 8 numbers.
//
// Covariances are carried as they stand, with the measure of `tridiag.algorithms.kalman_filter.Doubt`; series that may have lost digits
// go on a list, and the same kernel with square roots computes those again. Models that series share come from the caches.
#include "covariances.cu"

enum Operand { Y, F, H, Q, R, M0, P0, LIKELIHOOD, MEAN, COV, PREDICTED_MEAN, PREDICTED_COV, OPERANDS };

// All words of 8 bytes; `tridiag.cuda.kalman` writes them in this order.
struct Job {
  void* operand[OPERANDS];  // matrices are contiguous; null: not there
  void* kept;  // scratch memory of the threads at work
  Index* doubtful;  // how many series may have lost digits, and then which
  int* lost;  // of a smoother: whether each has on the way; null: there is no way back
  Index room, words;  // numbers that a thread has there, and in shared memory
  Index n, series, observed;
  Index along;  // of y: from a value observed in a step to the next
  Index time[OPERANDS];  // strides in elements: from step to step,
  Index length[RANK], step[RANK][OPERANDS];  // and along the batch axes, outermost first
};

[[maybe_unused]] const double LOG_TWO = 0.6931471805599453, LOG_TWO_PI = 1.8378770664093453;
template <typename T> __device__ __forceinline__ T share_of_digits() {  // eps^(1/3)
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

  __device__ __forceinline__ T value(int j) const { return places.at(job, Y, t)[j * job.along]; }
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
    kept = {static_cast<T*>(job.kept) + number * (job.room * 32) + lane};
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

__device__ __forceinline__ void put_on_list(const Job& job, Index series) {
  const Index place = Index(atomicAdd(reinterpret_cast<unsigned long long*>(job.doubtful), 1ULL));
  job.doubtful[1 + place] = series;
}

template <typename T, int M, typename Form>
__device__ __forceinline__ void write(T* mean, T* cov, const T (&state)[M], const Triangle<T, M>& carried) {
#pragma unroll
  for (int i = 0; i < M; i++) mean[i] = state[i];
#pragma unroll
  for (int i = 0; i < M; i++) {
    T row[M];
    Form::row(carried, i, row);
#pragma unroll
    for (int j = 0; j <= i; j++) cov[i * M + j] = cov[j * M + i] = row[j];
  }
}

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

// All series, or those on the list, one after another.
template <bool LISTED, typename Function> __device__ __forceinline__ void for_each_series(const Job& job, const Function& function) {
  const Index count = LISTED ? job.doubtful[0] : job.series;
#pragma unroll 1
  for (Index k = blockIdx.x * Index(blockDim.x) + threadIdx.x; k < count; k += Index(gridDim.x) * blockDim.x) {
    function(LISTED ? job.doubtful[1 + k] : k);
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

// The same by square roots, after Rauch, Tung and Striebel: that of the state behind it is in scratch memory.
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
