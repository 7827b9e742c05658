// Few, long systems: chunks of R rows (`chunk.cu`), spread over all blocks. ``reduce`` leaves one row for every separator,
// which are solved as systems of their own; ``expand`` reads the rows again and finds what lies between them. 9 words an
// unknown, and about 20 / R for the separators and their correction; where a correction tells, chunks are expanded again. As Austin,
// Berndt and Moulton, A memory efficient parallel tridiagonal solver (2004), who partition across processors.
//
// The last slot of a block belongs to the first chunk of the next block: only what its neighbour needs of it is computed.
#include "chunk.cu"

// Which chunk of which system: slots of a block that are neighbours in ``p`` lie ``stride`` threads apart.
struct Slot {
  Index system, p, first;
  int stride;
  bool there, own;  // whether there is such a chunk; whether it is this block's
};

// How many blocks a group of systems has.
__device__ __forceinline__ Index blocks_of(const Job& job, int slots) { return (job.count + slots - 2) / (slots - 1); }

template <int R, bool TOGETHER> __device__ __forceinline__ Slot slot_of(const Job& job) {
  Slot slot;
  const int width = TOGETHER ? 1 : int(job.width), slots = blockDim.x / width, place = threadIdx.x / width;
  const Index blocks = blocks_of(job, slots), group = Index(blockIdx.x) / blocks;
  slot.system = group * width + threadIdx.x % width;
  slot.p = (blockIdx.x - group * blocks) * (slots - 1) + place;
  slot.first = slot.p * R;
  slot.stride = width;
  slot.there = slot.system < job.systems && slot.p < job.count;
  slot.own = slot.there && place < slots - 1;
  return slot;
}

// The block reads rows that lie side by side in the order of memory, a warp 32 R of them, each thread every 32nd from here.
template <int R> __device__ __forceinline__ int first_read() { return (threadIdx.x & ~31) * R + (threadIdx.x & 31); }

// What has been read so goes through a tile; each thread takes R entries from ``own`` on. As R is odd, chunks begin in
// different banks. The threads of a block are a multiple of 32.
template <typename T, int R> __device__ __forceinline__ void exchange(T (&v)[R], T* tile, int own) {
  static_assert(R % 2 == 1, "chunks of an even length begin in the same banks");
  T* read = tile + first_read<R>();
  __syncthreads();  // the tile may still be in use
#pragma unroll
  for (int r = 0; r < R; r++) read[32 * r] = v[r];
  __syncthreads();
  take(v, tile + own);
}

// Rows of one system that lie side by side, the whole block's.
template <typename T, int R>
__device__ __forceinline__ void fetch_run(T (&v)[R], const Job& job, const Band<T>& band, Index at, Index first) {
  const T* begin = band.begin + at;
#pragma unroll
  for (int r = 0; r < R; r++) {
    const Index i = first + first_read<R>() + 32 * r + band.shift;
    v[r] = begin[within(i, Index(0), job.n - 1) * band.row];
  }
}

// The chunk of a slot; the bits of its rows.
template <typename T, int R, bool TOGETHER>
__device__ __forceinline__ unsigned load_chunk(Chunk<T, R>& chunk, const Job& job, const Slot& slot, T* tile) {
  const Index system = slot.system < job.systems ? slot.system : 0;
  const Band<T> lower = lower_band<T>(job), upper = upper_band<T>(job);
  const Begin at = {offset(job, lower.operand, system), offset(job, B, system), offset(job, upper.operand, system),
                    offset(job, D, system)};
  if (TOGETHER) {
    const Index first = slot.first - Index(threadIdx.x) * R;
    fetch_run(chunk.lower, job, lower, at.lower, first);
    fetch_run(chunk.diagonal, job, whole_band<T>(job, B), at.diagonal, first);
    fetch_run(chunk.upper, job, upper, at.upper, first);
    fetch_run(chunk.right, job, whole_band<T>(job, D), at.right, first);
    exchange(chunk.lower, tile, threadIdx.x * R);
    exchange(chunk.diagonal, tile, threadIdx.x * R);
    exchange(chunk.upper, tile, threadIdx.x * R);
    exchange(chunk.right, tile, threadIdx.x * R);
  } else {
    load_rows(chunk, job, at, slot.first);
  }
  return keep_rows(chunk, job, mask_of(job, system), slot.first, slot.there);
}

// Where separator p of a system lies: as rows do, those of a system side by side, or those of neighbouring systems.
template <bool TOGETHER> __device__ __forceinline__ Index separator_at(const Job& job, Index system, Index p) {
  return TOGETHER ? system * job.count + p : p * job.systems + system;
}

template <typename T, int R, bool TOGETHER> __global__ void __launch_bounds__(256, sizeof(T) == 16 ? 1 : 2) reduce(Job job) {
  SHARED_MEMORY(memory);
  const Slot slot = slot_of<R, TOGETHER>(job);
  Chunk<T, R> chunk;
  load_chunk<T, R, TOGETHER>(chunk, job, slot, reinterpret_cast<T*>(memory));
  bool certified = true;
  bool beyond = false;
  const Row<T> head = head_of(chunk, beyond), tail = eliminate(chunk, certified, beyond);
  Row<T>* heads = reinterpret_cast<Row<T>*>(memory);
  __syncthreads();
  heads[threadIdx.x] = head;
  __syncthreads();
  if (!slot.own) return;
  const Row<T> none = {T(0), T(0), T(0)};
  T scale;
  bool sound = true;
  const Row<T> next = slot.p + 1 < job.count ? heads[threadIdx.x + slot.stride] : none;
  Row<T> row = separator_row(chunk, tail, next, scale, sound, beyond);
  if (beyond) row.d = not_a_number(T(0));  // numbers out of range, and so is the system's solution
  if (!sound) mark(job, slot.system, UNSOUND);
  const Index at = separator_at<TOGETHER>(job, slot.system, slot.p), all = job.count * job.systems;
  T* rows = static_cast<T*>(job.kept);
  rows[at] = row.a, rows[all + at] = row.c, rows[2 * all + at] = row.d, rows[3 * all + at] = scale;
  if (at == 0) rows[4 * all] = T(1);  // the diagonal
}

// What a slot's system has at separator p: the separator, or its correction.
template <bool TOGETHER, typename T>
__device__ __forceinline__ T at_separator(const void* values, const Job& job, const Slot& slot, Index p) {
  return slot.there && p >= 0 ? static_cast<const T*>(values)[separator_at<TOGETHER>(job, slot.system, p)] : T(0);
}

// Whether a correction changes the separators of a chunk by more than rounding, or its own row had asked for it.
template <bool TOGETHER, typename T> __device__ __forceinline__ bool corrects(const Job& job, const Slot& slot) {
  if (!slot.there || !(job.status[slot.system] & (UNSOLVED | UNSOUND))) return false;
  const Index at = separator_at<TOGETHER>(job, slot.system, slot.p), all = job.count * job.systems;
  bool found = !(static_cast<const T*>(job.kept)[2 * all + at] == T(0)) || job.status[slot.system] & UNSOUND;
  for (Index p = slot.p; p >= slot.p - 1; p--) {
    const T change = at_separator<TOGETHER, T>(job.results[1], job, slot, p), x = at_separator<TOGETHER, T>(job.results[0], job, slot, p);
    found = found || !(size(change) <= Real<T>(0.25) * Limits<T>::eps() * size(x));
  }
  return found;
}

template <typename T, int R, bool TOGETHER, bool CERTIFIED>
__global__ void __launch_bounds__(256, sizeof(T) == 16 ? 1 : 2) expand(Job job) {
  SHARED_MEMORY(memory);
  T* tile = reinterpret_cast<T*>(memory);
  const bool again = job.results[1];  // with corrected separators
  if (again && !job.status[job.systems]) return;
  const Slot slot = slot_of<R, TOGETHER>(job);
  if (again && !__syncthreads_or(corrects<TOGETHER, T>(job, slot))) return;
  Chunk<T, R> chunk;
  const unsigned bits = load_chunk<T, R, TOGETHER>(chunk, job, slot, tile);
  T separator = at_separator<TOGETHER, T>(job.results[0], job, slot, slot.p);
  bool certified = true;
  bool beyond = false;
  eliminate(chunk, certified, beyond);
  certified = certified && !beyond;
  solve_interior(chunk, at_separator<TOGETHER, T>(job.results[0], job, slot, slot.p - 1), separator);
  if (again && slot.there && job.status[slot.system] & (UNSOLVED | UNSOUND)) {  // a system, not its neighbours
    const T change = at_separator<TOGETHER, T>(job.results[1], job, slot, slot.p);
    correct(chunk, separator, at_separator<TOGETHER, T>(job.results[1], job, slot, slot.p - 1), change, certified);
  }
  __syncthreads();
  tile[threadIdx.x] = chunk.right[0];
  __syncthreads();
  const T next = slot.own && slot.p + 1 < job.count ? tile[threadIdx.x + slot.stride] : T(0);
  bool fits;
  const T residual = separator_residual(chunk, separator, next, fits);
  bool doubtful = !certified;
  if (slot.own && !again) {
    const Index at = separator_at<TOGETHER>(job, slot.system, slot.p), all = job.count * job.systems;
    T* rows = static_cast<T*>(job.kept);
    const T asked = fits ? T(0) : residual * rows[3 * all + at];
    rows[2 * all + at] = asked;
    if (!fits) mark(job, slot.system, UNSOLVED);
    doubtful = doubtful || (!fits && asked == T(0));  // no correction would come of it
  } else if (again) {
    doubtful = doubtful || !fits || (slot.there && job.status[slot.system] & UNSOUND);
  }
  if (CERTIFIED && slot.own && doubtful && !(atomicOr(&job.status[slot.system], LISTED) & LISTED)) doubt(job, slot.system);
  chunk.right[R - 1] = separator;
  cut_solution(chunk.right, bits);
  const Index system = slot.system < job.systems ? slot.system : 0;
  T* x = static_cast<T*>(job.operand[X]) + offset(job, X, system);
  if (TOGETHER) {
    __syncthreads();
#pragma unroll
    for (int j = 0; j < R; j++) tile[threadIdx.x * R + j] = chunk.right[j];
    __syncthreads();
    const Index first = slot.first - Index(threadIdx.x) * R;
#pragma unroll
    for (int r = 0; r < R; r++) {
      const int k = first_read<R>() + 32 * r;
      if (k < int(blockDim.x - 1) * R && first + k < job.n) x[(first + k) * job.row[X]] = tile[k];
    }
  } else if (slot.own) {
    store_apart(chunk.right, job, x, slot.first);
  }
}
