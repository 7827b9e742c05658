// Systems without a certificate, a thread for each: elimination with partial pivoting (LAPACK's xGTTRF and xGTTRS; rows of
// a cyclic matrix are chosen among the three that hold a column), then refinement after Skeel (1980), where the promise has
// it. Step by step what `tridiag.algorithms.elimination` and `tridiag.algorithms.row_loop` say. Factors and iterates are kept in scratch memory,
// those of neighbouring threads side by side.
#include "cyclic.cu"

// One column eliminated: the pivot row (q0, q1, q2), the multiplier of the other, whether the two were exchanged.
template <typename T> struct Pivot {
  T multiplier, q0, q1, q2;
  bool swap;
};

// The carried row (p0, p1) becomes the next one.
template <typename T> __device__ __forceinline__ Pivot<T> eliminate_row(T& p0, T& p1, T a, T b, T c) {
  Pivot<T> pivot;
  pivot.swap = size(a) > size(p0);
  exchange(pivot.swap, p0, a);
  exchange(pivot.swap, p1, b);
  pivot.q0 = p0, pivot.q1 = p1, pivot.q2 = pivot.swap ? c : T(0);
  pivot.multiplier = over(a, p0);
  p0 = b - pivot.multiplier * p1;
  p1 = pivot.swap ? -(pivot.multiplier * c) : c;
  return pivot;
}

// A determinant, pivot by pivot: its sign, and its size as a number and a power of 2.
template <typename T> struct Determinant {
  T sign;
  Real<T> fraction;
  Index exponent;

  __device__ __forceinline__ Determinant() : sign(1), fraction(1), exponent(0) {}
  __device__ __forceinline__ void take(T pivot, bool swap) {
    sign = sign * sign_of(pivot);
    sign = swap ? -sign : sign;
    int first, second;
    fraction = frexp(fraction * frexp(magnitude(pivot), &first), &second);
    exponent += first + second;
  }
  __device__ __forceinline__ Real<T> logarithm() const {
    return Real<T>(log(double(fraction)) + double(exponent) * 0.6931471805599453);
  }
};

// A tridiagonal matrix. Row i of the scratch holds the pivot of column i - 1.
template <typename T> struct Tridiagonal {
  enum { WORDS = 5, MULTIPLIER = 0, Q0, Q1, Q2, SWAP };
  const System<T>& system;
  const Scratch<T>& kept;
  T last;

  // 0, or 1 + the row of the zero pivot; ``visit(i, pivot)`` looks at the pivots before the last.
  template <typename Visit> __device__ __forceinline__ int eliminate(const Visit& visit) {
    T p0 = T(1), p1 = T(0);
    int status = 0;
    for (Index i = 0; i < system.job.n; i++) {
      const Pivot<T> pivot = eliminate_row(p0, p1, system.lower(i), system.diagonal(i), system.upper(i));
      if (!system.keep(i)) p0 = T(1), p1 = T(0);
      if (status == 0 && pivot.q0 == T(0)) status = int(i);
      visit(i, pivot);
    }
    last = p0;
    return status == 0 && p0 == T(0) ? int(system.job.n) : status;
  }

  __device__ __forceinline__ int factor() {
    return eliminate([&](Index i, const Pivot<T>& pivot) {
      kept.at(i, MULTIPLIER) = pivot.multiplier;
      kept.at(i, Q0) = pivot.q0;
      kept.at(i, Q1) = pivot.q1;
      kept.at(i, Q2) = pivot.q2;
      kept.at(i, SWAP) = T(pivot.swap ? 1 : 0);
    });
  }

  // As `factor`, without scratch memory.
  __device__ __forceinline__ int determinant(Determinant<T>& found, bool wanted) {
    const int status = eliminate([&](Index i, const Pivot<T>& pivot) {
      if (wanted && i > 0) found.take(pivot.q0, pivot.swap);
    });
    if (wanted) found.take(last, false);
    return status;
  }

  // The right side in word Y of the scratch becomes the solution.
  template <int Y> __device__ __forceinline__ void substitute() const {
    T carried = T(0);
    for (Index i = 0; i < system.job.n; i++) {
      T row = kept.at(i, Y);
      exchange(kept.at(i, SWAP) == T(1), carried, row);
      kept.at(i, Y) = carried;
      carried = system.keep(i) ? row - kept.at(i, MULTIPLIER) * carried : T(0);
    }
    T x1 = over(carried, last), x2 = T(0);
    for (Index i = system.job.n - 1; i >= 0; i--) {
      x1 = system.keep(i) ? x1 : T(0);
      const T q = kept.at(i, Y);
      kept.at(i, Y) = x1;
      const T far = kept.at(i, SWAP) == T(1) ? kept.at(i, Q2) * x2 : T(0);
      x2 = x1;
      x1 = over(q - kept.at(i, Q1) * x1 - far, kept.at(i, Q0));
    }
  }
};

// A cyclic matrix: columns 1 .. n-2, then the corner; no singular leading block can stop it. Row i of the scratch holds the
// pivot of column i - 1.
template <typename T> struct Cyclic {
  enum { WORDS = Stretch<T>::WORDS };
  const System<T>& system;
  const Scratch<T>& kept;
  Corner<T> corner;

  __device__ __forceinline__ Stretch<T> rows() const { return {system, kept, 0, system.job.n}; }

  __device__ __forceinline__ int factor() {
    CyclicRow<T> first, second;
    int status = 0;
    rows().eliminate(first, second, [&](Index i, const CyclicPivot<T>& pivot) {
      if (status == 0 && pivot.row.v[0] == T(0)) status = int(i);
    });
    corner = Corner<T>(first, second);
    if (status == 0 && corner.q0 == T(0)) status = int(system.job.n);
    return status == 0 && corner.rest == T(0) ? 1 : status;
  }

  // Column 0 has been moved to the end.
  __device__ __forceinline__ int determinant(Determinant<T>& found, bool wanted) {
    const int status = factor();
    if (!wanted) return status;
    if (system.job.n % 2 == 0) found.sign = -found.sign;
    for (Index i = 2; i < system.job.n; i++) {
      const T swaps = kept.at(i, Stretch<T>::SWAPS);
      found.take(kept.at(i, Stretch<T>::ROW), swaps == T(1) || swaps == T(2));
    }
    found.take(corner.q0, corner.swap);
    found.take(corner.rest, false);
    return status;
  }

  template <int Y> __device__ __forceinline__ void substitute() const {
    T first, second, x_last, x_zero;
    rows().template forward<Y>(first, second);
    corner.solve(first, second, x_last, x_zero);
    rows().template back<Y>(x_last, x_zero, x_last, x_zero);
  }
};

// The residual of row i of the iterate that is kept, where it is more than rounding, and the row's backward error.
template <typename T, int ITERATE, int RIGHT>
__device__ __forceinline__ T residual(const System<T>& system, const Scratch<T>& kept, Index i, int step, Real<T>& error) {
  const T before = kept.at(system.around(i - 1), ITERATE), after = kept.at(system.around(i + 1), ITERATE);
  return residual(system, i, step, before, kept.at(i, ITERATE), after, kept.at(i, RIGHT), error);
}

// The largest error of a row; NaN if one is.
template <typename T, int ITERATE, int RIGHT>
__device__ __forceinline__ Real<T> error_of(const System<T>& system, const Scratch<T>& kept) {
  Real<T> worst = 0;
  for (Index i = 0; i < system.job.n; i++) {
    Real<T> error;
    residual<T, ITERATE, RIGHT>(system, kept, i, 0, error);
    if (!(error <= worst) && worst == worst) worst = error;
  }
  return worst;
}

template <typename T, template <typename> class Matrix>
__device__ void solve_hard(const Job& job, const System<T>& system, const Scratch<T>& kept) {
  enum { Y = Matrix<T>::WORDS, ITERATE, RIGHT };
  Matrix<T> matrix = {system, kept};
  const bool regular = matrix.factor() == 0;
  for (Index i = 0; i < job.n; i++) kept.at(i, RIGHT) = kept.at(i, Y) = system.right(i);
  matrix.template substitute<Y>();
  for (Index i = 0; i < job.n; i++) {
    const T x = regular ? kept.at(i, Y) : not_a_number(T(0));
    system.solution(i) = x;
    kept.at(i, ITERATE) = x;
  }
  if (!job.refine || !regular) return;
  const Real<T> eps = Limits<T>::eps(), bar = Real<T>(REFINE_ABOVE) * eps;
  Real<T> least = error_of<T, ITERATE, RIGHT>(system, kept);
  for (int step = 0; step < REFINE_STEPS && least > bar && (step != ENOUGH || least * least > eps); step++) {
    for (Index i = 0; i < job.n; i++) {
      Real<T> error;
      kept.at(i, Y) = residual<T, ITERATE, RIGHT>(system, kept, i, step, error);
    }
    matrix.template substitute<Y>();
    for (Index i = 0; i < job.n; i++) kept.at(i, ITERATE) = corrected(kept.at(i, ITERATE), kept.at(i, Y), step);
    const Real<T> error = error_of<T, ITERATE, RIGHT>(system, kept);
    if (!(error < least)) continue;
    least = error;
    for (Index i = 0; i < job.n; i++) system.solution(i) = kept.at(i, ITERATE);
  }
}

// The systems on the list, or all where there is none.
template <typename T, template <typename> class Matrix> __global__ void __launch_bounds__(128, 1) pivoted(Job job) {
  const Index threads = Index(gridDim.x) * blockDim.x, own = Index(blockIdx.x) * blockDim.x + threadIdx.x;
  const Scratch<T> kept = {static_cast<T*>(job.kept) + own, Matrix<T>::WORDS + 3, threads};
  const Index count = job.doubtful ? job.doubtful[0] : job.systems;
  for (Index k = own; k < count; k += threads) {
    const System<T> system(job, job.doubtful ? job.doubtful[1 + k] : k);
    solve_hard<T, Matrix>(job, system, kept);
  }
}

// The status of every matrix, and where there is room for them the sign and the logarithm of the size of its determinant.
template <typename T, template <typename> class Matrix>
__global__ void __launch_bounds__(128, 1) determinants(Job job) {
  const Index threads = Index(gridDim.x) * blockDim.x, own = Index(blockIdx.x) * blockDim.x + threadIdx.x;
  const Scratch<T> kept = {static_cast<T*>(job.kept) + own, Matrix<T>::WORDS, threads};
  for (Index k = own; k < job.systems; k += threads) {
    const System<T> system(job, k);
    Matrix<T> matrix = {system, kept};
    const bool wanted = job.results[0] != nullptr;
    Determinant<T> found;
    const int status = matrix.determinant(found, wanted);
    job.status[k] = status;
    if (!wanted) continue;
    static_cast<T*>(job.results[0])[k] = status ? T(0) : found.sign;
    static_cast<Real<T>*>(job.results[1])[k] = status ? log(Real<T>(0)) : found.logarithm();
  }
}
