// Many systems, a thread for each: Thomas elimination, certified row by row.
//
// N: the most rows whose c' and d' are kept in registers, which makes one read and one write of global memory; 0: any
// number, kept in scratch memory, 4 words an unknown more. Rows are taken in pieces of K. TOGETHER: rows of a system lie
// side by side; pieces of all systems of a block pass through tiles in shared memory, 32 bytes of a system at a time. Of long
// systems whose rows lie apart a piece is read while the one before it is worked on.
#include "chunk.cu"

// Rows of a piece, taken by all threads of a block in the order of memory, into a tile.
template <typename T, int K>
__device__ __forceinline__ void fetch(T (&v)[K], const Band<T>& band, const Index* offsets, Index first, Index n) {
#pragma unroll
  for (int r = 0; r < K; r++) {
    const int k = r * blockDim.x + threadIdx.x, s = k / K;
    const Index place = within(first + k % K + band.shift, Index(0), n - 1) * band.row;
    v[r] = band.begin[offsets[s * OPERANDS + band.operand] + place];
  }
}

template <typename T, int K> __device__ __forceinline__ void put_down(const T (&v)[K], T* tile) {
#pragma unroll
  for (int r = 0; r < K; r++) {
    const int k = r * blockDim.x + threadIdx.x;
    tile[k / K * (K + 1) + k % K] = v[r];
  }
}

template <typename T, int K> __device__ __forceinline__ void pick_up(T (&v)[K], const T* tile) {
#pragma unroll
  for (int j = 0; j < K; j++) v[j] = tile[threadIdx.x * (K + 1) + j];
}

// The sweep down: what is carried from row to row.
template <typename T> struct Carried {
  T upper, right;  // c' and d' of the row before
  bool kept, sound;  // sound: all rows so far have a certificate, or where none is wanted no zero pivot
  bool beyond;       // ... of range, any reciprocal (`one_over`)
};

// One row eliminated; the row's neighbours are there or not as the mask says.
template <typename T, bool CERTIFIED>
__device__ __forceinline__ void sweep(Carried<T>& carried, bool own, bool next, T a, T b, T c, T d) {
  const bool before = own && carried.kept;
  a = before ? a : T(0);
  b = own ? b : T(1);
  const T grown = a * carried.upper, pivot = b - grown, scale = one_over(pivot, carried.beyond);
  carried.sound = carried.sound && (CERTIFIED ? certifies(grown, pivot, b) : !(pivot == T(0)));
  carried.right = own ? (d - a * carried.right) * scale : T(0);
  carried.upper = own && next ? c * scale : T(0);
  carried.sound = carried.sound && (!CERTIFIED || lossless(carried.upper, own && next ? c : T(0)));
  carried.kept = own;
}

template <typename T> __device__ __forceinline__ bool is_sound(const Carried<T>& carried) {
  return carried.sound && !carried.beyond;
}

// A system of any length whose rows lie apart, by one thread, with c' and d' in scratch memory: those of row i are words 2 i
// and 2 i + 1 of its own, for as many rows as whole pieces have.
template <typename T, bool CERTIFIED> __device__ __forceinline__ void solve_long(const Job& job) {
  const int K = 64 / sizeof(T);
  const Index system = Index(blockIdx.x) * blockDim.x + threadIdx.x, all = job.systems;
  if (system >= all) return;
  const Begin at = {offset(job, job.transpose ? C : A, system), offset(job, B, system), offset(job, job.transpose ? A : C, system),
                    offset(job, D, system)};
  const unsigned char* mask = mask_of(job, system);
  T* kept = static_cast<T*>(job.kept) + system;
  Carried<T> carried = {T(0), T(0), false, true, false};
  Chunk<T, K> next;
  load_rows(next, job, at, Index(0));
#pragma unroll 1
  for (Index first = 0; first < job.n; first += K) {
    const Chunk<T, K> piece = next;
    if (first + K < job.n) load_rows(next, job, at, first + K);
    const unsigned bits = kept_rows<K>(job, mask, first);
#pragma unroll
    for (int j = 0; j < K; j++) {
      sweep<T, CERTIFIED>(carried, bits >> (j + 1) & 1, bits >> (j + 2) & 1, piece.lower[j], piece.diagonal[j], piece.upper[j],
                          piece.right[j]);
      kept[0] = carried.upper, kept[all] = carried.right;
      kept += 2 * all;
    }
  }
  const bool sound = is_sound(carried);
  if (CERTIFIED && !sound) {
    doubt(job, system);
    return;
  }
  const T outside = sound ? T(0) : not_a_number(T(0));  // a singular system is NaN throughout
  T x = outside, uppers[K], rights[K];
  T* destination = static_cast<T*>(job.operand[X]) + offset(job, X, system);
  auto read_kept = [&] {
#pragma unroll
    for (int j = K - 1; j >= 0; j--) {
      kept -= 2 * all;
      uppers[j] = kept[0], rights[j] = kept[all];
    }
  };
  read_kept();
#pragma unroll 1
  for (Index first = (job.n - 1) / K * K; first >= 0; first -= K) {
    T v[K], upper[K];
#pragma unroll
    for (int j = 0; j < K; j++) v[j] = rights[j], upper[j] = uppers[j];
    if (first > 0) read_kept();
    const unsigned bits = kept_rows<K>(job, mask, first);
#pragma unroll
    for (int j = K - 1; j >= 0; j--) v[j] = x = bits >> (j + 1) & 1 ? v[j] - upper[j] * x : outside;
    store_apart(v, job, destination, first);
  }
}

template <typename T, int N, bool TOGETHER, bool CERTIFIED>
__global__ void __launch_bounds__(128, 1) thomas(Job job) {
  SHARED_MEMORY(memory);
  if constexpr (N == 0 && !TOGETHER) return solve_long<T, CERTIFIED>(job);
  const int K = 32 / sizeof(T), PIECES = N / K;
  Index* offsets = reinterpret_cast<Index*>(memory);
  T* tile = reinterpret_cast<T*>(offsets + blockDim.x * OPERANDS);
  const int words = blockDim.x * (K + 1);  // of a tile
  const Index first_system = Index(blockIdx.x) * blockDim.x, system = first_system + threadIdx.x;
  const int here = int(job.systems - first_system < blockDim.x ? job.systems - first_system : Index(blockDim.x));
  const bool there = int(threadIdx.x) < here;
  Index* own = offsets + threadIdx.x * OPERANDS;
#pragma unroll
  for (int k = 0; k < OPERANDS; k++) own[k] = offset(job, k, there ? system : first_system);
  __syncthreads();
  const unsigned char* mask = static_cast<const unsigned char*>(job.operand[WHERE]);
  mask = mask && there ? mask + own[WHERE] : 0;
  const Band<T> lower = lower_band<T>(job), diagonal = whole_band<T>(job, B);
  const Band<T> upper = upper_band<T>(job), right = whole_band<T>(job, D);

  T uppers[N > 0 ? N : 1], rights[N > 0 ? N : 1];
  T* kept = static_cast<T*>(job.kept) + system;  // c' and d' of row i: words 2 i and 2 i + 1
  Carried<T> carried = {T(0), T(0), false, true, false};
  const int pieces = int((job.n + K - 1) / K);
#pragma unroll(N > 0 ? PIECES : 1)
  for (int piece = 0; piece < (N > 0 ? PIECES : pieces); piece++) {
    if (piece >= pieces) continue;
    const Index first = Index(piece) * K;
    T a[K], b[K], c[K], d[K];
    if (TOGETHER) {
      fetch<T, K>(a, lower, offsets, first, job.n);
      fetch<T, K>(b, diagonal, offsets, first, job.n);
      fetch<T, K>(c, upper, offsets, first, job.n);
      fetch<T, K>(d, right, offsets, first, job.n);
      __syncthreads();
      put_down<T, K>(a, tile);
      put_down<T, K>(b, tile + words);
      put_down<T, K>(c, tile + 2 * words);
      put_down<T, K>(d, tile + 3 * words);
      __syncthreads();
      pick_up<T, K>(a, tile);
      pick_up<T, K>(b, tile + words);
      pick_up<T, K>(c, tile + 2 * words);
      pick_up<T, K>(d, tile + 3 * words);
    } else {
      load_apart<T, K>(a, job, lower, own[lower.operand], first);
      load_apart<T, K>(b, job, diagonal, own[B], first);
      load_apart<T, K>(c, job, upper, own[upper.operand], first);
      load_apart<T, K>(d, job, right, own[D], first);
    }
#pragma unroll
    for (int j = 0; j < K; j++) {
      const Index i = first + j;
      if (i >= job.n) continue;
      sweep<T, CERTIFIED>(carried, keeps(job, mask, i), keeps(job, mask, i + 1), a[j], b[j], c[j], d[j]);
      if (N > 0) {
        uppers[piece * K + j] = carried.upper, rights[piece * K + j] = carried.right;
      } else if (there) {
        kept[2 * i * job.systems] = carried.upper, kept[(2 * i + 1) * job.systems] = carried.right;
      }
    }
  }
  const bool sound = is_sound(carried), good = there && (!CERTIFIED || sound);
  if (CERTIFIED && there && !good) doubt(job, system);
  int* flags = reinterpret_cast<int*>(tile + 4 * words);
  flags[threadIdx.x] = good;
  const T outside = CERTIFIED || sound ? T(0) : not_a_number(T(0));  // a singular system is NaN throughout
  T x = outside;
  T* destination = static_cast<T*>(job.operand[X]);
#pragma unroll(N > 0 ? PIECES : 1)
  for (int piece = (N > 0 ? PIECES : pieces) - 1; piece >= 0; piece--) {
    if (piece >= pieces) continue;
    const Index first = Index(piece) * K;
    T v[K];
#pragma unroll
    for (int j = K - 1; j >= 0; j--) {
      const Index i = first + j;
      v[j] = T(0);
      if (i >= job.n) continue;
      if (N > 0) {
        x = rights[piece * K + j] - uppers[piece * K + j] * x;
      } else if (there) {
        x = kept[(2 * i + 1) * job.systems] - kept[2 * i * job.systems] * x;
      }
      v[j] = x = keeps(job, mask, i) ? x : outside;
    }
    if (TOGETHER) {
      __syncthreads();
#pragma unroll
      for (int j = 0; j < K; j++) tile[threadIdx.x * (K + 1) + j] = v[j];
      __syncthreads();
#pragma unroll
      for (int r = 0; r < K; r++) {
        const int k = r * blockDim.x + threadIdx.x, s = k / K;
        const Index i = first + k % K;
        T* place = destination + offsets[s * OPERANDS + X] + i * job.row[X];
        if (s < here && flags[s] && i < job.n) *place = tile[s * (K + 1) + k % K];
      }
    } else if (good) {
#pragma unroll
      for (int j = 0; j < K; j++) {
        if (first + j < job.n) destination[own[X] + (first + j) * job.row[X]] = v[j];
      }
    }
  }
}
