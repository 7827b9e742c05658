// A chunk of R rows of one system, in the registers of one thread.
//
// The last row of a chunk is its separator. Its interior, the other rows, is eliminated from both ends: what is left are a
// row for its first unknown (the head) and one for the separator (the tail), in the separators before and after. Once the
// separators are known, the interior is solved by plain Thomas elimination, so that the certificate of its rows holds as
// it does for whole systems; the rows of separators are judged by their residuals, and the separators corrected once.
#pragma once
#include "systems.cu"

template <typename T> struct Row { T a, c, d; };  // a x[before] + x + c x[after] = d

template <typename T, int R> struct Chunk {
  T lower[R], diagonal[R], upper[R], right[R];
};

// Where the bands of a system and its right-hand side begin, in elements of their operands.
struct Begin { Index lower, diagonal, upper, right; };

// Rows that lie apart in memory, from the chunk's first on.
template <typename T, int R>
__device__ __forceinline__ void load_rows(Chunk<T, R>& chunk, const Job& job, Begin at, Index first) {
  const Band<T> lower = lower_band<T>(job), diagonal = whole_band<T>(job, B);
  const Band<T> upper = upper_band<T>(job), right = whole_band<T>(job, D);
  const bool narrow = is_narrow(lower.row) && is_narrow(diagonal.row) && is_narrow(upper.row) && is_narrow(right.row);
  if (!narrow || job.n >= NARROW) {
    load_apart(chunk.lower, job, lower, at.lower, first);
    load_apart(chunk.diagonal, job, diagonal, at.diagonal, first);
    load_apart(chunk.upper, job, upper, at.upper, first);
    load_apart(chunk.right, job, right, at.right, first);
    return;
  }
  const T *a = lower.begin + at.lower, *b = diagonal.begin + at.diagonal;
  const T *c = upper.begin + at.upper, *d = right.begin + at.right;
  const int i = int(first), n = int(job.n);
  if (i > 0 && i + R < n) {
    load_inside(chunk.lower, a, lower.row, i + lower.shift);
    load_inside(chunk.diagonal, b, diagonal.row, i);
    load_inside(chunk.upper, c, upper.row, i + upper.shift);
    load_inside(chunk.right, d, right.row, i);
  } else {
    load_within(chunk.lower, a, lower.row, i + lower.shift, n);
    load_within(chunk.diagonal, b, diagonal.row, i, n);
    load_within(chunk.upper, c, upper.row, i + upper.shift, n);
    load_within(chunk.right, d, right.row, i, n);
  }
}

// Which of rows first - 1 .. first + R are there, and left by a mask, if there is one: bit j + 1 is row first + j.
template <int R> __device__ __forceinline__ unsigned kept_rows(const Job& job, const unsigned char* mask, Index first) {
  static_assert(R <= 29, "the rows of a chunk and their neighbours are the bits of a word");
  const Index rest = job.n - first;  // rows from the first on
  unsigned bits = (1u << (rest < R + 1 ? int(rest) + 1 : R + 2)) - (first == 0 ? 2u : 1u);
  if (!mask) return bits;
#pragma unroll 1
  for (int j = -1; j <= R; j++) {
    if (bits >> (j + 1) & 1 && !mask[(first + j) * job.row[WHERE]]) bits &= ~(1u << (j + 1));
  }
  return bits;
}

template <int R> __device__ __forceinline__ bool all_there(unsigned bits) { return bits == (1u << (R + 2)) - 1; }

// Rows that are not there have 0 in their place.
template <typename T, int R> __device__ __forceinline__ void cut_solution(T (&x)[R], unsigned bits) {
  if (all_there<R>(bits)) return;
#pragma unroll
  for (int j = 0; j < R; j++) x[j] = bits >> (j + 1) & 1 ? x[j] : T(0);
}

// ... of a system that begins at ``x``, to memory.
template <typename T, int R>
__device__ __forceinline__ void store_apart(const T (&v)[R], const Job& job, T* x, Index first) {
  const Index row = job.row[X], rest = job.n - first;
  T* begin = x + first * row;
  if (rest >= R && is_narrow(row)) {
#pragma unroll
    for (int j = 0; j < R; j++) *entry(begin, int(row * Index(sizeof(T))), j) = v[j];
  } else {
#pragma unroll
    for (int j = 0; j < R; j++) {
      if (j < rest) begin[j * row] = v[j];
    }
  }
}

// Rows that are not there become those of the identity, and couplings to them are cut: by selects, whatever they hold.
template <typename T, int R> __device__ __forceinline__ void cut(Chunk<T, R>& chunk, unsigned bits) {
  if (all_there<R>(bits)) return;
#pragma unroll
  for (int j = 0; j < R; j++) {
    const bool before = bits >> j & 1, own = bits >> (j + 1) & 1, after = bits >> (j + 2) & 1;
    chunk.lower[j] = own && before ? chunk.lower[j] : T(0);
    chunk.upper[j] = own && after ? chunk.upper[j] : T(0);
    chunk.diagonal[j] = own ? chunk.diagonal[j] : T(1);
    chunk.right[j] = own ? chunk.right[j] : T(0);
  }
}

// The same at the ends of a system; ``rest`` rows of it are there from the chunk's first on.
template <typename T, int R> __device__ __forceinline__ void cut_ends(Chunk<T, R>& chunk, Index first, Index rest) {
  chunk.lower[0] = first > 0 ? chunk.lower[0] : T(0);
  if (rest > R) return;
  const int rows = int(rest);
#pragma unroll
  for (int j = 0; j < R; j++) {
    chunk.lower[j] = j < rows ? chunk.lower[j] : T(0);
    chunk.upper[j] = j + 1 < rows ? chunk.upper[j] : T(0);
    chunk.diagonal[j] = j < rows ? chunk.diagonal[j] : T(1);
    chunk.right[j] = j < rows ? chunk.right[j] : T(0);
  }
}

// Which rows a mask leaves, or all; the others are cut.
template <typename T, int R>
__device__ __forceinline__ unsigned keep_rows(Chunk<T, R>& chunk, const Job& job, const unsigned char* mask, Index first, bool there) {
  if (!mask) {
    cut_ends(chunk, first, there ? job.n - first : Index(0));
    return (1u << (R + 2)) - 1;
  }
  const unsigned bits = there ? kept_rows<R>(job, mask, first) : 0u;
  cut(chunk, bits);
  return bits;
}

// The first unknown in terms of the separators, from the interior eliminated upwards.
template <typename T, int R> __device__ __forceinline__ Row<T> head_of(const Chunk<T, R>& chunk, bool& beyond) {
  T scale = one_over(chunk.diagonal[R - 2], beyond), after = chunk.upper[R - 2], right = chunk.right[R - 2];
#pragma unroll
  for (int j = R - 3; j >= 0; j--) {
    const T multiplier = chunk.upper[j] * scale;
    right = chunk.right[j] - multiplier * right;
    after = -(multiplier * after);
    scale = one_over(chunk.diagonal[j] - multiplier * chunk.lower[j + 1], beyond);
  }
  return {chunk.lower[0] * scale, after * scale, right * scale};
}

// Eliminate the interior downwards: ``lower`` becomes the multipliers (but for the first), ``diagonal`` the reciprocals of
// the pivots. The tail is the last interior unknown in terms of the separators.
template <typename T, int R> __device__ __forceinline__ Row<T> eliminate(Chunk<T, R>& chunk, bool& certified, bool& beyond) {
  T right = chunk.right[0], before = chunk.lower[0], scale = one_over(chunk.diagonal[0], beyond);
  certified = certified & certifies(T(0), chunk.diagonal[0], chunk.diagonal[0]);
  chunk.diagonal[0] = scale;
#pragma unroll
  for (int j = 1; j < R - 1; j++) {
    const T multiplier = chunk.lower[j] * scale, grown = multiplier * chunk.upper[j - 1];
    const T pivot = chunk.diagonal[j] - grown;
    certified = certified & certifies(grown, pivot, chunk.diagonal[j]) & lossless(multiplier, chunk.lower[j]);
    scale = one_over(pivot, beyond);
    right = chunk.right[j] - multiplier * right;
    before = -(multiplier * before);
    chunk.lower[j] = multiplier;
    chunk.diagonal[j] = scale;
  }
  return {before * scale, chunk.upper[R - 2] * scale, right * scale};
}

// Whether a pivot among the separators is more than rounding: where it is not, their system may be singular.
template <typename T> __device__ __forceinline__ bool stands_out(T pivot, T diagonal) {
  return size(pivot) > Real<T>(CLOSING) * Limits<T>::eps() * size(diagonal);
}

// What is said of a long system: that a row needs its correction; that it is on the list; that its separators' system may
// be singular.
enum Mark { UNSOLVED = 1, LISTED = 2, UNSOUND = 4 };

// ... of a system, and behind them all that one has it; for all but LISTED.
__device__ __forceinline__ void mark(const Job& job, Index system, int what) {
  atomicOr(&job.status[system], what);
  if (!*const_cast<volatile int*>(&job.status[job.systems])) atomicOr(&job.status[job.systems], what);
}

// The row of the separator, from its own chunk's tail and the next one's head; ``scale`` makes its diagonal 1.
template <typename T, int R>
__device__ __forceinline__ Row<T> separator_row(const Chunk<T, R>& chunk, Row<T> tail, Row<T> next, T& scale, bool& sound,
                                                bool& beyond) {
  const T a = chunk.lower[R - 1], c = chunk.upper[R - 1], pivot = chunk.diagonal[R - 1] - a * tail.c - c * next.a;
  sound = sound & stands_out(pivot, chunk.diagonal[R - 1]);
  scale = one_over(pivot, beyond);
  return {-(a * tail.a * scale), -(c * next.c * scale), (chunk.right[R - 1] - a * tail.d - c * next.d) * scale};
}

// ``right`` becomes the solution of the interior; that of the separator's row stays.
template <typename T, int R> __device__ __forceinline__ void solve_interior(Chunk<T, R>& chunk, T before, T separator) {
  chunk.right[0] = chunk.right[0] - chunk.lower[0] * before;
#pragma unroll
  for (int j = 1; j < R - 1; j++) chunk.right[j] = chunk.right[j] - chunk.lower[j] * chunk.right[j - 1];
  chunk.right[R - 2] = (chunk.right[R - 2] - chunk.upper[R - 2] * separator) * chunk.diagonal[R - 2];
#pragma unroll
  for (int j = R - 3; j >= 0; j--) {
    chunk.right[j] = (chunk.right[j] - chunk.upper[j] * chunk.right[j + 1]) * chunk.diagonal[j];
  }
}

// An unknown and its correction added. Each is as good as the certificate of its matrix says; so is their sum, but not where
// they cancel: there the rounding of the parts, which fused operations and others leave differently, is no longer small.
template <typename T> __device__ __forceinline__ T corrected(T x, T change, bool& certified) {
  const T found = x + change;
  certified = certified && Real<T>(LOST) * size(change) <= size(found);
  return found;
}

// The solution of the chunk as the separator before it and its own change: the change is added.
template <typename T, int R>
__device__ __forceinline__ void correct(Chunk<T, R>& chunk, T& separator, T before, T own, bool& certified) {
  T change[R - 1];
  change[0] = -(chunk.lower[0] * before);
#pragma unroll
  for (int j = 1; j < R - 1; j++) change[j] = -(chunk.lower[j] * change[j - 1]);
  T after = (change[R - 2] - chunk.upper[R - 2] * own) * chunk.diagonal[R - 2];
  chunk.right[R - 2] = corrected(chunk.right[R - 2], after, certified);
#pragma unroll
  for (int j = R - 3; j >= 0; j--) {
    after = (change[j] - chunk.upper[j] * after) * chunk.diagonal[j];
    chunk.right[j] = corrected(chunk.right[j], after, certified);
  }
  separator = corrected(separator, own, certified);
}

// The residual of the separator's row, and whether it is as small as a certificate promises; ``next`` is the first unknown
// after the separator.
template <typename T, int R>
__device__ __forceinline__ T separator_residual(const Chunk<T, R>& chunk, T separator, T next, bool& fits) {
  typedef Real<T> S;
  const T below = chunk.lower[R - 1] * chunk.right[R - 2], own = chunk.diagonal[R - 1] * separator;
  const T above = chunk.upper[R - 1] * next, d = chunk.right[R - 1], residual = d - below - own - above;
  const S scale = size(below) + size(own) + size(above) + size(d), eps = Limits<T>::eps();
  const S floor = S(4) * Limits<T>::tiny() / eps;
  // not where both are infinite
  fits = fused(-S(REFINE_ABOVE) * eps, scale > floor ? scale : floor, size(residual)) <= S(0);
  return residual;
}

// The entries of a chunk in a tile.
template <typename T, int R> __device__ __forceinline__ void take(T (&v)[R], const T* own) {
#pragma unroll
  for (int j = 0; j < R; j++) v[j] = own[j];
}
