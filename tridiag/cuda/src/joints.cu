// Neighbouring stretches of a system joined: of the four rows that elimination has left of two of them, which hold the last
// unknown of one and the first of the other, two are left again; so of pairs of stretches, of pairs of pairs and so on.
#pragma once
#include "cyclic.cu"

// What is kept of a stretch, as words of its first chunk: the two rows that are left (in the last unknown, the one after it, the one
// before the first, and the first), what may be rounding in them, their right sides, and the solution there. Then, of the join with
// the stretch before it: the pivot rows, multipliers, what was exchanged, and right sides of the pivot rows.
enum Known {
  ROWS,
  ROUNDING = 8,
  RIGHTS = 10,
  LAST = 12,
  AFTER,
  BEFORE,
  FOREMOST,
  PIVOT,
  NEXT_PIVOT = 22,
  MULTIPLIER = 27,
  EXCHANGED = 32,
  JOINED = 37,
  KNOWN = 39
};

template <typename T> struct Joints {
  T* begin;
  int chunks;

  __device__ __forceinline__ T& at(int chunk, int word) const { return begin[word * chunks + chunk]; }

  __device__ __forceinline__ Real<T> rounding(int chunk, int row) const { return size(at(chunk, ROUNDING + row)); }

  // Keep a row of a stretch.
  __device__ __forceinline__ void leave(int chunk, int row, T last, T after, T before, T first, Real<T> rounding) const {
    at(chunk, ROWS + 4 * row) = last, at(chunk, ROWS + 4 * row + 1) = after;
    at(chunk, ROWS + 4 * row + 2) = before, at(chunk, ROWS + 4 * row + 3) = first;
    at(chunk, ROUNDING + row) = T(rounding);
  }

  // Call ``pair(j, k)`` for each row j that may be the pivot of column c instead of row c; k counts all of both columns.
  template <typename Pair> static __device__ __forceinline__ void exchanges(int c, const Pair& pair) {
#pragma unroll
    for (int j = c + 1; j < 4; j++) pair(j, c == 0 ? j - 1 : j + 1);
  }

  // Join a stretch with the next one, ``other``; whether there is doubt about a pivot.
  __device__ __forceinline__ bool join(int chunk, int other) const {
    const T none = T(0);
    CyclicRow<T, 6> row[4];  // in the last unknown, the first of the other; its last, the one after it, the one before, the first
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const int own = ROWS + 4 * j;
      row[j] = {{at(chunk, own), at(chunk, own + 1), none, none, at(chunk, own + 2), at(chunk, own + 3)}, rounding(chunk, j)};
      row[2 + j] = {{at(other, own + 2), at(other, own + 3), at(other, own), at(other, own + 1), none, none}, rounding(other, j)};
    }
    bool doubt = false;
#pragma unroll
    for (int c = 0; c < 2; c++) {
      exchanges(c, [&](int j, int k) {
        const bool swap = better_pivot(row[c], row[j], c);
        exchange(swap, row[c], row[j]);
        at(other, EXCHANGED + k) = T(swap ? 1 : 0);
      });
      doubt = doubt || is_doubtful(size(row[c].v[c]), row[c].rounding);
      exchanges(c, [&](int j, int k) {
        const T m = over(row[j].v[c], row[c].v[c]);
        at(other, MULTIPLIER + k) = m;
        row[j] = less(row[j], m, row[c]);
        row[j].v[c] = none;
      });
#pragma unroll
      for (int k = c; k < 6; k++) at(other, (c ? NEXT_PIVOT - 1 : PIVOT) + k) = row[c].v[k];
    }
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const CyclicRow<T, 6>& left = row[2 + j];
      leave(chunk, j, left.v[2], left.v[3], left.v[4], left.v[5], left.rounding);
    }
    return doubt;
  }

  // Their right sides.
  __device__ __forceinline__ void forward(int chunk, int other) const {
    T right[4] = {at(chunk, RIGHTS), at(chunk, RIGHTS + 1), at(other, RIGHTS), at(other, RIGHTS + 1)};
#pragma unroll
    for (int c = 0; c < 2; c++) {
      exchanges(c, [&](int j, int k) { exchange(at(other, EXCHANGED + k) == T(1), right[c], right[j]); });
      exchanges(c, [&](int j, int k) { right[j] = right[j] - at(other, MULTIPLIER + k) * right[c]; });
      at(other, JOINED + c) = right[c];
    }
    at(chunk, RIGHTS) = right[2], at(chunk, RIGHTS + 1) = right[3];
  }

  // The unknowns between them, where those at the ends of both are known.
  __device__ __forceinline__ void back(int chunk, int other) const {
    const T ends[4] = {at(chunk, LAST), at(chunk, AFTER), at(chunk, BEFORE), at(chunk, FOREMOST)};
    T last = at(other, JOINED), first = at(other, JOINED + 1);
#pragma unroll
    for (int k = 0; k < 4; k++) first = first - at(other, NEXT_PIVOT + 1 + k) * ends[k];
    first = over(first, at(other, NEXT_PIVOT));
#pragma unroll
    for (int k = 0; k < 4; k++) last = last - at(other, PIVOT + 2 + k) * ends[k];
    last = over(last - at(other, PIVOT + 1) * first, at(other, PIVOT));
    at(other, LAST) = ends[0], at(other, AFTER) = ends[1], at(other, BEFORE) = last, at(other, FOREMOST) = first;
    at(chunk, LAST) = last, at(chunk, AFTER) = first;
  }

  // What is left of all rows.
  __device__ __forceinline__ CyclicRow<T> root(int row) const {
    const int own = ROWS + 4 * row;
    return {{at(0, own), at(0, own + 1), T(0), at(0, own + 2), at(0, own + 3)}, rounding(0, row)};
  }
};
