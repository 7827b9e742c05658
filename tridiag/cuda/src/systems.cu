// Where the systems lie: every operand is an array with strides; the same struct goes to every kernel, by value.
#pragma once
#include "access.cu"

enum Operand { A, B, C, WHERE, D, X, OPERANDS };

// All words of 8 bytes; `tridiag.cuda.struct` writes them in this order.
struct Job {
  void* operand[OPERANDS];
  void* kept;        // scratch, of the kernel's own layout
  Index* doubtful;   // how many systems have no certificate, and then which
  int* status;       // for each system, where the kernel tells it
  void* results[2];  // what else it tells
  Index n, systems;
  Index width, count;  // systems of a block, and threads, or chunks, of a system
  Index magic;         // 2^32 / n + 1, which divides by n
  Index transpose, periodic, refine, stretch;  // whether all operands but the mask are one stretch of memory each
  Index row[OPERANDS];  // strides in elements: from row to row,
  Index length[RANK], step[RANK][OPERANDS];  // and along the batch axes, outermost first
};

// One diagonal of the matrix, or of its transpose: entry i is that of row i + shift of an operand. Rows that an operand does
// not have stand for their nearest: nothing is read beyond its ends, and what is read there is not used (`cut`).
template <typename T> struct Band {
  const T* begin;
  Index row;
  int operand, shift;
};

// a[i] of the matrix is a[i], of its transpose c[i - 1]; c[i] likewise a[i + 1].
template <typename T> __device__ __forceinline__ Band<T> lower_band(const Job& job) {
  const int operand = job.transpose ? C : A;
  return {start<T>(job, operand), job.row[operand], operand, job.transpose ? -1 : 0};
}
template <typename T> __device__ __forceinline__ Band<T> upper_band(const Job& job) {
  const int operand = job.transpose ? A : C;
  return {start<T>(job, operand), job.row[operand], operand, job.transpose ? 1 : 0};
}
template <typename T> __device__ __forceinline__ Band<T> whole_band(const Job& job, int operand) {
  return {start<T>(job, operand), job.row[operand], operand, 0};
}

template <typename I> __device__ __forceinline__ I within(I i, I low, I high) { return i < low ? low : i > high ? high : i; }

// Rows that lie apart in memory, those of neighbouring systems side by side: every thread reads its own.
template <typename T, int R>
__device__ __forceinline__ void load_apart(T (&v)[R], const Job& job, const Band<T>& band, Index at, Index first) {
  const Index before = first + band.shift;
  const T* place = band.begin + at + within(before, Index(0), job.n - 1) * band.row;
#pragma unroll
  for (int j = 0; j < R; j++) {
    v[j] = *place;
    const Index next = before + j + 1;
    place += next > 0 && next < job.n ? band.row : 0;
  }
}

// Entry i of rows that lie so many bytes apart; the address by one instruction.
template <typename T> __device__ __forceinline__ T* entry(T* begin, int bytes, int i) {
#ifdef __CUDA_CPU_SHIM__
  return reinterpret_cast<T*>(reinterpret_cast<unsigned long long>(begin) + Index(bytes) * i);
#else
  T* found;
  asm("mad.wide.s32 %0, %1, %2, %3;" : "=l"(found) : "r"(bytes), "r"(i), "l"(begin));
  __builtin_assume(__isGlobal(found));
  return found;
#endif
}

const Index NARROW = 1 << 28;  // steps and numbers of rows of which `entry` can tell

__device__ __forceinline__ bool is_narrow(Index row) { return row > -NARROW / 16 && row < NARROW / 16; }

// A chunk's rows of a system that begins at ``begin``, which is narrow; all there, or those beyond its ends stand for others.
template <typename T, int R> __device__ __forceinline__ void load_inside(T (&v)[R], const T* begin, Index row, int first) {
  const T* place = begin + first * row;
#pragma unroll
  for (int j = 0; j < R; j++) v[j] = *entry(place, int(row * Index(sizeof(T))), j);
}
template <typename T, int R>
__device__ __forceinline__ void load_within(T (&v)[R], const T* begin, Index row, int first, int n) {
#pragma unroll
  for (int j = 0; j < R; j++) v[j] = *entry(begin, int(row * Index(sizeof(T))), within(first + j, 0, n - 1));
}

__device__ __forceinline__ const unsigned char* mask_of(const Job& job, Index system) {
  const unsigned char* mask = static_cast<const unsigned char*>(job.operand[WHERE]);
  return mask ? mask + offset(job, WHERE, system) : 0;
}

// Whether row i exists and is not taken out.
__device__ __forceinline__ bool keeps(const Job& job, const unsigned char* mask, Index i) {
  return i >= 0 && i < job.n && (!mask || mask[i * job.row[WHERE]]);
}

// Put a system on the list of those that have no certificate.
__device__ __forceinline__ void doubt(const Job& job, Index system) { put_on(job.doubtful, system); }
