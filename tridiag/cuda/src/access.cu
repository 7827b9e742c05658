// Operands that are arrays with strides, of systems and of sequences alike.
#pragma once
#include "numbers.cu"

#ifdef __CUDA_CPU_SHIM__
#define SHARED_MEMORY(name) unsigned char* name = reinterpret_cast<unsigned char*>(cudasim::dynsmem())
#else
#define SHARED_MEMORY(name) extern __shared__ __align__(16) unsigned char name[]
#endif

const int RANK = 4;  // batch axes, merged where they can be

// Where the first row of a system or a sequence lies, in elements from an operand's beginning.
template <typename Job> __device__ __forceinline__ Index offset(const Job& job, int operand, Index system) {
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

template <typename T, typename Job> __device__ __forceinline__ const T* start(const Job& job, int operand) {
  return static_cast<const T*>(job.operand[operand]);
}
