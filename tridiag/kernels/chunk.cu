// A chunk of R rows of one system, in the registers of one thread.
//
// The last row of a chunk is its separator. Its interior, the other rows, is eliminated from both ends: what is left are a
// row for its first unknown (the head) and one for the separator (the tail), in the separators before and after. Once the
// separators are known, the interior is solved by plain Thomas elimination, so that the certificate of its rows holds as
// it does for whole systems; the rows of separators are judged by their residuals.
#pragma once
#include "systems.cu"

template <typename T> struct Row { T a, c, d; };  // a x[before] + x + c x[after] = d

template <typename T, int R> struct Chunk {
  T lower[R], diagonal[R], upper[R], right[R];
};

// Which of rows first - 1 .. first + R are there: bit j + 1 is row first + j.
template <int R> __device__ __forceinline__ unsigned kept_rows(const Job& job, const unsigned char* mask, Index first) {
  static_assert(R <= 30, "the rows of a chunk and their neighbours are the bits of a word");
  unsigned bits = 0;
#pragma unroll
  for (int j = -1; j <= R; j++) bits |= keeps(job, mask, first + j) ? 1u << (j + 1) : 0u;
  return bits;
}

// Rows that are not there become those of the identity, and couplings to them are cut: by selects, whatever they hold.
template <typename T, int R> __device__ __forceinline__ void cut(Chunk<T, R>& chunk, unsigned bits) {
#pragma unroll
  for (int j = 0; j < R; j++) {
    const bool before = bits >> j & 1, own = bits >> (j + 1) & 1, after = bits >> (j + 2) & 1;
    chunk.lower[j] = own && before ? chunk.lower[j] : T(0);
    chunk.upper[j] = own && after ? chunk.upper[j] : T(0);
    chunk.diagonal[j] = own ? chunk.diagonal[j] : T(1);
    chunk.right[j] = own ? chunk.right[j] : T(0);
  }
}

// The first unknown in terms of the separators, from the interior eliminated upwards.
template <typename T, int R> __device__ __forceinline__ Row<T> head_of(const Chunk<T, R>& chunk) {
  T scale = one_over(chunk.diagonal[R - 2]), after = chunk.upper[R - 2], right = chunk.right[R - 2];
#pragma unroll
  for (int j = R - 3; j >= 0; j--) {
    const T multiplier = chunk.upper[j] * scale;
    right = chunk.right[j] - multiplier * right;
    after = -(multiplier * after);
    scale = one_over(chunk.diagonal[j] - multiplier * chunk.lower[j + 1]);
  }
  return {chunk.lower[0] * scale, after * scale, right * scale};
}

// Eliminate the interior downwards: ``lower`` becomes the multipliers (but for the first), ``diagonal`` the reciprocals of
// the pivots. The tail is the last interior unknown in terms of the separators.
template <typename T, int R> __device__ __forceinline__ Row<T> eliminate(Chunk<T, R>& chunk, bool& certified) {
  T right = chunk.right[0], before = chunk.lower[0], scale = one_over(chunk.diagonal[0]);
  certified = certified && certifies(T(0), chunk.diagonal[0], chunk.diagonal[0]);
  chunk.diagonal[0] = scale;
#pragma unroll
  for (int j = 1; j < R - 1; j++) {
    const T multiplier = chunk.lower[j] * scale, grown = multiplier * chunk.upper[j - 1];
    const T pivot = chunk.diagonal[j] - grown;
    certified = certified && certifies(grown, pivot, chunk.diagonal[j]);
    scale = one_over(pivot);
    right = chunk.right[j] - multiplier * right;
    before = -(multiplier * before);
    chunk.lower[j] = multiplier;
    chunk.diagonal[j] = scale;
  }
  return {before * scale, chunk.upper[R - 2] * scale, right * scale};
}

// The row of the separator, from its own chunk's tail and the next one's head.
template <typename T, int R>
__device__ __forceinline__ Row<T> separator_row(const Chunk<T, R>& chunk, Row<T> tail, Row<T> next) {
  const T a = chunk.lower[R - 1], c = chunk.upper[R - 1];
  const T scale = one_over(chunk.diagonal[R - 1] - a * tail.c - c * next.a);
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

// Whether the separator's row is solved as well as a certificate promises; ``next`` is the first unknown after it.
template <typename T, int R>
__device__ __forceinline__ bool separator_fits(const Chunk<T, R>& chunk, T separator, T next) {
  typedef Real<T> S;
  const T below = chunk.lower[R - 1] * chunk.right[R - 2], own = chunk.diagonal[R - 1] * separator;
  const T above = chunk.upper[R - 1] * next, d = chunk.right[R - 1];
  const S scale = size(below) + size(own) + size(above) + size(d), eps = Limits<T>::eps();
  const S floor = S(4) * Limits<T>::tiny() / eps;
  return size(d - below - own - above) <= S(REFINE_ABOVE) * eps * (scale > floor ? scale : floor);
}

// Rows that lie far apart in memory, those of neighbouring systems side by side: every thread reads its own.
template <typename T, int R> __device__ __forceinline__ void load_apart(T (&v)[R], const Band<T>& band, Index at, Index first) {
  const T* begin = band.begin + at;
#pragma unroll
  for (int j = 0; j < R; j++) {
    const Index i = first + j;
    v[j] = i >= band.first && i < band.last ? begin[i * band.row] : T(0);
  }
}

// Where entry ``place`` of a tile lies: a word is left out after every R, so that chunks begin in different banks.
template <int R> __device__ __forceinline__ int padded(int place) { return place + place / R; }
