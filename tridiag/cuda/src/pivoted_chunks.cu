// Long systems without a certificate, a block for each and a thread for each chunk of its rows: elimination with partial pivoting,
// then refinement. A chunk leaves two rows (`Stretch`), and neighbouring chunks are joined (`Joints`), as Wright, Parallel algorithms
// for banded linear systems (1991): neither breaks down where the matrix is regular. Systems in which a pivot may be no more than
// rounding, or whose residuals do not become small, go on the list in ``results[0]``: a thread solves them from the beginning, and
// tells which are singular (`pivoted.cu`).
#include "joints.cu"

// The chunk of a thread. Factors and iterates are kept in scratch memory, those of neighbouring threads side by side.
template <typename T> struct Chunk {
  enum { Y = Stretch<T>::WORDS, ITERATE, RIGHT, WORDS };
  const System<T>& system;
  const Joints<T>& joints;
  const Scratch<T>& kept;
  int own;

  __device__ __forceinline__ Index begin(int chunk) const { return chunk * system.job.n / joints.chunks; }
  __device__ __forceinline__ Index rows(int chunk) const { return begin(chunk + 1) - begin(chunk); }
  __device__ __forceinline__ Stretch<T> stretch() const { return {system, kept, begin(own), rows(own)}; }
  // Whether the stretch of so many chunks that begins here is joined with the next one.
  __device__ __forceinline__ bool joins(int width) const { return own % (2 * width) == 0 && own + width < joints.chunks; }
  __device__ __forceinline__ Corner<T> corner() const { return {joints.root(0), joints.root(1)}; }

  // Whether there is doubt about a pivot of this thread's.
  __device__ __forceinline__ bool factor() const {
    CyclicRow<T> first, second;
    bool doubt = false;
    stretch().eliminate(system, first, second, [&](Index, const CyclicPivot<T>& pivot) {
      doubt = doubt || is_doubtful(size(pivot.row.v[0]), pivot.row.rounding);
    });
    joints.leave(own, 0, first.v[0], first.v[1], first.v[3], first.v[4], first.rounding);
    joints.leave(own, 1, second.v[0], second.v[1], second.v[3], second.v[4], second.rounding);
    for (int width = 1; width < joints.chunks; width *= 2) {
      __syncthreads();
      if (joins(width)) doubt = joints.join(own, own + width) || doubt;
    }
    return doubt || (own == 0 && corner().doubtful);
  }

  // The right sides in word Y become the solution.
  __device__ __forceinline__ void substitute() const {
    T first, second;
    stretch().template forward<Y>(first, second);
    joints.at(own, RIGHTS) = first, joints.at(own, RIGHTS + 1) = second;
    int width = 1;
    for (; width < joints.chunks; width *= 2) {
      __syncthreads();
      if (joins(width)) joints.forward(own, own + width);
    }
    if (own == 0) {
      corner().solve(joints.at(0, RIGHTS), joints.at(0, RIGHTS + 1), joints.at(0, LAST), joints.at(0, FOREMOST));
      joints.at(0, BEFORE) = joints.at(0, LAST), joints.at(0, AFTER) = joints.at(0, FOREMOST);
    }
    while (width > 1) {
      width /= 2;
      if (joins(width)) joints.back(own, own + width);
      __syncthreads();
    }
    stretch().template back<Y>(joints.at(own, BEFORE), joints.at(own, FOREMOST), joints.at(own, LAST), joints.at(own, AFTER));
  }

  // The iterate in a row of this chunk, or in the last one of the chunk before or the first of the next.
  __device__ __forceinline__ T iterate(Index i) const {
    if (i >= 0 && i < rows(own)) return kept.at(i, ITERATE);
    const int last = joints.chunks - 1, other = i < 0 ? (own > 0 ? own - 1 : last) : (own < last ? own + 1 : 0);
    const Scratch<T> beside = {kept.begin + (other - own), kept.words, kept.stride};
    return beside.at(i < 0 ? rows(other) - 1 : 0, ITERATE);
  }

  // Word Y becomes the residuals of the iterate where they are more than rounding; whether they are too large somewhere.
  __device__ __forceinline__ bool find_residuals(int step) const {
    const Real<T> bar = Real<T>(REFINE_ABOVE) * Limits<T>::eps();
    bool large = false;
    T before = iterate(-1), here = iterate(0);
    for (Index i = 0; i < rows(own); i++) {
      Real<T> error;
      const T after = iterate(i + 1);
      kept.at(i, Y) = residual(system, begin(own) + i, step, before, here, after, kept.at(i, RIGHT), error);
      large = large || !(error <= bar);
      before = here, here = after;
    }
    return large;
  }

  // Whether the system is solved. All threads of a block come to the same.
  __device__ __forceinline__ bool solve() const {
    const Index count = rows(own), first = begin(own);
    if (__syncthreads_or(factor())) return false;
    for (Index i = 0; i < count; i++) kept.at(i, RIGHT) = kept.at(i, Y) = system.right(first + i);
    for (int step = 0;; step++) {
      substitute();
      for (Index i = 0; i < count; i++) {
        const T found = kept.at(i, Y);
        kept.at(i, ITERATE) = step == 0 ? found : corrected(kept.at(i, ITERATE), found, step - 1);
      }
      __syncthreads();  // the neighbours have their iterates
      if (!__syncthreads_or(find_residuals(step))) break;
      if (step == RETURN_AFTER) return false;  // what needs more is not worth it here
    }
    for (Index i = 0; i < count; i++) system.solution(first + i) = kept.at(i, ITERATE);
    return true;
  }
};

// The systems on the list, or all where there is none.
template <typename T> __global__ void __launch_bounds__(256, 1) pivoted_chunks(Job job) {
  const int chunks = blockDim.x, own = threadIdx.x, words = Chunk<T>::WORDS;
  const Index rows = (job.n + chunks - 1) / chunks, each = chunks * (rows * words + KNOWN);
  T* begin = static_cast<T*>(job.kept) + blockIdx.x * each;
  const Joints<T> joints = {begin, chunks};
  const Scratch<T> kept = {begin + chunks * KNOWN + own, words, chunks};
  const Index count = job.doubtful ? job.doubtful[0] : job.systems;
  for (Index k = blockIdx.x; k < count; k += gridDim.x) {
    const Index place = job.doubtful ? job.doubtful[1 + k] : k;
    const System<T> system(job, place);
    const Chunk<T> chunk = {system, joints, kept, own};
    if (!chunk.solve() && own == 0) put_on(static_cast<Index*>(job.results[0]), place);
  }
}
