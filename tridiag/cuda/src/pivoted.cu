// Systems without a certificate, a thread for each: elimination with partial pivoting (LAPACK's xGTTRF and xGTTRS; rows of
// a cyclic matrix are chosen among the three that hold a column), then refinement after Skeel (1980), where the promise has
// it. Step by step what `tridiag.algorithms.elimination` and `tridiag.algorithms.row_loop` say. Factors and iterates are kept in scratch memory,
// those of neighbouring threads side by side.
#include "cyclic.cu"
#include "continuants.cu"

// One column eliminated: the pivot row (q0, q1, q2), the multiplier of the other, and whether the two were exchanged.
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

// Blocks that a multiprocessor has registers for, without a spill: where tridiagonal systems are solved, where their
// determinants are found, and those of cyclic matrices.
template <typename T> struct Blocks {
  static constexpr int bytes = sizeof(T);
  static constexpr int solving = bytes == 16 ? 3 : 4;
  static constexpr int counting = bytes == 16 ? 4 : bytes == 8 ? 6 : 8;
  static constexpr int cyclic = bytes == 16 ? 2 : sizeof(Real<T>) == 8 ? 3 : 4;
};

// The words of a row of scratch, behind those of a matrix, where it is solved with.
template <typename Matrix> struct SolvingWords {
  enum { Y = Matrix::WORDS, ITERATE, RIGHT, SCALES, ALL };
};

// A tridiagonal matrix. Row i of the scratch holds the pivot of column i - 1.
template <typename T> struct Tridiagonal {
  enum { IS_CYCLIC = 0, WORDS = 5, MULTIPLIER = 0, Q0, Q1, Q2, SWAP };
  enum { BLOCKS = Blocks<T>::solving, PLENTY = Blocks<T>::counting };
  const System<T>& system;
  const Scratch<T>& kept;
  T last;

  // 0, or 1 + the row of the zero pivot; ``visit(i, pivot)`` looks at the pivots before the last. The rows are those of
  // the system, or its scaled ones.
  template <typename Rows, typename Visit> __device__ __forceinline__ int eliminate(Rows& rows, const Visit& visit) {
    T p0 = T(1), p1 = T(0);
    int status = 0;
#pragma unroll 1
    for (Index i = 0; i < system.job.n; i++) {
      const Entries<T> row = rows.row(i);
      const Pivot<T> pivot = eliminate_row(p0, p1, row.lower, row.diagonal, row.upper);
      if (!system.keep(i)) p0 = T(1), p1 = T(0);
      if (status == 0 && pivot.q0 == T(0)) status = int(i);
      visit(i, pivot);
    }
    last = p0;
    return status == 0 && p0 == T(0) ? int(system.job.n) : status;
  }

  template <typename Rows> __device__ __forceinline__ int factor(Rows& rows) {
    return eliminate(rows, [&](Index i, const Pivot<T>& pivot) {
      kept.at(i, MULTIPLIER) = pivot.multiplier;
      kept.at(i, Q0) = pivot.q0;
      kept.at(i, Q1) = pivot.q1;
      kept.at(i, Q2) = pivot.q2;
      kept.at(i, SWAP) = T(pivot.swap ? 1 : 0);
    });
  }

  // As `factor`, without scratch memory.
  __device__ __forceinline__ int status() {
    return eliminate(system, [](Index, const Pivot<T>&) {});
  }

  // The right side in word Y of the scratch becomes the solution.
  template <int Y> __device__ __forceinline__ void substitute() const {
    T carried = T(0);
#pragma unroll 1
    for (Index i = 0; i < system.job.n; i++) {
      T row = kept.at(i, Y);
      exchange(kept.at(i, SWAP) == T(1), carried, row);
      kept.at(i, Y) = carried;
      carried = system.keep(i) ? row - kept.at(i, MULTIPLIER) * carried : T(0);
    }
    T x1 = over(carried, last), x2 = T(0);
#pragma unroll 1
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
  enum { IS_CYCLIC = 1, WORDS = Stretch<T>::WORDS, BLOCKS = 1, PLENTY = Blocks<T>::cyclic };
  const System<T>& system;
  const Scratch<T>& kept;
  Corner<T> corner;

  __device__ __forceinline__ Stretch<T> stretch() const { return {system, kept, 0, system.job.n}; }

  template <typename Rows> __device__ __forceinline__ int factor(Rows& rows) {
    CyclicRow<T> first, second;
    int status = 0;
    stretch().eliminate(rows, first, second, [&](Index i, const CyclicPivot<T>& pivot) {
      if (status == 0 && pivot.row.v[0] == T(0)) status = int(i);
    });
    corner = Corner<T>(first, second);
    if (status == 0 && corner.q0 == T(0)) status = int(system.job.n);
    return status == 0 && corner.rest == T(0) ? 1 : status;
  }
  __device__ __forceinline__ int status() { return factor(system); }

  template <int Y> __device__ __forceinline__ void substitute() const {
    T first, second, x_last, x_zero;
    stretch().template forward<Y>(first, second);
    corner.solve(first, second, x_last, x_zero);
    stretch().template back<Y>(x_last, x_zero, x_last, x_zero);
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
#pragma unroll 1
  for (Index i = 0; i < system.job.n; i++) {
    Real<T> error;
    residual<T, ITERATE, RIGHT>(system, kept, i, 0, error);
    if (!(error <= worst) && worst == worst) worst = error;
  }
  return worst;
}

// Solve and refine a system, where its matrix is regular; whether it is. Kept is a solution that is better than that of
// error ``least``, which becomes its own; of a matrix that is not SCALED the first one, whatever it is.
template <typename T, template <typename> class Matrix, bool SCALED>
__device__ __forceinline__ bool solve_by(const Job& job, const System<T>& system, const Scratch<T>& kept,
                                         Real<T>& least) {
  using Words = SolvingWords<Matrix<T>>;
  enum { Y = Words::Y, ITERATE = Words::ITERATE, RIGHT = Words::RIGHT, SCALES = Words::SCALES };
  const Scales<T, SCALES> scales = {system, kept};
  Matrix<T> matrix = {system, kept};
  if (SCALED) {
    scales.find();
  } else {
#pragma unroll 1
    for (Index i = 0; i < job.n; i++) kept.at(i, RIGHT) = system.right(i);  // the solution may take its place
  }
  if ((SCALED ? matrix.factor(scales) : matrix.factor(system)) != 0) return false;
  const auto substitute = [&]() {
    const int divided = SCALED ? scales.template scale_right<Y>() : 0;
    matrix.template substitute<Y>();
    if (SCALED) scales.template restore<Y>(divided);
  };
#pragma unroll 1
  for (Index i = 0; i < job.n; i++) kept.at(i, Y) = kept.at(i, RIGHT);
  substitute();
#pragma unroll 1
  for (Index i = 0; i < job.n; i++) kept.at(i, ITERATE) = kept.at(i, Y);
  const Real<T> eps = Limits<T>::eps(), bar = Real<T>(REFINE_ABOVE) * eps;
  for (int step = 0;; step++) {
    const Real<T> error = job.refine ? error_of<T, ITERATE, RIGHT>(system, kept) : Real<T>(0);
    if ((step == 0 && !SCALED) || error < least) {
      least = error;
#pragma unroll 1
      for (Index i = 0; i < job.n; i++) system.solution(i) = kept.at(i, ITERATE);
    }
    if (step == REFINE_STEPS || !(least > bar) || (step == ENOUGH && least * least <= eps)) return true;
#pragma unroll 1
    for (Index i = 0; i < job.n; i++) {
      Real<T> own;
      kept.at(i, Y) = residual<T, ITERATE, RIGHT>(system, kept, i, step, own);
    }
    substitute();
#pragma unroll 1
    for (Index i = 0; i < job.n; i++) kept.at(i, ITERATE) = corrected(kept.at(i, ITERATE), kept.at(i, Y), step);
  }
}

// ... and then with a scaled matrix, where entries are wide apart, and what has come of them is no solution.
template <typename T, template <typename> class Matrix>
__device__ __forceinline__ void solve_hard(const Job& job, const System<T>& system, const Scratch<T>& kept) {
  const Real<T> eps = Limits<T>::eps(), half = sqrt(eps);  // of the digits, which count for more than none
  Real<T> least = Real<T>(1) / eps;
  if (!solve_by<T, Matrix, false>(job, system, kept, least)) {
#pragma unroll 1
    for (Index i = 0; i < job.n; i++) system.solution(i) = not_a_number(T(0));
  }
  if (!job.refine || least <= Real<T>(REFINE_ABOVE) * eps || !is_wide(system)) return;
  if (!(least < Real<T>(1) / eps)) least = half;
  solve_by<T, Matrix, true>(job, system, kept, least);
}

// The systems on the list, or all where there is none.
template <typename T, template <typename> class Matrix>
__global__ void __launch_bounds__(128, Matrix<T>::BLOCKS) pivoted(Job job) {
  const Index threads = Index(gridDim.x) * blockDim.x, own = Index(blockIdx.x) * blockDim.x + threadIdx.x;
  const Scratch<T> kept = {static_cast<T*>(job.kept) + own, SolvingWords<Matrix<T>>::ALL, threads};
  const Index count = job.doubtful ? job.doubtful[0] : job.systems;
  for (Index k = own; k < count; k += threads) {
    const System<T> system(job, job.doubtful ? job.doubtful[1 + k] : k);
    solve_hard<T, Matrix>(job, system, kept);
  }
}

// The status of every matrix, and where there is room for them the sign and the logarithm of the size of its determinant.
// Elimination tells which matrices are singular, unless their determinants are far from 0, or entries are wide apart and some
// pivot has underflowed.
template <typename T, template <typename> class Matrix>
__global__ void __launch_bounds__(128, Matrix<T>::PLENTY) determinants(Job job) {
  const Index threads = Index(gridDim.x) * blockDim.x, own = Index(blockIdx.x) * blockDim.x + threadIdx.x;
  const Scratch<T> kept = {static_cast<T*>(job.kept) + own, Matrix<T>::WORDS, threads};
  const bool wanted = job.results[0] != nullptr;
  for (Index k = own; k < job.systems; k += threads) {
    const System<T> system(job, k);
    Apart<T> found = {T(1), 0};
    bool doubtful = !wanted;
    if (wanted) found = determinant_of<T, Matrix<T>::IS_CYCLIC>(system, doubtful);
    int status = 0;
    if (doubtful || found.is_zero()) {
      Matrix<T> matrix = {system, kept};
      status = matrix.status();
      if (status != 0 && is_wide(system)) {
        if (!wanted) found = determinant_of<T, Matrix<T>::IS_CYCLIC>(system, doubtful);
        status = found.is_zero() ? status : 0;
      }
      if (status == 0 && found.is_zero()) status = int(job.n);
    }
    job.status[k] = status;
    if (!wanted) continue;
    static_cast<T*>(job.results[0])[k] = status ? T(0) : sign_of(found.fraction);
    static_cast<Real<T>*>(job.results[1])[k] = status ? log(Real<T>(0)) : found.logarithm();
  }
}
