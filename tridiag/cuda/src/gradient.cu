// The gradients of the log-likelihoods of many series in their models, constant in time, and in what was observed: a thread for each.
//
// A way forwards keeps the states that parts of the series begin with. Then each part, the last one first, is filtered once more, which
// keeps its predicted states, and is gone back through. Series that may have lost digits go on a list, and are computed by square roots.
#include "doubt.cu"
#include "sums.cu"

// Steps ``begin`` to ``end``, of which each one of ``every`` leaves the state predicted for it, from number ``first`` on.
struct Part {
  Index begin, end, every, first;
};

template <typename T, int M> struct State {
  T mean[M];
  Triangle<T, M> cov;

  __device__ __forceinline__ void keep(const Lane<T>& kept) const {
#pragma unroll
    for (int i = 0; i < M; i++) kept[i] = mean[i];
#pragma unroll
    for (int k = 0; k < triangle(M); k++) kept[M + k] = cov.entry[k];
  }
  __device__ __forceinline__ void recall(const Lane<T>& kept) {
#pragma unroll
    for (int i = 0; i < M; i++) mean[i] = kept[i];
#pragma unroll
    for (int k = 0; k < triangle(M); k++) cov.entry[k] = kept[M + k];
  }
};

// A thread and its series.
template <typename T, int M, bool ROOTS, typename Form> struct Gradient {
  const Job& job;
  const Workspace<T>& workspace;
  const Places<T>& places;
  const Sums<T, M, ROOTS> sums;
  const bool correlated;

  __device__ __forceinline__ Gradient(const Job& job, const Workspace<T>& workspace)
      : job(job), workspace(workspace), places(workspace.places), sums(workspace.kept, int(job.observed)),
        correlated(at(0).is_correlated()) {}

  __device__ __forceinline__ Observations<T, M> at(Index t) const { return {job, places, t, sums.observed}; }

  // Forwards through a part; of a whole series whether digits may be lost.
  __device__ __forceinline__ bool filter(const Part& part, State<T, M>& state) const {
    const bool judges = !ROOTS && part.begin == 0 && part.end == job.n;
    Doubt<T, M> doubt(workspace.memory, state.cov, ROOTS ? 0 : int(job.observed));
    T quadratic = T(0);
    Index number = part.first, waits = 0;
#pragma unroll 1
    for (Index t = part.begin;; t++) {
      if (waits == 0) state.keep(sums.state(number++)), waits = part.every;
      waits--;
      const Observations<T, M> observations = at(t);
      observe<T, M, Form>(observations, correlated, state.mean, state.cov, [&](int j, const Seen<T, M>& seen) {
        quadratic = quadratic + seen.error * seen.error * seen.weight;
        if (judges) doubt.observe(j, seen.load, seen.variance);
      });
      if (t + 1 == part.end) break;
      const T *move = places.at(job, F, t), *noise = places.at(job, Q, t);
      Form::predict(move, noise, state.mean, state.cov, ROOTS ? workspace.memory : doubt.next);
      if (judges) doubt.carry(move, noise, state.cov);
    }
    return judges && !(doubt.loss <= T(0) && quadratic == quadratic);
  }

  // Backwards through a part. What later steps tell is in registers only while it is used.
  __device__ __forceinline__ void go_back(const Part& part) const {
    const Lane<T> r = workspace.memory.from(M + triangle(M));
#pragma unroll 1
    for (Index t = part.end - 1; t >= part.begin; t--) {
      const Lane<T> predicted = sums.state(t - part.begin);
      const Observations<T, M> observations = at(t);
      const bool is_last = t + 1 == job.n;
      const T *move = places.at(job, F, t), *noise = places.at(job, Q, t);
      State<T, M> state;
      state.recall(predicted);
      observe<T, M, Form>(
          observations, correlated, state.mean, state.cov, [&](int j, const Seen<T, M>& seen) { sums.see(j, seen); });
      if (ROOTS) sums.return_by_roots(is_last, move, noise, state.mean, state.cov);
      Ahead<T, M> later(workspace.memory);
      later.recall(sums.ahead);
      if (!is_last) {
        sums.add_noise(later);
        if (ROOTS) {
          sums.carry_back_by_roots(move, later);
        } else {
          sums.carry_back(move, state.cov, later, r);
        }
      }
      sums.pull(observations, correlated, later);
      const Lane<T> smoothed = ROOTS ? sums.back.mean : later.next;
      if (!ROOTS) sums.smooth(observations, predicted, later, smoothed);
      if (correlated) sums.rejoin(observations);
      sums.add(observations, smoothed, job.operand[OF_Y] ? places.at(job, OF_Y, t) : nullptr);
      if (!ROOTS && !is_last) sums.add_transition(r, smoothed);
      later.keep(sums.ahead);
    }
  }
};

template <typename T, int M, bool ROOTS, typename Form>
__device__ __forceinline__ void differentiate(const Job& job, Index series, const Workspace<T>& workspace) {
  const Places<T>& places = workspace.places;
  places.find(job, series);
  const Gradient<T, M, ROOTS, Form> gradient(job, workspace);
  const Sums<T, M, ROOTS>& sums = gradient.sums;
  sums.clear();
  const Index n = job.n, stretch = job.stretch, parts = (n + stretch - 1) / stretch;
  State<T, M> state;
  read(state.mean, places.at(job, M0, 0));
  state.cov.load(places.at(job, P0, 0));
  Form::start(state.cov);
  Index left = parts > 1 ? parts : 0;  // one part alone is filtered once
  Part part{0, n, parts > 1 ? stretch : 1, parts > 1 ? stretch : 0};
#pragma unroll 1
  while (true) {
    if (gradient.filter(part, state)) {
      put_on(job.doubtful, series);
      return;
    }
    if (part.every == 1) gradient.go_back(part);
    if (left == 0) break;
    left--;
    state.recall(sums.state(stretch + left));
    const Index begin = left * stretch, end = begin + stretch;
    part = {begin, end < n ? end : n, 1, 0};
  }
  sums.give(places.at(job, OF_MODEL, 0));
}

template <typename T, int M, bool ROOTS> __global__ void __launch_bounds__(ROOTS ? 32 : 64, 1) gradient(Job job) {
  SHARED_MEMORY(shared);
  const Workspace<T> workspace(job, shared);
  for_each_series<ROOTS>(job, [&](Index series) {
    if constexpr (ROOTS) {
      differentiate<T, M, true, Roots<T, M>>(job, series, workspace);
    } else {
      differentiate<T, M, false, Entries<T, M>>(job, series, workspace);
    }
  });
}
