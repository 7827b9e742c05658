// Many sequences, a thread for each: every value comes from those before it, as in a plain loop.
//
// Rows are read in pieces of K before the first of them is needed.
#include "sequences.cu"
#include "logarithms.cu"

// y[t] = a1[t] y[t-1] + ... + aP[t] y[t-P] + x[t]
template <typename T, int P> struct Linear {
  typedef T Value;
  static const int coefficients = P, states = P;
  T before[P];  // the latest first

  __device__ __forceinline__ void begin(const T (&init)[P], bool given) {
#pragma unroll
    for (int k = 0; k < P; k++) before[k] = given ? init[k] : T(0);
  }
  __device__ __forceinline__ T step(const T (&a)[P], T x) {
    T y = x;
#pragma unroll
    for (int k = 0; k < P; k++) y = y + a[k] * before[k];
#pragma unroll
    for (int k = P - 1; k > 0; k--) before[k] = before[k - 1];
    return before[0] = y;
  }
};

// y[t] = log(exp(log_a[t] + y[t-1]) + exp(x[t])); without WEIGHTED log_a is 0
template <typename T, bool WEIGHTED> struct Logarithmic {
  typedef T Value;
  static const int coefficients = WEIGHTED ? 1 : 0, states = 1;
  Exponential<T> sum;

  __device__ __forceinline__ void begin(const T (&init)[1], bool given) {
    sum = WEIGHTED && given ? exponential_of(init[0]) : no_exponential<T>();
  }
  __device__ __forceinline__ T step(const T (&log_a)[1], T x) {
    if (WEIGHTED) {
      sum = plus_exponential(times_exponential(sum, log_a[0]), x);
    } else {
      T k;
      const T m = mantissa(x, T(0), k);
      sum = added(sum, m, k, x);
    }
    return logarithm_of(sum);
  }
};

template <typename T, int P, int K> struct Piece {
  T a[K][P > 0 ? P : 1], x[K];
};

template <typename Step, int K> __device__ __forceinline__ void run_sequence(const Job& job) {
  typedef typename Step::Value T;
  const int P = Step::coefficients, S = Step::states;
  const Index sequence = Index(blockIdx.x) * blockDim.x + threadIdx.x;
  if (sequence >= job.sequences) return;
  const T* x = first_row<T>(job, X, sequence);
  T* y = first_value<T>(job, sequence);
  const T* a[P > 0 ? P : 1];
#pragma unroll
  for (int k = 0; k < P; k++) a[k] = first_row<T>(job, COEFFICIENT + k, sequence);
  T init[S];
#pragma unroll
  for (int k = 0; k < S; k++) init[k] = job.given ? *first_row<T>(job, INIT + k, sequence) : T(0);
  Step step;
  step.begin(init, job.given);
#pragma unroll 1
  for (Index first = 0; first < job.n; first += K) {
    Piece<T, P, K> piece;
    const bool whole = first + K <= job.n && counts(job, first, P);  // of all threads alike
#pragma unroll
    for (int j = 0; j < K; j++) {
      const bool there = whole || first + j < job.n;
      piece.x[j] = there ? x[j * job.row[X]] : T(0);
#pragma unroll
      for (int k = 0; k < P; k++) {
        piece.a[j][k] = whole || (there && counts(job, first + j, k + 1)) ? a[k][j * job.row[COEFFICIENT + k]] : T(0);
      }
      if (P == 0) piece.a[j][0] = T(0);
    }
#pragma unroll
    for (int j = 0; j < K; j++) {
      const T value = step.step(piece.a[j], piece.x[j]);
      if (whole || first + j < job.n) y[j * job.row[Y]] = value;
    }
    x += K * job.row[X];
    y += K * job.row[Y];
#pragma unroll
    for (int k = 0; k < P; k++) a[k] += K * job.row[COEFFICIENT + k];
  }
}

template <typename T, int P> __global__ void __launch_bounds__(256, 1) linear(Job job) {
  run_sequence<Linear<T, P>, (P > 2 ? 16 : 32) / sizeof(T)>(job);
}

template <typename T, bool WEIGHTED> __global__ void __launch_bounds__(128, WEIGHTED ? 4 : 6) logarithmic(Job job) {
  run_sequence<Logarithmic<T, WEIGHTED>, 32 / sizeof(T)>(job);
}

// y[t] = A[t] y[t-1] + x[t], with matrices of up to M rows: the vector stays in registers.
template <typename T, int M> __global__ void __launch_bounds__(128, 1) matrices(Job job) {
  const Index sequence = Index(blockIdx.x) * blockDim.x + threadIdx.x;
  if (sequence >= job.sequences) return;
  const int size = int(job.size);
  const T *x = first_row<T>(job, X, sequence), *a = first_row<T>(job, COEFFICIENT, sequence);
  const T* init = first_row<T>(job, INIT, sequence);
  T* y = first_value<T>(job, sequence);
  T before[M];
#pragma unroll
  for (int k = 0; k < M; k++) before[k] = job.given && k < size ? init[k * job.entry[INIT]] : T(0);
#pragma unroll 1
  for (Index i = 0; i < job.n; i++) {
    T value[M];
    const bool multiplies = counts(job, i, 1);
#pragma unroll
    for (int r = 0; r < M; r++) {
      if (r >= size) continue;  // of all threads alike
      value[r] = x[r * job.entry[X]];
      if (!multiplies) continue;
      const T* entry = a + r * job.entry[COEFFICIENT];
#pragma unroll
      for (int k = 0; k < M; k++) {
        if (k >= size) break;
        value[r] = value[r] + *entry * before[k];
        entry += job.column;
      }
    }
#pragma unroll
    for (int r = 0; r < M; r++) {
      if (r >= size) continue;
      y[r * job.entry[Y]] = before[r] = value[r];
    }
    x += job.row[X];
    y += job.row[Y];
    a += job.row[COEFFICIENT];
  }
}
