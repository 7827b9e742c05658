// Many systems, several threads for each: a chunk of rows in the registers of a thread (`chunk.cu`), the separators' system
// by parallel cyclic reduction in shared memory. One read and one write of global memory. As Laszlo, Giles and Appleyard,
// Manycore algorithms for batch scalar and block tridiagonal solvers (2016), do it; Hockney and Jesshope (1981) for PCR.
//
// TOGETHER: rows of a system lie side by side; they pass through a tile in shared memory, so that reads are coalesced. Else
// rows of neighbouring systems lie side by side.
// CERTIFIED: solutions without a certificate are not written; their systems go on the list. Else, where a kernel is told
// ``status``, systems are marked there whose separators' system is singular but for rounding.
#include "chunk.cu"

// x of a row a thread, from rows in pairs of buffers; ``stride``: threads from a chunk to the next of its system.
template <typename T>
__device__ __forceinline__ T reduce_cyclically(Row<T> row, Row<T>* rows, int p, int count, int stride, bool& sound) {
  const Row<T> none = {T(0), T(0), T(0)};
  __syncthreads();  // the buffers may still be in use
  for (int step = 1, flip = 0; step < count; step *= 2, flip ^= 1) {
    Row<T>* here = rows + flip * blockDim.x + threadIdx.x;
    *here = row;
    __syncthreads();
    const Row<T> before = p >= step ? here[-step * stride] : none;
    const Row<T> after = p + step < count ? here[step * stride] : none;
    const T pivot = T(1) - row.a * before.c - row.c * after.a, scale = one_over(pivot);
    sound = sound && stands_out(pivot, T(1));
    row.d = (row.d - row.a * before.d - row.c * after.d) * scale;
    row.a = -(row.a * before.a * scale);
    row.c = -(row.c * after.c * scale);
  }
  return row.d;
}

// What is said of a system: that its separators are corrected, that it has no certificate.
enum Flag { CORRECTED = 1, DOUBTFUL = 2 };

// The part of a block: ``system`` and ``p``, its chunk, are the thread's own, unless it is idle; ``here`` systems in all.
struct Part {
  bool idle;
  int s, p, width, count, stride, here;
  Index first_system, system;
};

__device__ __forceinline__ Part part_of(const Job& job, bool together) {
  Part part;
  part.width = int(job.width), part.count = int(job.count);
  const int t = threadIdx.x;
  part.idle = t >= part.width * part.count;
  part.s = part.idle ? 0 : together ? t / part.count : t % part.width;
  part.p = part.idle ? part.count - 1 : together ? t - part.s * part.count : t / part.width;
  part.stride = together ? 1 : part.width;
  part.first_system = Index(blockIdx.x) * part.width;
  const Index rest = job.systems - part.first_system;
  part.here = rest < part.width ? int(rest) : part.width;
  part.system = part.first_system + part.s;
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

// Rows that lie side by side: the block reads one system after the other, wherever they are.
template <typename T, int R>
__device__ __forceinline__ void load_together(T (&v)[R], const Job& job, const Band<T>& band, const Part& part,
                                              const Index* offsets, T* tile, int own) {
  __syncthreads();  // the tile may still be in use
#pragma unroll 4
  for (int k = threadIdx.x; k < part.here * job.n; k += blockDim.x) {
    int s, i;
    locate(job, k, s, i);
    const Index place = within(i + band.shift, 0, int(job.n) - 1) * band.row;
    tile[k] = band.begin[offsets[s * OPERANDS + band.operand] + place];
  }
  __syncthreads();
  take(v, tile + own);
}

// Entries of one stretch of memory, which goes on before and after them.
template <typename T, int R>
__device__ __forceinline__ void fetch(T (&v)[R], const Job& job, const Band<T>& band, const Part& part) {
  const T* begin = band.begin + (part.first_system * job.n + first_read<R>() + band.shift);
#pragma unroll
  for (int r = 0; r < R; r++) v[r] = begin[32 * r];
}

template <typename T, int R>
__device__ __forceinline__ void store_together(const T (&v)[R], const Job& job, const Part& part, const Index* offsets,
                                               const int* flags, T* tile) {
  const int n = int(job.n), own = part.s * n + part.p * R, rows = n - part.p * R;
#pragma unroll
  for (int j = 0; j < R; j++) {
    if (j < rows && !part.idle) tile[own + j] = v[j];
  }
  __syncthreads();
  T* x = static_cast<T*>(job.operand[X]);
  const int size = part.here * n;
  if (job.stretch && !flags[part.width + 1]) {  // no system of the block is left out
    const int read = first_read<R>();
    x += part.first_system * job.n + read;
#pragma unroll
    for (int r = 0; r < R; r++) {
      if (read + 32 * r < size) x[32 * r] = tile[read + 32 * r];
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

template <typename T, int R, bool TOGETHER, bool CERTIFIED>
__global__ void __launch_bounds__(sizeof(T) == 16 ? 256 : 512, 1) chunks(Job job) {
  SHARED_MEMORY(memory);
  const Part part = part_of(job, TOGETHER);
  Index* offsets = reinterpret_cast<Index*>(memory);  // of the systems of the block, for every operand
  // of the systems; then, whether any is to be corrected, and whether any has no certificate
  int* flags = reinterpret_cast<int*>(offsets + part.width * OPERANDS);
  T* tile = reinterpret_cast<T*>(flags + (part.width + 5) / 4 * 4);
  Row<T>* rows = reinterpret_cast<Row<T>*>(tile);
  for (int k = threadIdx.x; k < part.width * OPERANDS; k += blockDim.x) {
    const int s = k / OPERANDS;
    offsets[k] = offset(job, k % OPERANDS, part.first_system + (s < part.here ? s : 0));
  }
  for (int k = threadIdx.x; k < part.width + 2; k += blockDim.x) flags[k] = 0;
  __syncthreads();

  const bool there = part.s < part.here && !part.idle;
  const Index* own = offsets + part.s * OPERANDS;
  const int first = part.p * R;
  Chunk<T, R> chunk;
  const Band<T> lower = lower_band<T>(job), diagonal = whole_band<T>(job, B);
  const Band<T> upper = upper_band<T>(job), right = whole_band<T>(job, D);
  if (!TOGETHER) {
    load_apart(chunk.lower, job, lower, own[lower.operand], first);
    load_apart(chunk.diagonal, job, diagonal, own[B], first);
    load_apart(chunk.upper, job, upper, own[upper.operand], first);
    load_apart(chunk.right, job, right, own[D], first);
  } else {
    const int begin = part.s * int(job.n) + first;
    const Index before = part.first_system * job.n, rest = job.systems * job.n - before;
    if (job.stretch && before > 0 && rest > blockDim.x * R) {
      fetch(chunk.lower, job, lower, part);
      fetch(chunk.diagonal, job, diagonal, part);
      fetch(chunk.upper, job, upper, part);
      fetch(chunk.right, job, right, part);
      exchange(chunk.lower, tile, begin);
      exchange(chunk.diagonal, tile, begin);
      exchange(chunk.upper, tile, begin);
      exchange(chunk.right, tile, begin);
    } else {
      load_together(chunk.lower, job, lower, part, offsets, tile, begin);
      load_together(chunk.diagonal, job, diagonal, part, offsets, tile, begin);
      load_together(chunk.upper, job, upper, part, offsets, tile, begin);
      load_together(chunk.right, job, right, part, offsets, tile, begin);
    }
  }
  const unsigned char* mask = static_cast<const unsigned char*>(job.operand[WHERE]);
  const unsigned bits = there ? kept_rows<R>(job, mask ? mask + own[WHERE] : 0, first) : 0u;
  cut(chunk, bits);

  const Row<T> head = head_of(chunk);
  bool certified = true;
  const Row<T> tail = eliminate(chunk, certified);
  __syncthreads();  // the tile has been read
  rows[threadIdx.x] = head;
  __syncthreads();
  const bool last = part.p + 1 == part.count;
  const Row<T> none = {T(0), T(0), T(0)};
  T scale;
  bool sound = true, fits;
  Row<T> row = separator_row(chunk, tail, last ? none : rows[threadIdx.x + part.stride], scale, sound);
  T separator = reduce_cyclically(row, rows, part.p, part.count, part.stride, sound);
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
    const T change = reduce_cyclically(row, rows, part.p, part.count, part.stride, sound);
    const T before = shared_before(change, separators, part);
    if (flags[part.s]) {  // what becomes of a system is not its neighbours' business
      correct(chunk, separator, before, change, certified);
    }
    if (CERTIFIED) separator_residual(chunk, separator, shared_after(chunk.right[0], separators, part), fits);
  }
  if (CERTIFIED && there && !(certified && sound && fits)) {
    atomicOr(&flags[part.s], DOUBTFUL);
    atomicOr(&flags[part.width + 1], DOUBTFUL);
  }
  __syncthreads();  // the flags are set, and the buffers have been read
  if (CERTIFIED) {
    if (there && part.p == 0 && flags[part.s] & DOUBTFUL) doubt(job, part.system);
  } else if (job.status && there && !sound) {
    atomicOr(&job.status[part.system], UNSOUND);
  }
  chunk.right[R - 1] = separator;
#pragma unroll
  for (int j = 0; j < R; j++) chunk.right[j] = bits >> (j + 1) & 1 ? chunk.right[j] : T(0);
  if (TOGETHER) {
    store_together(chunk.right, job, part, offsets, flags, tile);
  } else if (there && !(flags[part.s] & DOUBTFUL)) {
    T* place = static_cast<T*>(job.operand[X]) + own[X] + first * job.row[X];
#pragma unroll
    for (int j = 0; j < R; j++) {
      if (first + j < job.n) *place = chunk.right[j];
      place += job.row[X];
    }
  }
}
