// Many systems, several threads for each: a chunk of rows in the registers of a thread (`chunk.cu`), the separators' system
// by parallel cyclic reduction in shared memory. One read and one write of global memory. As Laszlo, Giles and Appleyard,
// Manycore algorithms for batch scalar and block tridiagonal solvers (2016), do it; Hockney and Jesshope (1981) for PCR.
//
// TOGETHER: rows of a system lie side by side, and pass through tiles in shared memory, one for each diagonal and one for the
// right-hand sides, so that they are read and written in the order of memory. A block takes one group of systems after another;
// while it works on one, the next is on its way. Else rows of neighbouring systems lie side by side.
// CERTIFIED: solutions without a certificate are not written; their systems go on the list. Else, where a kernel is told
// ``status``, systems are marked there whose separators' system is singular but for rounding. Where there is something ``kept``
// and it is zero, nothing is to be done.
#include "chunk.cu"

const int TILES = 4;  // a tile for each diagonal and for the right-hand sides

// x of a row a thread, from rows in pairs of buffers; ``stride``: threads from a chunk to the next of its system.
template <typename T>
__device__ __forceinline__ T reduce_cyclically(Row<T> row, Row<T>* rows, int p, int count, int stride, bool& sound, bool& beyond) {
  const Row<T> none = {T(0), T(0), T(0)};
  __syncthreads();  // the buffers may still be in use
  for (int step = 1, flip = 0; step < count; step *= 2, flip ^= 1) {
    Row<T>* here = rows + flip * blockDim.x + threadIdx.x;
    *here = row;
    __syncthreads();
    const Row<T> before = p >= step ? here[-step * stride] : none;
    const Row<T> after = p + step < count ? here[step * stride] : none;
    const T pivot = T(1) - row.a * before.c - row.c * after.a, scale = one_over(pivot, beyond);
    sound = sound & stands_out(pivot, T(1));
    row.d = (row.d - row.a * before.d - row.c * after.d) * scale;
    row.a = -(row.a * before.a * scale);
    row.c = -(row.c * after.c * scale);
  }
  return row.d;
}

// What is said of a system: that its separators are corrected, that it has no certificate, that numbers were out of range.
enum Flag { CORRECTED = 1, DOUBTFUL = 2, LOST_RANGE = 4 };

// The part of a thread: ``system`` and ``p``, its chunk, are its own, unless it is idle; ``here`` systems in its block's group.
struct Part {
  bool idle;
  int s, p, width, count, stride, here;
  Index first_system, system;
};

__device__ __forceinline__ void move_to(Part& part, const Job& job, Index group) {
  part.first_system = group * part.width;
  const Index rest = job.systems - part.first_system;
  part.here = rest < part.width ? int(rest) : part.width;
  part.system = part.first_system + part.s;
}

__device__ __forceinline__ Part part_of(const Job& job, Index group, bool together) {
  Part part;
  part.width = int(job.width), part.count = int(job.count);
  const int t = threadIdx.x;
  part.idle = t >= part.width * part.count;
  part.s = part.idle ? 0 : together ? t / part.count : t % part.width;
  part.p = part.idle ? part.count - 1 : together ? t - part.s * part.count : t / part.width;
  part.stride = together ? 1 : part.width;
  move_to(part, job, group);
  return part;
}

// What the thread of the chunk before has, by way of a buffer; 0 for the first chunk.
template <typename T> __device__ __forceinline__ T shared_before(T own, T* buffer, const Part& part) {
  __syncthreads();  // the buffer may still be in use
  buffer[threadIdx.x] = own;
  __syncthreads();
  return part.p > 0 ? buffer[int(threadIdx.x) - part.stride] : T(0);
}

// The same of the chunk after; 0 for the last one.
template <typename T> __device__ __forceinline__ T shared_after(T own, T* buffer, const Part& part) {
  __syncthreads();  // the buffer may still be in use
  buffer[threadIdx.x] = own;
  __syncthreads();
  return part.p + 1 < part.count ? buffer[threadIdx.x + part.stride] : T(0);
}

// System and row of entry k of the rows of a block, one system after the other.
__device__ __forceinline__ void locate(const Job& job, int k, int& s, int& i) {
  s = job.n == 1 ? k : int(__umulhi(unsigned(k), unsigned(job.magic)));
  i = k - s * int(job.n);
}

// Where operands begin, for every system of a block.
__device__ __forceinline__ void find_offsets(Index* offsets, const Job& job, const Part& part) {
  for (int k = threadIdx.x; k < part.width * OPERANDS; k += blockDim.x) {
    const int s = k / OPERANDS, operand = k - s * OPERANDS;
    const Index system = part.first_system + (s < part.here ? s : 0);
    const bool known = operand == WHERE ? !job.operand[WHERE] : job.stretch;
    offsets[k] = known ? system * job.n : offset(job, operand, system);
  }
}

// What the systems of a group have, on its way to the tiles.
template <typename T, int R>
__device__ __forceinline__ void request(T* tiles, const Job& job, const Part& part, const Index* offsets) {
  const int n = int(job.n), threads = forgotten(int(blockDim.x)), t = forgotten(int(threadIdx.x)), tile = threads * R;
  const Band<T> bands[TILES] = {lower_band<T>(job), whole_band<T>(job, B), upper_band<T>(job), whole_band<T>(job, D)};
  const Index first = part.first_system * job.n, rest = job.systems * job.n - first;
  if (job.stretch && first > 0 && rest > tile) {  // entries of one stretch each, which goes on before and after them
    const T* begin[TILES];
    bool aligned = true;
#pragma unroll
    for (int b = 0; b < TILES; b++) {
      begin[b] = bands[b].begin + (first + bands[b].shift);
      aligned = aligned && is_aligned(begin[b]);
    }
    if (aligned) {
      const int wide = sizeof(Sixteen) / sizeof(T), size = (part.here * n + wide - 1) / wide;
#pragma unroll
      for (int r = 0; r < (R + wide - 1) / wide; r++) {
        const int k = r * threads + t;
        if (k >= size) continue;
#pragma unroll
        for (int b = 0; b < TILES; b++) copy_later(sixteen(tiles + b * tile, k), sixteen(begin[b], k));
      }
    } else {
      const int size = part.here * n;
#pragma unroll
      for (int r = 0; r < R; r++) {
        const int k = r * threads + t;
        if (k >= size) continue;
#pragma unroll
        for (int b = 0; b < TILES; b++) copy_later(tiles + (b * tile + k), begin[b] + k);
      }
    }
    return;
  }
#pragma unroll 1
  for (int k = t; k < part.here * n; k += threads) {
    int s, i;
    locate(job, k, s, i);
#pragma unroll
    for (int b = 0; b < TILES; b++) {
      const Index place = within(i + bands[b].shift, 0, n - 1) * bands[b].row;
      copy_later(tiles + (b * tile + k), bands[b].begin + (offsets[s * OPERANDS + bands[b].operand] + place));
    }
  }
}

template <typename T, int R>
__device__ __forceinline__ void store_together(const T (&v)[R], const Job& job, const Part& part, const Index* offsets,
                                               const int* flags, T* tile) {
  const int n = int(job.n), rows = part.idle ? 0 : n - part.p * R;
  T* own = tile + (part.s * n + part.p * R);
#pragma unroll
  for (int j = 0; j < R; j++) {
    if (j < rows) own[j] = v[j];
  }
  __syncthreads();
  T* x = static_cast<T*>(job.operand[X]);
  const int size = part.here * n;
  if (job.stretch && !flags[part.width + 1]) {  // no system of the block is left out
    const int threads = forgotten(int(blockDim.x)), t = forgotten(int(threadIdx.x));
    x += part.first_system * job.n;
    const int wide = sizeof(Sixteen) / sizeof(T);
    if (is_aligned(x) && size % wide == 0) {
#pragma unroll
      for (int r = 0; r < (R + wide - 1) / wide; r++) {
        const int k = r * threads + t;
        if (k < size / wide) *sixteen(x, k) = *sixteen(tile, k);
      }
    } else {
#pragma unroll
      for (int r = 0; r < R; r++) {
        const int k = r * threads + t;
        if (k < size) x[k] = tile[k];
      }
    }
    return;
  }
#pragma unroll 1
  for (int k = threadIdx.x; k < size; k += blockDim.x) {
    int s, i;
    locate(job, k, s, i);
    if (!(flags[s] & DOUBTFUL)) x[offsets[s * OPERANDS + X] + i * job.row[X]] = tile[k];
  }
}

// The systems of a group, from their entries to their solutions; ``tile`` takes what passes among threads.
template <typename T, int R, bool TOGETHER, bool CERTIFIED>
__device__ __forceinline__ void solve_group(Chunk<T, R>& chunk, const Job& job, const Part& part, const Index* offsets, int* flags,
                                            T* tile) {
  Row<T>* rows = reinterpret_cast<Row<T>*>(tile);
  const bool there = part.s < part.here && !part.idle;
  const Index* own = offsets + part.s * OPERANDS;
  const int first = part.p * R;
  const unsigned char* mask = static_cast<const unsigned char*>(job.operand[WHERE]);
  const unsigned bits = keep_rows(chunk, job, mask ? mask + own[WHERE] : 0, Index(first), there);

  bool certified = true;
  bool beyond = false;
  const Row<T> head = head_of(chunk, beyond), tail = eliminate(chunk, certified, beyond);
  rows[threadIdx.x] = head;
  __syncthreads();
  const bool last = part.p + 1 == part.count;
  const Row<T> none = {T(0), T(0), T(0)};
  T scale;
  bool sound = true, fits;
  Row<T> row = separator_row(chunk, tail, last ? none : rows[threadIdx.x + part.stride], scale, sound, beyond);
  T separator = reduce_cyclically(row, rows, part.p, part.count, part.stride, sound, beyond);
  T* separators = reinterpret_cast<T*>(rows);
  solve_interior(chunk, shared_before(separator, separators, part), separator);

  const T residual = separator_residual(chunk, separator, shared_after(chunk.right[0], separators, part), fits);
  if (there && !fits) {
    atomicOr(&flags[part.s], CORRECTED);
    atomicOr(&flags[part.width], CORRECTED);
  }
  __syncthreads();
  if (flags[part.width]) {  // of all threads alike
    row.d = residual * scale;
    const T change = reduce_cyclically(row, rows, part.p, part.count, part.stride, sound, beyond);
    const T before = shared_before(change, separators, part);
    if (flags[part.s]) {  // what becomes of a system is not its neighbours' business
      correct(chunk, separator, before, change, certified);
    }
    if (CERTIFIED) separator_residual(chunk, separator, shared_after(chunk.right[0], separators, part), fits);
  }
  if (CERTIFIED && there && !(certified && sound && fits && !beyond)) {
    atomicOr(&flags[part.s], DOUBTFUL);
    atomicOr(&flags[part.width + 1], DOUBTFUL);
  }
  if (!CERTIFIED && there && beyond) atomicOr(&flags[part.s], LOST_RANGE);
  __syncthreads();  // the flags are set, and the buffers have been read
  if (CERTIFIED) {
    if (there && part.p == 0 && flags[part.s] & DOUBTFUL) doubt(job, part.system);
  } else if (job.status && there && !sound) {
    mark(job, part.system, UNSOUND);
  }
  chunk.right[R - 1] = separator;
  if (!CERTIFIED && flags[part.s] & LOST_RANGE) {
#pragma unroll
    for (int j = 0; j < R; j++) chunk.right[j] = not_a_number(T(0));
  }
  cut_solution(chunk.right, bits);
  if (TOGETHER) {
    store_together(chunk.right, job, part, offsets, flags, tile);
  } else if (there && !(flags[part.s] & DOUBTFUL)) {
    store_apart(chunk.right, job, static_cast<T*>(job.operand[X]) + own[X], first);
  }
}

// Threads that registers have to suffice for: more than a block has where that makes room for another block, and costs no spill.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 1000
const int ROOMY = 640;
#else
const int ROOMY = 512;
#endif
template <typename T, int R, bool TOGETHER> struct Threads {
  static constexpr bool real = Limits<T>::parts == 1, wide = TOGETHER ? sizeof(T) == 4 && R > 7 : sizeof(T) == 8;
  static constexpr bool small = TOGETHER && sizeof(T) == 8 && R < 7;
  static constexpr int most = sizeof(T) == 16 ? 256 : !real ? 512 : small ? ROOMY + 128 : wide ? ROOMY : 512;
};

template <typename T, int R, bool TOGETHER, bool CERTIFIED>
__global__ void __launch_bounds__((Threads<T, R, TOGETHER>::most), 1) chunks(Job job) {
  SHARED_MEMORY(memory);
  if (job.kept && !*static_cast<const int*>(job.kept)) return;
  const int width = int(job.width);
  const Index groups = (job.systems + width - 1) / width;
  Index *offsets = reinterpret_cast<Index*>(memory), *others = offsets + TOGETHER * width * OPERANDS;  // of this group, of the next
  // of the systems; then, whether any is to be corrected, and whether any has no certificate
  int* flags = reinterpret_cast<int*>(others + width * OPERANDS);
  T* tiles = reinterpret_cast<T*>(flags + (width + 5) / 4 * 4);
  Part part = part_of(job, blockIdx.x, TOGETHER);
  find_offsets(offsets, job, part);
  if (!TOGETHER) {
    for (int k = threadIdx.x; k < width + 2; k += blockDim.x) flags[k] = 0;
    __syncthreads();
    Chunk<T, R> chunk;
    const Index* own = offsets + part.s * OPERANDS;
    load_rows(chunk, job, {own[job.transpose ? C : A], own[B], own[job.transpose ? A : C], own[D]}, Index(part.p * R));
    solve_group<T, R, TOGETHER, CERTIFIED>(chunk, job, part, offsets, flags, tiles);
    return;
  }
  __syncthreads();
  request<T, R>(tiles, job, part, offsets);
#pragma unroll 1
  for (Index group = blockIdx.x;;) {
    Chunk<T, R> chunk;
    const int size = forgotten(int(blockDim.x)) * R, own = part.s * int(job.n) + part.p * R;
    wait_for_copies();
    __syncthreads();  // ... those of all threads; and the flags and offsets before have been read
    take(chunk.lower, tiles + own);
    take(chunk.diagonal, tiles + size + own);
    take(chunk.upper, tiles + 2 * size + own);
    take(chunk.right, tiles + 3 * size + own);
    for (int k = threadIdx.x; k < width + 2; k += blockDim.x) flags[k] = 0;
    const Index next = group + gridDim.x;
    const bool more = next < groups;
    if (more) {
      Part following = part;
      move_to(following, job, next);
      find_offsets(others, job, following);
      __syncthreads();  // the tiles have been read
      request<T, R>(tiles, job, following, others);
    }
    solve_group<T, R, TOGETHER, CERTIFIED>(chunk, job, part, offsets, flags, tiles + 4 * size);
    if (!more) return;
    group = next;
    move_to(part, job, group);
    Index* const before = offsets;
    offsets = others, others = before;
  }
}
