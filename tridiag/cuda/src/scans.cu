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
#include "sequences.cu"
#include "logarithms.cu"

const int WARP = 32;
const double TRUSTED = 1024;  // products of coefficients up to this lose little to cancellation

// Products smaller than `small` are scaled up by its inverse.
__device__ __forceinline__ float small(float) { return 3.5527136788005009e-15f; }  // 2^-48
__device__ __forceinline__ double small(double) { return 3.8725919148493183e-121; }  // 2^-400
template <typename R> __device__ __forceinline__ R small(Complex<R>) { return small(R(0)); }

__device__ __forceinline__ float times(float x, float y) { return x * y; }
__device__ __forceinline__ double times(double x, double y) { return x * y; }
template <typename R> __device__ __forceinline__ Complex<R> times(Complex<R> x, R y) { return Complex<R>(x.re * y, x.im * y); }

template <typename T> __device__ __forceinline__ bool is_finite(T x) { return size(x) - size(x) == Real<T>(0); }

// ------------------------------------------------------------------------------------------- from lane to lane, from block to block

template <typename T> __device__ __forceinline__ T from_lane(T x, int lane) { return __shfl_sync(~0u, x, lane); }
template <typename R> __device__ __forceinline__ Complex<R> from_lane(Complex<R> x, int lane) {
  return Complex<R>(from_lane(x.re, lane), from_lane(x.im, lane));
}

// What other blocks have written, past the caches that they do not share.
template <typename T> __device__ __forceinline__ T fresh(const T& x) { return *const_cast<const volatile T*>(&x); }
template <typename R> __device__ __forceinline__ Complex<R> fresh(const Complex<R>& x) {
  return Complex<R>(fresh(x.re), fresh(x.im));
}

// ----------------------------------------------------------------------------------------------- y[t] = a[t] y[t-1] + x[t]

// What some steps make of the value before them: factor small^times y + value.
template <typename T> struct Stretch {
  T factor, value;
  int times;
};
template <typename T> __device__ __forceinline__ Stretch<T> from_lane(Stretch<T> x, int lane) {
  return {from_lane(x.factor, lane), from_lane(x.value, lane), from_lane(x.times, lane)};
}
template <typename T> __device__ __forceinline__ Stretch<T> fresh(const Stretch<T>& x) {
  return {fresh(x.factor), fresh(x.value), fresh(x.times)};
}

// The factor in the range that products of two leave by no underflow.
template <typename T> __device__ __forceinline__ void rescale(T& factor, int& count) {
  typedef Real<T> R;
  const R up = R(1) / small(R(0));
  if (count > 0 && size(factor) >= R(1)) factor = times(factor, small(R(0))), count--;
#pragma unroll 1
  while (size(factor) < small(R(0)) && !(factor == T(0))) factor = times(factor, up), count++;
}

template <typename T, int R> struct LinearRows {
  typedef T Value;
  typedef Stretch<T> Part;
  typedef T State;
  static const int operands = 2;
  T x[R], a[R];

  static __device__ __forceinline__ T absent(int operand) { return operand ? T(1) : T(0); }

  __device__ __forceinline__ Part part() {
    Part found = {a[0], x[0], 0};
    Real<T> least = size(a[0]);
#pragma unroll
    for (int j = 1; j < R; j++) {
      found.factor = found.factor * a[j];
      found.value = x[j] + a[j] * found.value;
      least = size(found.factor) < least ? size(found.factor) : least;
    }
    if (least < small(Real<T>(0))) {  // digits may be lost
      found.factor = T(1);
#pragma unroll
      for (int j = 0; j < R; j++) {
        T next = a[j];
        rescale(next, found.times);
        found.factor = found.factor * next;
        rescale(found.factor, found.times);
      }
    }
    return found;
  }
  static __device__ __forceinline__ State apply(const Part& part, State y) {
    if (part.times == 0) return fused(part.factor, y, part.value);
    T total = part.factor * y;
#pragma unroll 1
    for (int k = 0; k < part.times && !(total == T(0)); k++) total = times(total, small(Real<T>(0)));
    return total + part.value;
  }
  static __device__ __forceinline__ Part join(const Part& before, const Part& after) {
    Part found = {before.factor * after.factor, apply(after, before.value), before.times + after.times};
    rescale(found.factor, found.times);
    return found;
  }
  static __device__ __forceinline__ bool sound(const Part& part) {
    return size(part.factor) <= Real<T>(TRUSTED) && is_finite(part.value);
  }
  static __device__ __forceinline__ bool sound(const State& y) { return is_finite(y); }
  static __device__ __forceinline__ State begin(const Job& job, Index sequence) {
    return job.given ? *first_row<T>(job, INIT, sequence) : T(0);
  }
  __device__ __forceinline__ void step(State& y, int j) { y = x[j] + a[j] * y; }
  static __device__ __forceinline__ T value(const State& y) { return y; }
};

// ------------------------------------------------------------------------------------------------------------ logcumsumexp

template <typename T> __device__ __forceinline__ Exponential<T> from_lane(Exponential<T> x, int lane) {
  return {from_lane(x.scale, lane), from_lane(x.high, lane), from_lane(x.low, lane), from_lane(x.largest, lane), T(0), T(0)};
}
template <typename T> __device__ __forceinline__ Exponential<T> fresh(const Exponential<T>& x) {
  return {fresh(x.scale), fresh(x.high), fresh(x.low), fresh(x.largest), T(0), T(0)};
}

template <typename T, int R> struct LogarithmicRows {
  typedef T Value;
  typedef Exponential<T> Part, State;
  static const int operands = 1;
  T x[R], m[R];

  static __device__ __forceinline__ T absent(int) { return natural_logarithm(T(0)); }

  __device__ __forceinline__ Part part() {
    Part found = no_exponential<T>();
#pragma unroll
    for (int j = 0; j < R; j++) {
      T k;
      m[j] = mantissa(x[j], T(0), k);
      found = added(found, m[j], k, x[j]);
    }
    return found;
  }
  static __device__ __forceinline__ State apply(const Part& part, const State& y) { return merged(y, part); }
  static __device__ __forceinline__ Part join(const Part& before, const Part& after) { return apply(after, before); }
  static __device__ __forceinline__ bool sound(const Part&) { return true; }
  static __device__ __forceinline__ State begin(const Job&, Index) { return no_exponential<T>(); }
  __device__ __forceinline__ void step(State& y, int j) {
    T k;
    reduced(clamp(x[j], far<T>()), k);
    y = added(y, m[j], k, x[j]);
  }
  static __device__ __forceinline__ T value(const State& y) { return logarithm_of(y); }
};

// --------------------------------------------------------------------------------------------------- log_linear_recurrence

template <typename T> struct Weighted {
  Exponential<T> sum;
};
template <typename T> __device__ __forceinline__ Weighted<T> from_lane(const Weighted<T>& x, int lane) {
  Exponential<T> found = from_lane(x.sum, lane);
  found.shift = from_lane(x.sum.shift, lane), found.shift_low = from_lane(x.sum.shift_low, lane);
  return {found};
}
template <typename T> __device__ __forceinline__ Weighted<T> fresh(const Weighted<T>& x) {
  Exponential<T> found = fresh(x.sum);
  found.shift = fresh(x.sum.shift), found.shift_low = fresh(x.sum.shift_low);
  return {found};
}

// What some steps make of the value before them: log(exp(log_a + log_a_low + y) + exp(own)).
template <typename T> struct WeightedStretch {
  Weighted<T> own;
  T log_a, log_a_low;
};
template <typename T> __device__ __forceinline__ WeightedStretch<T> from_lane(const WeightedStretch<T>& x, int lane) {
  return {from_lane(x.own, lane), from_lane(x.log_a, lane), from_lane(x.log_a_low, lane)};
}
template <typename T> __device__ __forceinline__ WeightedStretch<T> fresh(const WeightedStretch<T>& x) {
  return {fresh(x.own), fresh(x.log_a), fresh(x.log_a_low)};
}

template <typename T, int R> struct WeightedRows {
  typedef T Value;
  typedef WeightedStretch<T> Part;
  typedef Weighted<T> State;
  static const int operands = 2;
  T x[R], a[R];

  static __device__ __forceinline__ T absent(int operand) { return operand ? T(0) : natural_logarithm(T(0)); }

  __device__ __forceinline__ Part part() {
    Part found = {{no_exponential<T>()}, T(0), T(0)};
#pragma unroll
    for (int j = 0; j < R; j++) {
      step(found.own, j);
      accumulate(found, a[j], T(0));
    }
    return found;
  }
  static __device__ __forceinline__ void accumulate(Part& part, T log_a, T low) {
    T error;
    part.log_a = two_sum(part.log_a, log_a, error);
    part.log_a_low = is_finite(part.log_a) ? part.log_a_low + (low + error) : T(0);
  }
  static __device__ __forceinline__ State apply(const Part& part, State y) {
    y.sum = times_exponential(y.sum, part.log_a, part.log_a_low);
    return {merged(y.sum, shifted_as(y.sum, part.own.sum))};
  }
  static __device__ __forceinline__ Part join(const Part& before, const Part& after) {
    Part found = {apply(after, before.own), before.log_a, before.log_a_low};
    accumulate(found, after.log_a, after.log_a_low);
    return found;
  }
  // Sums of log_a that are NaN or infinite do not tell what each of them does.
  static __device__ __forceinline__ bool sound(const Part& part) { return is_finite(part.log_a) && sound(part.own); }
  static __device__ __forceinline__ bool sound(const State& y) { return y.sum.largest < -natural_logarithm(T(0)); }
  static __device__ __forceinline__ State begin(const Job& job, Index sequence) {
    return {job.given ? exponential_of(*first_row<T>(job, INIT, sequence)) : no_exponential<T>()};
  }
  __device__ __forceinline__ void step(State& y, int j) { y.sum = plus_exponential(times_exponential(y.sum, a[j]), x[j]); }
  static __device__ __forceinline__ T value(const State& y) { return logarithm_of(y.sum); }
};

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
