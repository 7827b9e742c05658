// Where the sequences of a recurrence lie: every operand is an array with strides; the same struct goes to every kernel.
//
// Step i is in row i of every operand: sequences that run backwards begin at their last row, and their strides are negative.
#pragma once
#include "access.cu"

const int MOST = 4;  // coefficients
enum Operand { Y, X, COEFFICIENT, INIT = COEFFICIENT + MOST, OPERANDS = INIT + MOST };

// All words of 8 bytes; `tridiag.cuda.sequences` writes them in this order.
struct Job {
  void* operand[OPERANDS];
  void* kept;  // scratch, of the kernel's own layout
  Index n, sequences;
  Index width, count;  // sequences of a block, and threads of a sequence
  Index chunk;  // rows of a thread
  Index tiles, groups;  // of a sequence, and of the sequences
  Index lanes, span;  // that look back for a sequence, and tiles of a group, which are no more
  Index given;  // whether there are values before the first step
  Index wide;  // operands that may be moved by 16 bytes, if they begin where such do: bit by bit
  Index size;  // the rows of matrices
  Index row[OPERANDS];  // strides in elements: from row to row,
  Index entry[OPERANDS], column;  // from entry to entry of a vector, from row to row and from column to column of a matrix,
  Index length[RANK], step[RANK][OPERANDS];  // and along the batch axes, outermost first
};

template <typename T> __device__ __forceinline__ const T* first_row(const Job& job, int operand, Index sequence) {
  return start<T>(job, operand) + offset(job, operand, sequence);
}

template <typename T> __device__ __forceinline__ T* first_value(const Job& job, Index sequence) {
  return static_cast<T*>(job.operand[Y]) + offset(job, Y, sequence);
}

// Whether the coefficient of the value k steps before step i multiplies anything; else it is not read.
__device__ __forceinline__ bool counts(const Job& job, Index i, int k) { return job.given || i >= k; }
