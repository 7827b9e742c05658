// Sequences in tiles: chunks of R rows in the registers of each thread, joined by shuffles in a warp and in order beyond it.
//
// A thread finds what its chunk makes of a value before it, its warp what the chunks before make of theirs; then every value
// comes from the one before, as in a plain loop. What warps make is applied in order. A block takes the tiles of some
// sequences one after another; or, CHAINED, one tile: it tells the blocks after it what its tile makes, looks back at what those
// before have told, and tells the value behind it (decoupled look-back, Merrill and Garland 2016). Tiles are handed out in
// order, by a counter, so a block waits only for blocks that run. No bit depends on who was first.
//
// TOGETHER: rows of a sequence lie side by side, and pass through a tile in shared memory; else neighbouring threads have
// neighbouring sequences.
#include "stretches.cu"

const int WARP = 32;

// ------------------------------------------------------------------------------------------------------------------- places

// What a thread is of its block: of a sequence, counted in the block and in all, and of its rows.
struct Place {
  int s, p, warp, lane;
  int width, count, shift;  // sequences of a block, and threads of each, which are 2^shift
  int apart;         // lanes between neighbouring chunks of a sequence
  int lanes;         // of a warp that have a sequence
  int rank, warps;   // of its warp among those that have its sequence, and how many they are
  int here;          // sequences that there are
  Index first;       // of the sequences
};

__device__ __forceinline__ Place place_of(const Job& job, Index group, bool together) {
  Place at;
  const int t = int(threadIdx.x);
  at.width = int(job.width), at.count = int(job.count), at.shift = __ffs(at.count) - 1;
  at.s = together ? t >> at.shift : t & (at.width - 1);
  at.p = together ? t & (at.count - 1) : t / at.width;
  at.warp = t / WARP, at.lane = t % WARP;
  at.apart = together ? 1 : at.width < WARP ? at.width : WARP;
  at.lanes = together ? (at.count < WARP ? at.count : WARP) : WARP / at.apart;
  at.rank = at.p / at.lanes, at.warps = (at.count + at.lanes - 1) / at.lanes;
  at.first = group * at.width;
  const Index rest = job.sequences - at.first;
  at.here = rest < at.width ? int(rest) : at.width;
  return at;
}

// What is told of a tile: nothing yet; what it makes of a value; the value behind it.
enum Told { NOTHING, PART, STATE };

template <typename Rows> struct Chain {
  unsigned long long* tickets;
  int* told;
  typename Rows::Part* parts;
  typename Rows::State* states;

  __device__ __forceinline__ Chain(const Job& job, Index tiles) {
    const Index size = tiles * job.sequences;
    tickets = static_cast<unsigned long long*>(job.kept);
    told = reinterpret_cast<int*>(tickets + 2);
    states = reinterpret_cast<typename Rows::State*>(told + (size + 3) / 4 * 4);
    parts = reinterpret_cast<typename Rows::Part*>(states + size);
  }
  __device__ __forceinline__ void tell(Index k, Told what) {
    __threadfence();
    *const_cast<volatile int*>(told + k) = what;
  }
  __device__ __forceinline__ int heard(Index k) const { return fresh(told[k]); }
};

// The value before a tile, from what is told of the 32 tiles before it; of all lanes of a warp alike.
template <typename Rows>
__device__ __forceinline__ typename Rows::State look_back(const Job& job, const Chain<Rows>& chain, Index tile, Index sequence,
                                                          int lane) {
  typedef typename Rows::State State;
  const Index seen = tile - 1 - lane, k = seen * job.sequences + sequence;
  State state = Rows::begin(job, sequence);
  int nearest, told;
  for (;;) {  // until there is a value, and nothing between is missing
    told = seen >= 0 ? chain.heard(k) : STATE;
    const unsigned values = __ballot_sync(~0u, told == STATE), missing = __ballot_sync(~0u, told == NOTHING);
    const unsigned below = values ? (values & (0u - values)) - 1 : ~0u;
    if (values && !(missing & below)) {
      nearest = __ffs(int(values)) - 1;
      break;
    }
    __nanosleep(40);
  }
  __threadfence();
  if (seen >= 0 && lane == nearest) state = fresh(chain.states[k]);
  typename Rows::Part part = {};
  if (lane < nearest) part = fresh(chain.parts[k]);
  state = from_lane(state, nearest);
#pragma unroll 1
  for (int next = nearest - 1; next >= 0; next--) {
    state = Rows::apply(from_lane(part, next), state);
    if (Rows::sound(state)) continue;
    const Index from = (tile - 1 - next) * job.sequences + sequence;
    while (chain.heard(from) != STATE) __nanosleep(40);  // it is found step by step
    __threadfence();
    state = fresh(chain.states[from]);
  }
  return state;
}

// Rows of a tile, from the first on.
template <typename Rows, int R, bool TOGETHER>
__device__ __forceinline__ void load(typename Rows::Value (&v)[R], const Job& job, int operand, const Index* offsets, Index first,
                                     const Place& at) {
  typedef typename Rows::Value T;
  const T* begin = start<T>(job, operand);
  const Index step = job.row[operand];
  const T absent = Rows::absent(operand - X);
  if (TOGETHER) {
#pragma unroll
    for (int r = 0; r < R; r++) {
      const int k = r * int(blockDim.x) + int(threadIdx.x), s = k / R >> at.shift, i = k - (s * R << at.shift);
      const bool there = s < at.here && first + i < job.n;
      v[r] = there ? begin[offsets[s] + (first + i) * step] : absent;
    }
  } else {
    const Index own = first + at.p * R;
    const T* place = begin + offsets[at.s] + own * step;
    const Index rest = at.s < at.here ? job.n - own : 0;
#pragma unroll
    for (int r = 0; r < R; r++) v[r] = r < rest ? place[r * step] : absent;
  }
}

// From the order of memory to chunks.
template <typename T, int R> __device__ __forceinline__ void exchange(T (&v)[R], T* tile) {
  __syncthreads();  // the tile may still be in use
#pragma unroll
  for (int r = 0; r < R; r++) tile[r * int(blockDim.x) + int(threadIdx.x)] = v[r];
  __syncthreads();
#pragma unroll
  for (int r = 0; r < R; r++) v[r] = tile[int(threadIdx.x) * R + r];
}

template <typename Rows, int R, bool TOGETHER>
__device__ __forceinline__ void store(typename Rows::Value (&v)[R], const Job& job, const Index* offsets, Index first,
                                      const Place& at, typename Rows::Value* tile) {
  typedef typename Rows::Value T;
  T* y = static_cast<T*>(job.operand[Y]);
  const Index step = job.row[Y];
  if (TOGETHER) {
#pragma unroll
    for (int r = 0; r < R; r++) tile[int(threadIdx.x) * R + r] = v[r];
    __syncthreads();
#pragma unroll
    for (int r = 0; r < R; r++) {
      const int k = r * int(blockDim.x) + int(threadIdx.x), s = k / R >> at.shift, i = k - (s * R << at.shift);
      if (s < at.here && first + i < job.n) y[offsets[s] + (first + i) * step] = tile[k];
    }
  } else {
    const Index own = first + at.p * R;
    T* place = y + offsets[at.s] + own * step;
    const Index rest = at.s < at.here ? job.n - own : 0;
#pragma unroll
    for (int r = 0; r < R; r++) {
      if (r < rest) place[r * step] = v[r];
    }
  }
}

enum Mark { UNSOUND = 1, UNTOLD = 2 };  // a sequence's tile is computed step by step; and nothing is told of it before

template <template <typename, int> class RowsOf, typename T, int R, bool TOGETHER, bool CHAINED>
__device__ __forceinline__ void scan(const Job& job) {
  typedef RowsOf<T, R> Rows;
  typedef typename Rows::Part Part;
  typedef typename Rows::State State;
  SHARED_MEMORY(memory);
  const int rows = int(job.count) * R;
  const Index tiles = (job.n + rows - 1) / rows, groups = (job.sequences + job.width - 1) / job.width;
  Index* numbers = reinterpret_cast<Index*>(memory);
  Index tile = 0, group = blockIdx.x;
  Chain<Rows> chain(job, tiles);
  if (CHAINED) {
    if (threadIdx.x == 0) numbers[0] = Index(atomicAdd(chain.tickets, 1ULL));
    __syncthreads();
    tile = numbers[0] / groups, group = numbers[0] % groups;
    __syncthreads();
  }
  const Place at = place_of(job, group, TOGETHER);
  const Index sequence = at.first + at.s;
  const int entry = at.rank * at.width + at.s;  // of the totals
  Index* offsets = numbers;  // of Y, X and the coefficient
  Part* totals = reinterpret_cast<Part*>(offsets + 3 * at.width);
  State* states = reinterpret_cast<State*>(totals + at.warps * at.width);  // before the tile
  T* values = reinterpret_cast<T*>(states + at.width);
  int* marks = reinterpret_cast<int*>(values + (TOGETHER ? blockDim.x * R : 0));  // of the sequences, then of any
  for (int k = threadIdx.x; k < 3 * at.width; k += blockDim.x) {
    const int s = k % at.width, operand = k / at.width;
    offsets[k] = s < at.here && operand <= Rows::operands ? offset(job, operand, at.first + s) : 0;
  }
  for (int k = threadIdx.x; k < at.width; k += blockDim.x) {
    if (!CHAINED) states[k] = Rows::begin(job, at.first + (k < at.here ? k : 0));
  }
  const int chunk = at.lane / at.apart % at.lanes;  // its place among those of its warp

#pragma unroll 1
  for (;; tile++) {
    const Index first = tile * rows;
    for (int k = threadIdx.x; k <= at.width; k += blockDim.x) marks[k] = 0;  // all have read them, or they are 0
    __syncthreads();
    Rows chunk_rows;
    load<Rows, R, TOGETHER>(chunk_rows.x, job, X, offsets + at.width, first, at);
    if constexpr (Rows::operands == 2) {
      load<Rows, R, TOGETHER>(chunk_rows.a, job, COEFFICIENT, offsets + 2 * at.width, first, at);
      if (TOGETHER) exchange(chunk_rows.a, values);
      if (!job.given && first + at.p == 0) chunk_rows.a[0] = T(0);
    }
    if (TOGETHER) exchange(chunk_rows.x, values);

    // what the chunks of a warp make, up to each
    Part own = chunk_rows.part();
    bool sound = Rows::sound(own);
#pragma unroll 1
    for (int step = 1; step < at.lanes; step *= 2) {
      const Part before = from_lane(own, at.lane - step * at.apart);
      if (chunk >= step) own = Rows::join(before, own);
      sound = sound && Rows::sound(own);
    }
    if (!sound && at.s < at.here) {
      atomicOr(&marks[at.s], UNSOUND | UNTOLD);
      atomicOr(&marks[at.width], UNSOUND);
    }
    if (chunk == at.lanes - 1) totals[entry] = own;
    __syncthreads();

    if (CHAINED) {
      for (int s = at.warp; s < at.here; s += int(blockDim.x) / WARP) {
        const Index k = tile * job.sequences + at.first + s;
        Part total = totals[s];
        bool told = !(marks[s] & UNTOLD);
        for (int q = 1; q < at.warps && told; q++) total = Rows::join(total, totals[q * at.width + s]);
        told = told && Rows::sound(total);
        if (told && at.lane == 0) {
          chain.parts[k] = total;
          chain.tell(k, PART);
        }
        const State before = look_back(job, chain, tile, at.first + s, at.lane);
        const State behind = Rows::apply(total, before);
        told = told && Rows::sound(behind);
        if (at.lane == 0) {
          states[s] = before;
          if (told) {
            chain.states[k] = behind;
            chain.tell(k, STATE);
          } else {
            marks[s] = UNSOUND | UNTOLD, atomicOr(&marks[at.width], UNSOUND);
          }
        }
        __syncwarp();
      }
      __syncthreads();
    }

    // the value before the chunk, and behind the tile
    State state = states[at.s], before = state;
#pragma unroll 1
    for (int q = 0; q < at.warps; q++) {
      if (q == at.rank) before = state;
      state = Rows::apply(totals[q * at.width + at.s], state);
      sound = sound && Rows::sound(state);
    }
    const Part others = from_lane(own, at.lane - at.apart);
    if (chunk > 0) before = Rows::apply(others, before);
    sound = sound && Rows::sound(before);
    if (!sound && at.s < at.here) {
      atomicOr(&marks[at.s], UNSOUND);
      atomicOr(&marks[at.width], UNSOUND);
    }
    __syncthreads();
    const bool alone = marks[at.s] & UNSOUND;
    if (marks[at.width]) {  // of all threads alike
#pragma unroll 1
      for (int p = 0; p < at.count; p++) {
        if (at.p == p && alone) {
          State y = before = states[at.s];
#pragma unroll
          for (int j = 0; j < R; j++) chunk_rows.step(y, j);
          states[at.s] = y;
        }
        __syncthreads();
      }
      if (CHAINED && at.p == 0 && at.s < at.here && marks[at.s] & UNTOLD) {
        const Index k = tile * job.sequences + sequence;
        chain.states[k] = states[at.s];
        chain.tell(k, STATE);
      }
    }
    if (!CHAINED && !alone && at.p == 0) states[at.s] = state;

    T y[R];
#pragma unroll
    for (int j = 0; j < R; j++) {
      chunk_rows.step(before, j);
      y[j] = Rows::value(before);
    }
    store<Rows, R, TOGETHER>(y, job, offsets, first, at, values);
    if (CHAINED || tile + 1 == tiles) return;
  }
}

template <typename T, int R, bool TOGETHER, bool CHAINED> __global__ void __launch_bounds__(256, 2) linear_tiles(Job job) {
  scan<LinearRows, T, R, TOGETHER, CHAINED>(job);
}

template <typename T, int R, bool TOGETHER, bool CHAINED>
__global__ void __launch_bounds__(256, 2) logarithmic_tiles(Job job) {
  scan<LogarithmicRows, T, R, TOGETHER, CHAINED>(job);
}

template <typename T, int R, bool TOGETHER, bool CHAINED> __global__ void __launch_bounds__(256, 1) weighted_tiles(Job job) {
  scan<WeightedRows, T, R, TOGETHER, CHAINED>(job);
}
