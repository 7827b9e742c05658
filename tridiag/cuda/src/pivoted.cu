// Systems without a certificate, a thread for each: elimination with partial pivoting (LAPACK's xGTTRF and xGTTRS; rows of
// a cyclic matrix are chosen among the three that hold a column), then refinement after Skeel (1980), where the promise has
// it. Step by step what `tridiag.algorithms.elimination` and `tridiag.algorithms.row_loop` say. Factors and iterates are kept in scratch memory,
// those of neighbouring threads side by side.
#include "systems.cu"

// The scratch of a thread: ``word`` of row i.
template <typename T> struct Scratch {
  T* begin;
  Index words, stride;
  __device__ __forceinline__ T& at(Index i, int word) const { return begin[(i * words + word) * stride]; }
};

// The rows of one system, of its matrix or of the transpose, as they are eliminated.
template <typename T> struct System {
  const Job& job;
  const T *a, *b, *c, *d;
  const unsigned char* mask;
  T* x;

  __device__ __forceinline__ System(const Job& job, Index system)
      : job(job),
        a(start<T>(job, A) + offset(job, A, system)),
        b(start<T>(job, B) + offset(job, B, system)),
        c(start<T>(job, C) + offset(job, C, system)),
        d(job.operand[D] ? start<T>(job, D) + offset(job, D, system) : 0),
        mask(mask_of(job, system)),
        x(job.operand[X] ? static_cast<T*>(job.operand[X]) + offset(job, X, system) : 0) {}

  __device__ __forceinline__ bool keep(Index i) const { return keeps(job, mask, i); }
  __device__ __forceinline__ Index around(Index i) const { return i < 0 ? i + job.n : i >= job.n ? i - job.n : i; }
  __device__ __forceinline__ bool coupled(Index i, Index j) const {
    return (job.periodic || (j >= 0 && j < job.n)) && keep(i) && keep(around(j));
  }
  __device__ __forceinline__ T lower(Index i) const {
    if (!coupled(i, i - 1)) return T(0);
    return job.transpose ? c[around(i - 1) * job.row[C]] : a[i * job.row[A]];
  }
  __device__ __forceinline__ T diagonal(Index i) const { return keep(i) ? b[i * job.row[B]] : T(1); }
  __device__ __forceinline__ T upper(Index i) const {
    if (!coupled(i, i + 1)) return T(0);
    return job.transpose ? a[around(i + 1) * job.row[A]] : c[i * job.row[C]];
  }
  __device__ __forceinline__ T right(Index i) const { return keep(i) ? d[i * job.row[D]] : T(0); }
  __device__ __forceinline__ T& solution(Index i) const { return x[i * job.row[X]]; }
};

template <typename T> __device__ __forceinline__ void exchange(bool swap, T& x, T& y) {
  const T first = swap ? y : x, second = swap ? x : y;
  x = first, y = second;
}

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

// A row of a cyclic matrix: columns k, k + 1, k + 2, n - 1 and 0.
template <typename T> struct CyclicRow { T v[5]; };

template <typename T> __device__ __forceinline__ void exchange(bool swap, CyclicRow<T>& x, CyclicRow<T>& y) {
#pragma unroll
  for (int k = 0; k < 5; k++) exchange(swap, x.v[k], y.v[k]);
}

// Whether the other row's first entry is larger beside its largest one, or is one at all: `tridiag.algorithms.elimination`.
template <typename T> __device__ __forceinline__ bool better_pivot(const CyclicRow<T>& row, const CyclicRow<T>& other) {
  const Real<T> here = size(row.v[0]), there = size(other.v[0]);
  Real<T> largest = here, others = there;
#pragma unroll
  for (int k = 1; k < 5; k++) {
    largest = size(row.v[k]) > largest ? size(row.v[k]) : largest;
    others = size(other.v[k]) > others ? size(other.v[k]) : others;
  }
  return there / others > here / largest || (here == Real<T>(0) && there > Real<T>(0));
}

// What is left of a row once its first column is eliminated.
template <typename T> __device__ __forceinline__ CyclicRow<T> rest_of(const CyclicRow<T>& row, T m, const CyclicRow<T>& q) {
  return {{row.v[1] - m * q.v[1], row.v[2] - m * q.v[2], T(0), row.v[3] - m * q.v[3], row.v[4] - m * q.v[4]}};
}

// The last 2 x 2 matrix, in x[n-1] and x[0].
template <typename T> struct Corner {
  bool swap;
  T multiplier, q0, q1, rest;
};

// A cyclic matrix: columns 1 .. n-2, then the corner; no singular leading block can stop it. Row i of the scratch holds the
// pivot of column i - 1.
template <typename T> struct Cyclic {
  enum { WORDS = 8, ROW = 0, FIRST = 5, SECOND, SWAPS };
  const System<T>& system;
  const Scratch<T>& kept;
  Corner<T> corner;

  __device__ __forceinline__ int factor() {
    const T none = T(0);
    CyclicRow<T> first = {{system.upper(0), none, none, system.lower(0), system.diagonal(0)}};
    CyclicRow<T> second = {{system.diagonal(1), system.upper(1), none, none, system.lower(1)}};
    int status = 0;
    for (Index i = 2; i < system.job.n; i++) {
      CyclicRow<T> added = {{system.lower(i), system.diagonal(i), system.upper(i), none, none}};
      const bool swap1 = better_pivot(first, second);
      exchange(swap1, first, second);
      const bool swap2 = better_pivot(first, added);
      exchange(swap2, first, added);
      const T m1 = over(second.v[0], first.v[0]), m2 = over(added.v[0], first.v[0]);
      if (status == 0 && first.v[0] == none) status = int(i);
#pragma unroll
      for (int k = 0; k < 5; k++) kept.at(i, ROW + k) = first.v[k];
      kept.at(i, FIRST) = m1;
      kept.at(i, SECOND) = m2;
      kept.at(i, SWAPS) = T((swap1 ? 1 : 0) + (swap2 ? 2 : 0));
      const CyclicRow<T> rest = rest_of(second, m1, first);
      second = rest_of(added, m2, first);
      first = rest;
    }
    T p0 = first.v[0] + first.v[3], p1 = first.v[1] + first.v[4];
    T o0 = second.v[0] + second.v[3], o1 = second.v[1] + second.v[4];
    corner.swap = size(o0) > size(p0);
    exchange(corner.swap, p0, o0);
    exchange(corner.swap, p1, o1);
    corner.multiplier = over(o0, p0), corner.q0 = p0, corner.q1 = p1;
    corner.rest = o1 - corner.multiplier * p1;
    if (status == 0 && corner.q0 == none) status = int(system.job.n);
    return status == 0 && corner.rest == none ? 1 : status;
  }

  // Column 0 has been moved to the end.
  __device__ __forceinline__ int determinant(Determinant<T>& found, bool wanted) {
    const int status = factor();
    if (!wanted) return status;
    if (system.job.n % 2 == 0) found.sign = -found.sign;
    for (Index i = 2; i < system.job.n; i++) {
      const T swaps = kept.at(i, SWAPS);
      found.take(kept.at(i, ROW), swaps == T(1) || swaps == T(2));
    }
    found.take(corner.q0, corner.swap);
    found.take(corner.rest, false);
    return status;
  }

  template <int Y> __device__ __forceinline__ void substitute() const {
    const Index n = system.job.n;
    T first = kept.at(0, Y), second = kept.at(1, Y);
    for (Index i = 2; i < n; i++) {
      T row = kept.at(i, Y);
      const T swaps = kept.at(i, SWAPS);
      exchange(swaps == T(1) || swaps == T(3), first, second);
      exchange(swaps == T(2) || swaps == T(3), first, row);
      kept.at(i, Y) = first;
      const T rest = second - kept.at(i, FIRST) * first;
      second = row - kept.at(i, SECOND) * first;
      first = rest;
    }
    exchange(corner.swap, first, second);
    const T x_zero = over(second - corner.multiplier * first, corner.rest);
    const T x_last = over(first - corner.q1 * x_zero, corner.q0);
    T x1 = x_last, x2 = x_zero;
    for (Index i = n - 1; i > 1; i--) {
      const T q = kept.at(i, Y);
      kept.at(i, Y) = system.keep(i) ? x1 : T(0);
      const T rest = q - kept.at(i, ROW + 1) * x1 - kept.at(i, ROW + 2) * x2 - kept.at(i, ROW + 3) * x_last
                     - kept.at(i, ROW + 4) * x_zero;
      x2 = x1;
      x1 = over(rest, kept.at(i, ROW));
    }
    kept.at(1, Y) = system.keep(1) ? x1 : T(0);
    kept.at(0, Y) = system.keep(0) ? x_zero : T(0);
  }
};

// The residual of row i of an iterate where it is more than rounding, and the row's backward error.
template <typename T, int ITERATE, int RIGHT>
__device__ __forceinline__ T residual(const System<T>& system, const Scratch<T>& kept, Index i, int step, Real<T>& error) {
  typedef Real<T> S;
  const T own = kept.at(i, ITERATE), d = kept.at(i, RIGHT);
  const T before = kept.at(system.around(i - 1), ITERATE), after = kept.at(system.around(i + 1), ITERATE);
  const T a = system.lower(i), b = system.diagonal(i), c = system.upper(i);
  const T r = d - (a * before + b * own + c * after);
  const S sizes = size(a) * size(before) + size(b) * size(own) + size(c) * size(after) + size(d);
  const S scale = sizes / Limits<T>::parts;  // a product of complex numbers can be half that of their sizes
  const S eps = Limits<T>::eps(), floor = S(4) * Limits<T>::tiny() / eps;
  const S beside = scale > floor ? scale : floor, least = size(a) * floor + size(b) * floor + size(c) * floor;
  const S most = S(UNREACHED) * eps;
  error = size(r) / beside;
  if (error > most) {
    const S reached = size(r) / (beside > least ? beside : least);
    error = reached > most ? reached : most;
  }
  return error > (step >= ZEROS_AFTER ? S(LEAVE_LATE) : S(LEAVE_BELOW)) * Limits<T>::parts * eps ? r : T(0);
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

// The iterate corrected; an exact zero where the two cancel, which no finite number of corrections would reach, and late
// where the correction leaves no digit, or nothing that a row feels (`tridiag.algorithms.elimination.correct`).
template <typename T> __device__ __forceinline__ T corrected(T x, T correction, int step) {
  const T y = x + correction;
  const Real<T> eps = Limits<T>::eps(), found = size(y);
  const bool lost = found <= Real<T>(LOST) * size(correction) || found <= Limits<T>::tiny() / eps;
  const bool late = step >= ZEROS_AFTER && (step < RETURN_AFTER || !(x == T(0)));
  return (late && lost) || found <= Real<T>(VANISHED) * eps * size(x) ? T(0) : y;
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
