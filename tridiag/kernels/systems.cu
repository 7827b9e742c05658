// Where the systems lie: every operand is an array with strides; the same struct goes to every kernel, by value.
#pragma once
#include "numbers.cu"

#ifdef __CUDA_CPU_SHIM__
#define SHARED_MEMORY(name) unsigned char* name = reinterpret_cast<unsigned char*>(cudasim::dynsmem())
#else
#define SHARED_MEMORY(name) extern __shared__ __align__(16) unsigned char name[]
#endif

enum Operand { A, B, C, WHERE, D, X, OPERANDS };
const int RANK = 4;  // batch axes, merged where they can be

// All words of 8 bytes; `tridiag.cuda.job` writes them in this order.
struct Job {
  void* operand[OPERANDS];
  void* kept;        // scratch, of the kernel's own layout
  Index* doubtful;   // how many systems have no certificate, and then which
  int* status;       // for each system, where the kernel tells it
  void* results[2];  // what else it tells
  Index n, systems;
  Index width, count;  // systems of a block, and threads, or chunks, of a system
  Index magic;         // 2^32 / n + 1, which divides by n
  Index transpose, periodic, refine;
  Index row[OPERANDS];  // strides in elements: from row to row,
  Index length[RANK], step[RANK][OPERANDS];  // and along the batch axes, outermost first
};

// Where the first row of a system lies, in elements from an operand's beginning.
__device__ __forceinline__ Index offset(const Job& job, int operand, Index system) {
  Index found = 0;
#pragma unroll
  for (int k = RANK - 1; k > 0; k--) {
    if (job.length[k] == 1) continue;
    const Index outer = system / job.length[k];
    found += (system - outer * job.length[k]) * job.step[k][operand];
    system = outer;
  }
  return found + system * job.step[0][operand];
}

// One diagonal of the matrix, or of its transpose, as rows of a system: where it begins, its stride, and which rows it has.
template <typename T> struct Band {
  const T* begin;
  Index row;
  int operand;
  Index first, last;  // rows outside are never read
};

template <typename T> __device__ __forceinline__ const T* start(const Job& job, int operand) {
  return static_cast<const T*>(job.operand[operand]);
}

// a[i] of the matrix is a[i], of its transpose c[i - 1]; c[i] likewise a[i + 1].
template <typename T> __device__ __forceinline__ Band<T> lower_band(const Job& job) {
  const int operand = job.transpose ? C : A;
  const T* begin = start<T>(job, operand) - (job.transpose ? job.row[C] : 0);
  return {begin, job.row[operand], operand, 1, job.n};
}
template <typename T> __device__ __forceinline__ Band<T> upper_band(const Job& job) {
  const int operand = job.transpose ? A : C;
  const T* begin = start<T>(job, operand) + (job.transpose ? job.row[A] : 0);
  return {begin, job.row[operand], operand, 0, job.n - 1};
}
template <typename T> __device__ __forceinline__ Band<T> whole_band(const Job& job, int operand) {
  return {start<T>(job, operand), job.row[operand], operand, 0, job.n};
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
__device__ __forceinline__ void doubt(const Job& job, Index system) {
  const Index place = static_cast<Index>(atomicAdd(reinterpret_cast<unsigned long long*>(job.doubtful), 1ULL));
  job.doubtful[1 + place] = system;
}
