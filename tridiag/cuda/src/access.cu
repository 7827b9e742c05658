// Operands that are arrays with strides, of systems and of sequences alike.
#pragma once
#include "numbers.cu"

#ifdef __CUDA_CPU_SHIM__
#define SHARED_MEMORY(name) unsigned char* name = reinterpret_cast<unsigned char*>(cudasim::dynsmem())
#else
#define SHARED_MEMORY(name) extern __shared__ __align__(16) unsigned char name[]
#endif

struct __align__(16) Sixteen { unsigned long long low, high; };  // bytes that are moved at once

template <typename T> __device__ __forceinline__ bool is_aligned(const T* place) {
  return reinterpret_cast<unsigned long long>(place) % sizeof(Sixteen) == 0;
}
template <typename T> __device__ __forceinline__ Sixteen* sixteen(T* begin, int k) { return reinterpret_cast<Sixteen*>(begin) + k; }
template <typename T> __device__ __forceinline__ const Sixteen* sixteen(const T* begin, int k) {
  return reinterpret_cast<const Sixteen*>(begin) + k;
}

// What another lane of the warp has.
template <typename T> __device__ __forceinline__ T from_lane(T x, int lane) { return __shfl_sync(~0u, x, lane); }
template <typename R> __device__ __forceinline__ Complex<R> from_lane(Complex<R> x, int lane) {
  return Complex<R>(from_lane(x.re, lane), from_lane(x.im, lane));
}

// Words copied to shared memory while the thread goes on. It has them after `wait_for_copies`, its block after the next barrier.
template <typename R> __device__ __forceinline__ void copy_later(R* to, const R* from) {
#if defined(__CUDA_CPU_SHIM__)
  cudasim::copy_later(to, from, sizeof(R));
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  const unsigned place = unsigned(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" : : "r"(place), "l"(from), "n"(sizeof(R)) : "memory");
#else
  *to = *from;
#endif
}
template <typename R> __device__ __forceinline__ void copy_later(Complex<R>* to, const Complex<R>* from) {
  copy_later(&to->re, &from->re);
  copy_later(&to->im, &from->im);
}

__device__ __forceinline__ void wait_for_copies() {
#if defined(__CUDA_CPU_SHIM__)
  cudasim::wait_for_copies();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" : : : "memory");
#endif
}

// The same number, of which the compiler knows nothing: what is computed from it is not kept in registers beyond a loop's turn.
__device__ __forceinline__ int forgotten(int x) {
#ifndef __CUDA_CPU_SHIM__
  asm volatile("" : "+r"(x));
#endif
  return x;
}
template <typename X> __device__ __forceinline__ X forgotten(X x) {  // of 64 bits
  static_assert(sizeof(X) == 8, "an address, or a number of elements");
#ifndef __CUDA_CPU_SHIM__
  asm volatile("" : "+l"(x));
#endif
  return x;
}

// Put a system, or a series, on a list: how many there are, and then which.
__device__ __forceinline__ void put_on(Index* list, Index item) {
  const Index place = static_cast<Index>(atomicAdd(reinterpret_cast<unsigned long long*>(list), 1ULL));
  list[1 + place] = item;
}

[[maybe_unused]] const int RANK = 4;  // batch axes, merged where they can be

// Where the first row of a system or a sequence lies, in elements from an operand's beginning.
template <typename Job> __device__ __forceinline__ Index offset(const Job& job, int operand, Index system) {
  if (system < job.length[RANK - 1]) return system * job.step[RANK - 1][operand];
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
